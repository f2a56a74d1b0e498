"""K-means of rows of bits: labels by the centre that differs in the fewest, the first of equals; centres by majority.

Centres of bits soon stop changing, one after the other. A row whose centre has not changed since it was labelled need not
look at other centres that have not, either: the labels are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..data.bits import BitBlock
from ..data.blocks import Centers
from ..data.rows import Rows
from ..data.types import Array
from ..fit.partition import Partition, PartitionInfo, StepStats, advance, initial_partition, sums_need_recompute
from ..fit.solver import Solver


class Anchor(NamedTuple):
    """The centres that the labels were found by."""

    centers: Array

    def forget(self, row: int) -> None:
        """A row that was given to an empty cluster is its centre from then on; that has changed, so the row will look."""


def assign_block(
    block: BitBlock, labels: Array, weights: Array, centers: Centers, changed: Array, new: Centers, recompute: bool
) -> StepStats:
    """One block's share of a step: rows whose centre has changed look at all, the others at the new ones alone."""
    old, k, ids = labels.copy(), len(centers.C), np.flatnonzero(changed)
    unsure = changed[labels] | (labels < 0)
    lost, kept = np.flatnonzero(unsure), np.flatnonzero(~unsure)
    labels[lost] = block.take(lost).nearest(centers)
    if len(ids) and len(kept):
        near, far = block.take(kept).nearest_and_far(new)
        own = block.pair_distances(kept, labels[kept], centers)
        better = (far < own) | ((far == own) & (ids[near] < labels[kept]))
        labels[kept[better]] = ids[near[better]]
    distances = (len(block) - len(kept)) * k + len(kept) * len(ids)
    return StepStats(block.moves(weights, old, labels, k, recompute), len(block) if distances else 0, distances)


def assign(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Anchor]:
    """The labels of all rows."""
    changed = np.ones(len(state.centers), bool)
    if state.bounds is not None:
        changed = (state.centers != state.bounds.centers).any(axis=1)
    centers = rows.prepare(state.centers)
    new = centers if changed.all() else rows.prepare(state.centers[changed])
    per_row = (state.labels, rows.weights)
    return rows.map_blocks(assign_block, centers, changed, new, sums_need_recompute(state), per_row=per_row), Anchor(
        state.centers
    )


class HammingSolver(Solver):
    """K-means steps on rows of bits until no centroid changes."""

    def init(self, centers: Array, start: int) -> Partition:
        return initial_partition(self.rows, centers)

    def step(self, state: Partition) -> tuple[Partition, PartitionInfo]:
        return advance(self.rows, state, assign)

    def converged(self, state: Partition, info: PartitionInfo) -> bool:
        return info.reassigned == 0 or info.shift == 0

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return assign(rows, state)
