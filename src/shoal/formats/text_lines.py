"""Read lines of UTF-8 text in parts of limited size. The first line has number 1 in messages."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..data.regular_files import open_regular
from ..exceptions import InvalidFileError

MAX_LINE = 1 << 26  # characters of a line; a binary file without line ends would otherwise be read as a whole

# Bytes of lines, and of the Python objects made from them, that are in memory at a time. Memory plans depend on it.
PART_BYTES = 1 << 22
LINE_OVERHEAD, PAIR_OVERHEAD = 200, 120  # bytes of Python objects for a line, and for each column:value in it

Lines = list[tuple[int, str]]  # numbers of lines and their text


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines with their line ends; raise if the file is not UTF-8 text."""
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        try:
            while line := file.readline(MAX_LINE):
                if len(line) >= MAX_LINE or "\0" in line:
                    raise InvalidFileError(
                        f"{path}: has a line with null characters or of {MAX_LINE:,} characters: it is not a text file; use "
                        "another file."
                    )
                yield line
        except UnicodeDecodeError as error:
            raise InvalidFileError(f"{path}: is not UTF-8 text at byte {error.start} of a part: save it as UTF-8.") from error


def parts_of(lines: Iterator[tuple[int, str]], limit: int | None) -> Iterator[Lines]:
    """Yield the first `limit` lines in parts of limited size."""
    part: Lines = []
    size = 0
    for pair in islice(lines, None if limit is None else min(limit, sys.maxsize)):
        part.append(pair)
        size += len(pair[1]) + LINE_OVERHEAD + PAIR_OVERHEAD * pair[1].count(":")
        if size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
