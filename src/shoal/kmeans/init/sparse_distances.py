"""Distances from all rows of a sparse sample to a few of them, for k-means++."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...data.blocks import SparseBlock
from ...data.cancellation import pieces
from ...data.rows import Rows
from ...data.sources import find_source
from ...data.types import Array
from ...kernels import sparse

BLOCKS_PER_THREAD, MIN_BLOCK_ROWS = 2, 1024  # blocks of the rows, so that all threads have work, unless they would be small
MAX_BLOCK_ENTRIES = 1 << 22  # in a block, which a call cannot leave early: some milliseconds


class SparseRowDistances(NamedTuple):
    """Squared distances from all rows to a few of them, in float64. They are zero between equal rows."""

    X: Any  # (n, d) CSR matrix
    rows: Rows  # the same, with an executor
    norms2: Array  # (n) float64: |x|^2
    place: Array  # (d) int32: -1; space for tables

    def take(self, ids: Array) -> SparseRowDistances:
        """Return some of the rows."""
        return sparse_row_distances(self.X[ids], self.rows)

    def lower(self, ids: Array, least: Array) -> None:
        """Set `least` to its minimum with the squared distances to these rows, in place."""
        for s, table in self._tables(self.X[ids]):
            self.rows.for_each(_lower_block, self.place, table, self.norms2[ids[s]], per_row=(self.norms2, least))

    def products(self, C: Any) -> Array:
        """Return the dot products of sparse rows C, in the dtype of the rows, with all rows: (len(C), n)."""
        out = np.empty((C.shape[0], len(self.norms2)), self.X.dtype)
        for s, table in self._tables(C):
            part = np.empty((len(self.norms2), s.stop - s.start), out.dtype)
            self.rows.for_each(_product_block, self.place, table, per_row=(part,))
            out[s] = part.T
        return out

    def _tables(self, C: Any) -> Iterator[tuple[slice, Array]]:
        """Yield ranges of the rows C as tables by column; `place` has the rows of the tables."""
        for s in pieces(C.shape[0], sparse.LANES):
            some = C[s]
            table = np.zeros((max(some.nnz, 1), sparse.LANES))
            sparse.table_of_rows(some.data, some.indices, some.indptr, self.place, table)
            try:
                yield s, table
            finally:
                self.place[some.indices] = -1


def sparse_row_distances(X: Any, rows: Rows) -> SparseRowDistances:
    """Compute the norms of the rows X; `rows` are any rows whose executor is to be used."""
    n, d = X.shape
    norms2 = np.empty(n)
    sparse.ordered_norms(X.data, X.indptr, norms2)
    n_blocks = max(BLOCKS_PER_THREAD * rows.n_threads, X.nnz // MAX_BLOCK_ENTRIES)
    some = rows.sibling(find_source(X)).with_block_rows(max(-(-n // n_blocks), MIN_BLOCK_ROWS))
    return SparseRowDistances(X, some, norms2, np.full(d, -1, np.int32))


def _lower_block(block: SparseBlock, norms2: Array, least: Array, place: Array, table: Array, own: Array) -> None:
    sparse.lower_distances(*_arrays(block), place, table, own, norms2, *_space(block), least)


def _product_block(block: SparseBlock, out: Array, place: Array, table: Array) -> None:
    sparse.products(*_arrays(block), place, table, *_space(block), out)


def _arrays(block: SparseBlock) -> tuple[Array, Array, Array]:
    return block.X.data, block.X.indices, block.X.indptr


def _space(block: SparseBlock) -> tuple[Array, Array]:
    """Return working arrays of the kernels."""
    return np.empty(int(np.diff(block.X.indptr).max(initial=0)) + 1, np.int64), np.empty(sparse.LANES)
