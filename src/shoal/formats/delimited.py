"""CSV files: rows of numbers, which become float64. `headers` decides whether the first line is a header.

The number of rows is known only at the end of the file, so rows are parsed once, into a scratch file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.types import EXACT_INTEGERS, Array, rounded_integer_message, warn
from ..exceptions import InvalidFileError
from .errors import wrap_read_errors
from .fingerprint import watch
from .headers import has_header, is_number
from .options import Opened, Options, place_of, places_of
from .raw import Scratch
from .text_lines import Lines, lines_of, parts_of

REMEDY = "write one row of numbers per line"
FIELDS = re.compile(r'"((?:[^"]|"")*)"?(\S*)|(\S+)')  # quoted and other fields of a line that is separated by white space

# Large numbers of a part whose text is parsed again to see whether they were rounded. More would make files that consist of
# such numbers slow to open.
MAX_ROUNDING_CHECKS = 1000


class Layout(NamedTuple):
    """Layout of a CSV file."""

    delimiter: str | None  # None for white space
    names: list[str] | None
    first: int  # index of the line of the first row
    d: int  # number of columns


def _fields(line: str, delimiter: str | None) -> list[str]:
    """Split a line into fields."""
    line = line.rstrip("\r\n")
    return _split_on_space(line) if delimiter is None else next(csv.reader([line], delimiter=delimiter), [])


def _split_on_space(line: str) -> list[str]:
    """Split on white space outside of quotes, in the same way as `numpy.loadtxt`, which parses the numbers."""
    if '"' not in line:
        return line.split()
    return [plain or quoted.replace('""', '"') + rest for quoted, rest, plain in FIELDS.findall(line)]


def layout_of(path: Path, options: Options) -> Layout:
    """Find delimiter, header and number of columns from the first lines."""
    first, line = next(((i, line) for i, line in enumerate(lines_of(path)) if line.strip(" \r\n")), (0, ""))
    if not line:
        raise InvalidFileError(f"{path}: is empty: use a file with rows.")
    if options.delimiter is not None and (len(options.delimiter) != 1 or options.delimiter in '"\r\n'):
        raise InvalidFileError(
            f"{path}: delimiter={options.delimiter!r} must be a single character, other than a quote and a line end: use one, "
            "or None to detect it."
        )
    delimiter: str | None = options.delimiter or max(",;\t|", key=line.count)
    if options.delimiter is None and str(delimiter) not in line:
        delimiter = None if len(line.split()) > 1 else ","
    names = [field.strip() for field in _fields(line, delimiter)]
    header = options.header
    if header is None:
        after = _next_line(path, first)
        is_quoted = after is not None and line.count('"') == 2 * len(names) > after.count('"')
        header = has_header(path, names, first + 1, is_quoted, lambda: after and _fields(after, delimiter))
    return Layout(delimiter, names if header else None, first + header, len(names))


def _next_line(path: Path, first: int) -> str | None:
    """Return the next line that is not empty; None if there is none."""
    return next((line for line in islice(lines_of(path), first + 1, None) if line.strip()), None)


def open_csv(path: Path, options: Options) -> Opened:
    """Parse all rows of a CSV file."""
    check_unchanged = watch(path)
    with wrap_read_errors(path, "reading its first lines as CSV", REMEDY):
        layout = layout_of(path, options)
    places = places_of(path, options, layout.names, layout.d)
    scratch = Scratch(str(path), len(places), np.float64, options.scratch)
    for block in _blocks(path, layout, places, options):
        scratch.append(block)
    check_unchanged()
    names = None if layout.names is None else [layout.names[j] for j in places]
    return Opened(scratch.rows(), names, partial(_column, path, layout, options.limit_rows, check_unchanged))


def _row_lines(path: Path, layout: Layout) -> Iterator[tuple[int, str]]:
    """Yield the lines that are rows, with their numbers; raise for empty lines before the end, which may be lost rows."""
    blank = None if layout.delimiter is None else "\r\n"  # a line of spaces has fields if they are separated by commas
    empty = 0
    for number, line in islice(enumerate(lines_of(path), 1), layout.first, None):
        if not line.strip(blank):
            empty = empty or number
        elif empty:
            raise InvalidFileError(f"{path}: line {empty} is empty, but line {number} is not: fill it in or remove it.")
        else:
            yield number, line


def _blocks(path: Path, layout: Layout, places: list[int], options: Options) -> Iterator[Array]:
    """Yield the feature columns of all rows in blocks; warn of the first integer that is rounded."""
    warned = False
    for part in parts_of(_row_lines(path, layout), options.limit_rows):
        with wrap_read_errors(path, f"reading line {part[0][0]} and the following lines as CSV", REMEDY):
            block = _parse(path, layout, places, part)
            warned = warned or _warn_if_rounded(path, layout, places, part, block)
        yield block


def _warn_if_rounded(path: Path, layout: Layout, places: list[int], part: Lines, block: Array) -> bool:
    """Warn of the first integer that float64 rounds, not of decimal fractions; return whether there is one."""
    for i, j in np.argwhere(np.abs(block) >= EXACT_INTEGERS)[:MAX_ROUNDING_CHECKS]:
        (number, line), at = part[i], places[j]
        field = _fields(line, layout.delimiter)[at].strip()
        if np.isfinite(block[i, j]) and field.lstrip("+-").isdecimal() and int(field) != int(block[i, j]):
            column = repr(layout.names[at]) if layout.names else str(at)
            warn(rounded_integer_message(f"{path}:", field, f"line {number}, column {column}"), UserWarning)
            return True
    return False


def _parse(path: Path, layout: Layout, places: list[int], part: Lines) -> Array:
    """Parse some lines to an array of the feature columns."""
    lines = [line for _, line in part]
    has_all_columns = places == list(range(layout.d))
    try:
        block: Array = np.loadtxt(
            lines,
            delimiter=layout.delimiter,
            comments=None,
            ndmin=2,
            quotechar='"',
            usecols=None if has_all_columns else places,
        )
    except ValueError as error:
        raise _locate_error(path, layout, places, part) from error
    if block.shape != (len(lines), len(places)) or not (has_all_columns or _has_equal_lengths(lines, layout)):
        raise _locate_error(path, layout, places, part)
    if _has_open_quote(lines[-1], layout.delimiter):  # of other lines, it would have made two rows one
        raise InvalidFileError(f"{path}: line {part[-1][0]} has a quote that is not closed: write one row per line.")
    return block


def _has_open_quote(line: str, delimiter: str | None) -> bool:
    """Return whether a quoted field continues in the next line."""
    if '"' not in line:
        return False
    if delimiter is None:
        line, delimiter = re.sub(r"\s", " ", line), " "
    return len(list(csv.reader([line, "next"], delimiter=delimiter, skipinitialspace=delimiter == " "))) == 1


def _has_equal_lengths(lines: list[str], layout: Layout) -> bool:
    """Return whether all lines have as many fields as the first line of the file."""
    rows = map(_split_on_space, lines) if layout.delimiter is None else csv.reader(lines, delimiter=layout.delimiter)
    return all(len(fields) == layout.d for fields in rows)


def _locate_error(path: Path, layout: Layout, places: list[int], part: Lines) -> InvalidFileError:
    """Return the error for the first field that is not a number."""
    for number, line in part:
        fields = _fields(line, layout.delimiter)
        if len(fields) != layout.d:
            return InvalidFileError(
                f"{path}: line {number} has {len(fields)} fields, but the first line has {layout.d}: use the same number in "
                "all lines."
            )
        for j in places:
            if not (is_number(fields[j]) and fields[j].strip().isascii()):
                column = repr(layout.names[j]) if layout.names else str(j)
                is_ = f"is {fields[j][:40]!r}" if fields[j] else "is empty"
                remedy = "correct it, list the other columns in columns=, or set id_column= to it"
                return InvalidFileError(
                    f"{path}: line {number}, column {column} {is_}, not a number in digits from 0 to 9: {remedy}."
                )
    return InvalidFileError(
        f"{path}: lines {part[0][0]} to {part[-1][0]} are not rows of numbers: write one row per line, without quotes."
    )


def _column(path: Path, layout: Layout, limit: int | None, check_unchanged: Callable[[], None], column: Any) -> Iterator[Array]:
    """Yield a column, given its name or index, as text in batches. Lines beyond the limit were not checked."""
    at = place_of(path, column, layout.names, layout.d)
    for part in parts_of(_row_lines(path, layout), limit):
        check_unchanged()
        yield np.array([_fields(line, layout.delimiter)[at] for _, line in part], object)
