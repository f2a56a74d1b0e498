"""Formats of nearest-neighbour benchmarks, as described at corpus-texmex.irisa.fr and big-ann-benchmarks.com.

In fvecs, bvecs and ivecs files, the length of each row precedes it. In fbin, u8bin and i8bin files, the number of rows and
their length are stored once, before all rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..exceptions import InvalidFileError
from .file_cache import File
from .options import Opened, Options, columns_by_place
from .raw import RawRows

DTYPES = {
    ".fvecs": "<f4",
    ".bvecs": "u1",
    ".ivecs": "<i4",
    ".fbin": "<f4",
    ".u8bin": "u1",
    ".i8bin": "i1",
}


def _read_integers(file: File, count: int, what: str) -> list[int]:
    """Read the first 32-bit integers of the file."""
    if file.size < 4 * count:
        raise InvalidFileError(f"{file.name}: has {file.size} bytes, too few for {what}: it is truncated; copy it again.")
    start = np.empty(4 * count, np.uint8)
    file.fill(start, 0)
    return [int(word) for word in start.view("<i4")]


def open_vecs(path: Path, options: Options) -> Opened:
    """Open a file in which each row consists of its length and its numbers."""
    file, dtype = File.open(path), np.dtype(DTYPES[path.suffix.lower()])
    (d,) = _read_integers(file, 1, "the length of a row")
    stride = 4 + d * dtype.itemsize
    if d < 1 or file.size % stride:
        raise InvalidFileError(
            f"{path}: its first row declares {d} columns, but {file.size:,} bytes are not a whole number of such rows: "
            f"it is truncated or not in {path.suffix[1:]} format; copy it again."
        )
    lead = np.array([d], "<i4").view(np.uint8)
    return columns_by_place(path, RawRows(file, (file.size // stride, d), dtype, 0, lead), options)


def open_bin(path: Path, options: Options) -> Opened:
    """Open a file that consists of the number of rows, their length and all numbers."""
    file, dtype = File.open(path), np.dtype(DTYPES[path.suffix.lower()])
    n, d = _read_integers(file, 2, "the number of rows and columns")
    if n < 0 or d < 1 or 8 + n * d * dtype.itemsize != file.size:
        raise InvalidFileError(
            f"{path}: declares {n} rows of {d} columns, which do not match its {file.size:,} bytes: "
            f"it is truncated or not in {path.suffix[1:]} format; copy it again."
        )
    return columns_by_place(path, RawRows(file, (n, d), dtype, 8), options)
