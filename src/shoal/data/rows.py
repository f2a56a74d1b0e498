"""Rows as blocks, in partitions of some blocks each, and whoever works on them: threads here, or workers elsewhere.

Both are fixed by the number of columns alone (but where rows come in chunks of the user's own, those are the partitions) and
their results are handed out in row order, so an answer does not depend on who found it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any, Self, TypeVar

import numpy as np
from scipy import sparse

from ..execution.threads import Threads, default_threads
from ..kernels.sparse import squared_norms
from .bits import BitBlock, unpacked
from .blocks import Block, Centers, DenseBlock, SparseBlock
from .cancellation import check_cancelled
from .frame import Frame, times_power
from .jobs import Job, Span
from .sources import DistributedSource, FileSource, PickedSource, Source, find_source
from .types import Array, is_sparse, warn

Share = TypeVar("Share")

BLOCK_NUMBERS = 1 << 19  # numbers in a block: a few MB, so that a worker's block stays in the cache

BLOCK_ROWS = (4096, 1 << 16)

BLOCK_MOST = 1 << 22  # numbers in a block of dense rows, however wide they are (but see `FEWEST`): 16 MB of float32

FEWEST = 64

PART_NUMBERS = 1 << 16  # numbers that are converted at a time where they pass through float64

BLOCK_ROWS_OF_BITS = 8192

PARTITION = 16  # blocks

WORK, PIECES = 1 << 24, 16  # of picked rows: multiplications that a block must be worth if it is still to be read, most blocks

SPARSE_COLUMNS = 1024  # that a sparse row is taken to cost as much as

TOGETHER = 1 << 14  # rows of small batches that are sent for at a time, where they are elsewhere


def working_dtype(dtype: np.dtype) -> np.dtype:
    """float32 for what it holds exactly, float64 for the rest."""
    small = dtype.kind in "biu" and dtype.itemsize <= 2
    return np.dtype(np.float32 if small or (dtype.kind == "f" and dtype.itemsize <= 4) else np.float64)


def rows_in_a_block(d: int, is_sparse: bool) -> int:
    """Fixed by the width and the layout alone."""
    low, high = BLOCK_ROWS
    if not is_sparse:  # those take the room of what they store, not of their width
        low = min(low, max(FEWEST, BLOCK_MOST // max(d, 1)))
    return max(low, min(high, BLOCK_NUMBERS // max(d, 1)))


def rows_in_a_partition(d: int, is_sparse: bool) -> int:
    """What one task of another engine works on, and adds up before it sends anything."""
    return PARTITION * rows_in_a_block(d, is_sparse)


class Rows:
    """Rows of a source, in a frame, in blocks. They are worked on in a `with` block: its end is the threads' end."""

    _is_sent = False  # to another process

    def __init__(
        self, source: Source, weights: Array | None = None, frame: Frame = Frame(), n_threads: int | None = None
    ) -> None:
        self.source = source
        self.n, self.d = source.shape
        self.dtype = working_dtype(source.dtype)
        self.has_weights = weights is not None
        self.weights: Array = np.broadcast_to(1.0, self.n) if weights is None else weights
        self.frame = frame
        self.n_threads = n_threads or default_threads()
        self.is_sparse = isinstance(source.read(0, 0), sparse.csr_array)
        self.block_rows = BLOCK_ROWS_OF_BITS if frame.bits else rows_in_a_block(self.d, self.is_sparse)
        self.partition_rows = PARTITION * self.block_rows
        self._threads: Threads | None = None
        self.notices: dict[str, bool] = {}  # messages of block functions, and whether the user was warned; copies share them

    def notice(self, message: str) -> None:
        """Warn the user once, when the pass is over; in another process, whose copy of the rows nobody reads, at once."""
        self.notices[message] = self._is_sent
        if self._is_sent:
            warn(message, UserWarning)

    def _warn(self) -> None:
        if not all(self.notices.values()):
            message, *_ = self.notices  # one stands for all that blocks noted at the same time
            self.notices.update(dict.fromkeys(self.notices, True))
            warn(message, UserWarning)

    def __enter__(self) -> Self:
        self._threads = Threads(self.n_threads).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._threads is not None
        threads, self._threads = self._threads, None
        threads.__exit__()

    def use_threads(self, count: int) -> None:
        """Go on with another number of threads. Only between passes, and before other rows share them."""
        self.__exit__()
        self.n_threads = count
        self.__enter__()

    def __len__(self) -> int:
        return self.n

    @property
    def is_distributed(self) -> bool:
        """Do workers elsewhere work on them? Then what is kept for each row travels in every round."""
        return isinstance(self.source, DistributedSource)

    @property
    def spans(self) -> list[Span]:
        """Partitions, and how these are cut into blocks."""
        cuts = (
            self.source.cuts if isinstance(self.source, DistributedSource) else [*range(0, self.n, self.partition_rows), self.n]
        )
        return [Span(a, b, self.block_rows) for a, b in pairwise(cuts)]

    @property
    def starts(self) -> list[int]:
        """Where blocks begin."""
        return [block.start for span in self.spans for block in span.blocks()]

    def prepare(self, C: Array) -> Centers:
        """Centres (in this frame) made ready for this layout."""
        kind = BitBlock if self.frame.bits else SparseBlock if self.is_sparse else DenseBlock
        return kind.prepare(C)

    def convert(self, raw: Any, dtype: np.dtype | None = None) -> Block:
        """Raw rows of the source as a block in this frame, of the rows' own dtype unless another is named."""
        if self.frame.bits:
            return BitBlock(raw, self.d)
        dtype = dtype or self.dtype
        if sparse.issparse(raw):
            return SparseBlock(self._convert_sparse(raw, dtype))
        if self.frame.unit or self.frame.exponent:
            return DenseBlock(self._convert_by_parts(raw, dtype))
        return DenseBlock(self.frame.into(raw, dtype))

    def _convert_by_parts(self, raw: Array, dtype: np.dtype) -> Array:
        """Some rows at a time, since they pass through several arrays of float64."""
        out, step = np.empty(raw.shape, dtype), max(1, PART_NUMBERS // max(self.d, 1))
        for a in range(0, len(raw), step):
            part = raw[a : a + step]
            out[a : a + step] = _unit(np.asarray(part, np.float64), dtype) if self.frame.unit else self.frame.into(part, dtype)
        return out

    def _convert_sparse(self, raw: Any, dtype: np.dtype) -> Any:
        data = raw.data
        if self.frame.unit:
            lengths = np.diff(raw.indptr)
            data = data / np.repeat(np.maximum.reduceat(np.abs(data.astype(np.float64)), raw.indptr[:-1]), lengths)
            norms = np.empty(len(lengths))
            squared_norms(data, raw.indptr, norms)
            data = data / np.repeat(np.sqrt(norms), lengths)
        if self.frame.exponent:
            data = times_power(data.astype(np.float64), self.frame.exponent)
        if self.frame.shift is not None:
            data = data - self.frame.shift[raw.indices]
        return sparse.csr_array((data.astype(dtype, copy=False), raw.indices, raw.indptr), shape=raw.shape, copy=False)

    def take(self, rows: Array) -> Array:
        """A few rows in this frame, dense."""
        return self.dense(self.convert(self.source.take(np.asarray(rows))))

    def dense(self, block: Block) -> Array:
        """The rows of a block in memory order, one number a column."""
        X: Any = block.X
        if self.frame.bits:
            return unpacked(X, self.d).astype(self.dtype)
        return np.ascontiguousarray(X.toarray() if is_sparse(X) else X)

    def materialize(self, ids: Array, k: int) -> Rows:
        """Some of the rows as rows of their own, in fewer blocks, as these have been read. In a memory map they stay there."""
        part = self.subset(ids, k // 2)
        if self.is_distributed:
            return part
        if isinstance(self.source, FileSource):
            part.source = self.source.gather(ids)
        elif not self.source.is_map:
            part.source = find_source(self.source.take(ids))
        return part

    def subset(self, ids: Array, k: int) -> Rows:
        """Some of the rows, as often as they are named, in as many blocks as it is worth for k centres to look at them.

        They are read when they are worked on, by the same threads.
        """
        source = self.source.gather(ids) if isinstance(self.source, DistributedSource) else PickedSource(self.source, ids)
        return self._picked(source, ids, k)

    def batches(self, ids_of: Callable[[int], Array], k: int) -> Callable[[int], Rows]:
        """Picks by their numbers, one after the other. Where rows are elsewhere several come at a time: the way is long."""
        near: dict[int, Rows] = {}

        def batch(number: int) -> Rows:
            if not isinstance(self.source, DistributedSource):
                return self.subset(ids_of(number), k)
            if number not in near:
                near.clear()
                first = ids_of(number)
                ids = [first, *(ids_of(number + i) for i in range(1, TOGETHER // len(first)))]
                there, cuts = self.source.gather(np.concatenate(ids)), np.cumsum([0, *map(len, ids)])
                for i, (a, b) in enumerate(pairwise(cuts)):
                    near[number + i] = self._picked(find_source(there.read(a, b)), ids[i], k)
            return near.pop(number)

        return batch

    def _picked(self, source: Source, ids: Array, k: int) -> Rows:
        some = copy(self)
        some.source, some.n, some.weights = source, len(ids), self._weights_of(ids)
        work = len(ids) * k * (SPARSE_COLUMNS if self.is_sparse else self.d)
        pieces = 1 << (min(max(work // WORK, 1), PIECES).bit_length() - 1)
        some.block_rows = min(self.block_rows, max(1, -(-len(ids) // pieces)))
        return some

    def _weights_of(self, ids: Array) -> Array:
        return self.weights[ids] if self.has_weights else np.broadcast_to(1.0, len(ids))

    def sibling(self, source: Source, weights: Array | None = None, frame: Frame = Frame()) -> Rows:
        """Rows of another source for the same threads, for as long as these are open."""
        other = Rows(source, weights, frame, self.n_threads)
        other._threads = self._threads
        return other

    def with_frame(self, frame: Frame, dtype: np.dtype) -> Rows:
        """The same rows in another frame."""
        other = copy(self)
        other.frame, other.dtype = frame, dtype
        return other

    def __copy__(self) -> Rows:
        other = Rows.__new__(Rows)
        vars(other).update(vars(self))
        return other

    def __getstate__(self) -> dict[str, Any]:
        """For a pickle: without threads."""
        return {**vars(self), "_threads": None, "_is_sent": True}

    def map_raw_blocks(self, fn: Callable[..., Share], *args: Any, per_row: tuple[Array, ...] = ()) -> Iterator[Share]:
        """fn(start, raw rows, slices of per_row..., args...) of every block, in row order (see `shares`)."""
        if self._threads is None:
            raise RuntimeError("Rows are worked on inside `with rows:`, which ends their threads: open them first.")
        job = Job(self.source, self.spans, fn, args)
        if isinstance(self.source, DistributedSource):
            shares = self.source.run(job, per_row, self._threads)
        else:
            shares = self._threads.run(job, per_row)
        with contextlib.closing(shares):
            for share in shares:
                check_cancelled()
                yield share
        self._warn()

    def map_blocks(self, fn: Callable[..., Share], *args: Any, per_row: tuple[Array, ...] = ()) -> Iterator[Share]:
        """fn(block, slices of per_row..., args...) of every block, in row order; of every partition, if shares have a `plus`.

        A block function is pure but for one thing: it may write to its slices of the per-row arrays, which no other
        block sees.
        """
        return self.map_raw_blocks(partial(_on_converted, self, fn), *args, per_row=per_row)


def _on_converted(rows: Rows, fn: Callable[..., Share], start: int, raw: Any, *rest: Any) -> Share:
    return fn(rows.convert(raw), *rest)


def _unit(X: Array, dtype: np.dtype) -> Array:
    X = np.ascontiguousarray(X)  # sums depend on the order of memory in their last bit
    X = X / np.abs(X).max(axis=1)[:, None]  # so that no square leaves the range
    return np.ascontiguousarray(X / np.linalg.norm(X, axis=1)[:, None], dtype)
