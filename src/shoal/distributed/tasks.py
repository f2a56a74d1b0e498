"""Tasks that run on workers: pure functions of a partition and small arguments.

A task opens its partition, applies the block function block by block, adds up the shares as threads do, and returns them with
the slices of the per-row arrays that the block function has changed. Workers cache what they open, but no result depends on a
cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import pickle
import time
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from threading import Lock
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from ..data.jobs import Span, folded
from ..data.rows import Rows
from ..data.source import Source
from ..data.types import Array
from ..execution.threads import one_blas_thread
from .partitions import Partition

# Limits of a batch. Once one is exceeded, the remaining tasks are returned undone, so that a wrong estimate of their cost
# neither makes the batch late nor fills the worker's memory.
MAX_BATCH_SECONDS = 1.0
MAX_BATCH_BYTES = 1 << 25  # of answers
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt, from malloc.h
_spec_lock = Lock()  # threads of one worker unpack a specification once, not once each
Transform = Callable[[int | None, Any], Any]  # of the index of the first row, or None for rows picked by index, and raw rows


class PassSpec(NamedTuple):
    """Specification shared by all tasks of a pass over the rows."""

    fn: Any  # the block function
    args: tuple[Any, ...]
    transform: Transform | None
    dtype: np.dtype

    def read(self, source: Source, first: int, rows: slice) -> Any:
        """Return a range of transformed rows from a source that starts at row `first`."""
        return self.apply_transform(rows.start, source.read(rows.start - first, rows.stop - first))

    def apply_transform(self, start: int | None, raw: Any) -> Any:
        """Return raw rows after the transform, in the dtype of the pass."""
        raw = raw if self.transform is None else self.transform(start, raw)
        return raw if raw.dtype == self.dtype else raw.astype(self.dtype)


class ShapeOnlySource(Source):
    """Shape and dtype of rows that this process cannot read."""

    def __init__(self, source: Source) -> None:
        self.shape, self.dtype = source.shape, source.dtype

    def read(self, start: int, stop: int) -> Any:
        raise RuntimeError("Rows are sent to workers without their source: pass what is needed as arguments.")

    def take(self, rows: Array) -> Any:
        return self.read(0, 0)

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        return self.read(0, 0)  # type: ignore[no-any-return]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler that omits the source and the weights of `Rows`: block functions use their frame alone."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Rows):
            return _rows_without_source, ({**obj.__getstate__(), "source": ShapeOnlySource(obj.source), "weights": None},)
        return super().reducer_override(obj)


def _rows_without_source(state: dict[str, Any]) -> Rows:
    rows = Rows.__new__(Rows)
    vars(rows).update(state)
    return rows


def pack(obj: Any) -> bytes:
    """Return a pickle of an object. Dask does not look for tasks inside bytes, as it does inside lists and tuples."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(obj)
    return buffer.getvalue()


def unpack(blob: bytes) -> Any:
    """Return the object of a pickle made by `pack`, in the driver or in a worker of this fit.

    This adds no risk: Dask itself exchanges pickles between these processes, so anyone who can connect to one can run code
    there. Content of files is never unpickled here.
    """
    return pickle.loads(blob)


def _is_equal(a: Array, b: Array) -> bool:
    return a is b or (a.dtype == b.dtype and np.array_equal(a, b))


