"""K-means by gradient descent on the energy, with all rows at once (batch) or row by row (online).

References
----------
L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS, equations 3 and 4. The learning rate is
eps_t = eps_0 / t in epoch t (T. Kohonen 1989).

Differs from the paper, which gives no eps_0 for all data: by default, no centroid moves beyond the mean of its rows. In the
online mode, rows come in a new random order in each epoch, in which equal rows are neighbors, so that a weight is equivalent to
repetition (for metric="cosine" only nearly, as centroids are normalized after the whole pull of a row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..fit import streaming_means
from ..fit.base import BaseCentroidClusterer
from ..fit.centroid_model import MAX_COORDINATE
from ..fit.context import FitContext
from ..fit.partition import Partition, PartitionInfo, StepStats
from ..fit.random_streams import generator
from ..fit.shuffle import keys_of, shuffled
from ..fit.solver import Solver
from .dispatch import assign_once
from .init import INITIALIZERS


class GradientState(NamedTuple):
    """State of the fit after an epoch. A step reuses the labels of the state passed to it."""

    centers: Array  # (k, d) float64
    labels: Array  # (n) int32, -1 before the first step
    start: int  # number of the initialization
    rate: float  # eps_0; 0 before it is known
    epochs: int = 0  # completed


def batch_step(rows: Rows, state: GradientState, cap: bool) -> tuple[GradientState, PartitionInfo]:
    """Take a step of batch gradient descent (equation 3).

    If `cap` is true, the learning rate is limited so that no centroid moves beyond the mean of its rows. If `state.rate` is 0,
    the largest cluster moves to its mean in the first step.
    """
    C, t = state.centers, state.epochs + 1
    sums = streaming_means.assign_and_sum(rows, C, state.labels)
    max_rate = 1 / float(sums.weight_sums.max())
    rate = state.rate or max_rate
    eps = min(rate / t, max_rate) if cap else rate / t
    new = C + eps * (sums.sums - sums.weight_sums[:, None] * C)
    if rows.frame.unit:
        new, _ = streaming_means.directions(new, C)
    shift = float(((new - C) ** 2).sum())
    info = PartitionInfo(sums.energy, shift, len(rows), len(rows) * len(C), sums.reassigned)
    return state._replace(centers=new, rate=rate, epochs=t), info


def online_step(rows: Rows, state: GradientState, ids: Array, unit: float = 1.0) -> tuple[GradientState, PartitionInfo]:
    """Take an epoch of online gradient descent (equation 4) over the rows `ids`, in that order.

    The energy adds up the squared distance of each row to the nearest centroid at its turn. Weights are divided by `unit`.
    """
    t = state.epochs + 1
    means = streaming_means.initial_means(rows, state.centers)
    epoch = streaming_means.run_epoch(rows.with_weights(rows.weights / unit), means, ids, state.labels, state.rate / t)
    info = PartitionInfo(unit * epoch.energy, epoch.shift, len(ids), len(ids) * len(means.weight_sums), epoch.reassigned)
    return state._replace(centers=means.centers, epochs=t), info


class GradientSolver(Solver):
    """Gradient descent with a learning rate of eps_0 / t in epoch t, on all rows at once or row by row."""

    def __init__(self, rows: Rows, model: GradientKMeans, seed: int, tol: float) -> None:
        super().__init__(rows)
        self.k, self.learning_rate, self.seed, self.tol = model.n_clusters, model.learning_rate, seed, tol
        online = model.mode == "online"
        self.keys = keys_of(rows) if online else None
        self.unit = 1.0  # weight that counts as one row
        if online and self.learning_rate is None:  # weights below 1 on average are shares of a total, not numbers of rows
            self.unit = min(1.0, float(rows.weights[rows.weights > 0].mean()))
        default = min(1.0, self.unit * self.k / float(rows.weights.sum())) if online else 0.0
        self.rate = self.learning_rate or default

    def init(self, centers: Array, start: int) -> GradientState:
        return GradientState(centers.astype(np.float64), np.full(len(self.rows), -1, np.int32), start, self.rate)

    def step(self, state: GradientState) -> tuple[GradientState, PartitionInfo]:
        if self.keys is None:
            new, info = batch_step(self.rows, state, cap=self.learning_rate is None)
        else:
            ids = shuffled(self.rows, self.keys, generator(self.seed, state.start, state.epochs + 1))
            new, info = online_step(self.rows, state, ids, self.unit)
        if not np.abs(new.centers).max() < MAX_COORDINATE[self.rows.dtype]:
            raise ValueError(
                f"learning_rate={self.learning_rate} makes the centroids diverge (epoch {new.epochs}): "
                f"use a smaller value, for instance {self.k / float(self.rows.weights.sum()):.1g}, or None."
            )
        return new, info

    def converged(self, state: GradientState, info: PartitionInfo) -> bool:
        return info.shift <= self.tol

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return assign_once(rows, state)


class GradientKMeans(BaseCentroidClusterer):
    """K-means by gradient descent on the energy.

    It converges more slowly than `KMeans` and `OnlineKMeans`, and is a baseline for them.

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
    mode : {"batch", "online"}, default="batch"
        Whether centroids move once per epoch, by the gradient of all rows, or after each row.
    learning_rate : float or None, default=None
        Learning rate eps_0. In epoch t, a row moves its centroid by eps_0 / t of the way; at most 1 if mode="online". None
        is one over the weight of the largest cluster in the first epoch ("batch"), or of the average cluster ("online").
    max_iter : int, default=300
        Maximum number of epochs per initialization.
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
        One record per epoch: step, seconds, energy (of the incoming centroids; if online, of each row with the centroids at
        its turn), shift (sum of the squared movements of the centroids), rows (processed), distances (computed), reassigned
        (rows whose label changed) and start (number of the initialization).
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    KMeans : Exact k-means; an iteration is a Newton step on the energy.
    OnlineKMeans : Online updates with a learning rate of one over the weight of the cluster.

    Notes
    -----
    An epoch computes n_samples * n_clusters distances. The mode "online" cannot be distributed to workers.

    Differs from [1]_: with learning_rate=None, no centroid moves beyond the mean of its rows.

    References
    ----------
    .. [1] L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import GradientKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = GradientKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]
    """

    _center_arrays = (7, 3)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "mode": [StrOptions({"batch", "online"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Literal["k-means++", "k-means||", "afk-mc2", "random"] | Callable[..., Any] | ArrayLike = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        mode: Literal["batch", "online"] = "batch",
        learning_rate: float | None = None,
        max_iter: int = 300,
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
        self.mode = mode
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.mode == "online" and self.learning_rate is not None and self.learning_rate > 1:
            raise ValueError(
                f"learning_rate={self.learning_rate} would move a centroid beyond the row that pulls it: "
                "use at most 1 if mode='online'."
            )

    @property
    def _not_distributable_because(self) -> str:
        return "rows move centroids one after another: use mode='batch'" if self.mode == "online" else ""

    def _make_solver(self, context: FitContext) -> GradientSolver:
        return GradientSolver(context.rows, self, context.seed, self.tol * context.variance)
