"""Text: CSV and svmlight. How many rows there are is known in the end, so they are read once, into a scratch file.

Numbers of CSV become float64. A header is a first line of text (see `headers`), or one that is 0,1,2,...
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice, repeat
from operator import contains
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ..data.regular_files import open_regular
from ..data.types import EXACT_INTEGERS, Array, rounded_integer_message, warn
from ..exceptions import InvalidFileError
from .errors import wrap_read_errors
from .headers import has_header, is_number
from .options import Opened, Options, place_of, places_of
from .raw import Scratch, SparseScratch

PART = 1 << 22  # bytes that lines and what becomes of them may take at a time
LINE, PAIR = 200, 120  # of these, what Python adds to the characters of a line, and for each column:value in it
LONGEST = 1 << 26  # characters in a line
PLAIN = "write a row of numbers a line"
FIELDS = re.compile(r'"((?:[^"]|"")*)"?(\S*)|(\S+)')  # of a line with white space between them: quoted ones and others
MOST_FIELDS = 1000  # large numbers of a part that are looked at again, as text
WIDEST = 2**31 - 2  # column of a sparse matrix


class Layout(NamedTuple):
    """Of a CSV file."""

    delimiter: str | None  # None: any white space
    names: list[str] | None
    first: int  # line, from 0, of the first row
    d: int


def lines_of(path: Path) -> Iterator[str]:
    """Without an end: a file of zeros, say, is refused before it fills the memory."""
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        try:
            while line := file.readline(LONGEST):
                if len(line) >= LONGEST or "\0" in line:
                    raise InvalidFileError(
                        f"{path}: has a line of {LONGEST:,} characters or with zeros in it: it is no text file."
                    )
                yield line
        except UnicodeDecodeError as error:
            raise InvalidFileError(f"{path}: is no UTF-8 text at byte {error.start} of a part: save it as UTF-8.") from error


def _parts(lines: Iterator[tuple[int, str]], limit: int | None) -> Iterator[list[tuple[int, str]]]:
    """Lines and their numbers, some at a time, up to so many."""
    some, size = [], 0
    for pair in islice(lines, limit):
        some.append(pair)
        size += len(pair[1]) + LINE + PAIR * pair[1].count(":")
        if size >= PART:
            yield some
            some, size = [], 0
    if some:
        yield some


def _fields(line: str, delimiter: str | None) -> list[str]:
    line = line.rstrip("\r\n")
    return _split_on_space(line) if delimiter is None else next(csv.reader([line], delimiter=delimiter), [])


def _split_on_space(line: str) -> list[str]:
    """Split on white space, but not within quotes that open a field: as `numpy.loadtxt` does, which reads the numbers."""
    if '"' not in line:
        return line.split()
    return [plain or quoted.replace('""', '"') + rest for quoted, rest, plain in FIELDS.findall(line)]


def layout_of(path: Path, options: Options) -> Layout:
    first, line = next(((i, line) for i, line in enumerate(lines_of(path)) if line.strip(" \r\n")), (0, ""))
    if not line:
        raise InvalidFileError(f"{path}: is empty: name a file with rows.")
    delimiter: str | None = options.delimiter or max(",;\t|", key=line.count)
    if options.delimiter is None and str(delimiter) not in line:
        delimiter = None if len(line.split()) > 1 else ","
    if delimiter is not None and len(delimiter) != 1:
        raise InvalidFileError(f"{path}: delimiter={options.delimiter!r} is no single character: give one, or None to find it.")
    fields = _fields(line, delimiter)
    names = [field.strip() for field in fields]
    header = options.header
    if header is None:
        after = _next_line(path, first)
        is_quoted = after is not None and line.count('"') == 2 * len(names) > after.count('"')
        header = has_header(path, names, first + 1, is_quoted, lambda: after and _fields(after, delimiter))
    return Layout(delimiter, names if header else None, first + header, len(fields))


def _next_line(path: Path, first: int) -> str | None:
    """The next line that is not empty."""
    return next((line for line in islice(lines_of(path), first + 1, None) if line.strip()), None)


def open_csv(path: Path, options: Options) -> Opened:
    with wrap_read_errors(path, "reading its first lines as CSV", PLAIN):
        layout = layout_of(path, options)
    places = places_of(path, options, layout.names, layout.d)
    scratch = Scratch(str(path), len(places), np.float64, options.scratch)
    for block in _blocks(path, layout, places, options):
        scratch.append(block)
    names = None if layout.names is None else [layout.names[j] for j in places]
    return Opened(scratch.rows(), names, partial(_column, path, layout))


def _numbered(path: Path, layout: Layout) -> Iterator[tuple[int, str]]:
    """Lines that are rows. Empty ones may end a file; before others, they could stand for rows that would be lost."""
    ends = None if layout.delimiter is None else "\r\n"  # where white space is between fields, they may hold some
    empty = 0
    for number, line in islice(enumerate(lines_of(path), 1), layout.first, None):
        if not line.strip(ends):
            empty = empty or number
        elif empty:
            raise InvalidFileError(f"{path}: line {empty} is empty, but line {number} is not: fill it in or take it out.")
        else:
            yield number, line


def _blocks(path: Path, layout: Layout, places: list[int], options: Options) -> Iterator[Array]:
    is_told = False
    for some in _parts(_numbered(path, layout), options.limit_rows):
        with wrap_read_errors(path, f"reading line {some[0][0]} and those after it as CSV", PLAIN):
            block = _parse(path, layout, places, some)
            is_told = is_told or _warns_of_rounding(path, layout, places, some, block)
        yield block


def _warns_of_rounding(path: Path, layout: Layout, places: list[int], some: list[tuple[int, str]], block: Array) -> bool:
    """Warn of the first integer that is rounded. Numbers with a point or an exponent are not meant to the last digit."""
    for i, j in np.argwhere(np.abs(block) >= EXACT_INTEGERS)[:MOST_FIELDS]:
        (number, line), at = some[i], places[j]
        field = _fields(line, layout.delimiter)[at].strip()
        if np.isfinite(block[i, j]) and field.lstrip("+-").isdecimal() and int(field) != int(block[i, j]):
            column = repr(layout.names[at]) if layout.names else str(at)
            warn(rounded_integer_message(f"{path}:", field, f"line {number}, column {column}"), UserWarning)
            return True
    return False


def _parse(path: Path, layout: Layout, places: list[int], some: list[tuple[int, str]]) -> Array:
    lines = [line for _, line in some]
    whole = places == list(range(layout.d))
    try:
        block: Array = np.loadtxt(
            lines, delimiter=layout.delimiter, comments=None, ndmin=2, quotechar='"', usecols=None if whole else places
        )
    except ValueError as error:
        raise _what_is_wrong(path, layout, places, some) from error
    if block.shape != (len(lines), len(places)) or not (whole or all(_even(lines, layout))):
        raise _what_is_wrong(path, layout, places, some)
    if _is_open(lines[-1], layout.delimiter):  # within the part, there would be fewer rows than lines
        raise InvalidFileError(f"{path}: line {some[-1][0]} has a quote that its end does not close: write a row a line.")
    return block


def _is_open(line: str, delimiter: str | None) -> bool:
    """Whether a quoted field goes on in the next line."""
    if '"' not in line:
        return False
    if delimiter is None:
        line, delimiter = re.sub(r"\s", " ", line), " "
    return len(list(csv.reader([line, "next"], delimiter=delimiter, skipinitialspace=delimiter == " "))) == 1


def _even(lines: list[str], layout: Layout) -> Iterator[bool]:
    """Has a line as many fields as the first one?"""
    rows = map(_split_on_space, lines) if layout.delimiter is None else csv.reader(lines, delimiter=layout.delimiter)
    return (len(fields) == layout.d for fields in rows)


def _what_is_wrong(path: Path, layout: Layout, places: list[int], some: list[tuple[int, str]]) -> InvalidFileError:
    """The first place that is no number."""
    for number, line in some:
        fields = _fields(line, layout.delimiter)
        if len(fields) != layout.d:
            what = f"has {len(fields)} fields, but the first line has {layout.d}: give all lines as many"
            return InvalidFileError(f"{path}: line {number} {what}.")
        for j in places:
            if not (is_number(fields[j]) and fields[j].strip().isascii()):
                column = repr(layout.names[j]) if layout.names else str(j)
                is_ = f"is {fields[j][:40]!r}" if fields[j] else "is empty"
                how = "leave the column out of columns=, name it as id_column=, or put a number there"
                return InvalidFileError(
                    f"{path}: line {number}, column {column} {is_}, no number in digits from 0 to 9: {how}."
                )
    return InvalidFileError(
        f"{path}: lines {some[0][0]} to {some[-1][0]} are no rows of numbers: write a row a line, without quotes."
    )


def _column(path: Path, layout: Layout, column: Any) -> Iterator[Array]:
    """Its fields, as they are written."""
    at = place_of(path, column, layout.names, layout.d)
    for some in _parts(_numbered(path, layout), None):
        yield np.array([_fields(line, layout.delimiter)[at] for _, line in some], object)


def open_svmlight(path: Path, options: Options) -> Opened:
    """Rows as `label column:value ...`. Labels are dropped. As scikit-learn takes it, columns count from 1 unless one is 0."""
    if options.columns is not None or options.beside:
        raise InvalidFileError(f"{path}: columns=, id_column= and text_column= are not for svmlight files: leave them out.")
    scratch = SparseScratch(str(path), np.float64, np.int64, options.scratch)
    low, high = WIDEST, -1
    lines = ((i, line.partition("#")[0]) for i, line in enumerate(lines_of(path), 1))
    for some in _parts((pair for pair in lines if pair[1].strip()), options.limit_rows):
        block = _parse_sparse(path, some)
        scratch.append(block)
        low, high = min(low, int(block.indices.min(initial=low))), max(high, int(block.indices.max(initial=high)))
    if not scratch.data.n and not scratch.lengths:
        raise InvalidFileError(f"{path}: is empty: name a file with rows.")
    base = int(low != 0 and high >= 0) if options.zero_based is None else int(not options.zero_based)
    if base == 1 and options.zero_based is None and options.n_features is not None and high < options.n_features:
        why = f"none of them is 0 and none is {options.n_features}"
        warn(
            f"{path}: its columns are taken to count from 1, though {why}: say zero_based=False if that is right, "
            "zero_based=True if it is not.",
            UserWarning,
        )
    width = max(high + 1 - base, 1)
    if options.n_features is not None:
        if width > options.n_features or low < base:
            told = f"n_features={options.n_features} and columns that count from {base}"
            raise InvalidFileError(f"{path}: has columns from {low} to {high}, which {told} have no room for: set them right.")
        width = options.n_features
    return Opened(scratch.rows(width, base))


def _parse_sparse(path: Path, some: list[tuple[int, str]]) -> Any:
    pairs = [[word for word in line.split()[1:] if not word.startswith("qid:")] for _, line in some]
    lengths = np.array([len(words) for words in pairs])
    text = ":".join(chain.from_iterable(pairs))
    flat = text.split(":") if text else []
    try:
        if len(flat) != 2 * lengths.sum() or "_" in text or not all(map(contains, chain.from_iterable(pairs), repeat(":"))):
            raise ValueError("a pair that is none")
        indices, data = np.array(list(map(int, flat[::2])), np.int64), np.array(list(map(float, flat[1::2])))
        rising = np.diff(indices, prepend=-1) > 0
        rising[np.concatenate([[0], lengths.cumsum()[:-1]])[lengths > 0]] = True
        if not rising.all() or (len(indices) and not 0 <= indices.min() <= indices.max() <= WIDEST):
            raise ValueError("columns that do not rise")
        for _, line in some:
            list(map(float, line.split(None, 1)[0].split(",")))
    except (ValueError, OverflowError) as error:
        raise _what_is_wrong_here(path, some) from error
    indptr = np.concatenate([[0], lengths.cumsum()])
    return sparse.csr_array((data, indices, indptr), shape=(len(some), int(indices.max(initial=0)) + 1))


def _what_is_wrong_here(path: Path, some: list[tuple[int, str]]) -> InvalidFileError:
    for number, line in some:
        label, *pairs = line.split()
        if not all(map(is_number, label.split(","))):
            return InvalidFileError(
                f"{path}: line {number} begins with {label[:40]!r}, no number: begin each line with a label."
            )
        before = -1
        for pair in pairs:
            column, _, value = pair.partition(":")
            if column == "qid":
                continue
            if not column.isdecimal() or not is_number(value) or int(column) > WIDEST:
                return InvalidFileError(
                    f"{path}: line {number} has {pair[:40]!r}: write column:value, columns up to {WIDEST:,}."
                )
            if int(column) <= before:
                return InvalidFileError(f"{path}: line {number} has column {column} after {before}: sort the columns of a row.")
            before = int(column)
    return InvalidFileError(f"{path}: lines {some[0][0]} to {some[-1][0]} are no svmlight rows: write them anew.")
