"""NumPy's `.npy` files, and the header of arrays in NumPy's format."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.types import Array
from ..exceptions import InvalidFileError
from .errors import wrap_read_errors
from .file_cache import File
from .options import Opened, Options, columns_by_place
from .raw import RawRows
from .streamed import Streamed, rows_per_batch

REMEDY = "write it again with numpy.save"
HEADER_BYTES = 1 << 16  # bytes from the start of an array in which its header must end; NumPy's own headers take about 128


class Header(NamedTuple):
    """Header of an array in NumPy's format."""

    shape: tuple[int, ...]
    by_columns: bool  # Fortran order
    dtype: np.dtype
    size: int  # bytes of the header itself

    @property
    def bytes(self) -> int:
        """Bytes of the array without its header."""
        return int(np.prod([1, *map(int, self.shape)], dtype=object)) * self.dtype.itemsize


def read_header(name: str, start: bytes, size: int, kinds: str = "biuf") -> Header:
    """Parse and check the header at the start of an array of `size` bytes; allocate and unpickle nothing."""
    stream = io.BytesIO(start)
    with wrap_read_errors(name, "reading the header of a NumPy array", REMEDY):
        version = np.lib.format.read_magic(stream)
        if version > (2, 0):
            raise InvalidFileError(
                f"{name}: is in version {version[0]}.{version[1]} of NumPy's format, for structured arrays: {REMEDY} as an "
                "array of numbers."
            )
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
    header = Header(shape, by_columns, dtype, stream.tell())
    if dtype.hasobject:
        raise InvalidFileError(f"{name}: holds Python objects, which Shoal never unpickles: {REMEDY} as an array of numbers.")
    # Values of zero bytes must be rejected: any file is large enough for any number of them.
    if dtype.kind not in kinds or dtype.subdtype is not None or not dtype.itemsize:
        raise InvalidFileError(f"{name}: holds values of type {dtype}: {REMEDY} as real numbers.")
    _check_size(name, header, size)
    return header


def _check_size(name: str, header: Header, size: int) -> None:
    """Raise if the shape is invalid or does not match the size of the file."""
    if bool in map(type, header.shape):
        raise InvalidFileError(f"{name}: its header declares the invalid shape {header.shape}: {REMEDY}.")
    is_negative = min(header.shape, default=0) < 0
    if is_negative or header.size + header.bytes != size:
        needed = "a negative number of bytes" if is_negative else f"{header.size + header.bytes:,} bytes"
        raise InvalidFileError(
            f"{name}: its header declares an array of shape {header.shape} and type {header.dtype}, which takes {needed}, but "
            f"there are {size:,}: it was truncated or changed; {REMEDY}."
        )


def two_dimensional(name: str, header: Header) -> tuple[int, int]:
    """Return the shape of an array, or raise unless it has two dimensions."""
    if len(header.shape) != 2:
        raise InvalidFileError(f"{name}: holds an array of shape {header.shape}: reshape it to rows and columns, and {REMEDY}.")
    return header.shape[0], header.shape[1]


def open_npy(path: Path, options: Options) -> Opened:
    """Open an array that `numpy.save` wrote."""
    file = File.open(path)
    start = np.empty(min(file.size, HEADER_BYTES), np.uint8)
    file.fill(start, 0)
    header = read_header(str(path), start.tobytes(), file.size)
    n, d = two_dimensional(str(path), header)
    if header.by_columns:
        columns = RawRows(file, (n * d, 1), header.dtype, header.size)
        return columns_by_place(path, transpose(columns, (n, d), options), options)
    return columns_by_place(path, RawRows(file, (n, d), header.dtype, header.size), options)


def transpose(columns: RawRows, shape: tuple[int, int], options: Options) -> Streamed:
    """Return the rows of an array in Fortran order, whose numbers `columns` holds in the order of the file."""
    (n_stored, d), n = shape, options.limited(shape[0])
    step = rows_per_batch(d)

    def batches() -> Iterator[Array]:
        for a in range(0, n, step):
            block = np.empty((min(step, n - a), d), columns.dtype)
            for j in range(d):
                block[:, j] = columns.read(j * n_stored + a, j * n_stored + a + len(block))[:, 0]
            yield block

    return Streamed(columns.file.name, (n, d), columns.dtype, batches, options.scratch)
