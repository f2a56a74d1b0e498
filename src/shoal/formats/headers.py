"""Decide whether the first line of a CSV file is a header."""

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

# Fields that a row may hold instead of a number, and that are not plausible column names.
MISSING = {"na", "n/a", "n.a.", "nan", "null", "nil", "none", "missing", "void", "n/d", "nd", "div/0!", "value!", "ref!"}
MISSING |= {"true", "false", "\\n"}
DASHES = "[\u2010-\u2015\u2212\u00ad\ufe58\ufe63\uff0d]"  # characters used as a minus sign
NOTATION = r"\(?[-+]?[0-9.,]*[0-9][0-9.,]*([EeDd][-+]?[0-9]+)?[-+)]?"  # a number, after symbols and spaces were removed


def is_number(field: str) -> bool:
    """Return whether Python parses a field as a number, which may be NaN or infinite."""
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


def has_header(path: Path, names: list[str], line: int, is_quoted: bool, after: Callable[[], Any]) -> bool:
    """Return whether the first line, with fields `names`, is a header.

    A line of text is a header. A line of numbers is not, unless it is 0,1,2,..., the default column names of pandas. A line
    with both is ambiguous: if it could be a row, it is an error, since a row that is taken for a header is lost silently.

    `is_quoted` states that all fields of the line are quoted, but not all of the next line; `after` returns the fields of the
    next line.
    """
    kinds = [_kind_of(name) for name in names]
    numbers = [name for name, kind in zip(names, kinds, strict=True) if kind == "number"]
    if len(numbers) == len(names):
        return _numbers_are_names(path, names, line, is_quoted)
    if kinds[0] == "empty" and len(names) > 2 and numbers == [str(j) for j in range(len(names) - 1)]:
        why = "an empty field and the numbers from 0, the default column names of pandas"
        _warn_of_choice(path, line, "a header", why, "True", "False")
        return True
    if "text" in kinds:
        if not numbers and not {"missing", "notation"} & set(kinds):
            if all(re.match(r"\W*\d", name) for name in names if name):
                _warn_of_choice(path, line, "a header", "text that begins with numbers", "True", "False")
            return True
        could_be_names = "notation" not in kinds and not (numbers and "missing" in kinds) and _could_be_names(numbers)
        if numbers and _looks_alike(names, after()):
            if could_be_names:
                _warn_of_choice(path, line, "a row", "text and numbers in the same columns as the next line", "False", "True")
            return False
        if could_be_names:
            why = "text and fields that could be numbers or missing values"
            _warn_of_choice(path, line, "a header", why, "True", "False")
            return True
    elif set(kinds) == {"empty"}:
        return False  # the parser then reports the line as an invalid row
    raise _ambiguous(path, names, kinds, line)


def _ambiguous(path: Path, names: list[str], kinds: list[str], line: int) -> InvalidFileError:
    """Return the error for a line that is neither clearly a header nor a valid row."""
    j = next(j for j, kind in enumerate(kinds) if kind != "number")
    field = "is empty" if kinds[j] == "empty" else f"is {names[j][:40]!r}, not a number in digits from 0 to 9"
    return InvalidFileError(
        f"{path}: line {line}, column {j} {field}, but the line looks like a row of numbers: correct the field, or use "
        "header=True if the line is a header, header=False if it is a row."
    )


def _kind_of(field: str) -> str:
    """Classify a field of the first line: "number", "notation" (a formatted number), "empty", "missing" or "text"."""
    if is_number(field) and field.isascii():
        return "number"
    if not field:
        return "empty"
    if field.strip("#<>[]()'\"").lower() in MISSING or not any(map(str.isalnum, field)):
        return "missing"
    plain = "".join(str(unicodedata.decimal(c, c)) for c in unicodedata.normalize("NFKC", field) if not _is_number_symbol(c))
    return "notation" if re.fullmatch(NOTATION, re.sub(DASHES, "-", plain)) else "text"


def _is_number_symbol(character: str) -> bool:
    """Return whether formatted numbers may contain it: currencies, spaces, percent signs, bounds, thousands separators."""
    return unicodedata.category(character) in ("Sc", "Zs", "Cf") or character in "%'\u2019_<>~\u2264\u2265\u2248\u00b1"


def _could_be_names(numbers: list[str]) -> bool:
    """Return whether numbers are plausible column names, such as years: distinct, without points or signs."""
    return all(map(str.isdecimal, numbers)) and len(set(numbers)) == len(numbers)


def _warn_of_choice(path: Path, line: int, what: str, why: str, right: str, wrong: str) -> None:
    """Warn that the line was read as `what`, and name the settings that confirm and change this."""
    remedy = f"use header={right} to confirm, header={wrong} to change this"
    warn(f"{path}: line {line} is read as {what}, since it has {why}: {remedy}.", UserWarning)


def _numbers_are_names(path: Path, names: list[str], line: int, is_quoted: bool) -> bool:
    """Return whether a line of numbers is a header: if they are quoted, or 0,1,2,... as pandas writes it.

    Other equally spaced numbers, such as years, may be a header or a row. They are read as a row, with a warning.
    """
    if is_quoted:
        _warn_of_choice(path, line, "a header", "numbers in quotes, unlike the next line", "True", "False")
        return True
    is_count = len(names) > 2 and names == [str(j) for j in range(len(names))]
    if is_count or _has_equal_steps(names):
        what, header = ("a header", "False") if is_count else ("a row", "True")
        shown = ",".join(names[:3]) + ", ..." * (len(names) > 3)
        warn(f"{path}: its first line, {shown}, is read as {what}: use header={header} to change this.", UserWarning)
    return is_count


def _has_equal_steps(names: list[str]) -> bool:
    """Return whether numbers are equally spaced, or the default names of one or two columns in pandas."""
    if len(names) < 3:
        return names in (["0"], ["0", "1"])
    if not all(re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,3})?", name) for name in names):  # as people write years or indices
        return False
    numbers = list(map(float, names))
    steps = [b - a for a, b in pairwise(numbers)]
    return steps[0] != 0 and all(math.isclose(step, steps[0], rel_tol=1e-6) for step in steps)


def _looks_alike(fields: list[str], after: list[str] | None) -> bool:
    """Return whether the same fields are numbers in the next line; the first line is then a row, too."""
    return after is not None and list(map(is_number, fields)) == list(map(is_number, after))
