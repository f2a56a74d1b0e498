"""What a worker does: pure functions of a partition's descriptor and small arguments. Nothing that is needed outlives a task.

A task reads its partition, works on it block by block, adds the shares up as threads would, and sends them back with
whatever the block function has written to its slices of the per-row arrays.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
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
from .partitions import Piece

LONGEST, MOST = 1.0, 1 << 25  # seconds, and bytes, after which the others of those that travel together are left undone
TRIM, MAP = -1, -3  # the names of these thresholds in malloc.h
_TELLING = Lock()  # an order is unpacked once, however many threads a worker has
Change = Callable[[int | None, Any], Any]  # of raw rows, which begin with that one, or are some of all


class Order(NamedTuple):
    """What a round asks of every partition."""

    fn: Any
    args: tuple[Any, ...]
    change: Change | None
    dtype: np.dtype

    def read(self, source: Source, first: int, here: slice) -> Any:
        raw = source.read(here.start - first, here.stop - first)
        return self.finish(here.start, raw)

    def finish(self, start: int | None, raw: Any) -> Any:
        raw = raw if self.change is None else self.change(start, raw)
        return raw if raw.dtype == self.dtype else raw.astype(self.dtype)


class ShapeOnly(Source):
    """The shape and the dtype of rows that this process can't read."""

    def __init__(self, source: Source) -> None:
        self.shape, self.dtype = source.shape, source.dtype

    def read(self, start: int, stop: int) -> Any:
        raise RuntimeError("Rows are sent to workers without their source: pass what is needed as arguments.")

    def take(self, rows: Array) -> Any:
        return self.read(0, 0)

    def materialize(self, rows: Array) -> Source:
        return self.read(0, 0)  # type: ignore[no-any-return]


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Rows in the arguments of block functions are there for their frame alone."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Rows):
            return _bare_rows, ({**thing.__getstate__(), "source": ShapeOnly(thing.source), "weights": None},)
        return super().reducer_override(thing)


def _bare_rows(state: dict[str, Any]) -> Rows:
    rows = Rows.__new__(Rows)
    vars(rows).update(state)
    return rows


def pack(thing: Any) -> bytes:
    buffer = io.BytesIO()
    _Packer(buffer, protocol=5).dump(thing)
    return buffer.getvalue()


def unpack(blob: bytes) -> Any:
    """Only what this fit's driver or one of its workers has packed: dask sends pickles between them, so who can reach a worker
    can run code there as it is. What comes from a file never gets here."""
    return pickle.loads(blob)


def _equal(a: Array, b: Array) -> bool:
    return a is b or (a.dtype == b.dtype and np.array_equal(a, b))


class Slices(NamedTuple):
    """A partition's slices of the per-row arrays. A constant is sent once, not for every row; so are two that are equal."""

    arrays: list[Array | int]  # or the place of an equal one
    lengths: list[int]  # of constants, else 0

    @classmethod
    def of(cls, per_row: tuple[Array, ...], span: Span) -> Slices:
        constant = [a.strides[0] == 0 for a in per_row]
        own = [a[:1] if same else a[span.start : span.stop] for a, same in zip(per_row, constant, strict=True)]
        own = [np.ascontiguousarray(a) for a in own]
        first = [next(j for j, b in enumerate(own) if _equal(a, b)) for a in own]
        arrays = [own[i] if i == j else j for i, j in enumerate(first)]
        return cls(arrays, [same * (span.stop - span.start) for same in constant])

    def values(self) -> list[Array]:
        return [self.arrays[a] if isinstance(a, int) else a for a in self.arrays]  # type: ignore[misc]

    def writable(self) -> list[Array]:
        pairs = zip(self.values(), self.lengths, strict=True)
        return [np.repeat(a, length, axis=0) if length else np.array(a) for a, length in pairs]

    def written(self, now: list[Array]) -> dict[int, Array]:
        """Those that are no longer what they were."""
        pairs = enumerate(zip(self.values(), now, self.lengths, strict=True))
        return {i: new for i, (old, new, length) in pairs if not length and not np.array_equal(old, new)}


def told(order: bytes) -> Order:
    """What tasks of a round share. It is read by all of them, and large where there are many clusters: one copy is enough."""
    with _TELLING:
        return _told_once(order)


@lru_cache(maxsize=1)
def _told_once(order: bytes) -> Order:
    found: Order = unpack(order)
    return found


def opened(piece: Piece | bytes, near: list[Any]) -> tuple[Source, int]:
    if not isinstance(piece, bytes):
        return piece.open(near)
    _keep_memory()
    found: Piece = unpack(piece)
    return found.open(near)


@cache
def _keep_memory() -> None:
    """Dask has its workers give freed memory back at once, and blocks would wait for new pages all the time."""
    with contextlib.suppress(OSError, AttributeError):  # other systems have other ways
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM, 1 << 27)
        libc.mallopt(MAP, 1 << 25)


def work(piece: Piece | bytes, order: bytes, span: Span, slices: bytes, near: list[Any]) -> bytes:
    """The shares of a partition, and its slices of per-row arrays where they were written to."""
    todo = told(order)
    mine: Slices = unpack(slices)
    own = mine.writable()

    def shares(source: Source, first: int) -> Iterator[Any]:
        for here in span.blocks():
            local = (a[here.start - span.start : here.stop - span.start] for a in own)
            yield todo.fn(here.start, todo.read(source, first, here), *local, *todo.args)

    with one_blas_thread():
        found = list(folded(shares(*opened(piece, near))))
    return pack((found, mine.written(own)))


def several(fn: Callable[..., bytes], loads: bytes, order: bytes, near: list[list[Any]]) -> list[bytes]:
    """Tasks that travel together, one after the other: as many as time and room were expected for, and one at least."""
    begun, answers, size = time.monotonic(), list[bytes](), 0
    for (piece, rest), own in zip(unpack(loads), near, strict=True):
        answers.append(fn(piece, order, *rest, own))
        size += len(answers[-1])
        if size > MOST or time.monotonic() - begun > LONGEST:
            break
    return answers


def taken(piece: Piece | bytes, order: bytes, ids: Array, near: list[Any]) -> bytes:
    """Some rows of a partition, by their numbers in the whole."""
    todo = told(order)
    source, first = opened(piece, near)
    return pack(todo.finish(None, source.take(ids - first)))


def read(piece: Piece | bytes, order: bytes, here: slice, near: list[Any]) -> bytes:
    return pack(told(order).read(*opened(piece, near), here))


def length(piece: Piece | bytes, _: bytes, near: list[Any]) -> bytes:
    return pack(opened(piece, near)[0].shape[0])
