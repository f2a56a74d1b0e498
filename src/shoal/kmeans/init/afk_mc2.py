"""AFK-MC2: approximate k-means++ sampling by Markov chains, without a pass over the rows for each centroid.

References
----------
O. Bachem, M. Lucic, S. H. Hassani, A. Krause (2016), Fast and provably good seedings for k-means, Advances in Neural
Information Processing Systems 29 (NIPS).

Differs from the paper: a sample is used if there are many rows (see `sample`).
"""

from __future__ import annotations

import numpy as np

from ...data.blocks import DenseBlock
from ...data.rows import Rows
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline
from ...fit.random_streams import draw, draw_at_once
from .sample import draw_sample, sketch


def chains(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE, length: int = 200) -> Array:
    """Draw each centroid as the end of a Markov chain whose proposals are drawn by the distance from the first centroid."""
    ids, X, weights, keys = draw_sample(rows, k, rng)
    X = sketch(X)
    every = np.arange(len(X))
    chosen = np.empty(k, np.int64)
    chosen[0] = draw(rng, weights, 1)[0]
    far = DenseBlock(X).pair_distances(every, np.zeros(len(X), np.int64), DenseBlock.prepare(X[chosen[:1]]))
    mass = weights * far
    q = (mass / mass.sum() if mass.sum() > 0 else 0) + weights / weights.sum()
    for j in range(1, k):
        if deadline.expired():
            deadline.skip(f"{k - j:,} of {k:,} initial centroids were drawn by their distances from the first one")
            others = ~np.isin(keys, keys[chosen[:j]])
            chosen[j:] = draw_at_once(rng, q * others, k - j, keys)
            break
        steps = draw(rng, q, length)
        block = DenseBlock(np.ascontiguousarray(X[steps]))
        C = DenseBlock.prepare(np.ascontiguousarray(X[chosen[:j]]))
        near = block.pair_distances(np.arange(length), block.nearest(C), C)
        p = weights[steps] * near / q[steps]
        u = rng.random(length)
        at = 0
        for s in range(1, length):
            if p[s] > u[s] * p[at]:
                at = s
        chosen[j] = steps[at]
    return rows.take(ids[chosen])
