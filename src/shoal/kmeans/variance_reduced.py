"""Variance-reduced k-means: stochastic steps whose gradients are corrected by the last full pass over the rows.

An epoch assigns all rows, moves each centroid to the mean of its rows (the position correction, Algorithm 2), and then picks
random rows. A picked row pulls the centroid that is nearest to it now, and cancels its pull on the centroid that it had in the
full pass. In expectation this is a step of Lloyd's algorithm, and rows whose label has not changed add no noise.

References
----------
Y. Zhao et al. (2018), Large-scale k-means clustering via variance reduction, doi:10.1016/j.neucom.2018.03.059, Algorithm 4
(VRKM++).

Differs from the paper: rows are picked in blocks that are assigned together. The steps of a block are added up, but a centroid
that N rows of the block pull moves 1 - (1 - eta)^N of the way, as it would row by row, instead of N eta, which may overshoot. A
block of one row is a step of the paper. The condition in front of a step is omitted, because the steps that it skips are zero
up to rounding. With weights, rows are picked in proportion to them. eta is at most 1, and epochs of "doubling" size stop
growing at 2 n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.parameters import Count
from ..fit.partition import Assign, Partition, StepStats
from ..fit.random_streams import draw, generator
from ..fit.solver import Solver
from . import projected
from .dispatch import final_assign, select_algorithm
from .init import INITIALIZERS
from .projected import ProjectedBounds

OPEN_CENTERS_DIVISOR = 4  # bounds exclude about three of four centroids; used to estimate the work on picked rows


class VarianceReducedState(NamedTuple):
    """State of the fit after an epoch."""

    partition: Partition  # labels and sums of the last full pass; centroids after the picked rows
    start: int  # number of the initialization
    epoch: int  # epochs completed

    @property
    def centers(self) -> Array:
        return self.partition.centers


class VarianceReducedInfo(NamedTuple):
    """Statistics of one epoch."""

    energy: float  # of the incoming centroids, over all rows
    shift: float  # sum of the squared movements of the centroids over the epoch
    rows: int  # rows that bounds did not decide, in the full pass and among the picked rows
    distances: int  # row-centroid distances computed; a distance in h of d columns counts as h / d
    reassigned: int  # rows whose label changed in the full pass, and picked rows whose label has changed since
    picked: int  # rows picked


class VarianceReducedPlan(NamedTuple):
    """Settings of a fit that are the same in all epochs."""

    assign: Assign
    eta: float  # learning rate
    size: int  # rows to pick per epoch; the maximum if `doubling`
    doubling: bool  # pick 2^s rows in epoch s
    block: int  # rows picked at once
    seed: int


class PickedSteps(NamedTuple):
    """Result of the stochastic steps of an epoch."""

    centers: Array  # (k, d)
    rows: int  # picked rows that bounds did not decide
    distances: int  # row-centroid distances computed
    changed: int  # picked rows whose label differs from that of the full pass


def picks(rows: Rows, size: int, block: int, rng: np.random.Generator) -> Iterator[Array]:
    """Draw rows by weight, with replacement, and yield them in blocks; each block is sorted, to be read sequentially."""
    ids = draw(rng, rows.weights, size) if rows.has_weights else rng.integers(len(rows), size=size)
    for a in range(0, size, block):
        yield np.sort(ids[a : a + block])


def snapshot_means(part: Partition) -> Array:
    """Return the means of the clusters of a full pass, (k, d) float64; the centroid itself for an empty cluster."""
    means = part.centers.astype(np.float64)
    np.divide(part.sums, part.weight_sums[:, None], out=means, where=(part.counts > 0)[:, None])
    return means


def take_steps(
    rows: Rows, part: Partition, plan: VarianceReducedPlan, blocks: Iterable[Array], gradient: Array | None = None
) -> PickedSteps:
    """Take the stochastic steps of an epoch, given the partition of the full pass.

    `gradient` is the mean gradient of all rows at the snapshot; None because it is zero at the means of the clusters. With the
    cosine metric, the steps move the means, whose lengths matter, and rows are assigned by the directions of the means.
    """
    k = len(part.centers)
    every, ones = np.ones(k, bool), np.ones(k)
    snapshot = snapshot_means(part)
    means, centers = snapshot, part.centers
    visited = distances = changed = 0
    for ids in blocks:
        old = part.labels[ids]
        moved, mass, joined = np.zeros_like(means), np.zeros(k), np.zeros(k, np.int64)
        for share in assign_picked(rows, ids, part._replace(centers=centers, labels=old.copy()), plan.assign):
            share.moves.add_to(moved, mass, np.zeros(k), joined)
            visited, distances, changed = visited + share.rows, distances + share.distances, changed + share.moves.moved
        before = np.bincount(old, minlength=k)
        pulls = np.maximum(before + joined, 1)  # picked rows of each cluster
        rate = (1 - (1 - plan.eta) ** pulls) / pulls
        gamma = (before + joined)[:, None] * means  # in place from here on: these arrays are as large as the centroids
        gamma -= before[:, None] * snapshot
        gamma -= moved
        if gradient is not None:
            gamma += len(ids) * gradient
        gamma *= rate[:, None]
        means = np.subtract(means, gamma, out=gamma)
        centers = partition.move(rows, centers, means, ones, ones, every).centers
    return PickedSteps(centers, visited, distances, changed)


def assign_picked(rows: Rows, ids: Array, state: Partition, assign: Assign) -> Iterable[StepStats]:
    """Assign picked rows. Rows that the bounds of the full pass decide are not even read."""
    bounds: ProjectedBounds | None = state.bounds
    if bounds is not None:
        undecided = bounds.undecided(ids, state.labels, state.centers)
        ids, state = ids[undecided], state._replace(labels=state.labels[undecided])
    some = rows.subset(ids, len(state.centers) if bounds is None else len(state.centers) // OPEN_CENTERS_DIVISOR)
    some = some.with_weights(np.ones(len(ids)))  # weights have been used to pick the rows
    state = state._replace(moved=0, n_reassigned=state.n_reassigned * len(ids) // len(rows))
    if bounds is None:
        return partition.label_all(some, state)
    taken = state._replace(bounds=bounds.take(ids))
    return projected.assign_by_bounds(some, taken)[0] if bounds.n_steps else assign(some, taken)[0]


class VarianceReducedSolver(Solver):
    """Epochs of a full pass followed by stochastic steps with variance-reduced gradients."""

    info_type = VarianceReducedInfo

    def __init__(self, rows: Rows, plan: VarianceReducedPlan, tol: float) -> None:
        super().__init__(rows)
        self.plan, self.tol = plan, tol

    def init(self, centers: Array, start: int) -> VarianceReducedState:
        return VarianceReducedState(partition.initial_partition(self.rows, centers), start, 0)

    def snapshot_gradient(self, part: Partition) -> Array | None:
        """Return the mean gradient of all rows at the means of a full pass; None because it is zero."""
        return None

    def step(self, state: VarianceReducedState) -> tuple[VarianceReducedState, VarianceReducedInfo]:
        rows, plan, epoch = self.rows, self.plan, state.epoch + 1
        part, full = partition.advance(rows, state.partition, plan.assign)
        size = min(2**epoch, plan.size) if plan.doubling else plan.size
        blocks = picks(rows, size, plan.block, generator(plan.seed, state.start, epoch))
        picked = take_steps(rows, part, plan, blocks, self.snapshot_gradient(part))
        shift = float(((picked.centers.astype(np.float64) - state.centers) ** 2).sum())
        visited, distances = full.rows + picked.rows, full.distances + picked.distances
        info = VarianceReducedInfo(full.energy, shift, visited, distances, full.reassigned + picked.changed, size)
        return VarianceReducedState(part._replace(centers=picked.centers), state.start, epoch), info

    def converged(self, state: VarianceReducedState, info: VarianceReducedInfo) -> bool:
        return info.reassigned == 0 or info.shift <= self.tol

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return final_assign(rows, state, self.plan.assign)


class VarianceReducedKMeans(BaseCentroidClusterer):
    """K-means by stochastic steps with variance-reduced gradients (VRKM++).

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
    max_iter : int, default=300
        Maximum number of epochs per initialization. An epoch is a full pass over the rows and the picked rows after it.
    tol : float, default=1e-4
        Stop when the sum of the squared movements of the centroids is at most `tol` times the mean variance of the columns
        of X.
    time_budget : float or None, default=None
        Seconds after which `fit` ends with the best centroids found so far. Initialization may use half of them; if it
        would take longer, it is simplified, with a ConvergenceWarning. The check of X, a short initialization and the final
        labels are computed in any case, so `n_iter_` may be 0. Compilation of kernels, on their first use, counts. None
        sets no limit, and the result does not depend on time.
    learning_rate : float or None, default=None
        Share of the way to a picked row that its centroid moves, in units of n_clusters / n_samples. None is 1, as in the
        paper; larger values often reach a lower energy.
    epoch_size : float or "doubling", default=1.0
        Number of rows to pick per epoch, as a share of all rows. "doubling" picks 2, 4, 8, ..., up to twice the number of
        rows.
    block_size : int or None, default=None
        Number of rows to pick at once. None is an eighth of the rows, at least 1024. 1 updates row by row, as the paper
        does, and is slow.
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
        One record per epoch: step, seconds, energy (of the incoming centroids, over all rows), shift (sum of the squared
        movements of the centroids), rows (that bounds did not decide), distances (computed), reassigned (rows whose label
        changed, including picked rows), picked (number of rows) and start (number of the initialization).
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    KMeans : Exact k-means, with full passes only.
    OnlineKMeans : Stochastic steps without full passes.
    NestedKMeans : Batches that grow until they hold all rows.

    Notes
    -----
    An epoch costs one full pass and, for `epoch_size=1`, at most another one for the picked rows; bounds from the full pass
    decide most of them. Use it to reach a lower energy than `KMeans` from the same initial centroids, in more time.

    Differs from [1]_: rows are picked in blocks, and the steps of a block are bounded so that they do not overshoot. Rows of
    weight w are picked w times as often.

    References
    ----------
    .. [1] Y. Zhao et al. (2018), Large-scale k-means clustering via variance reduction, Neurocomputing,
           doi:10.1016/j.neucom.2018.03.059.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import VarianceReducedKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = VarianceReducedKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]
    >>> model.history_[0]["picked"]
    6
    """

    _center_arrays = (9, 5)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "epoch_size": [Interval(Real, 0, None, closed="neither"), StrOptions({"doubling"})],
        "block_size": [Count(), None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Literal["k-means++", "k-means||", "afk-mc2", "random"] | Callable[..., Any] | ArrayLike = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        learning_rate: float | None = None,
        epoch_size: float | Literal["doubling"] = 1.0,
        block_size: int | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.learning_rate = learning_rate
        self.epoch_size = epoch_size
        self.block_size = block_size
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _make_solver(self, context: FitContext) -> VarianceReducedSolver:
        return VarianceReducedSolver(context.rows, self._plan(context), self.tol * context.variance)

    def _plan(self, context: FitContext) -> VarianceReducedPlan:
        """Return the settings of a fit in numbers of rows."""
        assign = select_algorithm(context.rows, self.n_clusters, "auto", context.memory)[1]
        n = int(np.count_nonzero(context.rows.weights))
        eta = min(1.0, (1.0 if self.learning_rate is None else float(self.learning_rate)) * self.n_clusters / n)
        doubling = isinstance(self.epoch_size, str)
        size = 2 * n if isinstance(self.epoch_size, str) else max(1, round(self.epoch_size * n))
        return VarianceReducedPlan(assign, eta, size, doubling, self.block_size or max(1024, n // 8), context.seed)

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), "rows to pick": 8.0 * load.n}
