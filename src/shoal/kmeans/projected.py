"""Exact k-means by projected lower bounds: the flagship for wide data and many centres. Our own.

The *head* of a row, a few leading coordinates and the norm of the rest, has distances that never exceed the true ones
(see `core.directions`). So a centre whose head is farther from a row's head than the row's present centre is from the
row can't win it, for the price of a few columns; only the others are computed in full. Two heads are used, a coarse one
for every pair and a finer one for what it leaves open. Rows of up to `IDENTITY` columns are their own heads.

On top, rows keep bounds as in Yinyang k-means (Ding et al. 2015, ICML): one upper bound, and one lower bound for each
group of neighbouring centres, made from the heads' distances and stored in two bytes. A row that is nearer to its
centre than all of them is not looked at; the others look at the groups that are open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from ..data import pca as directions
from ..data.blocks import DenseBlock, rounding
from ..data.cancellation import pieces
from ..data.pca import SAMPLE, basis_of, head_of
from ..data.rows import Rows
from ..data.types import Array
from ..fit.partition import Partition, StepStats, sums_need_recompute
from ..kernels import TINY, UP, dense
from .center_groups import gaps, group_centers

IDENTITY = 64  # columns up to which a row is its own head, as are wider ones where heads leave too much open
COARSE, FINE = (
    32,
    (48, 64),
)  # columns of the heads, fine ones for rows up to WHOLE columns or wider; the last is the rest's norm
GROUPS = 64  # at most
SCORES_AT_ONCE = 1 << 18  # coarse scores that stay in the cache while they are looked at
PAIRS_AT_ONCE = 1 << 24  # of rows and centres for one call of the kernel, which can't be interrupted: some 50 ms
WHOLE = 256  # columns up to which rows are their own heads in the first step
TRIED, WORTHLESS = 256, 0.5  # rows that heads are tried on; the share of centres that they may at most leave open
FIRST = 512  # rows of a block that tell how many pairs are open
MANY = 0.5  # share of the pairs that must be open for a GEMM of all of them to be the faster way
RANGE = 8.0  # the largest stored bound, in norms of the median row


class Bounds(NamedTuple):
    """What the rows remember, and how the centres are arranged."""

    anchor: Array  # (k, d): the centres to which the bounds refer
    upper: Array  # (n) float32
    lower: Array  # (n, groups) uint16, in units
    unit: float
    heads: Array  # (n, fine), or (n, 0) where rows are their own
    basis: Array  # (d, fine - 2), or (d, 0)
    order: Array  # (k): the centres, group by group
    groups: Array  # (groups + 1): where each group starts in `order`, a multiple of LANES

    def forget(self, row: int | slice) -> None:
        self.upper[row], self.lower[row] = np.inf, 0

    def spread(self, n: int, places: Array) -> Bounds:
        """For n rows, of which those known so far are at these places."""
        upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, self.lower.shape[1]), np.uint16)
        heads = np.empty((n, self.heads.shape[1]), self.heads.dtype)
        upper[places], lower[places], heads[places] = self.upper, self.lower, self.heads
        return self._replace(upper=upper, lower=lower, heads=heads)

    def leave_open(self, rows: Array, labels: Array, C: Array) -> Array:
        """Which of these rows, of these clusters, may be nearer to another one of the centres C: (m) bool."""
        drift, steps = self.moves_to(C)
        near = (self.upper[rows] + drift[labels]) * UP + TINY
        least = (self.lower[rows].astype(np.int32) - steps).min(axis=1)
        return np.asarray(least <= near * self.per_unit)

    @property
    def per_unit(self) -> float:
        return (1 - 2.0**-40) / self.unit

    def moves_to(self, C: Array) -> tuple[Array, Array]:
        """How far the centres have moved from where bounds refer to: each one, and the farthest of a group in units."""
        drift = np.linalg.norm(C.astype(np.float64) - self.anchor, axis=1)
        steps = np.ceil(np.maximum.reduceat(drift[self.order], self.groups[:-1]) / self.unit)
        return drift, np.minimum(steps, dense.MOST).astype(np.uint16)

    def take(self, rows: Array) -> Bounds:
        """Bounds of some rows, to go on with by themselves."""
        return self._replace(upper=self.upper[rows], lower=self.lower[rows], heads=self.heads[rows])


class Centres(NamedTuple):
    """The centres as `kernels.dense.settle_rows` wants them: eight side by side, the last eight filled up."""

    order: Array  # (8 e) int32: which centre, -1 for none
    group_of: Array  # (k) int32
    starts: Array  # (groups + 1): where each group starts, in eights
    coarse: Array  # (e, c, 8): coarse heads times -2
    z2: Array  # (8 e): their squared norms, less what rounding may have added; infinite for none
    Z: Array  # (8 e, h): whole heads
    C: Array  # (k, d)


class ProjectedPlan(NamedTuple):
    """What a block needs to know in this step."""

    lanes: Centres
    flat: Array  # (8 e, c): coarse heads times -2
    basis: Array  # (d, fine - 2), or (d, 0)
    moved: tuple[Array, Array, Array]  # drift (k), group drift in units (groups), gap (k)
    per_unit: float
    recompute: bool


class Minima(NamedTuple):
    """Lowest coarse scores |z|^2 - 2 y.z of m rows."""

    eights: Array  # (e, m): over eight centres
    groups: Array  # (groups, m): over a group
    bounds: Array  # (groups, m) uint16: the bound that follows from that, in units


def size_of_groups(k: int) -> int:
    return dense.LANES * max(1, -(-k // (dense.LANES * GROUPS)))


def memory(n: int, d: int, k: int, dtype: np.dtype) -> int:
    """Bytes that the bounds will take."""
    heads = FINE[d > WHOLE] * dtype.itemsize if d > IDENTITY else 0
    return n * (heads + 2 * -(-k // size_of_groups(k)) + 4)


def directions_memory(n: int, d: int, dtype: np.dtype) -> float:
    """Bytes that it takes to find the directions: the sample as it is read and as it is worked on."""
    return min(n, SAMPLE) * d * 2.0 * dtype.itemsize + (directions.memory(0, d, FINE[1], dtype.itemsize) if d > IDENTITY else 0)


def begin(rows: Rows, state: Partition) -> Bounds:
    """Find the directions and arrange the centres."""
    n, C = len(rows), state.centers
    order, groups = group_centers(C, size_of_groups(len(C)))
    sample = rows.take(np.linspace(0, n - 1, min(n, SAMPLE)).astype(int))
    basis = np.empty((rows.d, 0), rows.dtype)
    fine = FINE[rows.d > WHOLE]
    if rows.d > IDENTITY:
        basis = basis_of(sample, fine - 2)
        if left_open(sample[:: len(sample) // TRIED + 1], C, basis) > WORTHLESS:
            basis = basis[:, :0]
    heads = np.empty((n, fine if basis.shape[1] else 0), rows.dtype)
    parts = np.array_split(sample, -(-len(sample) // TRIED))
    norms = np.concatenate([np.linalg.norm(part.astype(np.float64), axis=1) for part in parts])
    unit = max(RANGE * float(np.median(norms)) / dense.MOST, 2.0**-100)  # whose inverse is a float32
    upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, len(groups) - 1), np.uint16)
    return Bounds(C, upper, lower, unit, heads, basis, order, groups)


def left_open(X: Array, C: Array, basis: Array) -> float:
    """Which share of the centres, beside the nearest, heads can't rule out."""
    bounds, distances = (euclidean_distances(head_of(X, basis), head_of(C, basis)), euclidean_distances(X, C))
    return float((bounds < distances.min(axis=1)[:, None]).sum(axis=1).mean() - 1) / max(len(C) - 1, 1)


