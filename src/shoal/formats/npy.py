"""NumPy's own files: `.npy`, and `.npz` with a dense array or a CSR matrix as `scipy.sparse.save_npz` writes it."""

from __future__ import annotations

import contextlib
import io
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
from .options import Opened, Options, columns_by_place
from .raw import CSRRows, RawRows, Scratch
from .streamed import Streamed, rows_in_a_batch

ANEW = "write it anew with numpy.save"
SMALL_ARRAY = 1 << 10  # bytes of what describes a sparse matrix
HELD_BOMB, HELD_SMALL = 100, 1 << 25  # what is held in memory may take so many times the size of the file, or this
HEADER = 1 << 16  # bytes in which the header of an array must end
MAX_DIRECTORY = 1 << 22  # bytes of the list of members of a zip file: Python takes ten times as many for it


class Header(NamedTuple):
    """Of an array in NumPy's format."""

    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype
    size: int  # bytes of the header itself

    @property
    def bytes(self) -> int:
        return int(np.prod([1, *map(int, self.shape)], dtype=object)) * self.dtype.itemsize


def read_header(name: str, start: bytes, size: int, kinds: str = "biuf") -> Header:
    """From the first bytes of an array that takes so many in all. Nothing is allocated, and nothing is unpickled."""
    stream = io.BytesIO(start)
    with wrap_read_errors(name, "reading the header of a NumPy array", ANEW):
        version = np.lib.format.read_magic(stream)
        if version > (2, 0):
            raise InvalidFileError(
                f"{name}: is of NumPy's format {version[0]}.{version[1]}, for tables: {ANEW} as a plain array."
            )
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
    header = Header(shape, by_columns, dtype, stream.tell())
    if dtype.hasobject:
        raise InvalidFileError(f"{name}: holds Python objects, which Shoal never unpickles: {ANEW} as an array of numbers.")
    if dtype.kind not in kinds or dtype.subdtype is not None or not dtype.itemsize:  # no file is too small for those of no size
        raise InvalidFileError(f"{name}: holds values of type {dtype}: {ANEW} as real numbers.")
    if bool in map(type, shape):
        raise InvalidFileError(f"{name}: its header tells of an array of shape {shape}, which is none: {ANEW}.")
    if min(shape, default=0) < 0 or header.size + header.bytes != size:
        wanted = f"{header.size + header.bytes:,} bytes" if min(shape, default=0) >= 0 else "less than nothing"
        raise InvalidFileError(
            f"{name}: its header tells of an array of shape {shape} and type {dtype}, which takes {wanted}, but there are "
            f"{size:,}: it was cut or changed; {ANEW}."
        )
    return header


def _two_dimensional(name: str, header: Header) -> tuple[int, int]:
    if len(header.shape) != 2:
        raise InvalidFileError(f"{name}: holds an array of shape {header.shape}: reshape it to rows and columns, and {ANEW}.")
    return header.shape[0], header.shape[1]


def open_npy(path: Path, options: Options) -> Opened:
    file = File.open(path)
    start = np.empty(min(file.size, HEADER), np.uint8)
    file.fill(start, 0)
    header = read_header(str(path), start.tobytes(), file.size)
    n, d = _two_dimensional(str(path), header)
    if header.by_columns:
        return columns_by_place(path, _turned(RawRows(file, (n * d, 1), header.dtype, header.size), (n, d), options), options)
    return columns_by_place(path, RawRows(file, (n, d), header.dtype, header.size), options)


def _turned(columns: RawRows, shape: tuple[int, int], options: Options) -> Streamed:
    """Rows of an array that lies column by column."""
    (whole, d), n = shape, options.limited(shape[0])
    step = rows_in_a_batch(d)

    def batches() -> Iterator[Array]:
        for a in range(0, n, step):
            block = np.empty((min(step, n - a), d), columns.dtype)
            for j in range(d):
                block[:, j] = columns.read(j * whole + a, j * whole + a + len(block))[:, 0]
            yield block

    return Streamed(columns.file.name, (n, d), columns.dtype, batches, options.scratch)


