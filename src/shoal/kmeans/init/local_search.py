"""Mend a seeding by swaps: put a centre where rows are served badly, take one away where it is missed least.

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


class Ruler(NamedTuple):
    """Distances from all rows to one of them, computed only where they can matter."""

    X: Array
    y: Array  # leading coordinates
    rest: Array  # norm of what they leave out
    norms2: Array
    slack: float

    def lower(self, c: int, least: Array) -> None:
        """least = min(least, squared distance from row c)."""
        dense.lower_least(self.X, c, self.y @ self.y[c], self.norms2, self.rest, self.slack, least)


class Served(NamedTuple):
    """Each row's two nearest centres and its squared distances from them."""

    first: Array
    second: Array
    near: Array
    far: Array


def _serve(X: Array, C: Array) -> Served:
    """The two nearest of the centres."""
    block, centers = DenseBlock(X), DenseBlock.prepare(C)
    first, second = np.empty((2, len(X)), np.int64)
    step = max(1, (1 << 20) // len(C))
    for s in pieces(len(X), step):
        S = DenseBlock(X[s]).scores(centers, slice(None))
        pair = np.argpartition(S, 1, axis=1)[:, :2]
        first[s], second[s] = pair.T
    every = np.arange(len(X))
    near, far = (block.pair_distances(every, ids, centers) for ids in (first, second))
    wrong = far < near
    first[wrong], second[wrong] = second[wrong], first[wrong]
    near[wrong], far[wrong] = far[wrong], near[wrong]
    return Served(first, second, near, far)


def swap(X: Array, weights: Array, chosen: Array, draw: list[float], ruler: Ruler, deadline: Deadline = NO_DEADLINE) -> Array:
    """Try one swap for each number in `draw` (in [0, 1)); the rows chosen as centres, after all swaps that pay."""
    k = len(chosen)
    if k < 2 or deadline.expired():
        return chosen
    chosen = chosen.copy()
    s = _serve(X, X[chosen])
    for luck in draw:
        if deadline.expired():
            break
        mass = np.cumsum(weights * s.near)
        if not mass[-1] > 0:
            break
        new = min(int(np.searchsorted(mass, luck * mass[-1], "right")), len(X) - 1)
        to_new = s.far.copy()
        ruler.lower(new, to_new)  # to the new centre, where that is nearer than the second; else to the second
        saved = weights @ np.maximum(s.near - to_new, 0)
        missed = np.bincount(s.first, weights * (to_new - np.minimum(s.near, to_new)), k)
        out = int(missed.argmin())
        if missed[out] < saved * (1 - 1e-9):
            chosen[out] = new
            _replace(X, X[chosen], s, out, to_new)
    return chosen


def _replace(X: Array, C: Array, s: Served, out: int, to_new: Array) -> None:
    """Centre `out` has moved: `to_new` away from the rows that now have it among their two nearest."""
    served = to_new < s.far
    lost = (s.second == out) & ~served | (s.first == out)
    nearest = served & (to_new < s.near) & ~lost
    s.second[nearest], s.far[nearest] = s.first[nearest], s.near[nearest]
    s.first[nearest], s.near[nearest] = out, to_new[nearest]
    next_best = served & ~nearest & ~lost
    s.second[next_best], s.far[next_best] = out, to_new[next_best]
    rows = np.flatnonzero(lost)
    if len(rows):
        for mine, recompute in zip(s, _serve(np.ascontiguousarray(X[rows]), C), strict=True):
            mine[rows] = recompute
