"""`KMeans`: Lloyd's algorithm, or one of the faster algorithms with the same result.

A fit, from here: `BaseCentroidClusterer.fit` (`fit.base`) validates X and opens the rows, `KMeans._make_solver` chooses the
function that assigns rows to centroids, and `run` (`fit.restarts`) calls the methods of `LloydSolver`: `init` and `step` until
`converged` for every initialization, then `finalize`, which labels all rows by the final centroids. A step is `advance`
(`fit.partition`); its plainest assign function is that of `lloyd`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.partition import Assign, Partition, PartitionInfo, StepStats
from ..fit.schema import Choice, Spec
from ..fit.solver import Solver
from .dispatch import ALGORITHMS, Algorithm, memory, select_algorithm
from .init import REFINING_INITIALIZERS


class LloydSolver(Solver):
    """Lloyd's algorithm: assign every row to its nearest centroid, move each centroid to the mean of its rows.

    `assigner` computes the labels. All assigners give the same ones, but save different distance computations, with bounds that
    they store in the partition. `tol` limits the sum of the squared movements of the centroids.
    """

    def __init__(self, rows: Rows, assigner: Assign, tol: float) -> None:
        super().__init__(rows)
        self.assigner, self.tol = assigner, tol

    def init(self, centers: Array, start: int) -> Partition:
        return partition.initial_partition(self.rows, centers)

    def step(self, state: Partition) -> tuple[Partition, PartitionInfo]:
        return partition.advance(self.rows, state, self.assigner)

    def converged(self, state: Partition, info: PartitionInfo) -> bool:
        return info.reassigned == 0 or info.shift <= self.tol

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return self.assigner(rows, state)


class KMeans(BaseCentroidClusterer):
    """Exact k-means.

    All algorithms return the result of Lloyd's algorithm, bitwise identical, usually with far fewer distance computations.

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
        Maximum number of iterations per initialization.
    tol : float, default=1e-4
        Stop when the sum of the squared movements of the centroids is at most `tol` times the mean variance of the columns
        of X.
    time_budget : float or None, default=None
        Seconds after which `fit` ends with the best centroids found so far. Initialization may use half of them; if it
        would take longer, it is simplified, with a ConvergenceWarning. The check of X, a short initialization and the final
        labels are computed in any case, so `n_iter_` may be 0. Compilation of kernels, on their first use, counts. None
        sets no limit, and the result does not depend on time.
    algorithm : {"auto", "lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected"}, default="auto"
        Algorithm that assigns rows to centroids. "auto" is "projected" if its bounds pay and fit into memory, else "lloyd".
        All give bitwise identical results; "projected" requires dense rows.
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
        One record per iteration: step, seconds, energy (of the incoming centroids), shift (sum of the squared movements of
        the centroids), rows (that bounds did not decide), distances (computed), reassigned (rows whose label changed) and
        start (number of the initialization).
    algorithm_ : str
        Algorithm that was used. "projected", if chosen by "auto", may begin with iterations of "lloyd".
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    NestedKMeans : Batches that grow; a good clustering after a fraction of the time.
    MiniBatchKMeans : Random batches of constant size, for streams.
    VarianceReducedKMeans : Stochastic steps between full passes, for a lower energy.

    Notes
    -----
    An iteration computes at most n_samples * n_clusters distances. "lloyd" needs no memory per row beyond the labels,
    "hamerly" and "exponion" 8 bytes, "yinyang" 4 + 0.4 * n_clusters, "elkan" 4 + 4 * n_clusters, and "projected" up to
    132, and for arrays in memory with 256 columns or more another 128 or 256.
    "elkan" and "exponion" also store the distances between all centroids.

    With "k-means++", if the sample is at most a quarter of the rows and has 100 rows per cluster, the centroids are improved by
    iterations on the sample before the first one on all (dense) rows.

    A centroid that loses all its rows moves to the row with the largest error.

    References
    ----------
    .. [1] S. P. Lloyd (1982), Least squares quantization in PCM, doi:10.1109/TIT.1982.1056489.
    .. [2] G. Hamerly (2010), Making k-means even faster, doi:10.1137/1.9781611972801.12.
    .. [3] C. Elkan (2003), Using the triangle inequality to accelerate k-means, ICML.
    .. [4] Y. Ding et al. (2015), Yinyang k-means: a drop-in replacement of the classic k-means, ICML.
    .. [5] J. Newling, F. Fleuret (2016), Fast k-means with accurate bounds, ICML (Exponion).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import KMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]
    >>> model.inertia_
    16.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "algorithm": [StrOptions({"auto", *ALGORITHMS})],
    }

    _initializers = REFINING_INITIALIZERS

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Literal["k-means++", "k-means||", "afk-mc2", "random"] | Callable[..., Any] | ArrayLike = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        algorithm: Algorithm = "auto",
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
        self.algorithm = algorithm
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.algorithm != "projected"
        return tags

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), **memory(self.algorithm, load.n, load.d, self.n_clusters, load.itemsize)}

    def _fitted_schema(self) -> dict[str, Spec]:
        return {**super()._fitted_schema(), "algorithm_": Choice(tuple(ALGORITHMS))}

    def _make_solver(self, context: FitContext) -> LloydSolver:
        self.algorithm_, assigner = select_algorithm(context.rows, self.n_clusters, self.algorithm, context.memory)
        return LloydSolver(context.rows, assigner, self.tol * context.variance)
