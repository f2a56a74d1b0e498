"""k-means++: draw initial centroids one after the other, with probability proportional to the squared distance.

References
----------
D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, Proc. ACM-SIAM Symposium on Discrete
Algorithms (SODA).
P. S. Bradley, U. M. Fayyad (1998), Refining initial points for k-means clustering, Proc. International Conference on Machine
Learning (ICML).

Differs from the paper: of 2 + log k candidates per centroid, the one that lowers the energy most is chosen (greedy k-means++,
as in scikit-learn). A sample is used if there are many rows (see `sample`). Up to 256 centroids are then improved by local
search (see `local_search`). `settled` also runs steps of Lloyd's algorithm on the sample, as Bradley and Fayyad do.
"""

from __future__ import annotations

import numpy as np

from ...data.blocks import rounding
from ...data.cancellation import TimeUp, time_limit
from ...data.frame import Frame
from ...data.pca import basis_of, head_of
from ...data.rows import Rows
from ...data.sources import find_source
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline, Pace
from ...fit.partition import advance, initial_partition, label_all
from ...fit.random_streams import draw, draw_at_once
from ...kernels import dense
from .local_search import Ruler, swap
from .sample import Sample, _count, _key, _sample

LEADING = 64

SWAPS, MANY = 200, 256  # swaps to try at most, or two a centre; of more centres than this, so few are not worth their cost

MANY_MORE, ENOUGH = 4, 100  # times as many rows as the sample has, and of those, a centre: then steps on it pay

STEPS, FEW = 100, 4  # of those, at most; and what they may cost, in plain steps on all rows

SAVED = 1e-5  # share of the energy that a step must save


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
    some = rows.sibling(find_source(sample.X), sample.weights, Frame(unit=rows.frame.unit))
    state, before = initial_partition(some, centers), np.inf
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
