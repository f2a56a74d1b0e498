"""Where the centres of codes start: random codes, or k-means++ by the number of bits that differ.

D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, SODA.
Differs from the paper: each centre is the best of a few drawn ones, and of many codes, a sample is looked at. Between bits,
squared distance and number of bits are the same.
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

SAMPLE_LEAST, SAMPLE_PER_CENTER = 20_000, 20


def distinct(rows: Rows, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Different codes, sorted by what they hold, and what each weighs: so a weight does what repetition would."""
    n, size = len(rows), max(SAMPLE_LEAST, SAMPLE_PER_CENTER * k)
    ids, mass = np.arange(min(n, size)), np.ones(size)
    if n <= size:
        mass = rows.weights
    elif rows.has_weights:
        ids = draw(rng, rows.weights, size)
    else:
        ids = rng.integers(n, size=size)
    words, which = np.unique(rows.source.take(ids), axis=0, return_inverse=True)
    total = np.bincount(which.ravel(), mass, len(words))
    return words[total > 0], total[total > 0]


def random_codes(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """k codes, drawn by weight; different ones, as long as there are any."""
    words, mass = distinct(rows, k, rng)
    order = np.argsort(rng.exponential(size=len(words)) / mass)
    return unpacked(words[np.resize(order, k)], rows.d).astype(rows.dtype)


def plus_plus(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """k codes, each drawn by how many bits it differs from those before: the best of a few such."""
    words, mass = distinct(rows, k, rng)
    across = np.ascontiguousarray(words.T)
    least, saved = np.full(len(words), float(rows.d)), np.empty(2 + int(np.log(k)))
    chosen, pace = np.empty(k, np.int64), Pace(k, deadline)
    for j in range(k):
        if deadline.expired():
            deadline.skip(f"{k - j:,} of {k:,} starting centres were drawn at once")
            chosen[j:] = draw_at_once(rng, mass * least, k - j, np.arange(len(mass)))
            break
        count = 1 if pace.is_late(j) or not j else len(saved)
        if j and count == 1:
            deadline.skip("starting centres were drawn without a choice between candidates")
        tried = draw(rng, mass * least, count)
        best = 0
        if len(tried) > 1:
            bits.saved(across, tried, mass, least, saved)
            best = int(saved.argmax())
        chosen[j] = tried[best]
        bits.lower_least(across, chosen[j], least)
    return unpacked(words[chosen], rows.d).astype(rows.dtype)


INITIALIZERS = Initializers({"k-means++": plus_plus, "random": random_codes}, init_memory)
