"""Rows of a source as blocks, and partitions of some blocks each.

Blocks and partitions depend on the number of columns alone (those of a Dask collection on its chunks), and shares are added up
in row order, so a result does not depend on the number of threads or workers.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from ..kernels.sparse import squared_norms
from .array_pool import ArrayPool
from .bits import BitBlock, unpacked
from .blocks import Block, Centers, DenseBlock, SparseBlock, prepare_pairs
from .cancellation import check_cancelled
from .frame import Frame, times_power
from .jobs import Executor, Job, Span
from .source import CellSource, Source
from .types import Array, is_sparse, warn

Share = TypeVar("Share")
# Sums are added up block by block, so changing any of the block sizes changes the last bits of results.
BLOCK_NUMBERS = 1 << 19  # target of numbers in a block: a few MB, so that the block of a thread stays in the cache
BLOCK_ROWS = (4096, 1 << 16)  # fewest and most rows in a block
MAX_DENSE_BLOCK_NUMBERS = 1 << 22  # numbers in a block of wide dense rows: 16 MB of float32
MIN_DENSE_BLOCK_ROWS = 64  # rows in a block of dense rows, however wide they are
CONVERTED_NUMBERS = 1 << 16  # numbers converted at a time through float64 temporaries, so that these stay in the cache
BIT_BLOCK_ROWS = 8192  # rows in a block of packed bits
BLOCKS_PER_PARTITION = 16  # blocks in a partition
SUBSET_BLOCK_MULTIPLICATIONS = (
    1 << 24
)  # multiplications per block of a subset: less work does not pay for reading the rows on another thread
MAX_SUBSET_BLOCKS = 16
SPARSE_ROW_COLUMNS = 1024  # assumed cost of a sparse row, as the number of columns of an equally expensive dense row
BATCH_ROWS_PER_FETCH = 1 << 14  # rows of small batches fetched from workers at a time, to save round trips


def working_dtype(dtype: np.dtype) -> np.dtype:
    """Return float32 for dtypes whose values it represents exactly, float64 for the others."""
    small = dtype.kind in "biu" and dtype.itemsize <= 2
    return np.dtype(np.float32 if small or (dtype.kind == "f" and dtype.itemsize <= 4) else np.float64)


def rows_in_a_block(d: int, is_sparse: bool) -> int:
    """Return the number of rows in a block, which depends on the number of columns and the layout only."""
    low, high = BLOCK_ROWS
    if not is_sparse:  # the memory of sparse rows does not depend on their number of columns
        low = min(low, max(MIN_DENSE_BLOCK_ROWS, MAX_DENSE_BLOCK_NUMBERS // max(d, 1)))
    return max(low, min(high, BLOCK_NUMBERS // max(d, 1)))


def rows_in_a_partition(d: int, is_sparse: bool) -> int:
    """Return the number of rows in a partition: the rows of one distributed task, which returns one sum."""
    return BLOCKS_PER_PARTITION * rows_in_a_block(d, is_sparse)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a source in a frame, divided into blocks, and the executor that works on them.

    Immutable: `with_frame`, `with_executor`, `subset` and the like return other rows. Make new ones by `Rows.of`.
    """

    source: Source
    weights: Array  # (n) float64
    has_weights: bool
    frame: Frame
    dtype: np.dtype  # of the rows in this frame
    block_rows: int
    is_sparse: bool
    executor: Executor | None = None
    notices: dict[str, bool] = field(default_factory=dict)  # messages of block functions, and whether the user was warned
    pool: ArrayPool = field(default_factory=ArrayPool)  # of arrays as large as the centroids
    copy_limit: float = math.inf  # bytes of copied rows of a file that `materialize` may hold in memory
    is_remote: bool = False  # whether this copy was sent to another process

    @classmethod
    def of(cls, source: Source, weights: Array | None = None, frame: Frame = Frame(), executor: Executor | None = None) -> Rows:
        """Return the rows of a source, in the dtype that holds them exactly."""
        n, d = source.shape
        is_sparse = isinstance(source.read(0, 0), sparse.csr_array)
        block_rows = BIT_BLOCK_ROWS if frame.bits else rows_in_a_block(d, is_sparse)
        all_weights = np.broadcast_to(1.0, n) if weights is None else weights
        dtype = working_dtype(source.dtype)
        return cls(source, all_weights, weights is not None, frame, dtype, block_rows, is_sparse, executor)

    def __len__(self) -> int:
        return self.source.shape[0]

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.source.shape[1]

    @property
    def n_threads(self) -> int:
        """Number of threads of the executor."""
        return self._open_executor().n_threads

    @property
    def is_distributed(self) -> bool:
        """Whether workers in other processes read the rows. Per-row arrays are then sent with every task."""
        return self.source.is_distributed

    @property
    def spans(self) -> list[Span]:
        """Partitions, and how they are divided into blocks."""
        return [Span(a, b, self.block_rows) for a, b in self.source.partitions(BLOCKS_PER_PARTITION * self.block_rows)]

    @property
    def starts(self) -> list[int]:
        """Index of the first row of each block."""
        return [block.start for span in self.spans for block in span.blocks()]

    # Other rows

    def with_frame(self, frame: Frame, dtype: np.dtype) -> Rows:
        """Return the same rows in another frame and dtype."""
        return replace(self, frame=frame, dtype=dtype)

    def with_dtype(self, dtype: np.dtype) -> Rows:
        """Return the same rows in another dtype."""
        return replace(self, dtype=dtype)

    def with_weights(self, weights: Array) -> Rows:
        """Return the same rows with other weights."""
        return replace(self, weights=weights)

    def with_executor(self, executor: Executor) -> Rows:
        """Return the same rows, processed by an executor."""
        return replace(self, executor=executor)

    def with_copy_limit(self, copy_limit: float) -> Rows:
        """Return the same rows with another limit for copies of rows of a file."""
        return replace(self, copy_limit=copy_limit)

    def with_block_rows(self, block_rows: int) -> Rows:
        """Return the same rows in blocks of another size."""
        return replace(self, block_rows=block_rows)

    def sibling(self, source: Source, weights: Array | None = None, frame: Frame = Frame()) -> Rows:
        """Return rows of another source for the same executor."""
        return Rows.of(source, weights, frame, self.executor).with_copy_limit(self.copy_limit)

    def subset(self, ids: Array, k: int) -> Rows:
        """Return the rows of these indices (repeats allowed), read when they are used.

        The number of blocks grows with the work of comparing the rows with k centroids.
        """
        return self._subset(self.source.subset(ids), ids, k)

    def materialize(self, ids: Array, k: int) -> Rows:
        """Return the rows of these indices, read into memory now; rows of a memory map are read when they are used."""
        return self._subset(self.source.materialize(ids, self.copy_limit), ids, k // 2)

    def cells(self, ids: Array, cuts: Array) -> Rows:
        """Return the rows of these indices, read when they are used; each cell, between two `cuts`, is one block."""
        return self.view(CellSource(self.source, ids, cuts), ids, 1).with_block_rows(max(1, int(np.diff(cuts).max())))

    def view(self, source: Source, ids: Array, k: int) -> Rows:
        """Return rows of a source that holds the rows of these indices."""
        return self._subset(source, ids, k)

    def batches(self, ids: Callable[[int], Array], k: int) -> Batches:
        """Return small subsets of the rows, indexed by batch number; `ids(number)` returns the row indices of a batch."""
        return Batches(self, ids, k)

    def _subset(self, source: Source, ids: Array, k: int) -> Rows:
        """Return rows of a source that holds the rows `ids` of this one, divided into blocks for k centroids."""
        weights = self.weights[ids] if self.has_weights else np.broadcast_to(1.0, len(ids))
        work = len(ids) * k * (SPARSE_ROW_COLUMNS if self.is_sparse else self.d)
        n_blocks = 1 << (min(max(work // SUBSET_BLOCK_MULTIPLICATIONS, 1), MAX_SUBSET_BLOCKS).bit_length() - 1)
        block_rows = min(self.block_rows, max(1, -(-len(ids) // n_blocks)))
        return replace(self, source=source, weights=weights, block_rows=block_rows)

    # Values

    def prepare(self, C: Array) -> Centers:
        """Return centroids (in this frame) prepared for this layout."""
        block_type = BitBlock if self.frame.bits else SparseBlock if self.is_sparse else DenseBlock
        return block_type.prepare(C)

    def prepare_pairs(self, C: Array) -> Centers:
        """Return centroids (in this frame) prepared for the distances of given pairs only."""
        return self.prepare(C) if self.frame.bits else prepare_pairs(C)

    def convert(self, raw: Any, dtype: np.dtype | None = None) -> Block:
        """Return raw rows of the source as a block in this frame, in `self.dtype` unless a dtype is given."""
        if self.frame.bits:
            return BitBlock(raw, self.d)
        dtype = dtype or self.dtype
        if sparse.issparse(raw):
            return SparseBlock(self._convert_sparse(raw, dtype))
        if self.frame.unit or self.frame.exponent:
            return DenseBlock(self._convert_by_parts(raw, dtype))
        return DenseBlock(self.frame.into(raw, dtype))

    def _convert_by_parts(self, raw: Array, dtype: np.dtype) -> Array:
        """Convert a few rows at a time, since the conversion needs several float64 temporaries."""
        out, step = np.empty(raw.shape, dtype), max(1, CONVERTED_NUMBERS // max(self.d, 1))
        for a in range(0, len(raw), step):
            part = raw[a : a + step]
            out[a : a + step] = _unit(np.asarray(part, np.float64), dtype) if self.frame.unit else self.frame.into(part, dtype)
        return out

    def _convert_sparse(self, raw: Any, dtype: np.dtype) -> Any:
        """Convert the stored entries of sparse rows to this frame."""
        data = raw.data
        if not self.frame.unit and self.frame.is_identity and data.dtype == dtype:
            return raw  # to make a CSR matrix takes longer than to label a hundred rows
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
        """Return a few rows in this frame, dense."""
        return self.dense(self.convert(self.source.take(np.asarray(rows))))

    def dense(self, block: Block) -> Array:
        """Return the rows of a block as a C-contiguous array, one number per column."""
        X: Any = block.X
        if self.frame.bits:
            return unpacked(X, self.d).astype(self.dtype)
        return np.ascontiguousarray(X.toarray() if is_sparse(X) else X)

    # Passes

    def map_raw_blocks(self, fn: Callable[..., Share], *args: Any, per_row: tuple[Array, ...] = ()) -> Iterator[Share]:
        """Yield fn(start, raw rows, slices of per_row..., args...) of every block in row order (see `map_blocks`)."""
        job = Job(self.source, self.spans, fn, args)
        with contextlib.closing(self.source.run(job, per_row, self._open_executor())) as shares:
            for share in shares:
                check_cancelled()
                yield share
        self._warn()

    def map_blocks(self, fn: Callable[..., Share], *args: Any, per_row: tuple[Array, ...] = ()) -> Iterator[Share]:
        """Yield fn(block, slices of per_row..., args...) of every block in row order.

        Results with a `plus` method are summed, and one result per partition is yielded.

        A block function is pure except that it may write to its slices of the per-row arrays, which no other block sees.
        """
        return self.map_raw_blocks(partial(_on_converted, self, fn), *args, per_row=per_row)

    def for_each_raw(self, fn: Callable[..., Any], *args: Any, per_row: tuple[Array, ...] = ()) -> None:
        """Call a function of raw rows on every block, for what it writes to its slices of the per-row arrays."""
        deque(self.map_raw_blocks(fn, *args, per_row=per_row), 0)

    def for_each(self, fn: Callable[..., Any], *args: Any, per_row: tuple[Array, ...] = ()) -> None:
        """Call a block function on every block, for what it writes to its slices of the per-row arrays."""
        deque(self.map_blocks(fn, *args, per_row=per_row), 0)

    def _open_executor(self) -> Executor:
        """Return the executor, or raise if there is none."""
        if self.executor is None:
            raise RuntimeError("These rows have no executor: call with_executor first.")
        return self.executor

    def limit_threads(self, n_threads: int) -> None:
        """Continue with at most this many threads. Call it between passes only."""
        executor = self._open_executor()
        if n_threads < executor.n_threads:
            executor.resize(n_threads)

    def notice(self, message: str) -> None:
        """Warn the user once, at the end of the pass; immediately in another process, whose copy of the rows is discarded."""
        self.notices[message] = self.is_remote
        if self.is_remote:
            warn(message, UserWarning)

    def _warn(self) -> None:
        """Warn of the first new notice."""
        if not all(self.notices.values()):
            message, *_ = self.notices  # blocks of one pass may all have noted the same problem
            self.notices.update(dict.fromkeys(self.notices, True))
            warn(message, UserWarning)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the executor and the pool."""
        return {**vars(self), "executor": None, "pool": ArrayPool(), "is_remote": True}


class Batches:
    """Small subsets of rows, indexed by batch number. Several batches of distributed rows are fetched at a time.

    Batches should be requested in order, each of them once.
    """

    def __init__(self, rows: Rows, ids: Callable[[int], Array], k: int) -> None:
        self.rows, self.ids, self.k = rows, ids, k
        self._fetched: dict[int, Rows] = {}

    def __getitem__(self, number: int) -> Rows:
        if not self.rows.is_distributed:
            return self.rows.subset(self.ids(number), self.k)
        if number not in self._fetched:
            self._fetched.clear()
            first = self.ids(number)
            ids = [first, *(self.ids(number + i) for i in range(1, BATCH_ROWS_PER_FETCH // len(first)))]
            limit = self.rows.copy_limit
            local = self.rows.source.materialize(np.concatenate(ids), limit)
            bounds = np.cumsum([0, *map(len, ids)])
            for i, (a, b) in enumerate(pairwise(bounds)):
                self._fetched[number + i] = self.rows._subset(local.materialize(np.arange(a, b), limit), ids[i], self.k)
        return self._fetched.pop(number)


def _on_converted(rows: Rows, fn: Callable[..., Share], start: int, raw: Any, *rest: Any) -> Share:
    """Call a block function on raw rows converted to a block."""
    return fn(rows.convert(raw), *rest)


def _unit(X: Array, dtype: np.dtype) -> Array:
    """Scale rows to unit length."""
    X = np.ascontiguousarray(X)  # the last bits of the norms depend on the memory layout
    X = X / np.abs(X).max(axis=1)[:, None]  # prevents overflow and underflow of the squares
    return np.ascontiguousarray(X / np.linalg.norm(X, axis=1)[:, None], dtype)
