"""The files of nearest-neighbour benchmarks: fvecs, bvecs and ivecs (each row after its length), fbin, u8bin and i8bin (all
rows after their number and length). corpus-texmex.irisa.fr and big-ann-benchmarks.com tell of them.
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


def _words(file: File, count: int, what: str) -> list[int]:
    """The first numbers of the file."""
    if file.size < 4 * count:
        raise InvalidFileError(f"{file.name}: has {file.size} bytes, too few for {what}: it was cut; copy it anew.")
    start = np.empty(4 * count, np.uint8)
    file.fill(start, 0)
    return [int(word) for word in start.view("<i4")]


def open_vecs(path: Path, options: Options) -> Opened:
    """Each row is its length, then its numbers."""
    file, dtype = File.open(path), np.dtype(DTYPES[path.suffix.lower()])
    (d,) = _words(file, 1, "the length of a row")
    stride = 4 + d * dtype.itemsize
    if d < 1 or file.size % stride:
        raise InvalidFileError(
            f"{path}: its first row claims to have {d} columns, but {file.size:,} bytes are no whole number of such rows: "
            f"it was cut, or is no {path.suffix[1:]} file; copy it anew."
        )
    lead = np.array([d], "<i4").view(np.uint8)
    return columns_by_place(path, RawRows(file, (file.size // stride, d), dtype, 0, lead), options)


def open_bin(path: Path, options: Options) -> Opened:
    """The number of rows, their length, then all numbers."""
    file, dtype = File.open(path), np.dtype(DTYPES[path.suffix.lower()])
    n, d = _words(file, 2, "the number of rows and columns")
    if n < 0 or d < 1 or 8 + n * d * dtype.itemsize != file.size:
        raise InvalidFileError(
            f"{path}: claims to have {n} rows of {d} columns, which do not take its {file.size:,} bytes: "
            f"it was cut, or is no {path.suffix[1:]} file; copy it anew."
        )
    return columns_by_place(path, RawRows(file, (n, d), dtype, 8), options)
