"""Exact k-means with distance bounds: Hamerly, Elkan, Yinyang and Exponion as four settings of one algorithm.

Each row has an upper bound of the distance to its centroid and, for each *group* of centroids, a lower bound of the
distance to the nearest other centroid of the group. Hamerly and Exponion have one group, Yinyang has k / 10, and Elkan has
one per centroid. Rows whose bounds do not prove their label are compared with the *tiles* of centroids that the bounds do
not exclude.

References
----------
G. Hamerly (2010), Making k-means even faster, doi:10.1137/1.9781611972801.12.
C. Elkan (2003), Using the triangle inequality to accelerate k-means, ICML.
Y. Ding et al. (2015), Yinyang k-means: a drop-in replacement of the classic k-means, ICML.
J. Newling, F. Fleuret (2016), Fast k-means with accurate bounds, ICML (Exponion).

Differs from the papers: undecided rows are compared with a whole tile of centroids by a GEMM instead of with one centroid
after another; bounds are float32 and rounded outward; the first step sets no bounds, because centroids move too far after it
for any bound to hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..data.blocks import Block, Centers, slack_of
from ..data.cancellation import pieces
from ..data.rows import Rows
from ..data.types import Array, contiguous
from ..fit.partition import Partition, StepStats, label_all, sums_need_recompute
from ..kernels import DOWN, TINY, UP, choice
from .center_groups import all_half_distances, gaps, group_centers

MAX_SCORES_PER_GEMM = 1 << 20  # scores (float32 or float64) computed by one GEMM
MAX_BOUNDS_PER_PIECE = 1 << 18  # bounds updated or compared together; several temporary arrays have this size
YINYANG_GROUP = 10  # centroids per group in Yinyang, as in the paper
TILE_CENTERS = 32  # centroids per tile where a tile is not a group (Elkan, Exponion)
PAIRWISE = ("elkan", "exponion")  # algorithms that use the distances between all centroids


def up(bounds: Array) -> Array:
    """Increase upper bounds by more than rounding to float32 may remove."""
    return bounds * UP + TINY


def down(bounds: Array) -> Array:
    """Decrease lower bounds by more than rounding to float32 may add."""
    return np.maximum(bounds * DOWN - TINY, 0)


class GroupBounds(NamedTuple):
    """Bounds of all rows, and the arrangement of the centroids that they refer to."""

    anchor: Array  # (k, d): centroids to which the bounds refer
    upper: Array  # (n) float32
    lower: Array  # (n, groups) float32
    order: Array  # (k): the centroids, tile by tile
    tiles: Array  # (tiles + 1): start of each tile in `order`
    groups: Array  # (groups + 1): start of each group in `order`

    def reset(self, row: int) -> None:
        """Reset the bounds of a row to the trivial ones, infinity and zero."""
        self.upper[row], self.lower[row] = np.inf, 0

    def expand(self, n: int, places: Array) -> GroupBounds:
        """Return bounds for n rows: those of the present rows at `places`, trivial ones elsewhere."""
        upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, self.lower.shape[1]), np.float32)
        upper[places], lower[places] = self.upper, self.lower
        return self._replace(upper=upper, lower=lower)


class BoundedPlan(NamedTuple):
    """Arguments of one step that are the same for all blocks."""

    algorithm: str
    centers: Centers  # in the order of the bounds
    bounds: GroupBounds
    drift: Array  # (k): distance that each centroid has moved since the bounds were set
    half: Array  # (k, k): half the distances between centroids, if the algorithm uses them; otherwise (k, 0)
    gap: Array  # (k): half the distance to the nearest other centroid


def memory(algorithm: str, n: int, k: int) -> dict[str, float]:
    """Return the bytes of the bounds, and of the distances between centroids."""
    groups = {"elkan": k, "yinyang": -(-k // YINYANG_GROUP)}.get(algorithm, 1)
    between = {"distances between centroids": 8.0 * k * k} if algorithm in PAIRWISE else {}
    return {"bounds": 4.0 * n * (1 + groups), **between}


def initial_bounds(algorithm: str, n: int, centers: Array) -> GroupBounds:
    """Return trivial bounds of n rows, with the centroids arranged in tiles and groups."""
    k = len(centers)
    size = {"hamerly": k, "yinyang": YINYANG_GROUP}.get(algorithm, TILE_CENTERS)
    order, tiles = group_centers(centers, size)
    groups = {"elkan": np.arange(k + 1), "yinyang": tiles}.get(algorithm, np.array([0, k]))
    lower = np.zeros((n, len(groups) - 1), np.float32)
    return GroupBounds(centers, np.full(n, np.inf, np.float32), lower, order, tiles, groups)


def open_tiles(plan: BoundedPlan, labels: Array, upper: Array, lower: Array) -> Array:
    """Return which tiles each row must be compared with, (rows, tiles) bool. `labels` are positions in the bounds' order."""
    b, u = plan.bounds, upper[:, None]
    if plan.algorithm == "elkan":
        return np.logical_or.reduceat((lower <= u) & (plan.half[labels] <= u), b.tiles[:-1], axis=1)
    if plan.algorithm == "yinyang":
        return lower <= u
    undecided = lower <= u
    if plan.algorithm == "exponion":
        # All centroids nearer than the own one, and the next, are within 2 (u + gap) of the own centroid.
        return undecided & (np.minimum.reduceat(plan.half[labels], b.tiles[:-1], axis=1) <= u + plan.gap[labels][:, None])
    return np.broadcast_to(undecided, (len(labels), len(b.tiles) - 1))