def open_zip(path: Path, file: IO[bytes] | None = None) -> zipfile.ZipFile:
    """Open a zip file, unless its list of members alone would take far more memory than the file."""
    with contextlib.ExitStack() as stack:
        stream = file or stack.enter_context(open_regular(path))
        end = zipfile._EndRecData(stream)  # type: ignore[attr-defined]  # by which ZipFile itself finds the list
    size = 0 if end is None else int(end[5])
    if size > MAX_DIRECTORY:
        raise InvalidFileError(
            f"{path}: its list of members takes {size:,} bytes, more than {MAX_DIRECTORY:,}: write fewer arrays."
        )
    return zipfile.ZipFile(file or path)


class Member(NamedTuple):
    """An array in an npz file."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    header: Header
    name: str  # for messages


def _member(path: Path, archive: zipfile.ZipFile, name: str, kinds: str = "biuf") -> Member:
    info = archive.getinfo(f"{name}.npy")
    check_unpacked(path, info.file_size, info.compress_size)
    called = f"{path}, array {name!r}"
    with wrap_read_errors(called, "unpacking it", "write it anew with numpy.savez"), archive.open(info) as stream:
        start = stream.read(min(HEADER, info.file_size))
    return Member(archive, info, read_header(called, start, info.file_size, kinds), called)


def _payload(member: Member) -> IO[bytes]:
    stream = member.archive.open(member.info)
    stream.read(member.header.size)
    return stream


def _small(member: Member) -> Array:
    """A small array, whole. One that is not is refused before it is unpacked."""
    if member.header.bytes > SMALL_ARRAY:
        raise InvalidFileError(
            f"{member.name}: takes {member.header.bytes:,} bytes, where a few would do: write the matrix anew."
        )
    with wrap_read_errors(member.name, "unpacking it", "write it anew with numpy.savez"), _payload(member) as stream:
        data = stream.read()
    values: Array = np.frombuffer(data, member.header.dtype)
    return values.reshape(member.header.shape)


def _batches(member: Member, width: int) -> Iterator[Array]:
    """Of a packed array whose rows have so many numbers."""
    size = width * member.header.dtype.itemsize
    with wrap_read_errors(member.name, "unpacking it", "write it anew with numpy.savez"), _payload(member) as stream:
        while data := stream.read(size * rows_in_a_batch(width)):
            yield np.frombuffer(data[: len(data) // size * size], member.header.dtype).reshape(-1, width)


def _stored(member: Member, path: Path, shape: tuple[int, int]) -> RawRows | None:
    """The rows where they lie, if they are not packed."""
    if member.info.compress_type != zipfile.ZIP_STORED:
        return None
    file, start = File.open(path), np.empty(30, np.uint8)
    file.fill(start, member.info.header_offset)
    lengths = struct.unpack("<2H", start[26:30].tobytes())  # of the name and of what else goes before the array
    offset, magic = member.info.header_offset + 30 + sum(lengths), np.empty(6, np.uint8)
    file.fill(magic, offset)
    if magic.tobytes() != np.lib.format.MAGIC_PREFIX:
        raise InvalidFileError(f"{member.name}: is not where the file says: write it anew with numpy.savez.")
    return RawRows(file, shape, member.header.dtype, offset + member.header.size)


def open_npz(path: Path, options: Options) -> Opened:
    with wrap_read_errors(path, "opening it as a zip file", "write it anew with numpy.savez"):
        archive = open_zip(path)
    with archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        if options.array is None and {"format", "shape", "data", "indices", "indptr"} <= set(names):
            with wrap_read_errors(path, "reading its sparse matrix", "write it anew with scipy.sparse.save_npz"):
                members, indptr, d = _sparse(path, archive)
            values, columns = (_stored(m, path, (m.header.shape[0], 1)) or _unpacked(m, options) for m in members)
            return columns_by_place(path, CSRRows(values, columns, indptr, d), options)
        name = options.array or (names[0] if len(names) == 1 else "X")
        if name not in names:
            raise InvalidFileError(f"{path}: has the arrays {', '.join(names) or '(none)'}: say which one as array=.")
        member = _member(path, archive, name)
        shape = _two_dimensional(member.name, member.header)
        if member.header.by_columns:
            size = (shape[0] * shape[1], 1)
            return columns_by_place(
                path, _turned(_stored(member, path, size) or _unpacked(member, options), shape, options), options
            )
        rows: Any = _stored(member, path, shape)
    if rows is None:
        shape = (options.limited(shape[0]), shape[1])
        dtype = at_most_float64(np.empty(0, member.header.dtype)).dtype
        rows = Streamed(member.name, shape, dtype, lambda: _reopened(path, name), options.scratch)
    return columns_by_place(path, rows, options)


def _reopened(path: Path, name: str) -> Iterator[Array]:
    with wrap_read_errors(path, "opening it as a zip file", "copy it anew"), open_zip(path) as archive:
        member = _member(path, archive, name)
        yield from _batches(member, member.header.shape[1])


def _sparse(path: Path, archive: zipfile.ZipFile) -> tuple[list[Member], Array, int]:
    """Where values and columns are, where rows begin in them, and how many columns there can be."""
    kind = _small(_member(path, archive, "format", "SU"))
    if str(kind.item().decode() if kind.dtype.kind == "S" else kind.item()) != "csr":
        raise InvalidFileError(f"{path}: holds a sparse matrix that is not CSR: call .tocsr() and save it again.")
    n, d = map(int, _small(_member(path, archive, "shape", "iu")))
    members = [_member(path, archive, name, kinds) for name, kinds in (("data", "biuf"), ("indices", "iu"), ("indptr", "iu"))]
    stored = int(np.prod(members[0].header.shape, dtype=object))
    if [len(m.header.shape) for m in members] != [1, 1, 1] or members[1].header.shape != (stored,) or min(n, d) < 0:
        raise InvalidFileError(f"{path}: the arrays of its sparse matrix do not fit together: write it anew.")
    if members[2].header.shape != (n + 1,):
        raise InvalidFileError(
            f"{path}: is a matrix of {n} rows, but indptr has shape {members[2].header.shape}: write it anew."
        )
    return members[:2], _row_starts(path, members[2], n, stored), d


def _row_starts(path: Path, member: Member, n: int, stored: int) -> Array:
    """Where rows begin among so many values. It is held in memory, so it is read in batches and not copied whole."""
    held, size = 8 * (n + 1), path.stat().st_size
    if held > max(HELD_SMALL, HELD_BOMB * size):
        raise InvalidFileError(
            f"{member.name}: {held:,} bytes would be held in memory, far more than the file's {size:,}: drop empty rows, or "
            "write the matrix by scipy.sparse.save_npz with compressed=False."
        )
    indptr, done, row = np.empty(n + 1, np.int64), 0, n
    for batch in _batches(member, 1):
        end = done + len(batch)
        indptr[done:end] = batch[:, 0]
        first = max(done - 1, 0)
        bad = np.flatnonzero(indptr[first + 1 : end] < indptr[first : end - 1])  # a difference could overflow
        if len(bad):
            row = first + int(bad[0])
            break
        done = end
    if done != n + 1 or indptr[0] != 0 or indptr[-1] > stored:
        raise InvalidFileError(f"{path}: indptr leads out of the {stored} values at row {row}: write the matrix anew.")
    return indptr


def _unpacked(member: Member, options: Options) -> RawRows:
    scratch = Scratch(member.name, 1, member.header.dtype, options.scratch, member.header.bytes)
    for batch in _batches(member, 1):
        scratch.append(batch)
    return scratch.rows()
