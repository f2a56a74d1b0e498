"""Where the centres start.

D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, SODA.
B. Bahmani et al. (2012), Scalable k-means++, doi:10.14778/2180912.2180915 (k-means||).
O. Bachem et al. (2016), Fast and provably good seedings for k-means, NIPS (AFK-MC2).

Differs from the papers: k-means++ is greedy (each centre is the best of a few drawn ones, as in scikit-learn) and works
on a sample of `SAMPLE_PER_CENTER` rows a centre where there are more (N. Duffield et al. 2007, Priority sampling,
doi:10.1145/1314690.1314696: uniform, where weights are equal). Rows are drawn by their exact distances;
which of the drawn ones is best is judged by `LEADING` coordinates, which also rule out most rows before a distance is
computed. What k-means++ chose is mended by swaps (see `local_search`) and, where exact steps follow, by steps on the sample
(P. S. Bradley, U. M. Fayyad 1998, Refining initial points for k-means clustering, ICML). Sparse rows are judged by short dense
sketches. k-means|| makes five rounds, as published, and fewer where they hardly lower the energy any more.

Every seeding takes a `Deadline`. One that would be late first considers one candidate per centre instead of several, then
draws all centres that are still missing at once, by what is known so far, and leaves out swaps, steps and rounds. What is left
out is noted in `Deadline.skipped`. Without a deadline nothing depends on the clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse
from sklearn.random_projection import SparseRandomProjection

from ..kernels import dense
from .blocks import Block, Centers, DenseBlock, rounding
from .deadline import NO_DEADLINE, Deadline, Pace, TimeUp, time_limit
from .directions import basis_of, head_of
from .local_search import Ruler, swap
from .partition import advance, begin, label_all, masses_of
from .rows import Frame, Rows
from .sources import find_source
from .types import Array

SAMPLE_PER_CENTER = 50
LEADING = 64
SWAPS, MANY = 200, 256  # swaps to try at most, or two a centre; of more centres than this, so few are not worth their cost
SKETCH = 256  # columns of a sketch
SKETCHED_AT_ONCE = 1024  # rows: the product of sparse matrices takes more than the rows and the sketches
KEYS = 1 << 32  # the stream that rows are sorted by: the start of no seed
SAMPLE_LEAST = 20_000
TOGETHER = 1 << 20  # rows that are drawn from at a time
ROUNDS, WORTH = 5, 0.95  # of k-means||, at most; the last one left more than this share of the energy
SAMPLE_WORK = 1 << 24  # rows x columns x centres up to which a sample may be larger
MANY_MORE, ENOUGH = 4, 100  # times as many rows as the sample has, and of those, a centre: then steps on it pay
STEPS, FEW = 100, 4  # of those, at most; and what they may cost, in plain steps on all rows
SAVED = 1e-5  # share of the energy that a step must save


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Random numbers that depend on nothing but the seed and the stream's name.

    Its length and two words a number go into the key: SeedSequence takes (1, 0) for (1), and 2**32 for (0, 1).
    """
    words = [word for number in (seed, *stream) for word in (number & 0xFFFFFFFF, number >> 32)]
    key = np.random.SeedSequence([len(stream), *words]).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def _key(X: Array) -> Array:
    """A number for each row that depends on what it holds alone."""
    key = np.empty(len(X))
    dense.weighted_sums(X, generator(0, KEYS).standard_normal(X.shape[1]), key)
    return key


class Sample(NamedTuple):
    """The rows to seed from, sorted by what they hold, not by where they stand: a weight does what repetition would."""

    ids: Array
    X: Array  # the rows, or sketches of them
    weights: Array
    keys: Array


def _sketch(rows: Rows, ids: Array) -> Array:
    """The rows; sparse ones as short dense vectors at about the same distances (Li et al. 2006, KDD)."""
    if not rows.is_sparse or rows.d <= SKETCH:
        return rows.take(ids)
    onto = SparseRandomProjection(SKETCH, random_state=0).fit(sparse.csr_array((1, rows.d))).components_.T.astype(rows.dtype)
    out = np.empty((len(ids), SKETCH), rows.dtype)
    step = len(ids) if rows.is_far else SKETCHED_AT_ONCE  # each call for rows that are elsewhere takes a while
    for a in range(0, len(ids), step):
        X: Any = rows.convert(rows.source.take(ids[a : a + step])).X
        out[a : a + step] = (X @ onto).toarray()
    return out


