"""Zarr and HDF5: arrays that lie in chunks, of which those at the same height are read together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..data.types import Array, at_most_float64
from ..exceptions import InvalidFileError
from .errors import check_unpacked, need, wrap_read_errors
from .file_cache import File
from .options import Opened, Options, columns_by_place
from .raw import RawRows
from .streamed import Streamed, more_than_a_batch, rows_in_a_batch

ANEW = "write it anew"
MAX_SPARE_CHUNK = 1 << 26  # bytes of a chunk that may be larger than the array it belongs to, as those of tables that grow
CODECS = {  # that turn bytes into bytes, and numbers into numbers: there are others, which unpickle
    *("bytes", "transpose", "sharding_indexed", "crc32c", "crc32", "adler32", "fletcher32"),
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "zfpy"),
    *("shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits"),
}


def open_zarr(path: Path, options: Options) -> Opened:
    zarr = need("zarr", "zarr", path)

    def opened() -> Any:
        group = zarr.open(path, mode="r")
        array = group if hasattr(group, "dtype") else _pick(path, dict(group.arrays()), options)
        _check_codecs(path, array.metadata.to_dict())
        return array

    with wrap_read_errors(path, "opening it with zarr", ANEW):
        sizes = list(map(_size, path.rglob("*")))
        array = opened()
        rows = _chunked(path, array, sum(sizes), lambda: _slices(path, opened(), options), options)
        part = array.shards or array.chunks
        _check_whole(path, array, part, len(sizes))  # the next line takes long of a few files that claim to be many
        _check_whole(path, array, part, array.nchunks_initialized * math.prod(array.chunks) // math.prod(part))
        return rows


def open_hdf5(path: Path, options: Options) -> Opened:
    h5py = need("h5py", "hdf5", path)

    def of(file: Any) -> Any:
        found: dict[str, Any] = {}
        file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        return _pick(path, found, options)

    def batches() -> Iterator[Array]:
        with h5py.File(path, "r", rdcc_nbytes=1 << 25) as file:
            yield from _slices(path, of(file), options)

    with wrap_read_errors(path, "opening it as HDF5", ANEW), h5py.File(path, "r") as file:
        array = of(file)
        if array.external or array.is_virtual:
            raise InvalidFileError(f"{path}: the numbers of {array.name!r} lie elsewhere: write them into this file.")
        opened = _chunked(path, array, path.stat().st_size, batches, options)
        written = array.id.get_num_chunks() if array.chunks else int(array.id.get_storage_size() > 0)
        _check_whole(path, array, array.chunks or array.shape, written)
        offset = array.id.get_offset() if array.chunks is None else None
        if offset is None or array.id.get_type() != h5py.h5t.py_create(array.dtype):  # bits not as NumPy has them
            return opened
        rows = RawRows(File.open(path), array.shape, array.dtype, offset)  # neither packed nor cut into chunks
        if offset + rows.stride * len(array) > rows.file.size:
            raise InvalidFileError(f"{path}: ends before its array {array.name!r} does: it was cut; copy it anew.")
        return columns_by_place(path, rows, options)


def _size(file: Path) -> int:
    """Bytes of a file in a store. Pipes and devices could be read forever, and links to folders lead anywhere."""
    if file.is_dir() and not file.is_symlink():
        return 0
    if not file.is_file():
        raise InvalidFileError(f"{file}: is neither a file nor a folder of the store: put a copy of what it stands for there.")
    return file.stat().st_size


def _check_whole(path: Path, array: Any, part: tuple[int, ...], written: int) -> None:
    """Zeros are read for parts that were never written or are lost: nobody could tell them from data."""
    wanted = math.prod(-(-size // max(step, 1)) for size, step in zip(array.shape, part, strict=True))
    if written < wanted:
        raise InvalidFileError(
            f"{path}: {wanted - written:,} of the {wanted:,} parts of {array.name!r} are not there: copy it anew, or write "
            "them, zeros included (Zarr does so if write_empty_chunks is set)."
        )


def _check_codecs(path: Path, described: Any) -> None:
    """Refuse what could run code as it unpacks."""
    if isinstance(described, dict):
        for key in ("id", "name"):
            if isinstance(described.get(key), str) and described[key].removeprefix("numcodecs.") not in CODECS:
                raise InvalidFileError(
                    f"{path}: is packed by {described[key]!r}, which Shoal does not trust: write it with another codec."
                )
        described = [
            described[key] for key in ("filters", "compressor", "codecs", "configuration", "index_codecs") if key in described
        ]
    if isinstance(described, list | tuple):
        for inner in described:
            _check_codecs(path, inner)


def _pick(path: Path, arrays: dict[str, Any], options: Options) -> Any:
    """The array that is meant."""
    name = (options.array or "").strip("/")
    if not name:
        tables = [key for key, array in arrays.items() if array.ndim == 2]
        name = tables[0] if len(tables) == 1 else ""
    if name not in arrays:
        raise InvalidFileError(f"{path}: has the arrays {', '.join(arrays) or '(none)'}: say which one as array=.")
    return arrays[name]


def _chunked(path: Path, array: Any, stored: int, batches: Callable[[], Iterator[Array]], options: Options) -> Opened:
    if len(array.shape) != 2:
        raise InvalidFileError(f"{path}: holds an array of shape {array.shape}: reshape it to rows and columns.")
    kind = np.dtype(array.dtype)
    if kind.kind not in "biuf":
        raise InvalidFileError(f"{path}: holds values of type {kind}: write real numbers.")
    n, d = map(int, array.shape)
    check_unpacked(path, n * d * kind.itemsize, stored)
    chunk = math.prod(array.chunks or (0,)) * kind.itemsize
    if chunk > max(MAX_SPARE_CHUNK, 2 * n * d * kind.itemsize):  # it is unpacked whole
        raise InvalidFileError(
            f"{path}: its chunks take {chunk:,} bytes, far more than the array itself: write it with smaller ones."
        )
    dtype = at_most_float64(np.empty(0, kind)).dtype
    rows = Streamed(str(path), (options.limited(n), d), dtype, batches, options.scratch)
    rows.unpacking = more_than_a_batch((array.chunks or (1,))[0] * d * kind.itemsize)
    return columns_by_place(path, rows, options)


def _slices(path: Path, array: Any, options: Options) -> Iterator[Array]:
    """Whole chunks at a time, as many as a batch has room for."""
    high = array.chunks[0] if array.chunks else 1
    step = max(1, rows_in_a_batch(array.shape[1]) // high) * high
    with wrap_read_errors(path, "reading its rows", ANEW):
        for a in range(0, options.limited(array.shape[0]), step):
            yield from _pieces(np.asarray(array[a : a + step]))  # and is forgotten before the next one comes


def _pieces(block: Array) -> Iterator[Array]:
    """Batches, though more had to be unpacked."""
    size = rows_in_a_batch(block.shape[1])
    return (block[a : a + size].copy() for a in range(0, len(block), size)) if len(block) > size else iter((block,))
