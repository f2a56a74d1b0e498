"""Exact k-means with bounds from projections, for wide rows and many centroids. An algorithm of this library.

The *head* of a row consists of its leading coordinates along a few principal directions, and the norm of the remainder.
Distances between heads are lower bounds of distances between rows (see `data.pca`). A centroid whose head is farther from
that of a row than the row is from its present centroid cannot be nearer, which takes only a few columns to find out; exact
distances are computed for the other centroids only. There are two heads, nested: a coarse one for all pairs and a fine one
for pairs that the coarse one does not exclude. Rows of at most `MAX_COLUMNS_WITHOUT_HEADS` columns are their own heads.

In addition, rows have bounds as in Yinyang k-means: one upper bound, and one lower bound for each group of neighboring
centroids, which follows from distances between heads and is stored in two bytes. Rows whose upper bound is below all lower
bounds are skipped; the others are compared with the groups that their bounds do not exclude.

References
----------
Y. Ding et al. (2015), Yinyang k-means: a drop-in replacement of the classic k-means, ICML.
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

# Results do not depend on the constants below, only speed and memory do.
MAX_COLUMNS_WITHOUT_HEADS = 64  # columns up to which a row is its own head; wider rows are, too, if heads exclude too little
MAX_NARROW_COLUMNS = 256  # columns up to which rows are narrow: shorter fine heads, and none in the first step
COARSE_COLUMNS = 32  # columns of a coarse head; the last one is the norm of the remainder
FINE_COLUMNS = (48, 64)  # columns of a coarse and a fine head together, for narrow rows and for wider ones
MAX_GROUPS = 64  # groups of centroids, each with a lower bound of two bytes per row
MAX_SCORES_PER_TILE = 1 << 18  # coarse scores computed by one GEMM, few enough to stay in the cache until they are read
MAX_PAIRS_PER_CALL = 1 << 24  # row-centroid pairs per kernel call, which cannot be interrupted: about 50 ms
TRIAL_ROWS = 256  # rows on which heads are tried before they are computed for all rows
MAX_OPEN_SHARE = 0.5  # share of centroids not excluded by heads in that trial, above which rows are their own heads
PROBE_ROWS = 512  # first rows of a block, from which the share of open pairs is estimated
MIN_OPEN_SHARE_FOR_GEMM = 0.5  # share of open pairs above which a GEMM of all pairs is faster than scores of the open ones
BOUND_RANGE = 8.0  # largest lower bound that can be stored, in median norms of the rows


class ProjectedBounds(NamedTuple):
    """Bounds and heads of all rows, and the arrangement of the centroids that the bounds refer to."""

    anchor: Array  # (k, d): centroids to which the bounds refer
    upper: Array  # (n) float32
    lower: Array  # (n, groups) uint16, in units
    unit: float  # distance per unit of a lower bound
    heads: Array  # (n, fine); (n, 0) if rows are their own heads
    basis: Array  # (d, fine - 2); (d, 0) if rows are their own heads
    order: Array  # (k): the centroids, group by group
    groups: Array  # (groups + 1): start of each group in `order`, a multiple of LANES

    def forget(self, row: int | slice) -> None:
        """Reset the bounds of rows to the trivial ones, infinity and zero."""
        self.upper[row], self.lower[row] = np.inf, 0

    def expand(self, n: int, places: Array) -> ProjectedBounds:
        """Return bounds for n rows: those of the present rows at `places`, trivial ones elsewhere."""
        upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, self.lower.shape[1]), np.uint16)
        heads = np.empty((n, self.heads.shape[1]), self.heads.dtype)
        upper[places], lower[places], heads[places] = self.upper, self.lower, self.heads
        return self._replace(upper=upper, lower=lower, heads=heads)

    def undecided(self, rows: Array, labels: Array, C: Array) -> Array:
        """Return for which rows another one of the centroids C may be nearer than that of their label, (m) bool."""
        drift, steps = self.movement_to(C)
        near = (self.upper[rows] + drift[labels]) * UP + TINY
        least = (self.lower[rows].astype(np.int32) - steps).min(axis=1)
        return np.asarray(least <= near * self.per_unit)

    @property
    def per_unit(self) -> float:
        """Units of a lower bound per distance of one, rounded down."""
        return (1 - 2.0**-40) / self.unit

    def movement_to(self, C: Array) -> tuple[Array, Array]:
        """Return the distance that each centroid has moved since the bounds were set, and the largest per group, in units."""
        drift = np.linalg.norm(C.astype(np.float64) - self.anchor, axis=1)
        steps = np.ceil(np.maximum.reduceat(drift[self.order], self.groups[:-1]) / self.unit)
        return drift, np.minimum(steps, dense.MOST).astype(np.uint16)

    def take(self, rows: Array) -> ProjectedBounds:
        """Return the bounds of some rows."""
        return self._replace(upper=self.upper[rows], lower=self.lower[rows], heads=self.heads[rows])


class PackedCenters(NamedTuple):
    """Centroids in the layout of `kernels.dense.settle_rows`: e groups of eight, one per vector lane, padded at the end."""

    order: Array  # (8 e) int32: number of the centroid, -1 for padding
    group_of: Array  # (k) int32
    starts: Array  # (groups + 1): start of each group, in eights
    coarse: Array  # (e, c, 8): coarse heads times -2
    z2: Array  # (8 e): squared norms of the coarse heads, rounded down; infinite for padding
    Z: Array  # (8 e, h): heads
    C: Array  # (k, d)


class ProjectedPlan(NamedTuple):
    """Arguments of one step that are the same for all blocks."""

    lanes: PackedCenters
    flat: Array  # (8 e, c): coarse heads times -2, one per row, for a GEMM
    basis: Array  # (d, fine - 2); (d, 0) if rows are their own heads
    moved: tuple[Array, Array, Array]  # drift (k), group drift in units (groups), gap (k)
    per_unit: float  # units of a lower bound per distance of one
    recompute: bool  # whether to recompute the cluster sums instead of updating them


class Minima(NamedTuple):
    """Lowest coarse scores |z|^2 - 2 y.z of m rows."""

    eights: Array  # (e, m): over eight centroids
    groups: Array  # (groups, m): over a group
    bounds: Array  # (groups, m) uint16: the lower bound of the distance that follows, in units


def group_size(k: int) -> int:
    """Return the number of centroids per group, a multiple of the vector lanes."""
    return dense.LANES * max(1, -(-k // (dense.LANES * MAX_GROUPS)))


def fine_columns(d: int) -> int:
    """Return the number of columns of the heads of rows with d columns."""
    return FINE_COLUMNS[d > MAX_NARROW_COLUMNS]


def memory(n: int, d: int, k: int, dtype: np.dtype) -> int:
    """Return the bytes of heads and bounds."""
    heads = fine_columns(d) * dtype.itemsize if d > MAX_COLUMNS_WITHOUT_HEADS else 0
    return n * (heads + 2 * -(-k // group_size(k)) + 4)


def directions_memory(n: int, d: int, dtype: np.dtype) -> float:
    """Return the bytes allocated while the basis of the heads is computed: the sample, a copy of it, and the basis."""
    basis = directions.memory(0, d, FINE_COLUMNS[1], dtype.itemsize) if d > MAX_COLUMNS_WITHOUT_HEADS else 0
    return min(n, SAMPLE) * d * 2.0 * dtype.itemsize + basis


def initial_bounds(rows: Rows, state: Partition) -> ProjectedBounds:
    """Compute the basis of the heads, group the centroids, and return trivial bounds."""
    n, C = len(rows), state.centers
    order, groups = group_centers(C, group_size(len(C)))
    sample = rows.take(np.linspace(0, n - 1, min(n, SAMPLE)).astype(int))
    basis = np.empty((rows.d, 0), rows.dtype)
    fine = fine_columns(rows.d)
    if rows.d > MAX_COLUMNS_WITHOUT_HEADS:
        basis = basis_of(sample, fine - 2)
        if open_share(sample[:: len(sample) // TRIAL_ROWS + 1], C, basis) > MAX_OPEN_SHARE:
            basis = basis[:, :0]
    heads = np.empty((n, fine if basis.shape[1] else 0), rows.dtype)
    parts = np.array_split(sample, -(-len(sample) // TRIAL_ROWS))
    norms = np.concatenate([np.linalg.norm(part.astype(np.float64), axis=1) for part in parts])
    unit = max(BOUND_RANGE * float(np.median(norms)) / dense.MOST, 2.0**-100)  # the inverse must be a finite float32
    upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, len(groups) - 1), np.uint16)
    return ProjectedBounds(C, upper, lower, unit, heads, basis, order, groups)


def open_share(X: Array, C: Array, basis: Array) -> float:
    """Return the mean share of centroids, other than the nearest, that heads do not exclude."""
    bounds, distances = euclidean_distances(head_of(X, basis), head_of(C, basis)), euclidean_distances(X, C)
    return float((bounds < distances.min(axis=1)[:, None]).sum(axis=1).mean() - 1) / max(len(C) - 1, 1)


def pack_centers(C: Array, b: ProjectedBounds) -> PackedCenters:
    """Arrange the centroids in the layout of the kernel."""
    k, lanes = len(C), dense.LANES
    filled = -(-k // lanes) * lanes
    heads = head_of(C, b.basis, COARSE_COLUMNS) if b.basis.shape[1] else C
    Z = np.zeros((filled, heads.shape[1]), C.dtype)
    Z[:k] = heads[b.order]
    coarse = Z[:, : COARSE_COLUMNS if b.basis.shape[1] else None]
    z2 = np.full(filled, np.inf, C.dtype)
    z2[:k] = np.einsum("ij,ij->i", coarse[:k], coarse[:k]) * (1 - 2 * rounding(C.dtype, C.shape[1]))
    order = np.full(filled, -1, np.int32)
    order[:k] = b.order
    group_of = np.empty(k, np.int32)
    group_of[b.order] = np.searchsorted(b.groups, np.arange(k), "right") - 1
    eights = np.ascontiguousarray((-2 * coarse).reshape(-1, lanes, coarse.shape[1]).transpose(0, 2, 1))
    return PackedCenters(order, group_of, -(-b.groups // lanes), eights, z2, Z, C)


def assign_block(
    block: DenseBlock, labels: Array, old: Array, weights: Array, upper: Array, lower: Array, heads: Array, plan: ProjectedPlan
) -> StepStats:
    """Assign the rows of one block and return the changes of the cluster sums.

    Rows are scored by a GEMM over all centroids, or only where their bounds are open. The share of open pairs among the rows
    scored so far decides which; the first `PROBE_ROWS` rows use their bounds if they have labels.
    """
    X, (k, d) = block.X, plan.lanes.C.shape
    width = plan.lanes.coarse.shape[1]
    H = heads if width < d else X
    precision = (2 * rounding(X.dtype, d), plan.per_unit)
    tile, lanes = max(32, MAX_SCORES_PER_TILE // k // 8 * 8), tuple(plan.lanes)
    if heads.shape[1] and np.isinf(upper).any():  # new rows, and rows whose bounds were reset
        new = slice(None) if np.isinf(upper).all() else np.flatnonzero(np.isinf(upper))
        heads[new] = head_of(X[new], plan.basis, COARSE_COLUMNS)
    start, visited, computed, scored = 0, 0, 0, 0
    all_pairs = labels.min() < 0  # rows without a label start with the centroid of the nearest head
    while start < len(X):
        size = tile if all_pairs else len(X) if start else PROBE_ROWS
        n = min(size, len(X) - start)
        minima = tuple(_score_all(H[start : start + n], precision, plan)) if all_pairs else None
        opened = 0
        for piece in pieces(n, n if all_pairs else max(1, MAX_PAIRS_PER_CALL // k)):
            s = slice(start + piece.start, start + piece.stop)
            rows, distances, eights = dense.settle_rows(
                X[s], H[s], minima, *precision, lanes, plan.moved, labels[s], upper[s], lower[s]
            )
            visited, computed, opened = visited + rows, computed + distances, opened + eights
        scored += n * k if all_pairs else opened * dense.LANES
        all_pairs = all_pairs or opened * dense.LANES > MIN_OPEN_SHARE_FOR_GEMM * n * k
        start += n
    return StepStats(block.moves(weights, old, labels, k, plan.recompute), visited, computed + scored * width // d)


def _score_all(heads: Array, precision: tuple[float, float], plan: ProjectedPlan) -> Minima:
    """Score rows against all centroids in the coarse columns, by a GEMM."""
    lanes, width = plan.lanes, plan.flat.shape[1]
    S = np.dot(plan.flat, heads[:, :width].T)
    shape = (len(lanes.starts) - 1, len(heads))
    minima = Minima(np.empty((len(lanes.coarse), len(heads)), S.dtype), np.empty(shape, S.dtype), np.empty(shape, np.uint16))
    dense.coarse_minima(S, lanes.z2, heads, width, lanes.starts, *precision, *minima)
    return minima


def assign(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], ProjectedBounds]:
    """Assign rows, comparing only rows and groups that the bounds do not decide. The first step compares all pairs."""
    b: ProjectedBounds | None = state.bounds
    C = state.centers
    if b is None:
        b = initial_bounds(rows, state)
    gap = gaps(C) if C.shape[1] <= 2 * MAX_COLUMNS_WITHOUT_HEADS else np.zeros(len(C))
    moved = (*b.movement_to(C), gap)
    first = state.bounds is None and rows.d <= MAX_NARROW_COLUMNS
    lanes = pack_centers(C, b._replace(basis=b.basis[:, :0]) if first else b)
    flat = -2 * lanes.Z[:, : lanes.coarse.shape[1]]
    plan = ProjectedPlan(lanes, flat, b.basis, moved, b.per_unit, sums_need_recompute(state))
    per_row = (state.labels, state.labels.copy(), rows.weights, b.upper, b.lower, b.heads)
    return rows.map_blocks(assign_block, plan, per_row=per_row), b._replace(anchor=C)
