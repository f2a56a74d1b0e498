"""K-means on rows of bits: rows go to the centroid with the smallest Hamming distance, centroids take the majority of each bit.

Most binary centroids stop changing after a few steps. A row whose centroid has not changed is compared only with those that
have. This does not affect the labels.
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


class LabelingCenters(NamedTuple):
    """Centroids of the last labeling, kept as the bounds of a partition."""

    centers: Array  # (k, d) bool

    def reset(self, row: int) -> None:
        """Do nothing for a row that an empty cluster has received: its centroid has changed, so it is compared with all."""


def assign_block(
    block: BitBlock, labels: Array, weights: Array, centers: Centers, changed: Array, new: Centers, recompute: bool
) -> StepStats:
    """Return one block's share of a step. Rows whose centroid has not changed are compared with the changed ones only."""
    old, k, ids = labels.copy(), len(centers.C), np.flatnonzero(changed)
    needs_all = changed[labels] | (labels < 0)
    full, partial = np.flatnonzero(needs_all), np.flatnonzero(~needs_all)
    labels[full] = block.take(full).nearest(centers)
    if len(ids) and len(partial):
        nearest, distances = block.take(partial).nearest_and_far(new)
        own = block.pair_distances(partial, labels[partial], centers)
        is_nearer = (distances < own) | ((distances == own) & (ids[nearest] < labels[partial]))
        labels[partial[is_nearer]] = ids[nearest[is_nearer]]
    n_distances = len(full) * k + len(partial) * len(ids)
    return StepStats(block.moves(weights, old, labels, k, recompute), len(block) if n_distances else 0, n_distances)


def assign(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], LabelingCenters]:
    """Return the block shares of a step, which label the rows as they are consumed, and the centroids of the labeling."""
    changed = np.ones(len(state.centers), bool)
    if state.bounds is not None:
        changed = (state.centers != state.bounds.centers).any(axis=1)
    centers = rows.prepare(state.centers)
    new = centers if changed.all() else rows.prepare(state.centers[changed])
    per_row = (state.labels, rows.weights)
    shares = rows.map_blocks(assign_block, centers, changed, new, sums_need_recompute(state), per_row=per_row)
    return shares, LabelingCenters(state.centers)


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