def side_by_side(C: Array, b: Bounds) -> Centres:
    """Arrange the centres for the kernel."""
    k, lanes = len(C), dense.LANES
    filled = -(-k // lanes) * lanes
    heads = head_of(C, b.basis, COARSE) if b.basis.shape[1] else C
    Z = np.zeros((filled, heads.shape[1]), C.dtype)
    Z[:k] = heads[b.order]
    coarse = Z[:, : COARSE if b.basis.shape[1] else None]
    z2 = np.full(filled, np.inf, C.dtype)
    z2[:k] = np.einsum("ij,ij->i", coarse[:k], coarse[:k]) * (1 - 2 * rounding(C.dtype, C.shape[1]))
    order = np.full(filled, -1, np.int32)
    order[:k] = b.order
    group_of = np.empty(k, np.int32)
    group_of[b.order] = np.searchsorted(b.groups, np.arange(k), "right") - 1
    eights = np.ascontiguousarray((-2 * coarse).reshape(-1, lanes, coarse.shape[1]).transpose(0, 2, 1))
    return Centres(order, group_of, -(-b.groups // lanes), eights, z2, Z, C)


def assign_block(
    block: DenseBlock, labels: Array, old: Array, weights: Array, upper: Array, lower: Array, heads: Array, plan: ProjectedPlan
) -> StepStats:
    """One block's share of a step. Its first rows tell which way to score suits the others."""
    X, (k, d) = block.X, plan.lanes.C.shape
    width = plan.lanes.coarse.shape[1]
    H = heads if width < d else X
    precision = (2 * rounding(X.dtype, d), plan.per_unit)
    tile, lanes = max(32, SCORES_AT_ONCE // k // 8 * 8), tuple(plan.lanes)
    if heads.shape[1] and np.isinf(upper).any():  # rows that come for the first time, or whose bounds were forgotten
        new = slice(None) if np.isinf(upper).all() else np.flatnonzero(np.isinf(upper))
        heads[new] = head_of(X[new], plan.basis, COARSE)
    start, visited, computed, scored = 0, 0, 0, 0
    many = labels.min() < 0  # rows without a label take the nearest head's
    while start < len(X):
        size = tile if many else len(X) if start else FIRST
        n = min(size, len(X) - start)
        minima = tuple(_score_all(H[start : start + n], precision, plan)) if many else None
        opened = 0
        for piece in pieces(n, n if many else max(1, PAIRS_AT_ONCE // k)):
            s = slice(start + piece.start, start + piece.stop)
            rows, distances, eights = dense.settle_rows(
                X[s], H[s], minima, *precision, lanes, plan.moved, labels[s], upper[s], lower[s]
            )
            visited, computed, opened = visited + rows, computed + distances, opened + eights
        scored += n * k if many else opened * dense.LANES
        many = many or opened * dense.LANES > MANY * n * k
        start += n
    return StepStats(block.moves(weights, old, labels, k, plan.recompute), visited, computed + scored * width // d)


def _score_all(heads: Array, precision: tuple[float, float], plan: ProjectedPlan) -> Minima:
    """Some rows against all centres, by a GEMM."""
    lanes, width = plan.lanes, plan.flat.shape[1]
    S = np.dot(plan.flat, heads[:, :width].T)
    shape = (len(lanes.starts) - 1, len(heads))
    minima = Minima(np.empty((len(lanes.coarse), len(heads)), S.dtype), np.empty(shape, S.dtype), np.empty(shape, np.uint16))
    dense.coarse_minima(S, lanes.z2, heads, width, lanes.starts, *precision, *minima)
    return minima


def assign(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Bounds]:
    """The rows that can't be sure, against the groups they can't rule out. The first step looks at everything."""
    b: Bounds | None = state.bounds
    C = state.centers
    if b is None:
        b = begin(rows, state)
    gap = gaps(C) if C.shape[1] <= 2 * IDENTITY else np.zeros(len(C))
    moved = (*b.moves_to(C), gap)
    first = state.bounds is None and rows.d <= WHOLE
    lanes = side_by_side(C, b._replace(basis=b.basis[:, :0]) if first else b)
    flat = -2 * lanes.Z[:, : lanes.coarse.shape[1]]
    plan = ProjectedPlan(lanes, flat, b.basis, moved, b.per_unit, sums_need_recompute(state))
    per_row = (state.labels, state.labels.copy(), rows.weights, b.upper, b.lower, b.heads)
    return rows.map_blocks(assign_block, plan, per_row=per_row), b._replace(anchor=C)
