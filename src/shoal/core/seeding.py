"""Where the centres start.

D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, SODA.
B. Bahmani et al. (2012), Scalable k-means++, doi:10.14778/2180912.2180915 (k-means||).
O. Bachem et al. (2016), Fast and provably good seedings for k-means, NIPS (AFK-MC2).

Differs from the papers: k-means++ is greedy (each centre is the best of a few drawn ones, as in scikit-learn), works on
a uniform sample of `SAMPLE_PER_CENTER` rows a centre where there are more, and rules most rows out by a lower bound in
a few leading coordinates before it computes a distance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..kernels import dense
from .blocks import Block, Centers, DenseBlock, rounding
from .directions import basis_of, head_of
from .rows import Rows
from .types import Array

SAMPLE_PER_CENTER = 100
SAMPLE_LEAST = 20_000


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Random numbers that depend on nothing but the seed and the stream's name."""
    key = np.random.SeedSequence([seed, *stream]).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def _sample(rows: Rows, k: int, rng: np.random.Generator) -> Array:
    """Numbers of the rows to seed from, in order; rows of no weight can't be centres."""
    able = np.flatnonzero(rows.weights > 0)
    size = max(SAMPLE_LEAST, SAMPLE_PER_CENTER * k)
    return able if len(able) <= size else np.sort(rng.choice(able, size, replace=False))


def _draw(rng: np.random.Generator, mass: Array, count: int) -> Array:
    """Rows drawn with probability proportional to mass."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=count)
    return np.minimum(np.searchsorted(total, rng.random(count) * total[-1], "right"), len(mass) - 1)


def random_rows(rows: Rows, k: int, rng: np.random.Generator) -> Array:
    """k rows, drawn by weight without repetition."""
    able = np.flatnonzero(rows.weights > 0)
    if len(able) <= k:
        return rows.take(np.concatenate([able, rng.choice(len(rows), k - len(able))]))
    p = rows.weights[able] / rows.weights[able].sum()
    even = bool(np.ptp(p) == 0)
    return rows.take(rng.choice(able, k, replace=False, p=None if even else p))


def plus_plus(rows: Rows, k: int, rng: np.random.Generator) -> Array:
    """Greedy k-means++."""
    ids = _sample(rows, k, rng)
    X = rows.take(ids)
    return X[greedy_choice(X, rows.weights[ids], k, rng)]


def greedy_choice(X: Array, weights: Array, k: int, rng: np.random.Generator) -> Array:
    """k rows of X: each the one of a few, drawn by squared distance, that leaves the least energy."""
    trials = 2 + int(np.log(k))
    heads = leading(X)
    norms2 = np.einsum("ij,ij->i", heads, heads)
    slack = 2 * rounding(X.dtype, X.shape[1]) * 4 * float(norms2.max(initial=0))
    chosen = np.empty(k, np.int64)
    chosen[0] = _draw(rng, weights, 1)[0]
    least = np.empty(len(X))
    dense.pair_distances(X, np.arange(len(X)), np.full(len(X), chosen[0]), X, least)
    gains = np.empty((trials, len(X)))
    bounds = np.empty((trials, len(X)), X.dtype)
    for j in range(1, k):
        tried = _draw(rng, weights * least, trials)
        np.dot(heads[tried] * -2, heads.T, out=bounds)
        saved = dense.gains(X, tried, bounds, norms2, slack, weights, least, gains)
        best = int(saved.argmax())
        chosen[j] = tried[best]
        least -= gains[best]
    return chosen


def leading(X: Array) -> Array:
    """Leading coordinates with the norm of the rest, for lower bounds; the rows themselves where they are narrow."""
    return head_of(X, basis_of(X, 31)) if X.shape[1] > 48 else X


def parallel(rows: Rows, k: int, rng: np.random.Generator, rounds: int = 5) -> Array:
    """k-means||: in each round draw about 2k rows at once, then choose k of all of them, weighted by what they serve."""
    first = _draw(rng, rows.weights, 1)
    candidates = rows.take(first)
    least = np.full(len(rows), np.inf)
    new = candidates
    for _ in range(rounds):
        energy = sum(rows.shares(_lower_least, rows.prepare(new), per_row=(least, rows.weights)))
        if not energy > 0:
            break
        chance = 2 * k * rows.weights * least / energy
        drawn = np.flatnonzero(rng.random(len(rows)) < chance)
        if not len(drawn):
            continue
        new = rows.take(drawn)
        candidates = np.concatenate([candidates, new])
    served = np.zeros(len(candidates))
    for share in rows.shares(_served, rows.prepare(candidates), per_row=(rows.weights,)):
        served += share
    if len(candidates) <= k:
        extra = random_rows(rows, k, rng)
        return np.ascontiguousarray(np.concatenate([candidates, extra])[:k])
    return np.ascontiguousarray(candidates[greedy_choice(candidates, served, k, rng)])


def _lower_least(block: Block, least: Array, weights: Array, centers: Centers) -> float:
    labels = block.nearest(centers)
    np.minimum(least, block.pair_distances(np.arange(len(block)), labels, centers), out=least)
    return float(weights @ least)


def _served(block: Block, weights: Array, centers: Centers) -> Array:
    labels = block.nearest(centers)
    return np.bincount(labels, weights, len(centers.C))


def chains(rows: Rows, k: int, rng: np.random.Generator, length: int = 200) -> Array:
    """AFK-MC2: each centre ends a Markov chain over rows drawn by their distance from the first centre."""
    ids = _sample(rows, k, rng)
    X, weights = rows.take(ids), rows.weights[ids]
    every = np.arange(len(X))
    chosen = np.empty(k, np.int64)
    chosen[0] = _draw(rng, weights, 1)[0]
    far = np.empty(len(X))
    dense.pair_distances(X, every, np.full(len(X), chosen[0]), X, far)
    mass = weights * far
    q = (mass / mass.sum() if mass.sum() > 0 else 0) + weights / weights.sum()
    for j in range(1, k):
        steps = _draw(rng, q, length)
        block = DenseBlock(np.ascontiguousarray(X[steps]))
        C = DenseBlock.prepare(np.ascontiguousarray(X[chosen[:j]]))
        near = block.pair_distances(np.arange(length), block.nearest(C), C)
        p = weights[steps] * near / q[steps]
        luck = rng.random(length)
        at = 0
        for s in range(1, length):
            if p[s] > luck[s] * p[at]:
                at = s
        chosen[j] = steps[at]
    return X[chosen]


SEEDINGS: dict[str, Callable[[Rows, int, np.random.Generator], Array]] = {
    "k-means++": plus_plus,
    "k-means||": parallel,
    "afk-mc2": chains,
    "random": random_rows,
}
