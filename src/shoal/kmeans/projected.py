"""Exact k-means with bounds for groups of centroids, and projections where they help. An algorithm of this library.

Rows have bounds as in Yinyang k-means: one upper bound, and one lower bound for each group of neighboring centroids, stored in
two bytes. Rows whose upper bound is below all lower bounds are skipped; the others are compared with the groups that their
bounds leave open, a few rows and centroids at a time (see `kernels.tiles`).

Where the rows are close to a plane of few dimensions, only *heads* are compared at first: the leading coordinates of a row
along a few principal directions, and the norm of the remainder. Distances between heads are lower bounds of distances between
rows (see `data.pca`), so that most centroids are excluded in a few columns. Whether this is faster is measured on a sample.

References
----------
Y. Ding et al. (2015), Yinyang k-means: a drop-in replacement of the classic k-means, ICML.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..data import pca as directions
from ..data.blocks import DenseBlock, rounding, squares_underflow
from ..data.cancellation import now, pieces
from ..data.pca import SAMPLE, basis_of, head_of
from ..data.rows import Rows
from ..data.types import Array, read_only
from ..fit.partition import Partition, StepStats, label_all, sums_need_recompute
from ..kernels import TINY, UP, tiles
from .center_groups import gaps, group_centers

# Results do not depend on the constants below, only speed and memory do.
MIN_COLUMNS_FOR_HEADS = 64  # columns from which on heads are tried
MAX_NARROW_COLUMNS = 256  # columns up to which heads have the first of these numbers of columns
HEAD_COLUMNS = (32, 64)  # the last column is the norm of the remainder
MAX_GROUPS = 64  # groups of centroids, each with a lower bound of two bytes per row
MAX_BOUNDS_SHARE = 0.2  # bytes of lower bounds relative to those of the row, above which groups are larger
MAX_SHARE = 0.24  # the same for lower bounds and stored heads together
MAX_HEADS_SHARE = 1 / 8  # bytes of heads relative to those of the row, above which heads are recomputed in each step
MAX_PRODUCTS_PER_CALL = 1 << 30  # multiplications per kernel call, which cannot be interrupted: about 50 ms
MAX_BYTES_PER_CALL = 1 << 21  # of rows: the kernels read them several times, and they should stay in the cache meanwhile
MAX_COLUMNS_FOR_GAPS = 128  # columns up to which distances between centroids are worth their cost, for all k
MIN_ROWS_PER_CALL = 240  # as a call takes some microseconds
TRIAL_ROWS = 120  # rows on which the cost of a step with and without heads is measured
TRIALS = 2  # of which the fastest counts
MAX_REASSIGNED_AT_START = 0.25  # share of reassigned rows above which the centroids move too far for bounds without heads
OPEN_PACK_COST = 30  # cost of a row and pack that the bounds leave open, without its columns, in multiply-adds of a vector
TRIAL_STEPS = (0, 3, 10)  # steps before which heads are tried: what they exclude changes as the centroids settle
BOUND_RANGE = 8.0  # largest lower bound that can be stored, in median norms of the rows


class ProjectedBounds(NamedTuple):
    """Bounds of all rows, and the arrangement of the centroids that the bounds refer to."""

    anchor: Array  # (k, d): centroids to which the bounds refer
    upper: Array  # (n) float32
    lower: Array  # (n, groups) uint16, in units
    unit: float  # distance per unit of a lower bound
    basis: Array  # (d, head columns - 1); (d, 0) for rows of few columns
    with_heads: bool  # whether heads are compared first
    heads: Array  # (n, head columns): heads of the rows, NaN until they are needed; (n, 0) if they are not stored
    order: Array  # (k): the centroids, group by group
    groups: Array  # (groups + 1): start of each group in `order`, a multiple of the lanes of a pack
    n_steps: int = 0  # since the bounds were made
    start_below: float = MAX_REASSIGNED_AT_START  # share of reassigned rows below which bounds without heads start

    def reset(self, row: int | slice) -> None:
        """Reset the bounds of rows to the trivial ones, infinity and zero."""
        self.upper[row], self.lower[row] = np.inf, 0

    def expand(self, n: int, places: Array) -> ProjectedBounds:
        """Return bounds for n rows: those of the present rows at `places`, trivial ones elsewhere."""
        upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, self.lower.shape[1]), np.uint16)
        upper[places], lower[places] = self.upper, self.lower
        heads = np.full((n, self.heads.shape[1]), np.nan, self.heads.dtype)
        heads[places] = self.heads
        return self._replace(upper=upper, lower=lower, heads=heads)

    def undecided(self, rows: Array, labels: Array, C: Array) -> Array:
        """Return for which rows another one of the centroids C may be nearer than that of their label, (m) bool."""
        drift, steps = self.movement_to(C)
        near = (self.upper[rows] + drift[labels]) * UP + TINY
        least = (self.lower[rows].astype(np.int32) - steps).min(axis=1)
        return np.asarray(least <= near * self.per_unit)

    @property
    def head_basis(self) -> Array:
        """The basis of the heads, without columns if rows are compared in all columns."""
        return self.basis if self.with_heads else self.basis[:, :0]

    @property
    def per_unit(self) -> float:
        """Units of a lower bound per distance of one, rounded down."""
        return (1 - 2.0**-40) / self.unit

    def movement_to(self, C: Array) -> tuple[Array, Array]:
        """Return the distance that each centroid has moved since the bounds were set, and the largest per group, in units."""
        drift = np.linalg.norm(C.astype(np.float64) - self.anchor, axis=1)
        steps = np.ceil(np.maximum.reduceat(drift[self.order], self.groups[:-1]) / self.unit)
        return drift, np.minimum(steps, tiles.MAX_BOUND).astype(np.uint16)

    def open_share(self, X: Array, rows: Array, labels: Array, C: Array) -> float:
        """Return the share of rows X and groups that the bounds would leave open in a step to the centroids C."""
        _, steps = self.movement_to(C)
        near = np.linalg.norm(X.astype(np.float64) - C[labels[rows]], axis=1) * self.per_unit
        lower = self.lower[rows].astype(np.int32) - steps
        is_open = lower <= np.where(lower.min(axis=1) <= near, near, -np.inf)[:, None]
        return float(np.where(labels[rows] >= 0, is_open.mean(axis=1), 1.0).mean())

    def take(self, rows: Array) -> ProjectedBounds:
        """Return the bounds of some rows."""
        return self._replace(upper=self.upper[rows], lower=self.lower[rows], heads=self.heads[rows])


class PackedCenters(NamedTuple):
    """Centroids in the layout of `kernels.tiles.settle_rows`, group by group; `lanes` of them per pack, padded at the end."""

    order: Array  # (packs * lanes) int32: number of the centroid, -1 for padding
    group_of: Array  # (k) int32
    starts: Array  # (groups + 1): start of each group, in packs
    packs: Array  # (packs, columns, lanes): heads of the centroids times -2
    z2: Array  # (packs, lanes): squared norms of the heads, rounded down; infinite for padding
    C: Array  # (k, d)
    norms2: Array  # (k) float64: squared norms, rounded down


class ProjectedPlan(NamedTuple):
    """Arguments of one step that are the same for all blocks."""

    packed: PackedCenters
    basis: Array  # (d, head columns - 1); (d, 0) if rows are compared in all columns
    moved: tuple[Array, Array, Array]  # drift (k), group drift in units (groups), gap (k)
    per_unit: float  # units of a lower bound per distance of one
    recompute: bool  # whether to recompute the cluster sums instead of updating them


def group_size(k: int, d: int, dtype: np.dtype) -> int:
    """Return the number of centroids per group, a multiple of the lanes of a pack."""
    n_lanes: int = tiles.lanes(dtype)
    share = min(MAX_BOUNDS_SHARE, MAX_SHARE - stored_head_columns(d) / d)
    n_groups = max(1, min(MAX_GROUPS, int(share * d * int(dtype.itemsize)) // 2))
    return n_lanes * max(1, -(-k // (n_lanes * n_groups)))


def memory(n: int, d: int, k: int, dtype: np.dtype) -> int:
    """Return the bytes of the bounds."""
    return n * (2 * -(-k // group_size(k, d, dtype)) + 4)


def head_columns(d: int) -> int:
    """Return the number of columns of a head, 0 if heads are not tried."""
    return HEAD_COLUMNS[d > MAX_NARROW_COLUMNS] if d >= MIN_COLUMNS_FOR_HEADS else 0


def stored_head_columns(d: int) -> int:
    """Return the number of columns of the heads that are stored with the bounds, 0 if they would take too much memory."""
    return head_columns(d) if head_columns(d) <= MAX_HEADS_SHARE * d else 0


def directions_memory(n: int, d: int, dtype: np.dtype) -> float:
    """Return the bytes of the heads, the sample from which their basis is computed, a copy of it, and the basis."""
    basis = directions.memory(0, d, HEAD_COLUMNS[1], dtype.itemsize) if head_columns(d) else 0
    return (min(n, SAMPLE) * d * 2.0 + n * stored_head_columns(d)) * dtype.itemsize + basis


def initial_bounds(rows: Rows, state: Partition) -> ProjectedBounds:
    """Compute the basis of the heads, group the centroids, and return trivial bounds."""
    n, C = len(rows), state.centers
    order, groups = group_centers(C, group_size(len(C), rows.d, rows.dtype))
    sample = rows.take(np.linspace(0, n - 1, min(n, SAMPLE)).astype(int))
    parts = np.array_split(sample, -(-len(sample) // TRIAL_ROWS))
    norms = np.concatenate([np.linalg.norm(part.astype(np.float64), axis=1) for part in parts])
    unit = max(BOUND_RANGE * float(np.median(norms)) / tiles.MAX_BOUND, 2.0**-100)  # the inverse must be a finite float32
    upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, len(groups) - 1), np.uint16)
    basis = basis_of(sample, max(head_columns(rows.d) - 1, 0))
    in_memory = not (rows.source.is_file or rows.source.is_map)
    heads = np.full((n, stored_head_columns(rows.d) if in_memory else 0), np.nan, rows.dtype)
    return ProjectedBounds(C, upper, lower, unit, basis, False, heads, order, groups)


def try_heads(rows: Rows, C: Array, bounds: ProjectedBounds) -> ProjectedBounds:
    """Return the bounds with heads if a few rows are assigned in less time with them, else without."""
    if not bounds.basis.shape[1]:
        return bounds
    X = rows.take(np.linspace(0, len(rows) - 1, min(len(rows), TRIAL_ROWS)).astype(int))
    block, seconds = DenseBlock(X), []
    labels = block.nearest(DenseBlock.prepare(C))
    for b in (bounds._replace(with_heads=True), bounds._replace(with_heads=False)):
        still = np.zeros(len(C)), np.zeros(len(b.groups) - 1, np.uint16), np.zeros(len(C))
        plan = ProjectedPlan(pack_centers(C, b), b.head_basis, still, b.per_unit, False)
        times = []
        for _ in range(TRIALS + 1):  # the first one may include compilation
            upper, lower = np.full(len(X), np.inf, np.float32), np.zeros((len(X), len(b.groups) - 1), np.uint16)
            heads = head_of(X, b.basis) if b.heads.shape[1] else np.empty((len(X), 0), X.dtype)
            started = now()
            settle(block.X, labels.copy(), upper, lower, heads, plan)
            times.append(now() - started)
        seconds.append(min(times))
    return bounds._replace(with_heads=seconds[0] < seconds[1])


def pack_centers(C: Array, b: ProjectedBounds) -> PackedCenters:
    """Arrange the centroids in the layout of the kernel."""
    heads = (head_of(C, b.basis) if b.with_heads else C)[b.order]
    down = 1 - 2 * rounding(C.dtype, C.shape[1])
    z2 = (np.einsum("ij,ij->i", heads, heads, dtype=np.float64) * down).astype(C.dtype)
    packs = tiles.pack(-2 * heads)
    order = np.full(packs.shape[0] * packs.shape[2], -1, np.int32)
    order[: len(C)] = b.order
    group_of = np.empty(len(C), np.int32)
    group_of[b.order] = np.searchsorted(b.groups, np.arange(len(C)), "right") - 1
    norms2 = np.einsum("ij,ij->i", C, C, dtype=np.float64) * down
    return PackedCenters(order, group_of, -(-b.groups // packs.shape[2]), packs, tiles.pack_norms(z2), C, norms2)


def settle(X: Array, labels: Array, upper: Array, lower: Array, heads: Array, plan: ProjectedPlan) -> tuple[int, float]:
    """Assign rows; return the number of rows that the bounds do not decide, and the number of distances computed.

    `heads` are those of the rows, (n, head columns), NaN where they have not been computed; (n, 0) if they are not stored.
    Rows without a label start with the centroid of the nearest head, or with the nearest one of the first pack.
    """
    precision = (2 * rounding(X.dtype, X.shape[1]), plan.per_unit)
    n_heads, n_computed, new = plan.basis.shape[1], 0.0, labels < 0
    packed = plan.packed
    share = (n_heads + 1) / X.shape[1] if n_heads else 1.0
    if new.any():
        ids = slice(None) if new.all() else np.flatnonzero(new)
        part = heads_of(X, ids, heads, plan.basis) if n_heads else X[ids]
        n_packs = len(packed.packs) if n_heads else 1
        labels[ids] = packed.order[nearest(part, packed, n_packs)]
        n_computed += len(part) * n_packs * packed.packs.shape[2] * share
    epsilon = float(np.finfo(X.dtype).eps)
    rows, squares = np.empty(len(X), np.int32), np.empty(len(X))
    count = tiles.undecided_rows(X, plan.per_unit, packed.C, plan.moved, labels, upper, lower, epsilon, rows, squares)
    rows, squares = rows[:count], squares[:count]
    if count:
        used = heads_of(X, slice(None) if count == len(X) else rows, heads, plan.basis) if n_heads else X
        opened, computed = tiles.settle_rows(X, read_only(used), rows, squares, *precision, tuple(packed), labels, upper, lower)
        n_computed += computed + opened * packed.packs.shape[2] * share
    return count, n_computed + count


def heads_of(X: Array, ids: Array | slice, heads: Array, basis: Array) -> Array:
    """Return the heads of some rows X[ids], and store those that have not been computed in `heads`, if it has columns."""
    if not heads.shape[1]:
        return head_of(X[ids], basis)
    part = heads[ids]
    missing = np.isnan(part[:, -1])
    if missing.all():
        part = heads[ids] = head_of(X[ids], basis)
    elif missing.any():
        part[missing] = head_of(X[ids][missing], basis)
        heads[ids] = part
    return part


def nearest(X: Array, packed: PackedCenters, n_packs: int) -> Array:
    """Return for each row, or head, the position of the nearest centroid of the first packs, up to rounding."""
    labels, (limits, second) = np.full(len(X), -1, np.int32), np.empty((2, len(X)), X.dtype)
    packs, z2 = packed.packs[:n_packs], packed.z2[:n_packs]
    tiles.two_best_packed(read_only(X), rounding(X.dtype, X.shape[1]), packed.C, packs, z2, labels, limits, second)
    return labels


def assign_block(
    block: DenseBlock,
    labels: Array,
    old: Array,
    weights: Array,
    upper: Array,
    lower: Array,
    heads: Array,
    plan: ProjectedPlan,
) -> StepStats:
    """Assign the rows of one block and return the changes of the cluster sums."""
    k, d = plan.packed.C.shape
    n_undecided, n_computed = 0, 0.0
    size = min(MAX_PRODUCTS_PER_CALL // (k * d), MAX_BYTES_PER_CALL // (block.X.itemsize * d))
    for s in pieces(len(block), max(size, MIN_ROWS_PER_CALL)):
        undecided, computed = settle(block.X[s], labels[s], upper[s], lower[s], heads[s], plan)
        n_undecided, n_computed = n_undecided + undecided, n_computed + computed
    return StepStats(block.moves(weights, old, labels, k, plan.recompute), n_undecided, int(n_computed))


def pays(rows: Rows, state: Partition) -> bool:
    """Return whether a step with the bounds of the state is expected to take less time than one without."""
    b: ProjectedBounds = state.bounds
    places = np.linspace(0, len(rows) - 1, min(len(rows), 4 * TRIAL_ROWS)).astype(int)
    share = b.open_share(rows.take(places), places, state.labels, state.centers)
    if b.basis.shape[1]:
        return True
    cost = share * (rows.d + OPEN_PACK_COST) + OPEN_PACK_COST * tiles.lanes(rows.dtype) / len(state.centers)
    return bool(cost < rows.d)


def assign(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], ProjectedBounds]:
    """Assign rows, comparing only rows and groups that the bounds do not decide."""
    b: ProjectedBounds | None = state.bounds
    C = state.centers
    if b is None:
        b = initial_bounds(rows, state)
    if b.n_steps in TRIAL_STEPS:
        b = try_heads(rows, C, b)
    return assign_by_bounds(rows, state._replace(bounds=b))


def assign_by_bounds(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], ProjectedBounds]:
    """Assign rows by the bounds of the state."""
    b: ProjectedBounds = state.bounds
    C = state.centers
    if squares_underflow(C, np.einsum("ij,ij->i", C, C, dtype=np.float64)):  # scores in this dtype are not precise enough
        b.reset(slice(None))
        return label_all(rows, state), b._replace(anchor=C)
    gap = gaps(C) if C.shape[1] <= MAX_COLUMNS_FOR_GAPS else np.zeros(len(C))
    moved = (*b.movement_to(C), gap)
    plan = ProjectedPlan(pack_centers(C, b), b.head_basis, moved, b.per_unit, sums_need_recompute(state))
    per_row = (state.labels, state.labels.copy(), rows.weights, b.upper, b.lower, b.heads)
    return rows.map_blocks(assign_block, plan, per_row=per_row), b._replace(anchor=C, n_steps=b.n_steps + 1)
