"""Exact k-means with distance bounds: Hamerly, Elkan, Yinyang and Exponion as four settings of one step.

G. Hamerly (2010), Making k-means even faster, doi:10.1137/1.9781611972801.12.
C. Elkan (2003), Using the triangle inequality to accelerate k-means, ICML.
Y. Ding et al. (2015), Yinyang k-means: a drop-in replacement of the classic k-means, ICML.
J. Newling, F. Fleuret (2016), Fast k-means with accurate bounds, ICML (Exponion).

Every row keeps an upper bound on the distance to its centre and, for each *group* of centres, a lower bound on the
distance to the nearest other centre in it. Hamerly and Exponion have one group, Yinyang k / 10, Elkan one a centre. A
row that is not sure of its centre looks only at the *tiles* of centres that its bounds leave open.

Differs from the papers: rows that are left open go to a GEMM, a tile of centres at a time, instead of being looked at
one centre after the other; bounds are float32, always rounded to the safe side; the first step makes no bounds, since
after it the centres move too far for any to hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..data.blocks import Block, Centers, slack_of
from ..data.cancellation import pieces
from ..data.rows import Rows
from ..data.types import Array
from ..fit.partition import Partition, StepStats, label_all, sums_need_recompute
from ..kernels import DOWN, TINY, UP, choice
from .center_groups import all_half_distances, gaps, group_centers

SCORES_AT_ONCE = 1 << 20
BOUNDS_AT_ONCE = 1 << 18  # numbers of rows that are updated or compared together, and of which there are several copies then
GROUP = 10  # centres that share a bound, in Yinyang
PAIRWISE = ("elkan", "exponion")  # which compare bounds with the distances between all centres
TILE_CENTERS = {"elkan": 32, "exponion": 32}  # centres in a tile, where a group is not a tile


def up(bounds: Array) -> Array:
    """Rounded up, by more than float32 can lose."""
    return bounds * UP + TINY


def down(bounds: Array) -> Array:
    return np.maximum(bounds * DOWN - TINY, 0)


class Bounds(NamedTuple):
    """What the rows remember, and how the centres are arranged."""

    anchor: Array  # (k, d): the centres to which the bounds refer
    upper: Array  # (n) float32
    lower: Array  # (n, groups) float32
    order: Array  # (k): the centres, tile by tile
    tiles: Array  # (tiles + 1): where each tile starts in `order`
    groups: Array  # (groups + 1): where each group starts in `order`

    def forget(self, row: int) -> None:
        self.upper[row], self.lower[row] = np.inf, 0

    def spread(self, n: int, places: Array) -> Bounds:
        """For n rows, of which those known so far are at these places."""
        upper, lower = np.full(n, np.inf, np.float32), np.zeros((n, self.lower.shape[1]), np.float32)
        upper[places], lower[places] = self.upper, self.lower
        return self._replace(upper=upper, lower=lower)


class BoundedPlan(NamedTuple):
    """What a block needs to know about the centres in this step."""

    algorithm: str
    centers: Centers  # in the bounds' order
    bounds: Bounds
    drift: Array  # (k) how far each centre has moved
    half: Array  # (k, k) half the distances between centres, where the algorithm uses them, else (k, 0)
    gap: Array  # (k) half the distance to the nearest other centre


def memory(algorithm: str, n: int, k: int) -> dict[str, float]:
    """Bytes of what the rows remember, and of the distances between centres."""
    groups = {"elkan": k, "yinyang": -(-k // GROUP)}.get(algorithm, 1)
    between = {"distances between centres": 8.0 * k * k} if algorithm in PAIRWISE else {}
    return {"bounds": 4.0 * n * (1 + groups), **between}


def arrange(algorithm: str, n: int, centers: Array) -> Bounds:
    """Which centres go together."""
    k = len(centers)
    size = {"hamerly": k, "yinyang": GROUP}.get(algorithm, TILE_CENTERS.get(algorithm, k))
    order, tiles = group_centers(centers, size)
    groups = {"elkan": np.arange(k + 1), "yinyang": tiles}.get(algorithm, np.array([0, k]))
    lower = np.zeros((n, len(groups) - 1), np.float32)
    return Bounds(centers, np.full(n, np.inf, np.float32), lower, order, tiles, groups)


def open_tiles(plan: BoundedPlan, labels: Array, upper: Array, lower: Array) -> Array:
    """(rows, tiles): what each row must look at. `labels` are places in the bounds' order."""
    b, u = plan.bounds, upper[:, None]
    if plan.algorithm == "elkan":
        return np.logical_or.reduceat((lower <= u) & (plan.half[labels] <= u), b.tiles[:-1], axis=1)
    if plan.algorithm == "yinyang":
        return lower <= u
    unsure = lower <= u
    if plan.algorithm == "exponion":
        # whatever is not farther than the nearest other centre can be lies within this ball around the own centre
        return unsure & (np.minimum.reduceat(plan.half[labels], b.tiles[:-1], axis=1) <= u + plan.gap[labels][:, None])
    return np.broadcast_to(unsure, (len(labels), len(b.tiles) - 1))


