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
from .sample import row_keys, sample_size, take_rows

MAX_ROUNDS = 5  # as in the paper
MAX_ENERGY_RATIO = 0.95  # rounds end once the energy after a round is above this share of that before it


def parallel(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Draw 2 k candidates in each round, then choose k of all candidates, weighted by the rows that are nearest to them."""
    ids = np.flatnonzero(rows.weights > 0)
    if len(ids) <= sample_size(rows.d, k):
        ids = ids[np.argsort(row_keys(take_rows(rows, ids)), kind="stable")]
    candidates = new = rows.take(ids[draw(rng, rows.weights[ids], 1)])
    least, nearest = np.full(len(rows), np.inf), np.zeros(len(rows), np.int32)
    before = np.inf
    for done in range(MAX_ROUNDS + 1):
        first = len(candidates) - len(new)
        try:
            with time_limit(deadline.end):
                for _ in rows.map_blocks(_lower_least, rows.prepare(new), first, per_row=(least, nearest)):
                    pass
        except TimeUp:  # weights of the candidates are incomplete: choose without them
            deadline.skip(f"k-means|| ended in round {done}, and chose initial centroids at random among its candidates")
            return _choose_randomly(rows, candidates, k, rng, deadline)
        mass = rows.weights[ids] * least[ids]
        energy = float(mass.sum())
        if done == MAX_ROUNDS or not energy > 0 or (done > 1 and energy > MAX_ENERGY_RATIO * before):
            break
        before = energy
        new = rows.take(ids[np.unique(draw(rng, mass, 2 * k))])
        candidates = np.concatenate([candidates, new])
    _, distinct, same = np.unique(row_keys(candidates), return_index=True, return_inverse=True)
    weights = np.bincount(same, weight_sums_of(nearest, rows.weights, len(candidates)))
    candidates = np.ascontiguousarray(candidates[distinct])
    if len(candidates) <= k:
        return _choose_randomly(rows, candidates, k, rng, deadline)
    return candidates[choose(rows, candidates, weights, k, rng, deadline)]


def _choose_randomly(rows: Rows, candidates: Array, k: int, rng: np.random.Generator, deadline: Deadline) -> Array:
    """Return k of the candidates at random; if there are fewer, all of them and random rows."""
    if len(candidates) > k:
        return np.ascontiguousarray(candidates[rng.choice(len(candidates), k, replace=False)])
    return np.ascontiguousarray(np.concatenate([candidates, random_rows(rows, k, rng, deadline)])[:k])


def _lower_least(block: Block, least: Array, nearest: Array, centers: Centers, first: int) -> None:
    """Update the squared distance of each row to its nearest candidate, and its number, by new candidates from `first` on."""
    labels = block.nearest(centers)
    far = block.pair_distances(np.arange(len(block)), labels, centers)
    nearer = far < least
    least[nearer], nearest[nearer] = far[nearer], first + labels[nearer]
