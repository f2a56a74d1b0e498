"""Mini-batch k-means: a random batch of rows per step; each centroid is the mean of all rows assigned to it so far.

References
----------
D. Sculley (2010), Web-scale k-means clustering, doi:10.1145/1772690.1772862.
J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS, Algorithms 2 to 4.
C. Michelot (1986), A finite algorithm for finding the projection of a point onto the canonical simplex of R^n,
doi:10.1007/BF00938486.

Differs from the papers: the initial centroid does not count as a row of its cluster (it does in Newling and Fleuret, but not in
Sculley); no row occurs twice in a batch; the projection onto the L1 ball is exact instead of up to a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval

from ..data.frame import Frame
from ..data.rows import Batches as RowBatches
from ..data.rows import Rows
from ..data.types import Array
from ..fit import streaming_means
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.parameters import Count
from ..fit.partition import Partition, StepStats
from ..fit.random_streams import generator
from ..fit.solver import Solver
from ..fit.streaming import BaseStreamingClusterer
from ..fit.streaming_means import Means
from .dispatch import assign_once
from .init import INITIALIZERS


class MiniBatchState(NamedTuple):
    """State of the fit after a batch. A step reuses the means of the state passed to it."""

    means: Means
    start: int  # number of the initialization
    anchor: Array  # (k, d): centroids at the beginning of the epoch
    drift: float = np.inf  # sum of the squared movements of the centroids over the last complete epoch
    batches: int = 0  # processed
    smoothed_energy: float = 0.0  # moving average of the energy over half an epoch
    lowest_energy: float = np.inf  # lowest value of `smoothed_energy`
    n_without_improvement: int = 0  # batches since then

    @property
    def centers(self) -> Array:
        return self.means.centers


class MiniBatchInfo(NamedTuple):
    """Statistics of one step."""

    energy: float  # of the batch with the incoming centroids, scaled to all rows
    shift: float  # sum of the squared movements of the centroids
    rows: int  # rows in the batch
    distances: int  # row-centroid distances computed

    @property
    def batch(self) -> int:
        """Rows in the batch."""
        return self.rows


def draw(n: int, size: int, seed: int, start: int, batch: int) -> Array:
    """Draw the rows of a batch from n rows, without replacement, sorted. Batches are numbered from 1."""
    rng = generator(seed, start, batch)
    return np.sort(rng.choice(n, size, replace=False, shuffle=False))


def step(
    batch: Rows, state: MiniBatchState, mass: float, epoch: float, radius: float | None
) -> tuple[MiniBatchState, MiniBatchInfo]:
    """Update the centroids by a batch. All rows together have the weight `mass` and make `epoch` batches."""
    energy, shift = update_means(batch, state.means, radius)
    energy *= mass / float(batch.weights.sum())
    t = state.batches + 1
    if t // epoch > state.batches // epoch:
        C = state.centers.copy()
        state = state._replace(anchor=C, drift=float(((C - state.anchor) ** 2).sum()))
    smooth = state.smoothed_energy + (energy - state.smoothed_energy) / min(t, max(epoch / 2, 1))
    better = smooth < state.lowest_energy or t <= epoch / 2  # earlier, the average covers less than half an epoch
    state = state._replace(
        batches=t, smoothed_energy=smooth, n_without_improvement=0 if better else state.n_without_improvement + 1
    )
    new = state._replace(lowest_energy=smooth) if better else state
    return new, MiniBatchInfo(energy, shift, len(batch), len(batch) * len(state.means.weight_sums))


def update_means(batch: Rows, means: Means, radius: float | None) -> tuple[float, float]:
    """Update the means by a batch, project them onto the L1 ball if a radius is given, and return energy and shift."""
    if radius is None:
        return means.update_batch(batch)
    before = means.centers.copy()
    energy, _ = means.update_batch(batch)
    C = project_centers(means.centers, radius, batch.frame)
    means.put(C)
    return energy, float(((C - before) ** 2).sum())


def project_centers(C: Array, radius: float, frame: Frame) -> Array:
    """Project centroids onto the L1 ball around the origin of X, which the frame may have shifted."""
    origin = 0.0 if frame.shift is None else frame.shift
    radius = float(np.ldexp(radius, frame.exponent))
    return np.stack([project(c, radius) for c in C.astype(np.float64) + origin]) - origin


def project(v: Array, radius: float) -> Array:
    """Return the point of the L1 ball that is nearest to v: coordinates shrink by a common amount, and stop at zero."""
    left = np.abs(v)
    if left.sum() <= radius:
        return v
    while True:
        theta = (left.sum() - radius) / len(left)
        more = left[left > theta]
        if len(more) == len(left):
            return np.asarray(np.sign(v) * np.maximum(np.abs(v) - theta, 0))
        left = more


class MiniBatchSolver(Solver):
    """Running means over random batches of rows."""

    info_type = MiniBatchInfo

    def __init__(self, rows: Rows, model: MiniBatchKMeans, seed: int, tol: float) -> None:
        super().__init__(rows)
        self.k, self.size, self.l1_radius = model.n_clusters, model.batch_size, model.l1_radius
        self.patience = model.max_no_improvement
        self.seed, self.tol, self.weight = seed, tol, float(rows.weights.sum())
        # rows of weight zero are never drawn
        self.weighted_rows = np.flatnonzero(rows.weights > 0) if rows.has_weights else None
        self.n = len(rows) if self.weighted_rows is None else len(self.weighted_rows)
        self._batches: dict[int, RowBatches] = {}

    def ids(self, start: int, batch: int) -> Array:
        """Return the rows of a batch."""
        ids = draw(self.n, self.size, self.seed, start, batch)
        return ids if self.weighted_rows is None else self.weighted_rows[ids]

    def batch(self, state: MiniBatchState) -> Rows:
        """Return the next batch."""
        if self.size >= self.n:
            return self.rows
        batches = self._batches.setdefault(state.start, self.rows.batches(partial(self.ids, state.start), self.k))
        return batches[state.batches + 1]

    def init(self, centers: Array, start: int) -> MiniBatchState:
        return MiniBatchState(streaming_means.initial_means(self.rows, centers), start, centers)

    def step(self, state: MiniBatchState) -> tuple[MiniBatchState, MiniBatchInfo]:
        return step(self.batch(state), state, self.weight, max(self.n / self.size, 1), self.l1_radius)

    def converged(self, state: MiniBatchState, info: MiniBatchInfo) -> bool:
        return state.drift <= self.tol or (self.patience is not None and state.n_without_improvement >= self.patience)

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return assign_once(rows, state)

    def publish(self, state: Partition) -> Partition:
        if self.l1_radius is not None:  # a row given to an empty cluster may have moved its centroid out of the ball
            state = state._replace(centers=project_centers(state.centers, self.l1_radius, self.rows.frame))
        return super().publish(state)


class MiniBatchKMeans(BaseStreamingClusterer):
    """Mini-batch k-means: running means over random batches of rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    init : {"k-means++", "k-means||", "afk-mc2", "random"}, callable or array-like, default="k-means++"
        Initial centroids. "k-means++" is the greedy variant on a sample of the rows, improved by a local search for up to
        256 clusters. "k-means||" and "afk-mc2" approximate k-means++. "random" draws rows. A callable is called as
        ``init(X, n_clusters, random_state=...)`` with a RandomState and returns an array of shape (n_clusters, n_features).
    n_init : int or "auto", default="auto"
        Number of initializations, of which the result with the lowest energy is kept. "auto" is 10 for "random" and
        callables, and 1 otherwise. An array has a single initialization.
    batch_size : int, default=1024
        Number of rows in a batch. If it is at least n_samples, every batch holds all rows. `partial_fit` divides its rows
        into batches of this size, in their order.
    max_iter : int, default=10000
        Maximum number of batches per initialization.
    tol : float, default=1e-4
        Stop when the sum of the squared movements of the centroids over an epoch, as many batches as hold n_samples rows,
        is at most `tol` times the mean variance of the columns of X.
    max_no_improvement : int or None, default=10
        Stop after this number of consecutive batches without a new minimum of the energy, averaged over half an epoch, but
        not before half an epoch. None disables this criterion.
    l1_radius : float or None, default=None
        Largest sum of absolute coordinates of a centroid. Centroids are projected onto this ball after each batch, which
        makes them sparse. Use it for sparse rows; it is not available for metric="cosine".
    time_budget : float or None, default=None
        Seconds after which `fit` ends with the best centroids found so far. Initialization may use half of them; if it
        would take longer, it is simplified, with a ConvergenceWarning. The check of X, a short initialization and the final
        labels are computed in any case, so `n_iter_` may be 0. Compilation of kernels, on their first use, counts. None
        sets no limit, and the result does not depend on time.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" scales rows and centroids to unit length, and the energy is the sum of 1 - cosine. Rows of zeros are
        rejected.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers. Pass an int for reproducible results.
    n_threads : int or None, default=None
        Number of threads. None uses as many as OpenMP would. The result does not depend on it.
    callback : callable or None, default=None
        Function called with a copy of each record of `history_`. The fit stops if it returns a true value.
    verbose : int, default=0
        Whether to print each record of `history_`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centroids.
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row. Equal to ``predict(X)``.
    inertia_ : float
        Energy: the weighted sum of squared distances from the rows to their centroids.
    n_iter_ : int
        Number of iterations from the initialization that was kept.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the iterations ended. "time_budget" and "callback" also if they ended the fit before all initializations were
        tried.
    history_ : list of dict
        One record per batch: step, seconds, energy (of the batch with the incoming centroids, scaled to all rows), shift
        (sum of the squared movements of the centroids), rows (in the batch), distances (computed) and start (number of the
        initialization).
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    KMeans : Exact k-means.
    NestedKMeans : Batches that grow, which converges to a fixed point of Lloyd's algorithm.
    OnlineKMeans : Batches of a single row.

    Notes
    -----
    A step computes batch_size * n_clusters distances, whatever n_samples is. The energy is usually a few percent above that of
    `KMeans`. For a stream, call `partial_fit` with each chunk.

    Differs from [1]_: the projection onto the L1 ball is exact, and no row occurs twice in a batch.

    References
    ----------
    .. [1] D. Sculley (2010), Web-scale k-means clustering, doi:10.1145/1772690.1772862.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import MiniBatchKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = MiniBatchKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]

    Rows in chunks:

    >>> stream = MiniBatchKMeans(n_clusters=2, random_state=0)
    >>> for chunk in (X, X + 1, X + 2):
    ...     stream = stream.partial_fit(chunk)
    >>> sorted(stream.cluster_centers_[:, 0].tolist())
    [2.0, 11.0]
    """

    _center_arrays = (7, 3)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "batch_size": [Count()],
        "max_no_improvement": [Count(), None],
        "l1_radius": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Literal["k-means++", "k-means||", "afk-mc2", "random"] | Callable[..., Any] | ArrayLike = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        batch_size: int = 1024,
        max_iter: int = 10_000,
        tol: float = 1e-4,
        max_no_improvement: int | None = 10,
        l1_radius: float | None = None,
        time_budget: float | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.l1_radius = l1_radius
        self.time_budget = time_budget
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.l1_radius is not None and self.metric == "cosine":
            raise ValueError(
                f"l1_radius={self.l1_radius} conflicts with metric='cosine', which keeps centroids at unit length: "
                "use metric='euclidean' or l1_radius=None."
            )

    def _make_solver(self, context: FitContext) -> MiniBatchSolver:
        return MiniBatchSolver(context.rows, self, context.seed, self.tol * context.variance)

    def _take_in(self, rows: Rows, means: Means) -> None:
        for a in range(0, len(rows), self.batch_size):
            ids = np.arange(a, min(a + self.batch_size, len(rows)))
            update_means(rows.subset(ids, self.n_clusters), means, self.l1_radius)
