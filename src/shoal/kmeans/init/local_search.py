"""Local search after k-means++: replace a centroid by a row with a large error if that lowers the energy.

References
----------
S. Lattanzi, C. Sohler (2019), A better k-means++ algorithm via local search, ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data.blocks import DenseBlock, rounding
from ...data.cancellation import pieces
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline
from ...kernels import dense, tiles

MAX_SCORES_PER_PIECE = 1 << 20  # scores computed by one GEMM
MAX_PRODUCTS_PER_CALL = 1 << 28  # multiplications per kernel call, which cannot be interrupted: some milliseconds


class RowDistances(NamedTuple):
    """Squared distances from all rows to a few of them, computed only if scores do not exclude them."""

    X: Array  # (n, d)
    norms2: Array  # (n) float64: |x|^2
    slack: float  # largest error of a score

    def lower(self, rows: Array, least: Array) -> None:
        """Set `least` to its minimum with the squared distances to these rows, in place."""
        self._lower(rows, least[None])

    def below(self, rows: Array, limits: Array) -> Array:
        """Return the squared distances to each of these rows, (len(rows), n), or the limit of a row if that is less."""
        out = np.tile(limits, (len(rows), 1))
        self._lower(rows, out)
        return out

    def _lower(self, rows: Array, out: Array) -> None:
        C = self.X[rows]
        packs, z2 = tiles.pack(-2 * C), tiles.pack_norms(self.norms2[rows].astype(C.dtype))
        for s in pieces(len(self.X), max(1, MAX_PRODUCTS_PER_CALL // packs[0].size)):
            part = np.ascontiguousarray(out[:, s])
            tiles.lower_distances(self.X[s], C, packs, z2, self.norms2[s], self.slack, part)
            out[:, s] = part


def row_distances(X: Array) -> RowDistances:
    """Compute the norms of the rows."""
    norms2 = np.empty(len(X))
    dense.squared_norms(X, norms2)
    return RowDistances(X, norms2, 16 * rounding(X.dtype, X.shape[1]) * float(norms2.max()))


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
        for new, to_new in zip(proposed, distances.below(proposed, s.far), strict=True):
            done += 1
            saved = dense.swap_gain(weights, s.first, s.near, to_new, lost)
            out = int(lost.argmin())
            if lost[out] < saved * (1 - 1e-9):
                chosen[out] = new
                _update(X, X[chosen], s, out, to_new)
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
