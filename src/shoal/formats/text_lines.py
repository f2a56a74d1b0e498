"""Read lines of text in parts of limited size, also of compressed files. The first line has number 1 in messages."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ..data.regular_files import open_regular
from ..exceptions import InvalidFileError
from .errors import need

COMPRESSED = (".gz", ".bz2", ".zst")
MAX_LINE = 1 << 26  # characters of a line; a binary file without line ends would otherwise be read as a whole

# Bytes of lines, and of the Python objects made from them, that are in memory at a time. Memory plans depend on it.
PART_BYTES = 1 << 22
LINE_OVERHEAD, PAIR_OVERHEAD = 200, 120  # bytes of Python objects for a line, and for each column:value in it

Lines = list[tuple[int, str]]  # numbers of lines and their text


def open_decompressed(path: Path) -> Any:
    """Open a file for reading its bytes, decompressed if its extension says that it is compressed."""
    suffix = path.suffix.lower()
    if suffix not in COMPRESSED:
        return open_regular(path)
    with open_regular(path):  # raises for pipes and devices
        pass
    if suffix == ".zst":
        return need("pyarrow", "parquet", path).input_stream(str(path), compression="zstd")
    return gzip.open(path) if suffix == ".gz" else bz2.open(path)


def text_encoding(path: Path, encoding: str | None = None) -> str:
    """Return the encoding of a text file: the one given, UTF-16 if a byte order mark says so, else UTF-8."""
    if encoding is not None:
        try:
            return codecs.lookup(encoding).name
        except LookupError as error:
            raise InvalidFileError(
                f"{path}: encoding={encoding!r} is unknown: use for example utf-8, cp1252 or utf-16."
            ) from error
    with open_decompressed(path) as file:
        start = file.read(2)
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def lines_of(path: Path, encoding: str = "utf-8-sig") -> Iterator[str]:
    """Yield the lines with their line ends; raise if the file is not text in this encoding."""
    try:
        with io.TextIOWrapper(io.BufferedReader(open_decompressed(path)), encoding=encoding, newline="") as file:
            while line := file.readline(MAX_LINE):
                if len(line) >= MAX_LINE or "\0" in line:
                    raise InvalidFileError(
                        f"{path}: has a line with null characters or of {MAX_LINE:,} characters: it is not a text file; use "
                        "another file."
                    )
                yield line
    except UnicodeDecodeError as error:
        name = encoding.replace("utf-8-sig", "utf-8").upper()
        raise InvalidFileError(
            f"{path}: is not {name} text at byte {error.start} of a part: save it as UTF-8, or set encoding=, for example to "
            "'cp1252' for a file of Excel."
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidFileError(f"{path}: cannot be decompressed ({error}): it is damaged; copy it again.") from error


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
