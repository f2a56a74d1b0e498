"""Partition of the rows into clusters: the part of a k-means step that is common to all algorithms.

Sums are float64 and updated by the rows that changed cluster. Since labels do not depend on the algorithm (see `blocks`), sums,
centroids and the number of steps are bitwise identical too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, Centers, SumDeltas
from ..data.rows import Rows
from ..data.sources import find_source
from ..data.types import Array
from ..kernels.means import move_to_means
from . import empty_clusters
from .empty_clusters import ROUNDING_TOLERANCE

MIN_ENTRIES_FOR_THREADS = 1 << 20  # entries of the centroids from which on threads share their update
MIN_REMAINING_WEIGHT = 1e-6  # share of the weight of a cluster; if less remains, its sums have lost too many digits
MIN_ENERGY_RATIO = 1e-7  # energy over the sum of squared rows; below, the energy is summed from distances, as sums cancel


class PartitionInfo(NamedTuple):
    """Result of one step."""

    energy: float  # of the centroids before the step, over all rows
    shift: float  # sum of squared centroid movements
    rows: int  # rows whose label did not follow from bounds
    distances: int  # row-centroid distances computed; a distance in h of d columns counts as h / d
    reassigned: int  # rows that changed cluster


class Partition(NamedTuple):
    """State of a k-means run. A step may reuse the sums and the per-row arrays of its input state."""

    centers: Array  # (k, d)
    labels: Array  # (n) int32, -1 before the first step
    sums: Array  # (k, d) float64
    weight_sums: Array  # (k) float64: sum of weights
    squares: Array  # (k) float64: sum of w |x|^2
    counts: Array  # (k) int64: rows of positive weight
    moved: int  # row updates of the sums since they were last computed from scratch
    n_reassigned: int  # rows that changed cluster in the last step
    costs: Array  # (k) float64: energies of the clusters before the last centroid movement
    moves2: Array  # (k) float64: squared centroid movements
    bounds: Any = None  # distance bounds of an algorithm, a NamedTuple of arrays


def without_bounds(state: Any) -> Any:
    """Return a state without distance bounds, which only save work and can be recomputed."""
    if isinstance(state, Partition):
        return state._replace(bounds=None)
    return state._replace(partition=without_bounds(state.partition)) if hasattr(state, "partition") else state


class StepStats(NamedTuple):
    """Result of a step for one block. Results add up."""

    moves: SumDeltas
    rows: int
    distances: int

    def plus(self, other: StepStats) -> StepStats:
        """Return the sum of two results."""
        return StepStats(self.moves.plus(other.moves), self.rows + other.rows, self.distances + other.distances)


def initial_partition(rows: Rows, centers: Array) -> Partition:
    """Return the state before the first step, in which no row has a label."""
    k, d = centers.shape
    labels = np.full(len(rows), -1, np.int32)
    sums, (weight_sums, squares, costs, moves2), counts = np.zeros((k, d)), np.zeros((4, k)), np.zeros(k, np.int64)
    return Partition(centers, labels, sums, weight_sums, squares, counts, len(rows), len(rows), costs, moves2)


def sums_need_recompute(state: Partition) -> bool:
    """Return whether to compute the sums from scratch: after n row updates, so that rounding errors do not accumulate."""
    return state.moved >= len(state.labels)


def energy_block(block: Block, weights: Array, labels: Array, centers: Centers) -> float:
    """Return the weighted sum of squared distances to the centroids of the labels."""
    return float(weights @ block.pair_distances(np.arange(len(block)), labels, centers))


def energy(rows: Rows, state: Partition) -> float:
    """Return the energy of all rows by their labels."""
    return sum(rows.map_blocks(energy_block, rows.prepare_pairs(state.centers), per_row=(rows.weights, state.labels)))


def label_block(block: Block, labels: Array, old: Array, weights: Array, centers: Centers, recompute: bool) -> StepStats:
    """Label a block by comparing every row with every centroid, and return its share of the step."""
    k = len(centers.C)
    block.relabel(centers, labels)
    return StepStats(block.moves(weights, old, labels, k, recompute), len(block), len(block) * k)


def sizes(labels: Array, k: int, weights: Array | None = None) -> Array:
    """Return the number of rows of positive weight per cluster. By parts, since bincount needs eight bytes per row."""
    total = np.zeros(k, np.int64)
    for a in range(0, len(labels), 1 << 20):
        here = slice(a, a + (1 << 20))
        total += np.bincount(labels[here] if weights is None else labels[here][weights[here] > 0], minlength=k)
    return total


def weight_sums_of(labels: Array, weights: Array, k: int) -> Array:
    """Return the sum of the weights of the rows of each cluster."""
    total = np.zeros(k)
    for a in range(0, len(labels), 1 << 20):
        total += np.bincount(labels[a : a + (1 << 20)], weights[a : a + (1 << 20)], k)
    return total


def keep_block(block: Block, labels: Array, weights: Array, k: int) -> StepStats:
    """Return the sums of a block under its current labels, from scratch."""
    return StepStats(block.moves(weights, labels, labels, k, True), 0, 0)


def keep_labels(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
    """Assign function that keeps the labels: its step only recomputes the sums."""
    return rows.map_blocks(keep_block, len(state.centers), per_row=(state.labels, rows.weights)), state.bounds


def label_all(rows: Rows, state: Partition) -> Iterable[StepStats]:
    """Label all rows by comparing them with every centroid, and yield the shares of the step."""
    per_row = (state.labels, state.labels.copy(), rows.weights)
    return rows.map_blocks(label_block, rows.prepare(state.centers), sums_need_recompute(state), per_row=per_row)


Assign = Callable[[Rows, Partition], tuple[Iterable[StepStats], Any]]  # labels rows as its shares are consumed


def label(rows: Rows, state: Partition, assign: Assign) -> Partition:
    """Label the rows and leave the centroids unchanged."""
    shares, bounds = assign(rows, state)
    deque(shares, 0)
    return state._replace(bounds=bounds)


def label_and_cost(rows: Rows, state: Partition, assign: Assign) -> tuple[Partition, float | None]:
    """Label the rows; also compute the energy of rows of a file, which is then read only once, and of sparse ones."""
    if not rows.source.is_file and (not rows.is_sparse or state.bounds is not None):
        return label(rows, state, assign), None
    shares = rows.map_blocks(_cost_block, rows.prepare(state.centers), per_row=(rows.weights, state.labels))
    return state._replace(bounds=None), sum(shares)


def _cost_block(block: Block, weights: Array, labels: Array, centers: Centers) -> float:
    """Label a block and return its energy."""
    labels[:] = block.nearest(centers)
    return energy_block(block, weights, labels, centers)


def advance(rows: Rows, state: Partition, assign: Assign, fill: bool = True) -> tuple[Partition, PartitionInfo]:
    """Run one step: label the rows, add up the shares, move the centroids and, if `fill`, relocate empty clusters."""
    shares, bounds = assign(rows, state)
    recompute = sums_need_recompute(state)
    totals = state.sums, state.weight_sums.copy(), state.squares.copy(), state.counts.copy()  # a copy of the sums takes long
    sums, weight_sums, squares, counts = totals
    if recompute:
        for a in totals:
            a[:] = 0
    moved = visited = distances = 0
    for share in shares:
        share.moves.add_to(*totals)
        moved += share.moves.moved
        visited += share.rows
        distances += share.distances
    to = move(rows, state.centers, *totals)
    cost = to.costs.sum()
    if cost < MIN_ENERGY_RATIO * squares.sum():
        cost = energy(rows, state)
    before = weight_sums.copy() if recompute else state.weight_sums
    sums_changed = False
    if fill and (counts == 0).any():
        sums_changed = True
        moved += empty_clusters.fill(rows, state._replace(bounds=bounds), *totals)
    if (weight_sums < MIN_REMAINING_WEIGHT * before)[counts > 0].any():  # rounding errors of heavy rows that left remain
        recompute = sums_changed = True
        for a in totals:
            a[:] = 0
        for share in keep_labels(rows, state)[0]:
            share.moves.add_to(*totals)
    if sums_changed:
        to = move(rows, state.centers, *totals)
    total = 0 if recompute else state.moved + moved
    new = Partition(to.centers, state.labels, sums, weight_sums, squares, counts, total, moved, to.costs, to.moves2, bounds)
    return new, PartitionInfo(max(float(cost), 0.0), float(to.moves2.sum()), visited, distances, moved)


class Moved(NamedTuple):
    """Centroids after they moved to the means of their rows."""

    centers: Array  # (k, d)
    costs: Array  # (k) float64: energies of the clusters before
    moves2: Array  # (k) float64: squared movements


def move(rows: Rows, C: Array, sums: Array, weight_sums: Array, squares: Array, counts: Array) -> Moved:
    """Move centroids to the means of their rows, scaled to unit length for cosine; to the majority for bits.

    An empty cluster keeps its centroid.
    """
    out, (dots, norms2, moves2), filled = rows.pool.empty_like(C), np.empty((3, len(C))), counts > 0
    arrays, unit = (C, sums, weight_sums, filled, out, dots, norms2, moves2), rows.frame.unit
    if C.size < MIN_ENTRIES_FOR_THREADS or rows.is_distributed:
        _move_block(None, *arrays, unit)
    else:
        clusters = rows.sibling(find_source(C))
        clusters.with_block_rows(-(-len(C) // (2 * rows.n_threads))).for_each(_move_block, unit, per_row=arrays)
    if rows.frame.bits:
        out = np.where(filled[:, None], majority(2 * sums - weight_sums[:, None], weight_sums, C), C)
        moves2 = np.count_nonzero(out != C, axis=1).astype(np.float64)
    return Moved(out, squares - 2 * dots + weight_sums * norms2, moves2)


def _move_block(_: Any, C: Array, sums: Array, weight_sums: Array, filled: Array, *rest: Any) -> None:
    *outputs, unit = rest
    move_to_means(C, sums, weight_sums, filled, unit, *outputs)


def majority(more: Array, weight_sums: Array, C: Array) -> Array:
    """Return the majority of each bit, given the weight of ones minus that of zeros; ties keep the bit of C."""
    bits: Array = np.where(np.abs(more) > ROUNDING_TOLERANCE * weight_sums[:, None], more > 0, C).astype(C.dtype)
    return bits