def assign_block(
    block: Block, labels: Array, upper: Array, lower: Array, old: Array, weights: Array, plan: BoundedPlan, recompute: bool
) -> StepStats:
    """Assign the rows of one block and return the changes of the cluster sums."""
    b, k = plan.bounds, len(plan.drift)
    place = np.empty(k, np.int32)
    place[b.order] = np.arange(k, dtype=np.int32)
    group_of = np.searchsorted(b.groups, np.arange(k), "right") - 1
    new = np.flatnonzero(labels < 0)
    if len(new):
        labels[new] = b.order[block.take(new).nearest(plan.centers)]
    mine = place[labels]  # from here on, centroids are numbered by their position in `order`
    upper[:] = up(upper + plan.drift[mine])
    fall = np.maximum.reduceat(plan.drift, b.groups[:-1])
    for s in pieces(len(block), _rows_per_piece(plan)):
        lower[s] = down(lower[s] - fall)
    rows = np.flatnonzero((upper >= lower.min(axis=1)) & (upper >= plan.gap[mine]))
    best = np.empty(len(block))
    best[rows] = block.pair_distances(rows, mine[rows], plan.centers)
    upper[rows] = up(np.sqrt(best[rows]))
    computed = len(rows) + len(new) * k
    need = np.empty((len(rows), len(b.tiles) - 1), bool)
    for s in pieces(len(rows), _rows_per_piece(plan)):
        some = rows[s]
        need[s] = open_tiles(plan, mine[some], upper[some], lower[some]) & (upper[some] >= plan.gap[mine[some]])[:, None]
    _reset_bounds(plan, mine, upper, lower, rows, need)
    for t in np.flatnonzero(need.any(axis=0)):
        open_rows = rows[need[:, t]]
        chunk = max(1, MAX_SCORES_PER_GEMM // int(b.tiles[t + 1] - b.tiles[t]))
        for s in pieces(len(open_rows), chunk):
            computed += _search_tile(block, open_rows[s], slice(b.tiles[t], b.tiles[t + 1]), plan, group_of, mine, best, lower)
    upper[rows] = up(np.sqrt(best[rows]))
    labels[:] = b.order[mine]
    return StepStats(block.moves(weights, old, labels, k, recompute), int(need.any(axis=1).sum()), computed)


def _rows_per_piece(plan: BoundedPlan) -> int:
    """Return the number of rows whose bounds, and distances of their centroids from all others, fit into one piece."""
    return max(1, MAX_BOUNDS_PER_PIECE // int(max(plan.half.shape[1], plan.bounds.lower.shape[1])))


def _reset_bounds(plan: BoundedPlan, mine: Array, upper: Array, lower: Array, rows: Array, need: Array) -> None:
    """Reset the lower bounds that the comparison with the open tiles will set.

    In Exponion, centroids of other tiles lie outside the ball that was searched, which bounds their distance.
    """
    b = plan.bounds
    if lower.shape[1] == 1:
        open_rows = rows[need.any(axis=1)]
        ball = upper[open_rows] + 2 * plan.gap[mine[open_rows]]
        lower[open_rows, 0] = down(ball) if plan.algorithm == "exponion" else np.inf
        return
    for t in np.flatnonzero(need.any(axis=0)):
        first, last = np.searchsorted(b.groups, b.tiles[t : t + 2])
        lower[np.ix_(rows[need[:, t]], np.arange(first, last))] = np.inf


def _search_tile(
    block: Block, rows: Array, tile: slice, plan: BoundedPlan, group_of: Array, mine: Array, best: Array, lower: Array
) -> int:
    """Compare rows with one tile of centroids, by a GEMM and then by exact distances where scores do not decide.

    Update labels, distances and lower bounds in place, and return the number of distances computed.
    """
    part = block.take(rows)
    norms2 = part.squared_norms()
    slack = slack_of(norms2, plan.centers.C.dtype, plan.centers.C.shape[1])
    bounds = part.scores(plan.centers, tile).astype(np.float64)
    bounds += (norms2 - slack)[:, None]
    column_of = np.full(len(plan.drift), -1)
    column_of[tile] = np.arange(tile.stop - tile.start)
    own = column_of[mine[rows]]
    bounds[np.flatnonzero(own >= 0), own[own >= 0]] = np.inf
    hits, places = map(contiguous, np.nonzero(bounds <= best[rows][:, None]))
    ids = np.arange(tile.start, tile.stop)
    distances = part.pair_distances(hits, ids[places], plan.centers)
    order = plan.bounds.order
    choice.take_nearer(hits, places, distances, rows, ids, order, group_of, column_of, mine, best, bounds, lower)
    starts = np.unique(np.concatenate([[tile.start], plan.bounds.groups[:-1]]))
    starts = starts[(starts >= tile.start) & (starts < tile.stop)]
    nearest = down(np.sqrt(np.maximum(np.minimum.reduceat(bounds, starts - tile.start, axis=1), 0)))
    where = np.ix_(rows, group_of[starts])
    lower[where] = np.minimum(lower[where], nearest)
    return int(bounds.size + len(hits))


def assign(rows: Rows, state: Partition, algorithm: str) -> tuple[Iterable[StepStats], GroupBounds]:
    """Assign rows, comparing only those that their bounds do not decide. The first step compares all rows."""
    b: GroupBounds | None = state.bounds
    if b is None:
        return label_all(rows, state), initial_bounds(algorithm, len(rows), state.centers)
    C = state.centers[b.order]
    drift = np.linalg.norm(C.astype(np.float64) - b.anchor[b.order], axis=1)
    half = all_half_distances(C) if algorithm in PAIRWISE else np.empty((len(C), 0))
    gap = half.min(axis=1) if half.size else gaps(C)
    plan = BoundedPlan(algorithm, rows.prepare(C), b, drift, half, gap)
    per_row = (state.labels, b.upper, b.lower, state.labels.copy(), rows.weights)
    return rows.map_blocks(assign_block, plan, sums_need_recompute(state), per_row=per_row), b._replace(anchor=state.centers)
