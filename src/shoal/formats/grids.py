"""Zarr and HDF5 arrays, which are stored in chunks. All chunks of the same rows are read together."""

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
from .streamed import Streamed, rows_per_batch, unpacking_bytes

REMEDY = "write it again"

# Bytes of a chunk that is larger than its array, as in arrays that are appended to. Chunks are decompressed as a whole, so
# larger ones could fill memory.
MAX_OVERSIZED_CHUNK = 1 << 26
HDF5_CACHE_BYTES = 1 << 25  # of decompressed chunks

SAFE_CODECS = {  # convert bytes or numbers only; some other codecs unpickle
    *("bytes", "transpose", "sharding_indexed", "crc32c", "crc32", "adler32", "fletcher32"),
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "zfpy"),
    *("shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits"),
}


def open_zarr(path: Path, options: Options) -> Opened:
    """Open a Zarr array, or the array of a group that `options.array` names."""
    zarr = need("zarr", "zarr", path)

    def opened() -> Any:
        group = zarr.open(path, mode="r")
        array = group if hasattr(group, "dtype") else _find_array(path, dict(group.arrays()), options)
        _check_codecs(path, array.metadata.to_dict())
        return array

    with wrap_read_errors(path, "opening it with zarr", REMEDY):
        sizes = list(map(_file_size, path.rglob("*")))
        array = opened()
        rows = _open_chunked(path, array, sum(sizes), lambda: _batches(path, opened(), options), options)
        part = array.shards or array.chunks
        _check_complete(path, array, part, len(sizes))  # first, since nchunks_initialized is slow if many chunks are declared
        _check_complete(path, array, part, array.nchunks_initialized * math.prod(array.chunks) // math.prod(part))
        return rows


def open_hdf5(path: Path, options: Options) -> Opened:
    """Open the dataset of an HDF5 file that `options.array` names."""
    h5py = need("h5py", "hdf5", path)

    def find(file: Any) -> Any:
        found: dict[str, Any] = {}
        file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        return _find_array(path, found, options)

    def batches() -> Iterator[Array]:
        with h5py.File(path, "r", rdcc_nbytes=HDF5_CACHE_BYTES) as file:
            yield from _batches(path, find(file), options)

    with wrap_read_errors(path, "opening it as HDF5", REMEDY), h5py.File(path, "r") as file:
        array = find(file)
        if array.external or array.is_virtual:
            raise InvalidFileError(
                f"{path}: the numbers of {array.name!r} are stored in other files: write them into this one."
            )
        opened = _open_chunked(path, array, path.stat().st_size, batches, options)
        written = array.id.get_num_chunks() if array.chunks else int(array.id.get_storage_size() > 0)
        _check_complete(path, array, array.chunks or array.shape, written)
        offset = array.id.get_offset() if array.chunks is None else None
        if offset is None or array.id.get_type() != h5py.h5t.py_create(array.dtype):  # compressed, or not in a NumPy type
            return opened
        rows = RawRows(File.open(path), array.shape, array.dtype, offset)
        if offset + rows.stride * len(array) > rows.file.size:
            raise InvalidFileError(f"{path}: ends before its array {array.name!r} does: it is truncated; copy it again.")
        return columns_by_place(path, rows, options)


def _file_size(file: Path) -> int:
    """Return the bytes of a file in a store; raise for pipes and devices, which may never end, and for links to folders."""
    if file.is_dir() and not file.is_symlink():
        return 0
    if not file.is_file():
        raise InvalidFileError(
            f"{file}: is a link, a pipe or a device inside a Zarr store: replace it with a copy of its content."
        )
    return file.stat().st_size


def _check_complete(path: Path, array: Any, part: tuple[int, ...], written: int) -> None:
    """Raise if chunks are missing, since zarr and h5py silently read zeros in their place."""
    expected = math.prod(-(-size // max(step, 1)) for size, step in zip(array.shape, part, strict=True))
    if written < expected:
        raise InvalidFileError(
            f"{path}: {expected - written:,} of the {expected:,} chunks of {array.name!r} are missing: copy it again, or write "
            "all chunks, including zeros (write_empty_chunks=True in Zarr)."
        )


def _check_codecs(path: Path, metadata: Any) -> None:
    """Raise for codecs that could run code from the file."""
    if isinstance(metadata, dict):
        for key in ("id", "name"):
            if isinstance(metadata.get(key), str) and metadata[key].removeprefix("numcodecs.") not in SAFE_CODECS:
                raise InvalidFileError(
                    f"{path}: is compressed with {metadata[key]!r}, which is not known to be safe: use another codec."
                )
        metadata = [
            metadata[key] for key in ("filters", "compressor", "codecs", "configuration", "index_codecs") if key in metadata
        ]
    if isinstance(metadata, list | tuple):
        for inner in metadata:
            _check_codecs(path, inner)


def _find_array(path: Path, arrays: dict[str, Any], options: Options) -> Any:
    """Return the array that `options.array` names, or the only two-dimensional one."""
    name = (options.array or "").strip("/")
    if not name:
        tables = [key for key, array in arrays.items() if array.ndim == 2]
        name = tables[0] if len(tables) == 1 else ""
    if name not in arrays:
        raise InvalidFileError(f"{path}: has the arrays {', '.join(arrays) or '(none)'}: choose one with array=.")
    return arrays[name]


def _open_chunked(path: Path, array: Any, stored: int, batches: Callable[[], Iterator[Array]], options: Options) -> Opened:
    """Open an array that is read in batches, after checks of the sizes that it declares. `stored`: bytes of the file."""
    if len(array.shape) != 2:
        raise InvalidFileError(f"{path}: holds an array of shape {array.shape}: reshape it to rows and columns.")
    kind = np.dtype(array.dtype)
    if kind.kind not in "biuf":
        raise InvalidFileError(f"{path}: holds values of type {kind}: write real numbers.")
    n, d = map(int, array.shape)
    check_unpacked(path, n * d * kind.itemsize, stored)
    chunk = math.prod(array.chunks or (0,)) * kind.itemsize
    if chunk > max(MAX_OVERSIZED_CHUNK, 2 * n * d * kind.itemsize):
        raise InvalidFileError(
            f"{path}: its chunks take {chunk:,} bytes, far more than the array itself: write it with smaller chunks."
        )
    dtype = at_most_float64(np.empty(0, kind)).dtype
    rows = Streamed(str(path), (options.limited(n), d), dtype, batches, options.scratch, path)
    rows.unpacking = unpacking_bytes((array.chunks or (1,))[0] * d * kind.itemsize)
    return columns_by_place(path, rows, options)


def _batches(path: Path, array: Any, options: Options) -> Iterator[Array]:
    """Yield the rows in batches; each read covers whole chunks, so that every chunk is decompressed once."""
    chunk_rows = array.chunks[0] if array.chunks else 1
    step = max(1, rows_per_batch(array.shape[1]) // chunk_rows) * chunk_rows
    with wrap_read_errors(path, "reading its rows", REMEDY):
        for a in range(0, options.limited(array.shape[0]), step):
            yield from _split(np.asarray(array[a : a + step]))  # a variable would hold the block during the next read


def _split(block: Array) -> Iterator[Array]:
    """Split rows into batches of the usual size."""
    size = rows_per_batch(block.shape[1])
    return (block[a : a + size].copy() for a in range(0, len(block), size)) if len(block) > size else iter((block,))
