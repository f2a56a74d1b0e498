"""k-means++: draw initial centroids one after the other, with probability proportional to the squared distance.

References
----------
D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, Proc. ACM-SIAM Symposium on Discrete
Algorithms (SODA).
P. S. Bradley, U. M. Fayyad (1998), Refining initial points for k-means clustering, Proc. International Conference on Machine
Learning (ICML).

Differs from the paper: of 2 + log k candidates per centroid, the one that lowers the energy most is chosen (greedy k-means++,
as in scikit-learn), and one pass over the rows may serve several centroids (see `greedy`). A sample is used if there are many
rows (see `sample`). Up to 256 centroids of dense rows are then improved by local search (see `local_search`).
`plus_plus_refined` also runs steps of Lloyd's algorithm on the sample, as Bradley and Fayyad do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...data.cancellation import TimeUp, time_limit
from ...data.frame import Frame
from ...data.rows import Rows
from ...data.sources import find_source
from ...data.types import Array, is_sparse
from ...execution.deadline import NO_DEADLINE, Deadline, Pace
from ...fit.partition import advance, initial_partition
from ...fit.random_streams import draw, draw_at_once
from ...kernels import dense, tiles
from .. import lloyd
from .local_search import RowDistances, row_distances, swap
from .sample import Sample, draw_sample, n_weighted_rows, row_keys
from .sparse_distances import SparseRowDistances, sparse_row_distances

Distances = RowDistances | SparseRowDistances

# Rows by which candidates are compared, at least, and per centroid.
MIN_TRIAL_ROWS = 2048
TRIAL_ROWS_PER_CENTER = 8
# Rows, and rows x columns x centroids, up to which there are more.
MAX_LARGER_TRIAL, MAX_WORK_FOR_LARGER_TRIAL = 1 << 16, 1 << 26
MAX_GROWTH = 0.25  # new centroids per pass over the sample, relative to those there are: their draws do not know each other
MAX_SPARSE_GROWTH = 0.5  # the same for sparse rows: few of them are near each other, and a pass costs more than a step's share

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
    sample = draw_sample(rows, k, rng, importance=True)
    chosen = choose(rows, sample.X, sample.weights, k, rng, deadline)
    centers: Any = sample.X[chosen]
    return np.ascontiguousarray(centers.toarray() if is_sparse(centers) else centers), sample


def plus_plus_refined(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Choose rows like `plus_plus`, then run steps of Lloyd's algorithm on the sample if it is small compared with all rows."""
    centers, sample = _plus_plus(rows, k, rng, deadline)
    ratio = n_weighted_rows(rows) // len(sample.ids)
    if ratio < MIN_ROWS_PER_SAMPLE_ROW or len(sample.ids) < MIN_SAMPLE_ROWS_PER_CENTER * k or rows.is_sparse or rows.frame.bits:
        return centers
    some = rows.sibling(find_source(sample.X), sample.weights, Frame(unit=rows.frame.unit))
    state, before = initial_partition(some, centers), np.inf
    for _ in range(min(MAX_STEPS, MAX_COST * ratio)):
        try:
            with time_limit(deadline.end):
                new, info = advance(some, state, lloyd.assign)
        except TimeUp:  # not noted as skipped: steps on all rows do the same work
            break
        state = new
        if not info.reassigned or before - info.energy <= MIN_IMPROVEMENT * info.energy:
            break
        before = info.energy
    return state.centers


def choose(rows: Rows, X: Any, weights: Array, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Return the indices of k of the rows X, chosen by greedy k-means++ and local search with the executor of `rows`."""
    if is_sparse(X):
        return greedy(sparse_row_distances(X, rows), weights, k, rng, deadline)
    distances = row_distances(X, rows)
    chosen = greedy(distances, weights, k, rng, deadline)
    if k > MAX_CENTERS_TO_SWAP:
        return chosen
    return swap(X, weights, chosen, list(rng.random(min(2 * k, MAX_SWAPS))), distances, deadline)


def trial_size(d: int, k: int) -> int:
    """Return the number of rows by which candidates are compared."""
    more = min(MAX_WORK_FOR_LARGER_TRIAL // (k * d), MAX_LARGER_TRIAL)
    return max(MIN_TRIAL_ROWS, TRIAL_ROWS_PER_CENTER * k, more)


class Trial(NamedTuple):
    """Rows by which candidates are compared: all of them, or rows at equal steps."""

    ids: Array  # (m): their indices
    distances: Distances  # to these rows
    weights: Array  # (m) float64

    @classmethod
    def of(cls, distances: Distances, weights: Array, size: int) -> Trial:
        n = len(weights)
        if n <= size:
            return cls(np.arange(n), distances, weights)
        ids = np.linspace(0, n - 1, size).astype(int)
        return cls(ids, distances.take(ids), weights[ids])


def greedy(
    distances: Distances,
    weights: Array,
    k: int,
    rng: np.random.Generator,
    deadline: Deadline = NO_DEADLINE,
    n_candidates: int | None = None,
) -> Array:
    """Choose k rows: of a few drawn by squared distance, the one that is estimated to lower the energy most.

    Once there are several centroids, a pass over all rows serves the next few of them. These are drawn by the distances before
    the pass, and compared by the distances to all centroids so far on the rows of a trial.
    """
    X, keys = distances.X, row_keys(distances.X)
    growth, size = MAX_GROWTH, trial_size(X.shape[1], k)
    if is_sparse(X):
        growth, size = MAX_SPARSE_GROWTH, max(MIN_TRIAL_ROWS, TRIAL_ROWS_PER_CENTER * k)
    trial = Trial.of(distances, weights, size)
    chosen, least = np.empty(k, np.int64), np.full(X.shape[0], np.inf)
    n_candidates, pace, j = n_candidates or 2 + int(np.log(k)), Pace(k, deadline), 0
    while j < k:
        if deadline.expired():
            deadline.skip(f"{k - j:,} of {k:,} initial centroids were drawn at once")
            chosen[j:] = draw_at_once(rng, weights * least if j else weights, k - j, keys)
            break
        late = pace.is_late(j)
        if late:
            deadline.skip("initial centroids were drawn without a choice between candidates")
        size = min(max(int(growth * j), 1), tiles.lanes(X.dtype), k - j)
        tried = draw(rng, weights * least if j else weights, size * (1 if late or not j else n_candidates)).reshape(size, -1)
        picked = _pick(distances, tried, trial, least[trial.ids]) if tried.shape[1] > 1 else tried[:, 0]
        picked = picked[np.sort(np.unique(keys[picked], return_index=True)[1])]  # equal rows only once
        distances.lower(picked, least)
        chosen[j : j + len(picked)] = picked
        j += len(picked)
    return chosen


def _pick(distances: Distances, tried: Array, trial: Trial, least: Array) -> Array:
    """Return the best candidate of each row of `tried`, one after the other; `least` are the distances of the trial's rows."""
    norms2 = trial.distances.norms2
    products = trial.distances.products(distances.X[tried.ravel()]).reshape(*tried.shape, -1)
    saved, picked = np.empty(tried.shape[1]), np.empty(len(tried), np.int64)
    for b, ids in enumerate(tried):
        own = distances.norms2[ids]
        dense.saved_energy(products[b], own, norms2, trial.weights, least, saved)
        best = int(saved.argmax())
        picked[b] = ids[best]
        least = np.minimum(least, own[best] + norms2 - 2.0 * products[b, best])
    return picked
