"""Local search after k-means++: replace a centroid by a row with a large error if that lowers the energy.

References
----------
S. Lattanzi, C. Sohler (2019), A better k-means++ algorithm via local search, ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data.blocks import DenseBlock
from ...data.cancellation import pieces
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline
from ...kernels import dense

MAX_SCORES_PER_PIECE = 1 << 20  # scores computed by one GEMM


class PrunedDistances(NamedTuple):
    """Distances between rows, computed only if a lower bound from leading coordinates does not exclude them."""

    X: Array  # (n, d)
    y: Array  # (n, h): leading coordinates
    rest: Array  # (n) float64: norm of the remaining coordinates
    norms2: Array  # (n) float64: |x|^2
    slack: float  # largest error of a lower bound because of rounding

    def lower(self, c: int, least: Array) -> None:
        """Set `least` to its minimum with the squared distances to row c, in place."""
        dense.lower_least(self.X, c, self.y @ self.y[c], self.norms2, self.rest, self.slack, least)


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
    X: Array, weights: Array, chosen: Array, draws: list[float], distances: PrunedDistances, deadline: Deadline = NO_DEADLINE
) -> Array:
    """Try one swap for each random number in `draws`, and return the rows chosen as centroids."""
    k = len(chosen)
    if k < 2 or deadline.expired():
        return chosen
    chosen = chosen.copy()
    s = two_nearest(X, X[chosen])
    for u in draws:
        if deadline.expired():
            break
        mass = np.cumsum(weights * s.near)
        if not mass[-1] > 0:
            break
        new = min(int(np.searchsorted(mass, u * mass[-1], "right")), len(X) - 1)
        to_new = s.far.copy()
        distances.lower(new, to_new)  # to the new centroid if it is nearer than the second nearest, else to the latter
        saved = weights @ np.maximum(s.near - to_new, 0)
        lost = np.bincount(s.first, weights * (to_new - np.minimum(s.near, to_new)), k)
        out = int(lost.argmin())
        if lost[out] < saved * (1 - 1e-9):
            chosen[out] = new
            _update(X, X[chosen], s, out, to_new)
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
