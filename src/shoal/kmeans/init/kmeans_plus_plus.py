"""k-means++: draw initial centroids one after the other, with probability proportional to the squared distance.

References
----------
D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, Proc. ACM-SIAM Symposium on Discrete
Algorithms (SODA).
P. S. Bradley, U. M. Fayyad (1998), Refining initial points for k-means clustering, Proc. International Conference on Machine
Learning (ICML).

Differs from the paper: of 2 + log k candidates per centroid, the one that lowers the energy most is chosen (greedy k-means++,
as in scikit-learn). A sample is used if there are many rows (see `sample`). Up to 256 centroids are then improved by local
search (see `local_search`). `plus_plus_refined` also runs steps of Lloyd's algorithm on the sample, as Bradley and Fayyad do.
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
from .local_search import PrunedDistances, swap
from .sample import Sample, draw_sample, n_weighted_rows, row_keys

LEADING_COLUMNS = 64  # columns of the heads by which candidates are compared and rows are excluded

# Local search. Each swap costs a pass over the sample.
MAX_SWAPS = 200  # swaps to try; at most two per centroid
MAX_CENTERS_TO_SWAP = 256  # for more centroids, `MAX_SWAPS` swaps improve too little

# Steps of Lloyd's algorithm on the sample, if they are cheap compared with steps on all rows.
MIN_ROWS_PER_SAMPLE_ROW = 4  # otherwise the sample is not much smaller than all rows
MIN_SAMPLE_ROWS_PER_CENTER = 100  # otherwise the centroids would overfit the sample
MAX_STEPS = 100
MAX_COST = 4  # of all steps together, in steps on all rows
MIN_IMPROVEMENT = 1e-5  # steps end once they lower the energy by less than this share


def plus_plus(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Choose rows of a sample by greedy k-means++ and local search."""
    return _plus_plus(rows, k, rng, deadline)[0]


def _plus_plus(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline) -> tuple[Array, Sample]:
    sample = draw_sample(rows, k, rng)
    chosen = choose(sample.X, sample.weights, k, rng, deadline)
    if rows.is_sparse:  # the sample may consist of sketches
        return rows.take(sample.ids[chosen]), sample
    return np.ascontiguousarray(sample.X[chosen]), sample


def plus_plus_refined(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Choose rows like `plus_plus`, then run steps of Lloyd's algorithm on the sample if it is small compared with all rows."""
    centers, sample = _plus_plus(rows, k, rng, deadline)
    ratio = n_weighted_rows(rows) // len(sample.X)
    if ratio < MIN_ROWS_PER_SAMPLE_ROW or len(sample.X) < MIN_SAMPLE_ROWS_PER_CENTER * k or rows.is_sparse or rows.frame.bits:
        return centers
    some = rows.sibling(find_source(sample.X), sample.weights, Frame(unit=rows.frame.unit))
    state, before = initial_partition(some, centers), np.inf
    for _ in range(min(MAX_STEPS, MAX_COST * ratio)):
        try:
            with time_limit(deadline.end):
                new, info = advance(some, state, lambda rows, state: (label_all(rows, state), None))
        except TimeUp:  # not noted as skipped: steps on all rows do the same work
            break
        state = new
        if not info.reassigned or before - info.energy <= MIN_IMPROVEMENT * info.energy:
            break
        before = info.energy
    return state.centers


def choose(X: Array, weights: Array, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Return the indices of k rows, chosen by greedy k-means++ and local search."""
    distances = pruned_distances(X)
    chosen = _greedy(distances, weights, k, rng, deadline)
    if k > MAX_CENTERS_TO_SWAP:
        return chosen
    return swap(X, weights, chosen, list(rng.random(min(2 * k, MAX_SWAPS))), distances, deadline)


def pruned_distances(X: Array) -> PrunedDistances:
    """Compute the leading coordinates by which distances to rows of X are bounded."""
    y, rest = X, np.zeros(len(X))
    if X.shape[1] > LEADING_COLUMNS:
        heads = head_of(X, basis_of(X, LEADING_COLUMNS - 1))
        y, rest = np.ascontiguousarray(heads[:, :-1]), heads[:, -1].astype(np.float64)
    norms2 = np.empty(len(X))
    dense.squared_norms(X, norms2)
    return PrunedDistances(X, y, rest, norms2, 16 * rounding(X.dtype, X.shape[1]) * float(norms2.max()))


def _greedy(distances: PrunedDistances, weights: Array, k: int, rng: np.random.Generator, deadline: Deadline) -> Array:
    """Choose k rows: of a few drawn by squared distance, the one that is estimated to lower the energy most."""
    n, y = len(distances.X), distances.y
    chosen, least = np.empty(k, np.int64), np.full(n, np.inf)
    saved = np.empty(2 + int(np.log(k)))
    products, pace = np.empty((len(saved), n), y.dtype), Pace(k, deadline)
    for j in range(k):
        if deadline.expired():
            deadline.skip(f"{k - j:,} of {k:,} initial centroids were drawn at once")
            chosen[j:] = draw_at_once(rng, weights * least if j else weights, k - j, row_keys(distances.X))
            break
        count = 1 if pace.is_late(j) or not j else len(saved)
        if j and count == 1:
            deadline.skip("initial centroids were drawn without a choice between candidates")
        tried = draw(rng, weights * least if j else weights, count)
        np.dot(y[tried], y.T, out=products[: len(tried)])
        best = 0
        if len(tried) > 1:
            dense.saved_energy(products, tried, distances.norms2, weights, least, saved)
            best = int(saved.argmax())
        chosen[j] = tried[best]
        dense.lower_least(distances.X, chosen[j], products[best], distances.norms2, distances.rest, distances.slack, least)
    return chosen