class PerRowSlices(NamedTuple):
    """A partition's slices of the per-row arrays, without redundancy.

    Of a broadcast array (stride 0) one value is sent, and of equal slices one copy.
    """

    arrays: list[Array | int]  # a slice, or the position of an equal one
    lengths: list[int]  # number of rows of broadcast arrays, 0 for the others

    @classmethod
    def from_arrays(cls, per_row: tuple[Array, ...], span: Span) -> PerRowSlices:
        """Return the slices of a partition."""
        is_broadcast = [a.strides[0] == 0 for a in per_row]
        slices = [a[:1] if broadcast else a[span.start : span.stop] for a, broadcast in zip(per_row, is_broadcast, strict=True)]
        slices = [np.ascontiguousarray(a) for a in slices]
        first_equal = [next(j for j, b in enumerate(slices) if _is_equal(a, b)) for a in slices]
        arrays = [slices[i] if i == j else j for i, j in enumerate(first_equal)]
        return cls(arrays, [broadcast * (span.stop - span.start) for broadcast in is_broadcast])

    def values(self) -> list[Array]:
        """Return all slices, those of broadcast arrays with one value."""
        return [self.arrays[a] if isinstance(a, int) else a for a in self.arrays]  # type: ignore[misc]

    def writable_copies(self) -> list[Array]:
        """Return copies of all slices, in full length."""
        pairs = zip(self.values(), self.lengths, strict=True)
        return [np.repeat(a, length, axis=0) if length else np.array(a) for a, length in pairs]

    def changed(self, current: list[Array]) -> dict[int, Array]:
        """Return the slices, by position, that differ from the original ones. Broadcast arrays are read-only."""
        triples = enumerate(zip(self.values(), current, self.lengths, strict=True))
        return {i: new for i, (old, new, length) in triples if not length and not np.array_equal(old, new)}


def load_spec(spec: bytes) -> PassSpec:
    """Return the unpacked specification of a pass. It may be as large as the centroids, so a worker holds one copy."""
    with _spec_lock:
        return _load_spec_cached(spec)


@lru_cache(maxsize=1)
def _load_spec_cached(spec: bytes) -> PassSpec:
    unpacked: PassSpec = unpack(spec)
    return unpacked


def open_partition(partition: Partition | bytes, dependencies: list[Any]) -> tuple[Source, int]:
    """Return the source of a partition and the index of its first row; a packed partition means that this is a worker."""
    if not isinstance(partition, bytes):
        return partition.open(dependencies)
    _keep_memory()
    unpacked: Partition = unpack(partition)
    return unpacked.open(dependencies)


@cache
def _keep_memory() -> None:
    """Let malloc keep freed memory. Dask configures workers to return it at once, so every block would fault in new pages."""
    with contextlib.suppress(OSError, AttributeError):  # systems without mallopt
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 27)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)


def run_partition(partition: Partition | bytes, spec: bytes, span: Span, slices: bytes, dependencies: list[Any]) -> bytes:
    """Return the packed shares of a partition, and its slices of per-row arrays where they have changed."""
    pass_spec = load_spec(spec)
    original: PerRowSlices = unpack(slices)
    current = original.writable_copies()

    def block_shares(source: Source, first: int) -> Iterator[Any]:
        for rows in span.blocks():
            block_slices = (a[rows.start - span.start : rows.stop - span.start] for a in current)
            yield pass_spec.fn(rows.start, pass_spec.read(source, first, rows), *block_slices, *pass_spec.args)

    with one_blas_thread():
        shares = list(folded(block_shares(*open_partition(partition, dependencies))))
    return pack((shares, original.changed(current)))


def run_batch(fn: Callable[..., bytes], batch: bytes, spec: bytes, dependencies: list[list[Any]]) -> list[bytes]:
    """Return the answers of a batch of tasks: of all of them, or of the first ones, if they exceed the limits of a batch."""
    started, answers, n_bytes = time.monotonic(), list[bytes](), 0
    for (partition, args), task_dependencies in zip(unpack(batch), dependencies, strict=True):
        answers.append(fn(partition, spec, *args, task_dependencies))
        n_bytes += len(answers[-1])
        if n_bytes > MAX_BATCH_BYTES or time.monotonic() - started > MAX_BATCH_SECONDS:
            break
    return answers


def take_rows(partition: Partition | bytes, spec: bytes, indices: Array, dependencies: list[Any]) -> bytes:
    """Return packed rows of a partition, by their indices in the whole data set."""
    pass_spec = load_spec(spec)
    source, first = open_partition(partition, dependencies)
    return pack(pass_spec.apply_transform(None, source.take(indices - first)))


def read_rows(partition: Partition | bytes, spec: bytes, rows: slice, dependencies: list[Any]) -> bytes:
    """Return a packed range of a partition's rows."""
    return pack(load_spec(spec).read(*open_partition(partition, dependencies), rows))


def count_rows(partition: Partition | bytes, _: bytes, dependencies: list[Any]) -> bytes:
    """Return the packed number of a partition's rows."""
    return pack(open_partition(partition, dependencies)[0].shape[0])
