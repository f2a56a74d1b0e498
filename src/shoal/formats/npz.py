"""NumPy's `.npz` files: a dense array, or a CSR matrix as `scipy.sparse.save_npz` writes it."""

from __future__ import annotations

import contextlib
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..data.regular_files import open_regular
from ..data.types import Array, at_most_float64
from ..exceptions import InvalidFileError
from .errors import check_unpacked, wrap_read_errors
from .file_cache import File
from .npy import HEADER_BYTES, Header, read_header, transpose, two_dimensional
from .options import Opened, Options, columns_by_place
from .raw import CSRRows, RawRows, Scratch
from .streamed import Streamed, rows_per_batch

REMEDY = "write it again with numpy.savez"
MAX_METADATA = 1 << 10  # bytes of the format and the shape of a sparse matrix

# `indptr` of a sparse matrix is held in memory. It may take this many bytes, or this many times the size of the file,
# whichever is larger: a small file that declares billions of empty rows must not fill memory.
MAX_SMALL_INDPTR, MAX_INDPTR_EXPANSION = 1 << 25, 100

# Bytes of the directory of a zip file; Python needs about ten times as many to parse it.
MAX_DIRECTORY = 1 << 22


def open_zip(path: Path, file: IO[bytes] | None = None) -> zipfile.ZipFile:
    """Open a zip file, or raise if its directory alone would take far more memory than the file."""
    with contextlib.ExitStack() as stack:
        stream = file or stack.enter_context(open_regular(path))
        end = zipfile._EndRecData(stream)  # type: ignore[attr-defined]  # ZipFile itself uses it to find the directory
    size = 0 if end is None else int(end[5])
    if size > MAX_DIRECTORY:
        raise InvalidFileError(
            f"{path}: its zip directory takes {size:,} bytes, more than {MAX_DIRECTORY:,}: write fewer arrays."
        )
    return zipfile.ZipFile(file or path)