def assign_block(
    block: Block, labels: Array, upper: Array, lower: Array, old: Array, weights: Array, plan: BoundedPlan, recompute: bool
) -> StepStats:
    """One block's share of a step."""
    b, k = plan.bounds, len(plan.drift)
    place = np.empty(k, np.int32)
    place[b.order] = np.arange(k, dtype=np.int32)
    group_of = np.searchsorted(b.groups, np.arange(k), "right") - 1
    new = np.flatnonzero(labels < 0)
    if len(new):
        labels[new] = b.order[block.take(new).nearest(plan.centers)]
    mine = place[labels]  # from here on a centre is its place in `order`
    upper[:] = up(upper + plan.drift[mine])
    fall = np.maximum.reduceat(plan.drift, b.groups[:-1])
    for s in pieces(len(block), _rows_at_once(plan)):
        lower[s] = down(lower[s] - fall)
    rows = np.flatnonzero((upper >= lower.min(axis=1)) & (upper >= plan.gap[mine]))
    best = np.empty(len(block))
    best[rows] = block.pair_distances(rows, mine[rows], plan.centers)
    upper[rows] = up(np.sqrt(best[rows]))
    computed = len(rows) + len(new) * k
    need = np.empty((len(rows), len(b.tiles) - 1), bool)
    for s in pieces(len(rows), _rows_at_once(plan)):
        some = rows[s]
        need[s] = open_tiles(plan, mine[some], upper[some], lower[some]) & (upper[some] >= plan.gap[mine[some]])[:, None]
    _reset_bounds(plan, mine, upper, lower, rows, need)
    for t in np.flatnonzero(need.any(axis=0)):
        open_rows = rows[need[:, t]]
        chunk = max(1, SCORES_AT_ONCE // int(b.tiles[t + 1] - b.tiles[t]))
        for s in pieces(len(open_rows), chunk):
            computed += _look(block, open_rows[s], slice(b.tiles[t], b.tiles[t + 1]), plan, group_of, mine, best, lower)
    upper[rows] = up(np.sqrt(best[rows]))
    labels[:] = b.order[mine]
    return StepStats(block.moves(weights, old, labels, k, recompute), int(need.any(axis=1).sum()), computed)


def _rows_at_once(plan: BoundedPlan) -> int:
    """Of how many rows the bounds, and the distances of their centres from all others, are handled together."""
    return max(1, BOUNDS_AT_ONCE // int(max(plan.half.shape[1], plan.bounds.lower.shape[1])))


def _reset_bounds(plan: BoundedPlan, mine: Array, upper: Array, lower: Array, rows: Array, need: Array) -> None:
    """Bounds of what is about to be looked at start from nothing; Exponion knows that the rest is beyond its ball."""
    b = plan.bounds
    if lower.shape[1] == 1:
        open_rows = rows[need.any(axis=1)]
        ball = upper[open_rows] + 2 * plan.gap[mine[open_rows]]
        lower[open_rows, 0] = down(ball) if plan.algorithm == "exponion" else np.inf
        return
    for t in np.flatnonzero(need.any(axis=0)):
        first, last = np.searchsorted(b.groups, b.tiles[t : t + 2])
        lower[np.ix_(rows[need[:, t]], np.arange(first, last))] = np.inf


def _look(
    block: Block, rows: Array, tile: slice, plan: BoundedPlan, group_of: Array, mine: Array, best: Array, lower: Array
) -> int:
    """Rows against one tile of centres: a GEMM, then distances for what it leaves open."""
    part = block.take(rows)
    norms2 = part.squared_norms()
    slack = slack_of(norms2, plan.centers.C.dtype, plan.centers.C.shape[1])
    bounds = part.scores(plan.centers, tile).astype(np.float64)
    bounds += (norms2 - slack)[:, None]
    column_of = np.full(len(plan.drift), -1)
    column_of[tile] = np.arange(tile.stop - tile.start)
    own = column_of[mine[rows]]
    bounds[np.flatnonzero(own >= 0), own[own >= 0]] = np.inf
    hits, places = np.nonzero(bounds <= best[rows][:, None])
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


def assign(rows: Rows, state: Partition, algorithm: str) -> tuple[Iterable[StepStats], Bounds]:
    """The rows that can't be sure, against the centres they can't rule out."""
    b: Bounds | None = state.bounds
    if b is None:
        return label_all(rows, state), arrange(algorithm, len(rows), state.centers)
    C = state.centers[b.order]
    drift = np.linalg.norm(C.astype(np.float64) - b.anchor[b.order], axis=1)
    half = all_half_distances(C) if algorithm in PAIRWISE else np.empty((len(C), 0))
    gap = half.min(axis=1) if half.size else gaps(C)
    plan = BoundedPlan(algorithm, rows.prepare(C), b, drift, half, gap)
    per_row = (state.labels, b.upper, b.lower, state.labels.copy(), rows.weights)
    return rows.map_blocks(assign_block, plan, sums_need_recompute(state), per_row=per_row), b._replace(anchor=state.centers)
