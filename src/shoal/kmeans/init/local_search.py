"""Local search after k-means++: replace a centroid by a row with a large error if that lowers the energy.

References
----------
S. Lattanzi, C. Sohler (2019), A better k-means++ algorithm via local search, ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data.blocks import Centers, DenseBlock, rounding, underflow
from ...data.cancellation import pieces
from ...data.rows import Rows
from ...data.sources import find_source
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline
from ...kernels import dense, tiles

MAX_SCORES_PER_PIECE = 1 << 20  # scores computed by one GEMM
MAX_PROPOSALS = 0.25  # rows proposed together, per centroid: they do not know of each other's swaps
MIN_BLOCKS = 8  # blocks of the rows, so that all threads have work, unless they would be small
MIN_BLOCK_ENTRIES = 1 << 18  # rows x columns of a block, below which threads cost more than they save
MAX_PRODUCTS_PER_CALL = 1 << 28  # multiplications per kernel call, which cannot be interrupted: some milliseconds


class RowDistances(NamedTuple):
    """Squared distances from all rows to a few of them, computed only if scores do not exclude them."""

    X: Array  # (n, d)
    rows: Rows  # the same, with an executor
    norms2: Array  # (n) float64: |x|^2
    slack: Array  # (n) float64: the row's part of the largest error of a score

    def take(self, ids: Array) -> RowDistances:
        """Return some of the rows."""
        X = self.X[ids]
        return RowDistances(X, in_shares(self.rows, X), self.norms2[ids], self.slack[ids])

    def products(self, C: Array) -> Array:
        """Return the dot products of rows C with all rows: (len(C), n)."""
        return np.concatenate(list(self.rows.map_blocks(_products_block, C)), axis=1)

    def lower(self, ids: Array, least: Array) -> None:
        """Set `least` to its minimum with the squared distances to these rows, in place."""
        self.rows.for_each(_lower_block, *self._packed(ids), per_row=(self.norms2, self.slack, least[:, None]))

    def below(self, ids: Array, limits: Array) -> Array:
        """Return the squared distances to each of these rows, (n, len(ids)), or the limit of a row if that is less."""
        out = np.repeat(limits[:, None], len(ids), axis=1)
        self.rows.for_each(_lower_block, *self._packed(ids), per_row=(self.norms2, self.slack, out))
        return out

    def below_of(self, some: Array, ids: Array, limits: Array) -> Array:
        """Return what `below` returns, for a few rows only."""
        out = np.repeat(limits[:, None], len(ids), axis=1)
        _lower_block(DenseBlock(self.X[some]), self.norms2[some], self.slack[some], out, *self._packed(ids))
        return out

    def subset(self, ids: Array) -> Rows:
        """Return some of the rows X, with the same executor."""
        return in_shares(self.rows, self.X[ids])

    def _packed(self, ids: Array) -> tuple[Array, Array, Array]:
        """Return these rows in the layout of the kernel, and their squared norms, rounded down."""
        C = self.X[ids]
        z2 = (self.norms2[ids] * (1 - 2 * rounding(C.dtype, C.shape[1]))).astype(C.dtype)
        return C, tiles.pack(-2 * C), tiles.pack_norms(z2)


def row_distances(X: Array, rows: Rows) -> RowDistances:
    """Compute the norms of the rows X; `rows` are any rows whose executor is to be used."""
    norms2, d = DenseBlock(X).squared_norms(), X.shape[1]
    slack = 2 * (rounding(X.dtype, d) * norms2 + underflow(X.dtype, d))
    return RowDistances(X, in_shares(rows, X), norms2, slack)


def in_shares(rows: Rows, X: Array) -> Rows:
    """Return the rows X, with the executor of `rows`, in blocks that occupy all threads."""
    some = rows.sibling(find_source(X))
    return some.with_block_rows(min(some.block_rows, max(-(-len(X) // MIN_BLOCKS), MIN_BLOCK_ENTRIES // X.shape[1] + 1)))


def _products_block(block: DenseBlock, C: Array) -> Array:
    products: Array = C @ block.X.T
    return products


def _lower_block(block: DenseBlock, norms2: Array, slack: Array, out: Array, C: Array, packs: Array, z2: Array) -> None:
    for s in pieces(len(block), max(1, MAX_PRODUCTS_PER_CALL // packs.size)):
        tiles.lower_distances(block.X[s], C, packs, z2, norms2[s], slack[s], out[s])


class TwoNearest(NamedTuple):
    """The two nearest centroids of each row."""

    first: Array  # (n): nearest centroid
    second: Array  # (n): second nearest centroid
    near: Array  # (n) float64: squared distance to the first
    far: Array  # (n) float64: squared distance to the second


def two_nearest(rows: Rows, C: Array) -> TwoNearest:
    """Find the two nearest centroids of each row."""
    (first, second), (near, far) = np.empty((2, len(rows)), np.int64), np.empty((2, len(rows)))
    rows.for_each(_two_nearest_block, DenseBlock.prepare(C), per_row=(first, second, near, far))
    return TwoNearest(first, second, near, far)


def _two_nearest_block(block: DenseBlock, first: Array, second: Array, near: Array, far: Array, centers: Centers) -> None:
    every = np.arange(len(block))
    for s in pieces(len(block), max(1, MAX_SCORES_PER_PIECE // len(centers.C))):
        S = block.take(s).scores(centers, slice(None))
        first[s] = S.argmin(axis=1)
        S[np.arange(len(S)), first[s]] = np.inf
        second[s] = S.argmin(axis=1)
    near[:], far[:] = (block.pair_distances(every, ids, centers) for ids in (first, second))
    wrong = far < near
    first[wrong], second[wrong] = second[wrong], first[wrong]
    near[wrong], far[wrong] = far[wrong], near[wrong]


def swap(
    X: Array, weights: Array, chosen: Array, draws: list[float], distances: RowDistances, deadline: Deadline = NO_DEADLINE
) -> Array:
    """Try one swap for each random number in `draws`, and return the rows chosen as centroids.

    The next few rows are proposed together, by the distances to the centroids at that time, so that one pass serves them all.
    """
    k = len(chosen)
    if k < 2:
        return chosen
    chosen = chosen.copy()
    s = two_nearest(distances.rows, X[chosen])
    lost, size = np.empty(k), min(max(int(MAX_PROPOSALS * k), 1), tiles.lanes(X.dtype))
    for batch in pieces(len(draws), size):
        mass = np.cumsum(weights * s.near)
        if deadline.expired() or not mass[-1] > 0:
            break
        proposed = np.searchsorted(mass, np.array(draws[batch]) * mass[-1], "right").clip(max=len(X) - 1)
        # distances to the proposed centroids where they are nearer than the second nearest
        below = np.ascontiguousarray(distances.below(proposed, s.far).T)
        for j, new in enumerate(proposed):
            to_new = np.minimum(below[j], s.far)
            saved = dense.swap_gain(weights, s.first, s.near, to_new, lost)
            out = int(lost.argmin())
            if lost[out] >= saved * (1 - 1e-9):
                continue
            chosen[out] = new
            rows = _update(distances, X[chosen], s, out, to_new)
            if len(rows) and j + 1 < len(proposed):
                below[j + 1 :, rows] = distances.below_of(rows, proposed[j + 1 :], s.far[rows]).T
    return chosen


def _update(distances: RowDistances, C: Array, s: TwoNearest, out: int, to_new: Array) -> Array:
    """Update the two nearest centroids after centroid `out` has moved; `to_new` are the squared distances to it.

    Return the rows for which the two nearest have been searched among all centroids.
    """
    closer = to_new < s.far
    lost = (s.second == out) & ~closer | (s.first == out)
    nearest = closer & (to_new < s.near) & ~lost
    s.second[nearest], s.far[nearest] = s.first[nearest], s.near[nearest]
    s.first[nearest], s.near[nearest] = out, to_new[nearest]
    second = closer & ~nearest & ~lost
    s.second[second], s.far[second] = out, to_new[second]
    rows = np.flatnonzero(lost)
    if len(rows):
        for values, recomputed in zip(s, two_nearest(distances.subset(rows), C), strict=True):
            values[rows] = recomputed
    return rows
