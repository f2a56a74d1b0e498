"""Rows divided among centres: what every k-means step has in common once the labels are known.

Sums are float64 and kept up to date by the rows that moved; since labels do not depend on the method (see `blocks`),
neither do sums, centres or the number of steps, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, Centers, SumDeltas
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.source import FileSource
from ..data.types import Array
from ..kernels.means import move_to_means
from . import empty_clusters
from .empty_clusters import SAME

LOST = 1e-6  # a mass this small beside what it was must be added up anew
FEW_DIGITS = 1e-7  # an energy this small beside the rows' squares is not to be had from sums: distances are added up


class PartitionInfo(NamedTuple):
    """What one step learned."""

    energy: float  # of the centres that came in, over all rows
    shift: float  # sum of the squared moves of the centres
    rows: int  # rows whose bounds did not settle them
    distances: int  # row-centre distances computed; a distance in h of d columns counts as h / d
    reassigned: int  # rows that changed cluster


class Partition(NamedTuple):
    """Everything needed to go on. A step may reuse the per-row arrays of the state it is given."""

    centers: Array  # (k, d)
    labels: Array  # (n) int32, -1 before the first step
    sums: Array  # (k, d) float64
    weight_sums: Array  # (k) float64: sum of weights
    squares: Array  # (k) float64: sum of w |x|^2
    counts: Array  # (k) int64: rows of positive weight
    moved: int  # rows added to the sums one by one since these were last added up from nothing
    n_reassigned: int  # rows that changed cluster in the last step
    costs: Array  # (k) float64: what the clusters cost before the centres last moved
    moves2: Array  # (k) float64: squared lengths of these moves
    bounds: Any = None  # what a method remembers about the rows, as a NamedTuple of arrays


def without_bounds(state: Any) -> Any:
    """The state of a method without its bounds: these only save work, and are found again."""
    if isinstance(state, Partition):
        return state._replace(bounds=None)
    return state._replace(partition=without_bounds(state.partition)) if hasattr(state, "partition") else state


class StepStats(NamedTuple):
    """A block's share of a step."""

    moves: SumDeltas
    rows: int
    distances: int

    def plus(self, other: StepStats) -> StepStats:
        return StepStats(self.moves.plus(other.moves), self.rows + other.rows, self.distances + other.distances)


def initial_partition(rows: Rows, centers: Array) -> Partition:
    k, d = centers.shape
    labels = np.full(len(rows), -1, np.int32)
    sums, (weight_sums, squares, costs, moves2), counts = np.zeros((k, d)), np.zeros((4, k)), np.zeros(k, np.int64)
    return Partition(centers, labels, sums, weight_sums, squares, counts, len(rows), len(rows), costs, moves2)


def sums_need_recompute(state: Partition) -> bool:
    """Must the sums be added up anew? Once as many rows have moved as there are, so that rounding can't pile up."""
    return state.moved >= len(state.labels)


def energy_block(block: Block, weights: Array, labels: Array, centers: Centers) -> float:
    """Weighted sum of squared distances to the centres that the labels name."""
    return float(weights @ block.pair_distances(np.arange(len(block)), labels, centers))


def energy(rows: Rows, state: Partition) -> float:
    """Of all rows, by their labels."""
    return sum(rows.map_blocks(energy_block, rows.prepare(state.centers), per_row=(rows.weights, state.labels)))


def label_block(block: Block, labels: Array, old: Array, weights: Array, centers: Centers, recompute: bool) -> StepStats:
    """One block's share of a step that looks at every row and every centre."""
    k = len(centers.C)
    labels[:] = block.nearest(centers, old)
    return StepStats(block.moves(weights, old, labels, k, recompute), len(block), len(block) * k)


def sizes(labels: Array, k: int, weights: Array | None = None) -> Array:
    """How many rows each cluster has, of positive weight; some at a time, because bincount takes eight bytes for each."""
    total = np.zeros(k, np.int64)
    for a in range(0, len(labels), 1 << 20):
        here = slice(a, a + (1 << 20))
        total += np.bincount(labels[here] if weights is None else labels[here][weights[here] > 0], minlength=k)
    return total


def weight_sums_of(labels: Array, weights: Array, k: int) -> Array:
    """What the rows of each cluster weigh."""
    total = np.zeros(k)
    for a in range(0, len(labels), 1 << 20):
        total += np.bincount(labels[a : a + (1 << 20)], weights[a : a + (1 << 20)], k)
    return total


def keep_block(block: Block, labels: Array, weights: Array, k: int) -> StepStats:
    """One block's share of the sums, from nothing."""
    return StepStats(block.moves(weights, labels, labels, k, True), 0, 0)


