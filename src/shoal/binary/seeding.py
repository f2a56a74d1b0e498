"""Initialization of k-means on bits: random codes, or k-means++ with the Hamming distance.

D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, SODA.

Differs from the paper: each centroid is the best of a few candidates (greedy k-means++), and large inputs are sampled. The
squared Euclidean distance between codes equals the Hamming distance.
"""

from __future__ import annotations

import numpy as np

from ..data.bits import unpacked
from ..data.rows import Rows
from ..data.types import Array
from ..execution.deadline import NO_DEADLINE, Deadline, Pace
from ..fit.initializers import Initializers
from ..fit.random_streams import draw, draw_at_once
from ..kernels import bits
from ..kmeans.init import init_memory

MIN_SAMPLE_ROWS, SAMPLE_ROWS_PER_CENTER = 20_000, 20  # rows that centroids are chosen from


def distinct(rows: Rows, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the distinct codes of a sample, sorted, and their weights. An integer weight is equivalent to repeating a row."""
    n, size = len(rows), max(MIN_SAMPLE_ROWS, SAMPLE_ROWS_PER_CENTER * k)
    ids, weights = np.arange(min(n, size)), np.ones(size)
    if n <= size:
        weights = rows.weights
    elif rows.has_weights:
        ids = draw(rng, rows.weights, size)
    else:
        ids = rng.integers(n, size=size)
    words, inverse = np.unique(rows.source.take(ids), axis=0, return_inverse=True)
    sums = np.bincount(inverse.ravel(), weights, len(words))
    return words[sums > 0], sums[sums > 0]


def random_codes(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Draw k codes with probability proportional to weight; distinct ones if there are k."""
    words, weights = distinct(rows, k, rng)
    order = np.argsort(rng.exponential(size=len(words)) / weights)
    return unpacked(words[np.resize(order, k)], rows.d).astype(rows.dtype)


def plus_plus(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Choose k codes by greedy k-means++: candidates are drawn by weight times distance to the nearest chosen code."""
    words, weights = distinct(rows, k, rng)
    words_T = np.ascontiguousarray(words.T)
    distances, saved = np.full(len(words), float(rows.d)), np.empty(2 + int(np.log(k)))
    chosen, pace = np.empty(k, np.int64), Pace(k, deadline)
    for j in range(k):
        if deadline.expired():
            deadline.skip(f"{k - j:,} of {k:,} initial centroids were drawn at once")
            chosen[j:] = draw_at_once(rng, weights * distances, k - j, np.arange(len(weights)))
            break
        n_candidates = 1 if pace.is_late(j) or not j else len(saved)
        if j and n_candidates == 1:
            deadline.skip("initial centroids were drawn without a choice between candidates")
        candidates = draw(rng, weights * distances, n_candidates)
        best = 0
        if len(candidates) > 1:
            bits.saved(words_T, candidates, weights, distances, saved)
            best = int(saved.argmax())
        chosen[j] = candidates[best]
        bits.lower_least(words_T, chosen[j], distances)
    return unpacked(words[chosen], rows.d).astype(rows.dtype)


INITIALIZERS = Initializers({"k-means++": plus_plus, "random": random_codes}, init_memory)
