"""Online k-means: each row moves its nearest centroid, which stays the mean of all rows that it was assigned.

References
----------
L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS, equation 7.
J. MacQueen (1967), Some methods for classification and analysis of multivariate observations, Proc. 5th Berkeley Symposium on
Mathematical Statistics and Probability.

Differs from the papers: rows come in a new random order in each epoch, in which equal rows are neighbors, so that a weight is
equivalent to repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition, streaming_means
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.partition import Assign, Partition, PartitionInfo, StepStats
from ..fit.random_streams import generator
from ..fit.shuffle import keys_of, shuffled
from ..fit.solver import Solver
from ..fit.streaming import BaseStreamingClusterer
from ..fit.streaming_means import Means
from .dispatch import final_assign, select_algorithm
from .init import INITIALIZERS


class OnlineState(NamedTuple):
    """State of the fit after an epoch. A step reuses the arrays of the state passed to it."""

    means: Means
    labels: Array  # (n) int32: label of each row when it was last processed, -1 before
    start: int  # number of the initialization
    epochs: int = 0  # completed

    @property
    def centers(self) -> Array:
        return self.means.centers


def step(rows: Rows, state: OnlineState, ids: Array) -> tuple[OnlineState, PartitionInfo]:
    """Process the rows `ids` in that order.

    The energy adds up the squared distance of each row to the nearest centroid at its turn.
    """
    epoch = streaming_means.run_epoch(rows, state.means, ids, state.labels)
    distances = len(ids) * len(state.means.weight_sums)
    info = PartitionInfo(epoch.energy, epoch.shift, len(ids), distances, epoch.reassigned)
    return state._replace(epochs=state.epochs + 1), info


class OnlineSolver(Solver):
    """Epochs of online updates, or one epoch followed by iterations of `KMeans`."""

    def __init__(self, rows: Rows, assigner: Assign, seed: int, tol: float, ends_in_batches: bool) -> None:
        super().__init__(rows)
        self.assigner, self.seed, self.tol, self.ends_in_batches = assigner, seed, tol, ends_in_batches
        self.keys = keys_of(rows)

    def init(self, centers: Array, start: int) -> OnlineState:
        labels = np.full(len(self.rows), -1, np.int32)
        return OnlineState(streaming_means.initial_means(self.rows, centers), labels, start)

    def step(self, state: Any) -> tuple[Any, PartitionInfo]:
        if isinstance(state, Partition):
            return partition.advance(self.rows, state, self.assigner)
        ids = shuffled(self.rows, self.keys, generator(self.seed, state.start, state.epochs + 1))
        state, info = step(self.rows, state, ids)
        if self.ends_in_batches:
            return partition.initial_partition(self.rows, np.ascontiguousarray(state.centers, self.rows.dtype)), info
        return state, info

    def converged(self, state: Any, info: PartitionInfo) -> bool:
        if not self.ends_in_batches:
            return info.shift <= self.tol
        if state.labels[0] < 0:  # no exact iteration has been done yet
            return False
        return info.shift <= self.tol or info.reassigned == 0

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return final_assign(rows, state, self.assigner)


class OnlineKMeans(BaseStreamingClusterer):
    """Online k-means: each row moves its nearest centroid before the next row is assigned.

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
    then : {"batch"} or None, default=None
        What follows the first epoch: iterations of `KMeans` until convergence ("batch"), or further epochs (None).
    max_iter : int, default=100
        Maximum number of epochs and iterations per initialization.
    tol : float, default=1e-4
        Stop when the sum of the squared movements of the centroids is at most `tol` times the mean variance of the columns
        of X.
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
        One record per epoch or iteration: step, seconds, energy (of each row with the centroids at its turn; in iterations,
        of the incoming centroids), shift (sum of the squared movements of the centroids), rows (processed), distances
        (computed), reassigned (rows whose label changed) and start (number of the initialization).
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    MiniBatchKMeans : The same with batches of rows, which is faster and can be distributed.
    KMeans : Exact k-means.

    Notes
    -----
    An epoch computes n_samples * n_clusters distances. A centroid is the mean of all rows assigned to it so far, so its
    learning rate is one over their weight. If rows are redundant, the first epoch lowers the energy more than an iteration of
    `KMeans`; later ones lower it less, which is what ``then="batch"`` is for. For a stream, call `partial_fit` with each chunk.

    Differs from [1]_ and [2]_: the order of the rows is random, and a weight is equivalent to repetition.

    References
    ----------
    .. [1] L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS.
    .. [2] J. MacQueen (1967), Some methods for classification and analysis of multivariate observations.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import OnlineKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = OnlineKMeans(n_clusters=2, then="batch", random_state=0).fit(X)
    >>> model.inertia_
    16.0

    Rows in chunks:

    >>> stream = OnlineKMeans(n_clusters=2, random_state=0)
    >>> for chunk in (X, X + 1, X + 2):
    ...     stream = stream.partial_fit(chunk)
    >>> sorted(stream.cluster_centers_[:, 0].tolist())
    [2.0, 11.0]
    """

    _not_distributable_because = "rows move centroids one after another: use MiniBatchKMeans"
    _center_arrays = (6, 5)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "then": [StrOptions({"batch"}), None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Literal["k-means++", "k-means||", "afk-mc2", "random"] | Callable[..., Any] | ArrayLike = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        then: Literal["batch"] | None = None,
        max_iter: int = 100,
        tol: float = 1e-4,
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
        self.then = then
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), "order of the rows": 24.0 * load.n}

    def _make_solver(self, context: FitContext) -> OnlineSolver:
        assigner = select_algorithm(context.rows, self.n_clusters, "auto", context.memory)[1]
        tol = self.tol * context.variance
        return OnlineSolver(context.rows, assigner, context.seed, tol, ends_in_batches=self.then == "batch")

    def _take_in(self, rows: Rows, means: Means) -> None:
        streaming_means.run_epoch(rows, means, np.arange(len(rows)), np.empty(len(rows), np.int32))
