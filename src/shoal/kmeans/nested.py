"""Nested mini-batches: steps of Lloyd's algorithm on a sample that doubles once centroid noise dominates centroid movement.

Each batch contains the one before, so that bounds on its rows remain valid, and each row counts once, with its present label.
The batch doubles when min_j sigma_C(j) / p(j) > rho: each centroid's standard error exceeds its last movement rho times.

References
----------
J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS (Algorithm 5, "nmbatch").

Differs from the paper: initial centroids do not count as rows; a batch of up to a quarter of the rows doubles, and a larger one
is followed by all rows, since copying more takes longer than it saves; once the batch is all rows, a centroid that loses all
its rows moves to the row with the largest error; besides one lower bound per centroid there are cheaper kinds of bounds (see
`bounded` and `projected`). When the batch is all rows, they are processed in their own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.loop import Limits, RunResult
from ..fit.parameters import Count
from ..fit.partition import Assign, Partition, StepStats
from ..fit.random_streams import generator
from ..fit.restarts import FitResult
from ..fit.schema import Choice, History, Number, Spec
from ..fit.solver import Solver
from .dispatch import ALGORITHMS, Algorithm, final_assign, memory, select_algorithm
from .growing_batches import GrowingBatches, expand, noise_ratios
from .init import INITIALIZERS
from .remaining_improvement import MIN_STEPS, newest_energy, remaining_improvement

MIN_FIRST_BATCH = 5000  # rows of the first batch, as in the paper, if batch_size="auto"
MIN_FIRST_BATCH_PER_CENTER = 20  # and at least this number per cluster
STOP_REASONS = {  # for `summary_`
    "converged": "the centroids hardly moved",
    "quality": "good enough",
    "time_budget": "time was up",
    "max_iter": "the number of steps was limited",
    "callback": "stopped by a callback",
}


class NestedInfo(NamedTuple):
    """Statistics of one step."""

    energy: float  # of the incoming centroids, on the batch, scaled to all rows
    shift: float  # sum of the squared movements of the centroids
    rows: int  # rows that bounds did not decide
    distances: int  # row-centroid distances computed; a distance in h of d columns counts as h / d
    reassigned: int  # rows whose label changed, including new rows
    batch: int  # rows in the batch
    newest: float  # energy of the rows that joined last, scaled to all rows; NaN if it was not computed


class NestedState(NamedTuple):
    """State of the fit after a step."""

    partition: Partition  # of the batch
    start: int  # number of the initialization
    seen: tuple[NestedInfo, ...] = ()  # of the steps on batches of the present size

    @property
    def centers(self) -> Array:
        return self.partition.centers


class NestedPlan(NamedTuple):
    """Settings of a fit that are the same in all steps."""

    assign: Assign
    rho: float
    first: int  # rows of the first batch
    watch: bool  # compute the energy of the rows that joined last


def step(batches: GrowingBatches, state: Partition, plan: NestedPlan, steps_before: int = 0) -> tuple[Partition, NestedInfo]:
    """Take a step on the batch, on which `steps_before` have been taken, and double the batch if it is time."""
    n, size = len(batches.rows), len(state.labels)
    rows = batches.batch(size)
    # rows of a cluster that is empty in the batch may be yet to come
    after, info = partition.advance(rows, state, plan.assign, fill=size == n)
    share = float(rows.weights.sum()) / batches.weight_sum
    watched = plan.watch and plan.first < size < n
    newest = batches.weight_sum * newest_energy(rows, state) if watched else np.nan
    nested_info = NestedInfo(*info._replace(energy=info.energy / share if share else 0.0), size, newest)
    if size < n and noise_ratios(after).min() > plan.rho and (not plan.watch or steps_before >= MIN_STEPS - 1):
        larger = batches.size_after(size)
        after = expand(after, larger, batches.ids(size) if larger == n else np.arange(size))
    return after, nested_info


class NestedSolver(Solver):
    """Steps of Lloyd's algorithm on a batch that doubles once centroid noise dominates centroid movement."""

    info_type = NestedInfo

    def __init__(self, rows: Rows, plan: NestedPlan, k: int, seed: int, tol: float, quality: float) -> None:
        super().__init__(rows)
        self.plan, self.k, self.seed, self.tol, self.quality = plan, k, seed, tol, quality
        self._batches: tuple[int, GrowingBatches] | None = None  # number of the present initialization, and its batches

    def batches(self, start: int) -> GrowingBatches:
        """Return the batches of an initialization."""
        if self._batches is None or self._batches[0] != start:
            self._batches = start, GrowingBatches(self.rows, self.k, generator(self.seed, start, 1))
        return self._batches[1]

    def init(self, centers: Array, start: int) -> NestedState:
        batches = self.batches(start)
        first = batches.batch(batches.size(self.plan.first))
        return NestedState(partition.initial_partition(first, centers), start)

    def step(self, state: NestedState) -> tuple[NestedState, NestedInfo]:
        before = sum(info.batch == len(state.partition.labels) for info in state.seen)
        after, info = step(self.batches(state.start), state.partition, self.plan, before)
        return NestedState(after, state.start, (*(i for i in state.seen if i.batch == info.batch), info)), info

    def converged(self, state: NestedState, info: NestedInfo) -> bool:
        n = len(self.rows)
        if info.batch == n and (info.reassigned == 0 or info.shift <= self.tol):
            return True
        return remaining_improvement(state.seen, n) < self.quality

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return final_assign(rows, state, self.plan.assign)

    def finalize(self, result: RunResult, limits: Limits, skipped: list[str]) -> tuple[RunResult, float]:
        return super().finalize(result._replace(state=result.state.partition), limits, skipped)

    def is_valid_state(self, state: Any) -> bool:
        return all(type(info) is NestedInfo for info in getattr(state, "seen", ()))