def sample_size(d: int, k: int) -> int:
    """Of how many rows to seed from: more of narrow ones, which may have rare clusters, for that costs little."""
    return max(SAMPLE_LEAST, SAMPLE_PER_CENTER * k, SAMPLE_WORK // (k * d))


def _count(rows: Rows) -> int:
    """Of rows that have a weight."""
    return int(np.count_nonzero(rows.weights > 0)) if rows.has_weights else len(rows)


def _sample(rows: Rows, k: int, rng: np.random.Generator) -> Sample:
    """All rows that have a weight; of many, a priority sample: heavy ones surely, light ones with a share of the rest."""
    size = sample_size(rows.d, k)
    if _count(rows) > size:
        ids, weights = _priority_sample(rows, size, rng)
    else:
        ids = np.flatnonzero(rows.weights > 0)
        weights = rows.weights[ids]
    X = _sketch(rows, ids)
    keys = _key(X)
    order = np.argsort(keys, kind="stable")
    return Sample(ids[order], np.ascontiguousarray(X[order]), np.ascontiguousarray(weights[order]), keys[order])


def _priority_sample(rows: Rows, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """So many rows and what each stands for. Some rows are looked at together, so that no number a row is held for all."""
    ids, weights, priority = np.empty(0, np.int64), np.empty(0), np.empty(0)
    for a in range(0, len(rows), TOGETHER):
        some = a + np.flatnonzero(rows.weights[a : a + TOGETHER] > 0)
        w = rows.weights[some]
        ids, weights = np.concatenate([ids, some]), np.concatenate([weights, w])
        priority = np.concatenate([priority, w / (1 - rng.random(len(w)))])
        if len(ids) > size + 1:
            best = np.sort(np.argpartition(-priority, size)[: size + 1])
            ids, weights, priority = ids[best], weights[best], priority[best]
    last = int(priority.argmin())
    chosen = np.delete(np.arange(len(ids)), last)
    return ids[chosen], np.maximum(weights[chosen], priority[last])


def draw(rng: np.random.Generator, mass: Array, count: int) -> Array:
    """Rows drawn with probability proportional to mass."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=count)
    places: Array = np.searchsorted(total, rng.random(count) * total[-1], "right")
    return places.clip(max=len(mass) - 1)


def draw_at_once(rng: np.random.Generator, mass: Array, count: int, keys: Array) -> Array:
    """Different rows, drawn with probability proportional to mass, and then any others if too few have some.

    Equal rows have equal keys and stand beside each other.
    """
    first = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    mass = np.add.reduceat(mass, first)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = rng.exponential(size=len(mass)) / mass  # the first to come is a draw, the next one of the rest, and so on
    times[~(mass > 0)] = np.inf
    return np.resize(first[np.argsort(times, kind="stable")], count)


def random_rows(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """k rows, drawn by weight; different ones, as long as there are any."""
    ids, _, mass, keys = _sample(rows, k, rng)
    chosen, pace = np.empty(k, np.int64), Pace(k, deadline)
    for j in range(k):
        if pace.is_late(j):  # by the same distribution
            chosen[j:] = draw_at_once(rng, mass, k - j, keys)
            break
        chosen[j] = draw(rng, mass, 1)[0]
        low, high = (int(np.searchsorted(keys, keys[chosen[j]], side)) for side in ("left", "right"))
        mass[low:high] = 0
    return rows.take(ids[chosen])


def plus_plus(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Greedy k-means++ on a sample, mended by swaps."""
    return _plus_plus(rows, k, rng, deadline)[0]


def _plus_plus(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline) -> tuple[Array, Sample]:
    sample = _sample(rows, k, rng)
    chosen = choose(sample.X, sample.weights, k, rng, deadline)
    if rows.is_sparse:  # and the sample may be one of sketches
        return rows.take(sample.ids[chosen]), sample
    return np.ascontiguousarray(sample.X[chosen]), sample


def settled(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """The same; if there are many more rows, moved by steps of Lloyd's on the sample, for the price of a few on all rows."""
    centers, sample = _plus_plus(rows, k, rng, deadline)
    times = _count(rows) // len(sample.X)
    if times < MANY_MORE or len(sample.X) < ENOUGH * k or rows.is_sparse or rows.frame.bits:
        return centers
    some = rows.beside(find_source(sample.X), sample.weights, Frame(unit=rows.frame.unit))
    state, before = begin(some, centers), np.inf
    for _ in range(min(STEPS, FEW * times)):
        try:
            with time_limit(deadline.end):
                new, info = advance(some, state, lambda rows, state: (label_all(rows, state), None))
        except TimeUp:  # no loss worth telling: the steps that follow do the same
            break
        state = new
        if not info.reassigned or before - info.energy <= SAVED * info.energy:
            break
        before = info.energy
    return state.centers


def choose(X: Array, weights: Array, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """k of the rows, as k-means++ and swaps choose them."""
    ruler = _ruler(X)
    chosen = _greedy(ruler, weights, k, rng, deadline)
    if k > MANY:
        return chosen
    return swap(X, weights, chosen, list(rng.random(min(2 * k, SWAPS))), ruler, deadline)


def _ruler(X: Array) -> Ruler:
    y, rest = X, np.zeros(len(X))
    if X.shape[1] > LEADING:
        heads = head_of(X, basis_of(X, LEADING - 1))
        y, rest = np.ascontiguousarray(heads[:, :-1]), heads[:, -1].astype(np.float64)
    norms2 = np.empty(len(X))
    dense.squared_norms(X, norms2)
    return Ruler(X, y, rest, norms2, 16 * rounding(X.dtype, X.shape[1]) * float(norms2.max()))


def _greedy(ruler: Ruler, weights: Array, k: int, rng: np.random.Generator, deadline: Deadline) -> Array:
    """k rows, each drawn by squared distance: the one of a few that seems to save most energy."""
    n, y = len(ruler.X), ruler.y
    chosen, least = np.empty(k, np.int64), np.full(n, np.inf)
    saved = np.empty(2 + int(np.log(k)))
    products, pace = np.empty((len(saved), n), y.dtype), Pace(k, deadline)
    for j in range(k):
        if deadline.expired():
            deadline.skip(f"{k - j:,} of {k:,} starting centres were drawn at once")
            chosen[j:] = draw_at_once(rng, weights * least if j else weights, k - j, _key(ruler.X))
            break
        count = 1 if pace.is_late(j) or not j else len(saved)
        if j and count == 1:
            deadline.skip("starting centres were drawn without a choice between candidates")
        tried = draw(rng, weights * least if j else weights, count)
        np.dot(y[tried], y.T, out=products[: len(tried)])
        best = 0
        if len(tried) > 1:
            dense.saved_energy(products, tried, ruler.norms2, weights, least, saved)
            best = int(saved.argmax())
        chosen[j] = tried[best]
        dense.lower_least(ruler.X, chosen[j], products[best], ruler.norms2, ruler.rest, ruler.slack, least)
    return chosen


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
                for _ in rows.shares(_lower_least, rows.prepare(new), first, per_row=(least, nearest)):
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
    served = np.bincount(same, masses_of(nearest, rows.weights, len(candidates)))
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


def chains(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE, length: int = 200) -> Array:
    """AFK-MC2: each centre ends a Markov chain over rows drawn by their distance from the first centre."""
    ids, X, weights, keys = _sample(rows, k, rng)
    every = np.arange(len(X))
    chosen = np.empty(k, np.int64)
    chosen[0] = draw(rng, weights, 1)[0]
    far = np.empty(len(X))
    dense.pair_distances(X, every, np.full(len(X), chosen[0]), X, far)
    mass = weights * far
    q = (mass / mass.sum() if mass.sum() > 0 else 0) + weights / weights.sum()
    for j in range(1, k):
        if deadline.expired():
            deadline.skip(f"{k - j:,} of {k:,} starting centres were drawn by their distances from the first one")
            others = ~np.isin(keys, keys[chosen[:j]])
            chosen[j:] = draw_at_once(rng, q * others, k - j, keys)
            break
        steps = draw(rng, q, length)
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
    return rows.take(ids[chosen])


class Seeding(Protocol):
    """Chooses k starting centres, in time."""

    def __call__(self, rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = ..., /) -> Array: ...


Seedings = dict[str, Seeding]
SEEDINGS: Seedings = {
    "k-means++": plus_plus,
    "k-means||": parallel,
    "afk-mc2": chains,
    "random": random_rows,
}
SETTLED: Seedings = {**SEEDINGS, "k-means++": settled}  # for methods whose next step looks at all rows
