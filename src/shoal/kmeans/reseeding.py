"""Move centroids that are hardly needed into clusters of much energy, where steps of Lloyd's algorithm would not take them.

Without a centroid, its rows go to the nearest other centroid: that costs at most its weight times the squared distance of the
two. A second centroid in a cluster saves a share of the energy of the cluster, which is small in many dimensions.
"""

from __future__ import annotations

import numpy as np

from ..data.rows import Rows
from ..fit.partition import Partition
from .center_tree import Neighborhoods
from .grouped_rows import group_order

MAX_COST = 0.05  # of a removed centroid, as a share of the energy of the cluster that it moves into
MAX_MOVED_SHARE = 0.05  # of the centroids, moved at a time


def reseed(rows: Rows, state: Partition, near: Neighborhoods, rng: np.random.Generator) -> tuple[Partition, Neighborhoods, int]:
    """Return the partition with some centroids at rows of costly clusters, the neighbors with these, and their number."""
    C = state.centers
    gap = np.einsum("ij,ij->i", *(2 * [C.astype(np.float64) - C[near.nearest]]))
    loss = np.where(state.counts > 0, state.weight_sums * gap, 0.0)
    cheap = np.argsort(loss, kind="stable")
    costly = np.argsort(-np.where(state.counts > 1, state.costs, 0.0), kind="stable")
    m = int(MAX_MOVED_SHARE * len(C)) or min(len(C) // 2, 1)
    cheap, costly = cheap[:m], costly[:m]
    pays = loss[cheap] < MAX_COST * state.costs[costly]
    # A centroid, its nearest neighbor and the clusters that others move into are changed once at a time.
    taken, pairs = set[int](), list[tuple[int, int]]()
    for j, i in zip(cheap[pays].tolist(), costly[pays].tolist(), strict=True):
        group = {j, i, int(near.nearest[j])}
        if j != i and not group & taken:
            taken |= group
            pairs.append((j, i))
    if not pairs:
        return state, near, 0
    order, sizes = group_order(state.labels), np.bincount(state.labels, minlength=len(C))
    firsts = np.cumsum(sizes) - sizes
    moved, into = np.array(pairs).T
    picked = order[firsts[into] + (rng.random(len(into)) * sizes[into]).astype(np.int64)]
    C, neighbors = C.copy(), near.neighbors.copy()
    for j, i in pairs:
        if j not in neighbors[i]:
            others = neighbors[i]
            far = ((C[others].astype(np.float64) - C[i]) ** 2).sum(axis=1)
            others[int(far.argmax())] = j
            neighbors[i] = np.sort(others)
    C[moved] = rows.take(picked)
    return state._replace(centers=C), near._replace(neighbors=neighbors), len(pairs)