class Member(NamedTuple):
    """An array in an npz file."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    header: Header
    name: str  # for messages


def open_npz(path: Path, options: Options) -> Opened:
    """Open a CSR matrix, or the array that `options.array` names."""
    with wrap_read_errors(path, "opening it as a zip file", REMEDY):
        archive = open_zip(path)
    with archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        if options.array is None and {"format", "shape", "data", "indices", "indptr"} <= set(names):
            return columns_by_place(path, _open_csr(path, archive, options), options)
        name = options.array or (names[0] if len(names) == 1 else "X")
        if name not in names:
            raise InvalidFileError(f"{path}: has the arrays {', '.join(names) or '(none)'}: choose one with array=.")
        return columns_by_place(path, _open_dense(path, _member(path, archive, name), name, options), options)


def _open_dense(path: Path, member: Member, name: str, options: Options) -> Any:
    """Return the rows of a dense array."""
    shape = two_dimensional(member.name, member.header)
    if member.header.by_columns:
        return transpose(_numbers(path, member, options), shape, options)
    rows = _uncompressed(member, path, shape)
    if rows is not None:
        return rows
    dtype = at_most_float64(np.empty(0, member.header.dtype)).dtype
    shape = (options.limited(shape[0]), shape[1])
    return Streamed(member.name, shape, dtype, lambda: _reopened_batches(path, name), options.scratch, path)


def _reopened_batches(path: Path, name: str) -> Iterator[Array]:
    """Open the archive again and yield all rows of an array in batches."""
    with wrap_read_errors(path, "opening it as a zip file", "copy it again"), open_zip(path) as archive:
        member = _member(path, archive, name)
        yield from _batches(member, member.header.shape[1])


def _open_csr(path: Path, archive: zipfile.ZipFile, options: Options) -> CSRRows:
    """Return the rows of a CSR matrix, after checks of the sizes of its arrays."""
    with wrap_read_errors(path, "reading its sparse matrix", "write it again with scipy.sparse.save_npz"):
        kind = _read_metadata(_member(path, archive, "format", "SU"))
        if str(kind.item().decode() if kind.dtype.kind == "S" else kind.item()) != "csr":
            raise InvalidFileError(f"{path}: holds a sparse matrix that is not CSR: call .tocsr() and save it again.")
        n, d = map(int, _read_metadata(_member(path, archive, "shape", "iu")))
        kinds = {"data": "biuf", "indices": "iu", "indptr": "iu"}
        data, indices, indptr = (_member(path, archive, name, kinds[name]) for name in kinds)
        n_values = int(np.prod(data.header.shape, dtype=object))
        is_flat = all(len(member.header.shape) == 1 for member in (data, indices, indptr))
        if not is_flat or indices.header.shape != (n_values,) or min(n, d) < 0:
            raise InvalidFileError(f"{path}: the arrays of its sparse matrix do not fit together: write it again.")
        if indptr.header.shape != (n + 1,):
            raise InvalidFileError(
                f"{path}: is a matrix of {n} rows, but indptr has shape {indptr.header.shape}: write it again."
            )
        row_starts = _read_indptr(path, indptr, n, n_values)
    return CSRRows(_numbers(path, data, options), _numbers(path, indices, options), row_starts, d)


def _read_indptr(path: Path, member: Member, n: int, n_values: int) -> Array:
    """Read `indptr` of n rows in batches, and check that it is ascending and within the stored values."""
    held, size = 8 * (n + 1), path.stat().st_size
    if held > max(MAX_SMALL_INDPTR, MAX_INDPTR_EXPANSION * size):
        raise InvalidFileError(
            f"{member.name}: would take {held:,} bytes of memory, far more than the file's {size:,}: drop empty rows, or "
            "write the matrix with scipy.sparse.save_npz(..., compressed=False)."
        )
    indptr, done, row = np.empty(n + 1, np.int64), 0, n
    for batch in _batches(member, 1):
        end = done + len(batch)
        indptr[done:end] = batch[:, 0]
        first = max(done - 1, 0)
        descents = np.flatnonzero(indptr[first + 1 : end] < indptr[first : end - 1])  # np.diff could overflow
        if len(descents):
            row = first + int(descents[0])
            break
        done = end
    if done != n + 1 or indptr[0] != 0 or indptr[-1] > n_values:
        raise InvalidFileError(
            f"{path}: indptr at row {row} is out of order or beyond the {n_values} values: write the matrix again."
        )
    return indptr


def _member(path: Path, archive: zipfile.ZipFile, name: str, kinds: str = "biuf") -> Member:
    """Find an array in the archive and check its header."""
    info = archive.getinfo(f"{name}.npy")
    check_unpacked(path, info.file_size, info.compress_size)
    label = f"{path}, array {name!r}"
    with wrap_read_errors(label, "decompressing it", REMEDY), archive.open(info) as stream:
        start = stream.read(min(HEADER_BYTES, info.file_size))
    return Member(archive, info, read_header(label, start, info.file_size, kinds), label)


def _payload(member: Member) -> IO[bytes]:
    """Open an array after its header."""
    stream = member.archive.open(member.info)
    stream.read(member.header.size)
    return stream


def _read_metadata(member: Member) -> Array:
    """Read a small array, or raise before it is decompressed if it is not small."""
    if member.header.bytes > MAX_METADATA:
        raise InvalidFileError(
            f"{member.name}: takes {member.header.bytes:,} bytes, expected at most {MAX_METADATA}: write the matrix again."
        )
    with wrap_read_errors(member.name, "decompressing it", REMEDY), _payload(member) as stream:
        data = stream.read()
    values: Array = np.frombuffer(data, member.header.dtype)
    return values.reshape(member.header.shape)


def _batches(member: Member, width: int) -> Iterator[Array]:
    """Yield the numbers of an array in batches of rows of this width."""
    size = width * member.header.dtype.itemsize
    with wrap_read_errors(member.name, "decompressing it", REMEDY), _payload(member) as stream:
        while data := stream.read(size * rows_per_batch(width)):
            yield np.frombuffer(data[: len(data) // size * size], member.header.dtype).reshape(-1, width)


def _numbers(path: Path, member: Member, options: Options) -> RawRows:
    """Return an array as a source of single numbers, in the file itself or, if it is compressed, in a scratch file."""
    count = int(np.prod([1, *map(int, member.header.shape)], dtype=object))
    rows = _uncompressed(member, path, (count, 1))
    if rows is not None:
        return rows
    scratch = Scratch(member.name, 1, member.header.dtype, options.scratch, member.header.bytes)
    for batch in _batches(member, 1):
        scratch.append(batch)
    return scratch.rows()


def _uncompressed(member: Member, path: Path, shape: tuple[int, int]) -> RawRows | None:
    """Return the rows at their place in the file; None if they are compressed."""
    if member.info.compress_type != zipfile.ZIP_STORED:
        return None
    file, start = File.open(path), np.empty(30, np.uint8)
    file.fill(start, member.info.header_offset)
    lengths = struct.unpack("<2H", start[26:30].tobytes())  # of the name and of the extra field, which precede the array
    offset, magic = member.info.header_offset + 30 + sum(lengths), np.empty(6, np.uint8)
    file.fill(magic, offset)
    if magic.tobytes() != np.lib.format.MAGIC_PREFIX:
        raise InvalidFileError(f"{member.name}: is not at the offset that the zip directory declares: {REMEDY}.")
    return RawRows(file, shape, member.header.dtype, offset + member.header.size)