class NestedKMeans(BaseCentroidClusterer):
    """K-means on nested mini-batches, which grow until they hold all rows.

    A good clustering is found long before `KMeans` finds one; with `quality=0`, the result is a fixed point of Lloyd's
    algorithm.

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
    batch_size : int or "auto", default="auto"
        Number of rows of the first batch. "auto" is 5000 as in the paper, but at least 20 per cluster.
    rho : float, default=1.0
        Threshold of the ratio between the standard error of a centroid and its last movement. The batch doubles when all
        ratios exceed it, or grows to all rows if it would then exceed a quarter of them; larger values double later.
    quality : float, default=0.0
        Stop when the estimated remaining relative improvement of the energy is below this value, even if not all rows have
        been processed. 0 continues until convergence on all rows.
    algorithm : {"auto", "lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected"}, default="auto"
        Algorithm that assigns rows to centroids. "auto" is "projected" if its bounds pay and fit into memory, else "lloyd".
        All give bitwise identical results; "projected" requires dense rows.
    max_iter : int, default=300
        Maximum number of steps per initialization.
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
    stop_reason_ : {"converged", "quality", "max_iter", "time_budget", "callback"}
        Why the iterations ended. "time_budget" and "callback" also if they ended the fit before all initializations were
        tried.
    remaining_ : float
        Estimated remaining relative improvement of the energy; infinite if there were too few steps to estimate it.
    summary_ : str
        One line that says what was done, why it ended, and how much improvement may remain.
    history_ : list of dict
        One record per step: step, seconds, energy (of the incoming centroids, on the batch, scaled to all rows), shift (sum
        of the squared movements of the centroids), rows (that bounds did not decide), distances (computed), reassigned
        (rows whose label changed), batch (number of rows), newest (energy of the rows that joined last, scaled to all rows;
        NaN if `quality` is 0) and start (number of the initialization).
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    KMeans : Exact k-means, on all rows from the first step.
    MiniBatchKMeans : Random batches of constant size, for streams.
    cluster : Nested batches with `quality=0.01`.

    Notes
    -----
    A step costs as much as one of `KMeans` on the batch. The batch is copied into memory until it holds all rows, unless X is a
    memory map. Labels and `inertia_` are computed for all rows in any case.

    Differs from [1]_: initial centroids do not count as rows, and other bounds than one per row and centroid can be used
    ("elkan" is that of the paper).

    References
    ----------
    .. [1] J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import NestedKMeans
    >>> X = np.random.default_rng(0).normal(size=(20000, 4)) + 9 * np.arange(20000)[:, None] % 27
    >>> model = NestedKMeans(n_clusters=3, batch_size=1000, random_state=0).fit(X)
    >>> model.history_[0]["batch"], model.history_[-1]["batch"]
    (1000, 20000)
    """

    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "batch_size": [Count(), StrOptions({"auto"})],
        "rho": [Interval(Real, 0, None, closed="neither")],
        "quality": [Interval(Real, 0, 1, closed="left")],
        "algorithm": [StrOptions({"auto", *ALGORITHMS})],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Literal["k-means++", "k-means||", "afk-mc2", "random"] | Callable[..., Any] | ArrayLike = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        rho: float = 1.0,
        quality: float = 0.0,
        algorithm: Algorithm = "auto",
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
        self.batch_size = batch_size
        self.rho = rho
        self.quality = quality
        self.algorithm = algorithm
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _make_solver(self, context: FitContext) -> NestedSolver:
        _, assign = select_algorithm(context.rows, self.n_clusters, self.algorithm, context.memory)
        k = self.n_clusters
        auto = max(MIN_FIRST_BATCH, MIN_FIRST_BATCH_PER_CENTER * k)
        size = auto if isinstance(self.batch_size, str) else max(self.batch_size, k)
        plan = NestedPlan(assign, self.rho, size, watch=self.quality > 0)
        return NestedSolver(context.rows, plan, k, context.seed, self.tol * context.variance, self.quality)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.algorithm != "projected"
        return tags

    def _memory(self, load: Workload) -> dict[str, float]:
        bounds = memory(self.algorithm, load.n, load.d, self.n_clusters, load.itemsize)
        return {**super()._memory(load), "indices of the batch": 2.0 * load.n, **bounds}

    def _fitted_schema(self) -> dict[str, Spec]:
        own = {"remaining_": Number(finite=False), "history_": History(("step", "seconds", *NestedInfo._fields))}
        return {**super()._fitted_schema(), **own, "stop_reason_": Choice(tuple(STOP_REASONS))}

    def _set_fitted_attributes(self, result: FitResult) -> None:
        super()._set_fitted_attributes(result)
        records = [NestedInfo(*(record[name] for name in NestedInfo._fields)) for record in self.history_]
        self.remaining_ = left = remaining_improvement(records, len(self.labels_))
        if self.stop_reason_ == "converged" and 0 < left < self.quality:
            self.stop_reason_ = "quality"

    @property
    def summary_(self) -> str:
        """One line that says what was done, why it ended, and how much improvement may remain."""
        check_is_fitted(self)
        n, last = len(self.labels_), self.history_[-1] if self.history_ else {"batch": 0, "seconds": 0.0}
        processed = "all of them" if last["batch"] == n else f"{last['batch']:,} of them"
        if self.remaining_ < 1e-6:
            outlook = "nothing left to gain"
        elif self.stop_reason_ == "converged":
            outlook = "next to nothing left to gain"
        elif self.remaining_ == np.inf:
            outlook = "too few steps to estimate what is left to gain"
        else:
            outlook = f"about {100 * self.remaining_:.2g}% left to gain"
        steps = f"{self.n_iter_} step{'s' * (self.n_iter_ != 1)} in {last['seconds']:.2g} s"
        return (
            f"{self.n_clusters:,} clusters of {n:,} rows: {steps} on nested batches, the last on {processed}; "
            f"energy {self.inertia_:.6g}; {STOP_REASONS[self.stop_reason_]}: {outlook}."
        )
