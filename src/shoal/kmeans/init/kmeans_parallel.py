"""k-means|| (scalable k-means++): draw many candidates in each of a few passes, then choose k of them by k-means++.

References
----------
B. Bahmani, B. Moseley, A. Vattani, R. Kumar, S. Vassilvitskii (2012), Scalable k-means++, Proceedings of the VLDB Endowment
5(7), doi:10.14778/2180912.2180915.

Differs from the paper: passes end early once one lowers the energy by less than 5%. Each pass draws 2 k rows with replacement,
where the paper includes each row independently with an expected total of 2 k.
"""

from __future__ import annotations

import numpy as np

from ...data.blocks import Block, Centers
from ...data.cancellation import TimeUp, time_limit
from ...data.rows import Rows
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline
from ...fit.partition import weight_sums_of
from ...fit.random_streams import draw
from .kmeans_plus_plus import choose
from .random import random_rows
from .sample import _key, _sketch, sample_size

ROUNDS, WORTH = 5, 0.95  # of k-means||, at most; the last one left more than this share of the energy


def parallel(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """k-means||: in each round draw 2k rows at once, then choose k of all of them, weighted by what they serve."""
    ids = np.flatnonzero(rows.weights > 0)
    if len(ids) <= sample_size(rows.d, k):
        ids = ids[np.argsort(_key(_sketch(rows, ids)), kind="stable")]
    candidates = new = rows.take(ids[draw(rng, rows.weights[ids], 1)])
    least, nearest = np.full(len(rows), np.inf), np.zeros(len(rows), np.int32)
    before = np.inf
    for done in range(ROUNDS + 1):
        first = len(candidates) - len(new)
        try:
            with time_limit(deadline.end):
                for _ in rows.map_blocks(_lower_least, rows.prepare(new), first, per_row=(least, nearest)):
                    pass
        except TimeUp:  # what the candidates serve is known of some rows only: take them as they come
            deadline.skip(f"k-means|| ended in round {done}, and chose starting centres at random among its candidates")
            return _filled(rows, candidates, k, rng, deadline)
        mass = rows.weights[ids] * least[ids]
        energy = float(mass.sum())
        if done == ROUNDS or not energy > 0 or (done > 1 and energy > WORTH * before):
            break
        before = energy
        new = rows.take(ids[np.unique(draw(rng, mass, 2 * k))])
        candidates = np.concatenate([candidates, new])
    _, kept, same = np.unique(_key(candidates), return_index=True, return_inverse=True)
    served = np.bincount(same, weight_sums_of(nearest, rows.weights, len(candidates)))
    candidates = np.ascontiguousarray(candidates[kept])
    if len(candidates) <= k:
        return _filled(rows, candidates, k, rng, deadline)
    return candidates[choose(candidates, served, k, rng, deadline)]


def _filled(rows: Rows, candidates: Array, k: int, rng: np.random.Generator, deadline: Deadline) -> Array:
    """k of the candidates; all of them and random rows, if they are fewer."""
    if len(candidates) > k:
        return np.ascontiguousarray(candidates[rng.choice(len(candidates), k, replace=False)])
    return np.ascontiguousarray(np.concatenate([candidates, random_rows(rows, k, rng, deadline)])[:k])


def _lower_least(block: Block, least: Array, nearest: Array, centers: Centers, first: int) -> None:
    """Of each row, the squared distance from its nearest candidate so far, and the number of that; these begin with `first`."""
    labels = block.nearest(centers)
    far = block.pair_distances(np.arange(len(block)), labels, centers)
    nearer = far < least
    least[nearer], nearest[nearer] = far[nearer], first + labels[nearer]
