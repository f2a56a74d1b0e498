"""Local search after k-means++: replace a centroid by a row with a large error if that lowers the energy.

References
----------
S. Lattanzi, C. Sohler (2019), A better k-means++ algorithm via local search, ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data.blocks import DenseBlock, rounding, underflow
from ...data.cancellation import pieces
from ...data.rows import Rows
from ...data.sources import find_source
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline
from ...kernels import dense, tiles

MAX_SCORES_PER_PIECE = 1 << 20  # scores computed by one GEMM
MIN_BLOCKS, MIN_BLOCK_ROWS = 8, 1024  # blocks of the rows, so that all threads have work, unless they would be small
MAX_PRODUCTS_PER_CALL = 1 << 28  # multiplications per kernel call, which cannot be interrupted: some milliseconds


class RowDistances(NamedTuple):
    """Squared distances from all rows to a few of them, computed only if scores do not exclude them."""

    X: Array  # (n, d)
    rows: Rows  # the same, with an executor
    norms2: Array  # (n) float64: |x|^2
    slack: Array  # (n) float64: the row's part of the largest error of a score

    def take(self, ids: Array) -> RowDistances:
        """Return some of the rows."""
        return self._replace(X=self.X[ids], norms2=self.norms2[ids], slack=self.slack[ids])

    def products(self, C: Array) -> Array:
        """Return the dot products of rows C with all rows: (len(C), n)."""
        products: Array = np.dot(C, self.X.T)
        return products

    def lower(self, ids: Array, least: Array) -> None:
        """Set `least` to its minimum with the squared distances to these rows, in place."""
        self._lower(ids, least[:, None])

    def below(self, ids: Array, limits: Array) -> Array:
        """Return the squared distances to each of these rows, (n, len(ids)), or the limit of a row if that is less."""
        out = np.repeat(limits[:, None], len(ids), axis=1)
        self._lower(ids, out)
        return out

    def _lower(self, ids: Array, out: Array) -> None:
        C = self.X[ids]
        z2 = (self.norms2[ids] * (1 - 2 * rounding(C.dtype, C.shape[1]))).astype(C.dtype)
        centers = C, tiles.pack(-2 * C), tiles.pack_norms(z2)
        self.rows.for_each(_lower_block, *centers, per_row=(self.norms2, self.slack, out))


def row_distances(X: Array, rows: Rows) -> RowDistances:
    """Compute the norms of the rows X; `rows` are any rows whose executor is to be used."""
    norms2, (n, d) = np.empty(len(X)), X.shape
    dense.squared_norms(X, norms2)
    slack = 2 * (rounding(X.dtype, d) * norms2 + underflow(X.dtype, d))
    some = rows.sibling(find_source(X))
    return RowDistances(X, some.with_block_rows(min(some.block_rows, max(-(-n // MIN_BLOCKS), MIN_BLOCK_ROWS))), norms2, slack)


def _lower_block(block: DenseBlock, norms2: Array, slack: Array, out: Array, C: Array, packs: Array, z2: Array) -> None:
    for s in pieces(len(block), max(1, MAX_PRODUCTS_PER_CALL // packs.size)):
        tiles.lower_distances(block.X[s], C, packs, z2, norms2[s], slack[s], out[s])


class TwoNearest(NamedTuple):
    """The two nearest centroids of each row."""

    first: Array  # (n): nearest centroid
    second: Array  # (n): second nearest centroid
    near: Array  # (n) float64: squared distance to the first
    far: Array  # (n) float64: squared distance to the second


def two_nearest(X: Array, C: Array) -> TwoNearest:
    """Find the two nearest centroids of each row."""
    block, centers = DenseBlock(X), DenseBlock.prepare(C)
    first, second = np.empty((2, len(X)), np.int64)
    step = max(1, MAX_SCORES_PER_PIECE // len(C))
    for s in pieces(len(X), step):
        S = DenseBlock(X[s]).scores(centers, slice(None))
        pair = np.argpartition(S, 1, axis=1)[:, :2]
        first[s], second[s] = pair.T
    every = np.arange(len(X))
    near, far = (block.pair_distances(every, ids, centers) for ids in (first, second))
    wrong = far < near
    first[wrong], second[wrong] = second[wrong], first[wrong]
    near[wrong], far[wrong] = far[wrong], near[wrong]
    return TwoNearest(first, second, near, far)


def swap(
    X: Array, weights: Array, chosen: Array, draws: list[float], distances: RowDistances, deadline: Deadline = NO_DEADLINE
) -> Array:
    """Try one swap for each random number in `draws`, and return the rows chosen as centroids."""
    k = len(chosen)
    if k < 2 or deadline.expired():
        return chosen
    chosen = chosen.copy()
    s = two_nearest(X, X[chosen])
    lost, done = np.empty(k), 0
    while done < len(draws) and not deadline.expired():
        mass = np.cumsum(weights * s.near)
        if not mass[-1] > 0:
            break
        luck = np.array(draws[done : done + tiles.lanes(X.dtype)])
        proposed = np.searchsorted(mass, luck * mass[-1], "right").clip(max=len(X) - 1)
        # The distance to the proposed centroid if that is nearer than the second nearest, else to the latter
        for new, to_new in zip(proposed, distances.below(proposed, s.far).T, strict=True):
            done += 1
            saved = dense.swap_gain(weights, s.first, s.near, to_new, lost)
            out = int(lost.argmin())
            if lost[out] < saved * (1 - 1e-9):
                chosen[out] = new
                _update(X, X[chosen], s, out, np.ascontiguousarray(to_new))
                break  # the other proposals refer to the distances before
    return chosen


def _update(X: Array, C: Array, s: TwoNearest, out: int, to_new: Array) -> None:
    """Update the two nearest centroids after centroid `out` has moved; `to_new` are the squared distances to it."""
    closer = to_new < s.far
    lost = (s.second == out) & ~closer | (s.first == out)
    nearest = closer & (to_new < s.near) & ~lost
    s.second[nearest], s.far[nearest] = s.first[nearest], s.near[nearest]
    s.first[nearest], s.near[nearest] = out, to_new[nearest]
    second = closer & ~nearest & ~lost
    s.second[second], s.far[second] = out, to_new[second]
    rows = np.flatnonzero(lost)
    if len(rows):
        for values, recomputed in zip(s, two_nearest(np.ascontiguousarray(X[rows]), C), strict=True):
            values[rows] = recomputed