def keep_labels(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
    """Shares of a step that only adds the rows up anew, under the labels that they have."""
    return rows.map_blocks(keep_block, len(state.centers), per_row=(state.labels, rows.weights)), state.bounds


def label_all(rows: Rows, state: Partition) -> Iterable[StepStats]:
    """Shares of such a step."""
    per_row = (state.labels, state.labels.copy(), rows.weights)
    return rows.map_blocks(label_block, rows.prepare(state.centers), sums_need_recompute(state), per_row=per_row)


Assign = Callable[[Rows, Partition], tuple[Iterable[StepStats], Any]]  # labels the rows as its shares are drawn


def label(rows: Rows, state: Partition, assign: Assign) -> Partition:
    """Rows labelled, centres left where they are."""
    shares, bounds = assign(rows, state)
    for _ in shares:
        pass
    return state._replace(bounds=bounds)


def label_and_cost(rows: Rows, state: Partition, assign: Assign) -> tuple[Partition, float | None]:
    """The same; and what the rows cost, if they come from a file, which is read once for both."""
    if not isinstance(rows.source, FileSource):
        return label(rows, state, assign), None
    shares = rows.map_blocks(_cost_block, rows.prepare(state.centers), per_row=(rows.weights, state.labels))
    return state._replace(bounds=None), sum(shares)


def _cost_block(block: Block, weights: Array, labels: Array, centers: Centers) -> float:
    labels[:] = block.nearest(centers)
    return energy_block(block, weights, labels, centers)


def advance(rows: Rows, state: Partition, assign: Assign, fill: bool = True) -> tuple[Partition, PartitionInfo]:
    """One step: label the rows, add the shares up, move the centres, give empty clusters a row (or not)."""
    shares, bounds = assign(rows, state)
    recompute = sums_need_recompute(state)
    totals = [np.zeros_like(a) if recompute else a.copy() for a in (state.sums, state.weight_sums, state.squares, state.counts)]
    sums, weight_sums, squares, counts = totals
    moved = visited = distances = 0
    for share in shares:
        share.moves.add_to(*totals)
        moved += share.moves.moved
        visited += share.rows
        distances += share.distances
    to = move(state.centers, sums, weight_sums, squares, counts > 0, rows.frame)
    cost = to.costs.sum()
    if cost < FEW_DIGITS * squares.sum():
        cost = energy(rows, state)
    before = weight_sums.copy() if recompute else state.weight_sums
    sums_changed = False
    if fill and (counts == 0).any():
        sums_changed = True
        moved += empty_clusters.fill(rows, state._replace(bounds=bounds), *totals)
    if (weight_sums < LOST * before)[counts > 0].any():  # heavy rows have left: what they were added to has lost its digits
        recompute = sums_changed = True
        for a in totals:
            a[:] = 0
        for share in keep_labels(rows, state)[0]:
            share.moves.add_to(*totals)
    if sums_changed:
        to = move(state.centers, sums, weight_sums, squares, counts > 0, rows.frame)
    total = 0 if recompute else state.moved + moved
    new = Partition(to.centers, state.labels, sums, weight_sums, squares, counts, total, moved, to.costs, to.moves2, bounds)
    return new, PartitionInfo(max(float(cost), 0.0), float(to.moves2.sum()), visited, distances, moved)


class Moved(NamedTuple):
    """Centres that have moved to their rows' means."""

    centers: Array  # (k, d)
    costs: Array  # (k) float64: what the clusters cost before
    moves2: Array  # (k) float64: squared lengths of the moves


def move(C: Array, sums: Array, weight_sums: Array, squares: Array, filled: Array, frame: Frame) -> Moved:
    """To the means of the rows, of unit length for cosine; of bits, to the majority, and where there is none, nowhere.

    A cluster without rows keeps its centre.
    """
    out, (dots, norms2, moves2) = np.empty_like(C), np.empty((3, len(C)))
    move_to_means(C, sums, weight_sums, filled, frame.unit, out, dots, norms2, moves2)
    if frame.bits:
        out = np.where(filled[:, None], majority(2 * sums - weight_sums[:, None], weight_sums, C), C)
        moves2 = np.count_nonzero(out != C, axis=1).astype(np.float64)
    return Moved(out, squares - 2 * dots + weight_sums * norms2, moves2)


def majority(more: Array, weight_sums: Array, C: Array) -> Array:
    """Bits that most have, from how much more those weigh that have one; where as many have it as have not, C's."""
    bits: Array = np.where(np.abs(more) > SAME * weight_sums[:, None], more > 0, C).astype(C.dtype)
    return bits
