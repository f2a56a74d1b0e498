"""`CompressedKMeans`: learn short binary codes that keep clusters apart, then run k-means on the codes.

X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.
`shoal.papers.compressed` is the algorithm exactly as published.

Differs from the paper:
- The clusters of the subset come from k-means in a few float coordinates (see `sketch`) instead of from the codes, and stay the
  same while the hyperplanes are learned. The loss (5) does not involve the rows: it decreases for any initial clusters and is
  lowest if all rows have the same code, so learning from the codes of random hyperplanes reinforces poor clusters.
- Rows are represented by their coordinates along the leading principal directions, scaled to unit variance, which the defaults
  of alpha and the learning rate suit, and by a constant, so that each bit has a threshold. Hyperplanes start halfway between
  two clusters instead of at the mean.
- A round of learning is a pass over the subset instead of one batch. Learning ends when a round decreases the bound by less
  than a tenth, or would give two clusters the same code.
- The subset has at least 5000 rows and 10 per cluster; bits with tied votes keep their value; an empty cluster moves to the row
  with the largest error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..data.frame import Frame
from ..data.rows import Rows
from ..data.source import Source
from ..data.statistics import enter_frame
from ..data.types import Array
from ..execution.memory import Workload
from ..execution.threads import on_threads
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.callbacks import report_step
from ..fit.context import FitContext
from ..fit.finalize import finalize, published_centers, round_as_published
from ..fit.initializers import ArrayStarts, Initialization
from ..fit.input import check_rows
from ..fit.loop import RunResult
from ..fit.parameters import Count
from ..fit.random_streams import Stream, generator
from ..fit.restarts import FitResult
from ..fit.schema import OneOf, Spec, bools, frame
from ..kmeans import lloyd
from .code_learner import CodeLearner, subset_size
from .hamming import HammingSolver
from .hashing import random_code
from .learning import LearningParameters
from .linear_code import LINEAR_CODE, LinearCode
from .seeding import INITIALIZERS

AUTO_STARTS, MAX_CLUSTERS_FOR_STARTS = 3, 100  # k-means++ starts on the sketch, which take little time up to so many clusters


class CompressedKMeans(BaseCentroidClusterer):
    """K-means on short binary codes that are learned from the rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_bits : int, default=128
        Number of bits per code.
    learn : bool, default=True
        Whether to learn the code from a subset of the rows. If False, the code is made of random hyperplanes (LSH), and
        `alpha`, `nu`, `beta` and `learning_rate` have no effect.
    alpha : float, default=10.0
        Weight of the products with the hyperplanes against the loss. Gradients come from bits whose product is below
        2 / alpha in magnitude.
    nu : float, default=1.0
        Maximum squared norm of a hyperplane's normal.
    beta : float, default=0.01
        Fraction of the rows to learn from. At least 5000 rows and 10 per cluster are used, if there are as many.
    learning_rate : float, default=0.001
        Learning rate of the stochastic gradient descent on the hyperplanes.
    refine : bool, default=False
        Whether to end with one exact step in the space of X: centroids become the means of their rows, and rows are assigned to
        the nearest of them.
    init : {"k-means++", "random"}, array-like of shape (n_clusters, n_features) or callable, default="k-means++"
        Initialization method, or the initial centroids in the space of X. "random" chooses random rows. A callable is called
        as ``init(X, n_clusters, random_state=random_state)`` with a RandomState and returns an array.
    n_init : int or "auto", default="auto"
        Number of initializations, of which the best is used: for the clusters that the code is learned from or, if `learn` is
        False, for k-means on the codes. "auto" is 10 for "random" and callables. For "k-means++" it is 3 if `learn` is True and
        there are at most 100 clusters, and 1 otherwise. An array is one initialization.
    max_iter : int, default=300
        Maximum number of rounds of learning, and of steps of k-means on the codes.
    time_budget : float or None, default=None
        Seconds from the call of `fit` within which to finish, at most half of them for learning. If the time is too short to
        learn a code, random hyperplanes are used and a warning is issued. None for no limit.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" scales rows to unit length first. Rows of zeros raise an error.
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
    code_ : LinearCode
        Code of the rows: ``code_.encode(X)`` (rows scaled to unit length if `metric` is "cosine").
    cluster_centers_ : ndarray of bool of shape (n_clusters, n_bits)
        Majority of each bit over the rows of each cluster. If `refine` is True, means of the rows, of shape
        (n_clusters, n_features).
    labels_ : ndarray of int32 of shape (n_samples,)
        Cluster of each row. Equal to ``predict(X)``.
    inertia_ : float
        Weighted sum of the Hamming distances of the codes to their centroids. If `refine` is True, as in `KMeans`.
    n_iter_ : int
        Number of steps of k-means on the codes.
    history_ : list of dict
        One record per round of learning: step, seconds, upper_bound and loss (equations 8 and 5 of the paper, in bits per row
        of the subset) and start; then one per step of k-means on the codes, as in `BinaryKMeans`.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the fit ended.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    BinaryKMeans : K-means on codes that exist already.
    shoal.binary.itq : Code that is fitted to the rows without clusters.
    KMeans : Exact k-means on the rows.

    Notes
    -----
    Use it if the rows do not fit into memory, or if steps of exact k-means take too long. The codes take n_bits / 8 bytes per
    row. X is read once to encode it, in blocks, and twice more if `refine` is True; steps compare codes only. `transform`
    returns Hamming distances, or Euclidean distances if `refine` is True.

    Differs from [1]_: the code is learned from clusters of the rows in a few coordinates rather than from clusters of random
    codes, with a threshold for each bit, in passes over the subset.

    References
    ----------
    .. [1] X. Shen, W. Liu, I. Tsang, F. Shen and Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import CompressedKMeans
    >>> X = np.random.default_rng(0).normal(size=(3000, 50)) + 3 * (np.arange(3000)[:, None] % 3 == np.arange(50) % 3)
    >>> model = CompressedKMeans(n_clusters=3, n_bits=64, random_state=0).fit(X)
    >>> model.cluster_centers_.shape, model.predict(X[:3]) == model.labels_[:3]
    ((3, 64), array([ True,  True,  True]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: rule for name, rule in BaseCentroidClusterer._parameter_constraints.items() if name != "tol"},
        "n_bits": [Count()],
        "learn": ["boolean"],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "nu": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="right")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "refine": ["boolean"],
        "init": [StrOptions(set(INITIALIZERS.methods)), callable, "array-like", "sparse matrix"],
    }

    _initializers = INITIALIZERS
    _metric_of_centers = "hamming"
    code_: LinearCode
    cluster_centers_: NDArray[Any]
    _required_attributes = ("code_", "cluster_centers_")
    _prediction_attributes = (*BaseCentroidClusterer._prediction_attributes, "code_")

    def _fitted_schema(self) -> dict[str, Spec]:
        shared, bits = super()._fitted_schema(), self._centers_frame.bits
        centers = bools("k", "r") if bits else shared["cluster_centers_"]
        own = {"_frame": OneOf((frame(bits=True), frame())), "code_": LINEAR_CODE, "cluster_centers_": centers}
        return {**shared, **own}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_bits: int = 128,
        learn: bool = True,
        alpha: float = 10.0,
        nu: float = 1.0,
        beta: float = 0.01,
        learning_rate: float = 0.001,
        refine: bool = False,
        init: Literal["k-means++", "random"] | ArrayLike | Callable[..., ArrayLike] = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        time_budget: float | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_bits = n_bits
        self.learn = learn
        self.alpha = alpha
        self.nu = nu
        self.beta = beta
        self.learning_rate = learning_rate
        self.refine = refine
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.time_budget = time_budget
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _source(self, X: Any, *, reset: bool) -> Source:
        """Return the rows of X, or their codes if the fitted centroids are codes."""
        source = check_rows(self, X, reset=reset)
        if not reset:
            check_is_fitted(self, "code_")
        if reset or not self._centers_frame.bits:
            return source
        with on_threads(Rows.of(source, None, Frame.of(self.metric)), self.n_threads) as rows:
            return self.code_.encode_rows(rows)

    def _prepare(self, context: FitContext) -> FitContext:
        """Learn a code, and return the context with the codes as rows."""
        rows = context.input_rows
        starts = self._initial_centers(context)
        self.history_, self.stop_reason_ = [], ""
        C = self._learn_code(context, starts) if self.learn else None
        initialization: Initialization = super()._initialization(context.X, None, context.seed)
        if C is not None:
            initialization = ArrayStarts([C])
        else:
            self.code_ = random_code(rows, self.n_bits, generator(context.seed, Stream.CODE_DIRECTIONS))
            given = [np.asarray(self.code_.encode(start)) for start in starts if start is not None]
            if given:
                initialization = ArrayStarts(given)
        limits = context.limits
        if self.stop_reason_ == "callback":  # the callback stops the fit: only label the rows
            limits = limits._replace(max_iter=1)
        weights = rows.weights if rows.has_weights else None
        codes = rows.sibling(self.code_.encode_rows(rows), weights, Frame.of("hamming"))
        return replace(context, rows=codes, initialization=initialization, limits=limits).prepared(self)

    def _initial_centers(self, context: FitContext) -> list[Array | None]:
        """Return the initial centroids of every start in the space of X, or None where `init` names a method."""
        starts = context.initialization
        n_starts = starts.n_starts
        if isinstance(self.init, str):
            several = self.n_init == "auto" and n_starts == 1 and self.learn
            return [None] * (AUTO_STARTS if several and self.n_clusters <= MAX_CLUSTERS_FOR_STARTS else n_starts)
        return [starts.centers(context.input_rows, start) for start in range(n_starts)]

    def _learn_code(self, context: FitContext, starts: list[Array | None]) -> Array | None:
        """Learn `code_` and return the codes of the clusters, or None if the time is too short."""
        parameters = LearningParameters(self.alpha, self.nu, self.learning_rate)
        sizes = (self.n_clusters, self.n_bits, self.beta)
        learned = CodeLearner(context, starts, self.init, *sizes, parameters, partial(report_step, self)).run()
        if learned is None:
            self.stop_reason_ = "time_budget"
            return None
        self.code_, C, run = learned
        self.history_ = run.history
        self.stop_reason_ = run.reason if run.reason in ("callback", "time_budget") else ""
        return C

    def _memory(self, load: Workload) -> dict[str, float]:
        count = subset_size(load.n, self.n_clusters, self.beta)
        own = {"codes": load.n * self.n_bits / 8, "rows to learn from": count * load.numbers * 2.0 * load.itemsize}
        return {**super()._memory(load), **own}

    def _given_in_frame(self, rows: Rows, C: Array) -> Array:
        if not rows.frame.unit:
            return C  # may be of any scale, because centroids are encoded like rows
        return super()._given_in_frame(rows, C)

    def _make_solver(self, context: FitContext) -> HammingSolver:
        return HammingSolver(context.rows)

    def _set_fitted_attributes(self, result: FitResult) -> None:
        learning_history, stop_reason = self.history_, self.stop_reason_
        super()._set_fitted_attributes(result._replace(run=result.run._replace(reason=stop_reason or result.run.reason)))
        self.history_ = learning_history + self.history_
        if self.refine:
            self._refine(result.context)

    def _refine(self, context: FitContext) -> None:
        """Run one exact step in the space of X from the clusters of the codes. Clusters without codes are given a row."""
        rows, _ = enter_frame(context.input_rows)
        state = partition.initial_partition(rows, np.zeros((self.n_clusters, rows.d), rows.dtype))._replace(labels=self.labels_)
        state, _ = partition.advance(rows, state, partition.keep_labels, fill=False)
        has_rows = state.counts > 0
        centers = np.where(has_rows[:, None], state.centers, state.centers[has_rows.argmax()])  # empty clusters have no mean
        outcome = RunResult(state._replace(centers=centers), self.history_, self.stop_reason_, None)
        publish = partial(round_as_published, rows)
        (state, *_), energy = finalize(rows, outcome, lloyd.assign, publish, context.limits, context.skipped)
        self._frame, self.labels_ = rows.frame, state.labels
        self.cluster_centers_ = published_centers(rows, state.centers)
        self.inertia_ = rows.frame.energy_out_of(energy)

    def _other_cause_of_empty_clusters(self) -> str:
        return f", or n_bits={self.n_bits} are too few to distinguish them"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
