"""Whether the first line of a CSV file names the columns."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..data.types import warn
from ..exceptions import InvalidFileError

MISSING = {"na", "n/a", "n.a.", "nan", "null", "nil", "none", "missing", "void", "n/d", "nd", "div/0!", "value!", "ref!"}
MISSING |= {"true", "false", "\\n"}  # nobody names a column like that, but a first row may hold it
DASHES = "[\u2010-\u2015\u2212\u00ad\ufe58\ufe63\uff0d]"  # that stand for a minus
NOTATION = r"\(?[-+]?[0-9.,]*[0-9][0-9.,]*([EeDd][-+]?[0-9]+)?[-+)]?"  # of numbers, once ornaments are taken away


def is_number(field: str) -> bool:
    """Whether Python reads a field as a number, which may be NaN or infinite."""
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


def has_header(path: Path, names: list[str], line: int, is_quoted: bool, after: Callable[[], Any]) -> bool:
    """Whether the first line names the columns. `is_quoted`: all its fields are, but not all of the next line, `after`.

    A line of text alone does, a line of numbers alone does not, unless it counts 0,1,2,... as pandas names columns. Lines with
    both are doubtful: those that could be a row are an error, since nobody would notice that it is lost.
    """
    kinds = [_kind_of(name) for name in names]
    numbers = [name for name, kind in zip(names, kinds, strict=True) if kind == "number"]
    if len(numbers) == len(names):
        return _numbers_are_names(path, names, line, is_quoted)
    if kinds[0] == "empty" and len(names) > 2 and numbers == [str(j) for j in range(len(names) - 1)]:
        why = "numbers from 0 on after an empty field, as pandas names columns"
        _warn_of_choice(path, line, "the names of columns", why, "True", "False")
        return True
    if "text" in kinds:
        if not numbers and not {"missing", "notation"} & set(kinds):
            if all(re.match(r"\W*\d", name) for name in names if name):
                _warn_of_choice(path, line, "the names of columns", "text that begins with numbers", "True", "False")
            return True
        could_be_names = "notation" not in kinds and not (numbers and "missing" in kinds) and _could_be_names(numbers)
        if numbers and _looks_alike(names, after()):
            if could_be_names:
                _warn_of_choice(path, line, "a row", "text and numbers where the next line has them", "False", "True")
            return False
        if could_be_names:
            why = "text among what could be numbers or missing values"
            _warn_of_choice(path, line, "the names of columns", why, "True", "False")
            return True
    elif set(kinds) == {"empty"}:
        return False  # and is refused as a row
    j = next(j for j, kind in enumerate(kinds) if kind != "number")
    field = "is empty" if kinds[j] == "empty" else f"is {names[j][:40]!r}, no number in digits from 0 to 9"
    raise InvalidFileError(
        f"{path}: line {line}, column {j} {field}, but the line looks like a row of numbers: put a number there, or say "
        "header=True if the line names the columns, header=False if it is a row."
    )


def _kind_of(field: str) -> str:
    """What a field of a first line is: a number, one in another notation, empty, a mark for a missing value, or text."""
    if is_number(field) and field.isascii():
        return "number"
    if not field:
        return "empty"
    if field.strip("#<>[]()'\"").lower() in MISSING or not any(map(str.isalnum, field)):
        return "missing"
    plain = "".join(str(unicodedata.decimal(c, c)) for c in unicodedata.normalize("NFKC", field) if not _is_ornament(c))
    return "notation" if re.fullmatch(NOTATION, re.sub(DASHES, "-", plain)) else "text"


def _is_ornament(character: str) -> bool:
    """Whether it may stand in a number for people: currencies, spaces, percents, bounds and separators of thousands."""
    return unicodedata.category(character) in ("Sc", "Zs", "Cf") or character in "%'\u2019_<>~\u2264\u2265\u2248\u00b1"


def _could_be_names(numbers: list[str]) -> bool:
    """Whether numbers are like names of columns: years, say, or pixels. Those of a row have points, signs or equals."""
    return all(map(str.isdecimal, numbers)) and len(set(numbers)) == len(numbers)


def _warn_of_choice(path: Path, line: int, what: str, why: str, right: str, wrong: str) -> None:
    said = f"say header={right} if that is right, header={wrong} if it is not"
    warn(f"{path}: line {line} is taken for {what}, since it has {why}: {said}.", UserWarning)


def _numbers_are_names(path: Path, names: list[str], line: int, is_quoted: bool) -> bool:
    """Whether a line of numbers alone names the columns: numbers in quotes do, and so does 0,1,2,... as pandas writes it.

    Other numbers at equal steps, such as years, may be names as well as a row. They are a row, and a warning says so.
    """
    if is_quoted:
        _warn_of_choice(path, line, "the names of columns", "numbers in quotes, unlike the next line", "True", "False")
        return True
    is_count = len(names) > 2 and names == [str(j) for j in range(len(names))]
    if is_count or _has_equal_steps(names):
        what, header = ("the names of columns", "False") if is_count else ("a row", "True")
        shown = ",".join(names[:3]) + ", ..." * (len(names) > 3)
        warn(f"{path}: its first line, {shown}, is taken for {what}: say header={header} if it is not.", UserWarning)
    return is_count


def _has_equal_steps(names: list[str]) -> bool:
    """Whether numbers are like names of columns: at equal steps, or as pandas names one column or two."""
    if len(names) < 3:
        return names in (["0"], ["0", "1"])
    if not all(re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,3})?", name) for name in names):  # as people write them
        return False
    numbers = list(map(float, names))
    steps = [b - a for a, b in pairwise(numbers)]
    return steps[0] != 0 and all(math.isclose(step, steps[0], rel_tol=1e-6) for step in steps)


def _looks_alike(fields: list[str], after: list[str] | None) -> bool:
    """Whether the same fields are text in the next line. Then the first one is a row, too, that has some text in it."""
    return after is not None and list(map(is_number, fields)) == list(map(is_number, after))
