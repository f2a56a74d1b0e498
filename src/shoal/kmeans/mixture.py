"""Mixture of k spherical Gaussians of equal weight and equal, fixed variance, fitted by EM (soft k-means).

References
----------
L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS, section 5.
A. P. Dempster, N. M. Laird, D. B. Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm,
doi:10.1111/j.2517-6161.1977.tb01600.x.

Differs from the paper: the variance is a parameter instead of 1. A centroid so far from all rows that its responsibilities are
zero in float64 moves to the row with the largest error, one centroid per step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval

from ..data.blocks import Centers
from ..data.rows import Rows
from ..data.types import Array
from ..data.validation import check_weights
from ..execution.engine import lazy_on_dask
from ..execution.threads import on_threads
from ..execution.time_estimate import labelling_seconds
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.loop import Limits, RunResult
from ..fit.partition import Partition, StepStats
from ..fit.restarts import FitResult
from ..fit.schema import Number, Spec
from ..fit.solver import Solver
from .dispatch import assign_once
from .init import INITIALIZERS
from .responsibilities import (
    FLOAT,
    Density,
    in_pieces,
    log_density_block,
    log_likelihood,
    responsibilities_block,
    sum_responsibilities,
)

MIN_WEIGHT_SHARE = 1e-290  # smaller shares of the total weight are denormal: the mean of such a cluster has no correct digits


class MixtureState(NamedTuple):
    """State of the fit after a step."""

    centers: Array  # (k, d) float64
    fit: float = -math.inf  # log-likelihood of the previous centroids, up to a constant


class MixtureInfo(NamedTuple):
    """Statistics of one step."""

    energy: float  # of the incoming centroids: weighted sum of squared distances to the nearest one
    log_likelihood: float  # of all rows, for the incoming centroids
    gain: float  # its increase over the previous step, per unit of weight
    shift: float  # sum of the squared movements of the centroids
    rows: int  # rows processed
    distances: int  # row-centroid distances computed


def step(rows: Rows, state: MixtureState, density: Density) -> tuple[MixtureState, MixtureInfo]:
    """Take a step of EM: compute the responsibilities, and move each centroid to its weighted mean."""
    C = state.centers
    k, d = C.shape
    total = sum_responsibilities(rows, C, density, move=True)
    mass = float(total.weight_sums.sum())
    has_weight = total.weight_sums > MIN_WEIGHT_SHARE * mass
    means = np.divide(total.sums, total.weight_sums[:, None], out=C.copy(), where=has_weight[:, None])
    far, row = total.worst
    if far > 0 and not has_weight.all():
        means[np.argmin(has_weight)] = rows.take(np.array([row]))[0]
    fit = total.others - float(density.exponent_of(total.energy))
    gain, shift = (fit - state.fit) / mass, float(((means - C) ** 2).sum())
    info = MixtureInfo(total.energy, log_likelihood(total, density, k, d), gain, shift, len(rows), len(rows) * k)
    return MixtureState(means, fit), info


class MixtureSolver(Solver):
    """EM for a mixture of spherical Gaussians of equal weight and one fixed variance."""

    info_type = MixtureInfo

    def __init__(self, rows: Rows, density: Density, tol: float) -> None:
        super().__init__(rows)
        self.density, self.tol = density, tol

    def init(self, centers: Array, start: int) -> MixtureState:
        return MixtureState(centers.astype(FLOAT))

    def step(self, state: MixtureState) -> tuple[MixtureState, MixtureInfo]:
        return step(self.rows, state, self.density)

    def converged(self, state: MixtureState, info: MixtureInfo) -> bool:
        return info.gain <= self.tol or info.shift == 0

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return assign_once(rows, state)

    def finalize(self, result: RunResult, limits: Limits, skipped: list[str]) -> tuple[RunResult, float]:
        """Return labels, energy and likelihood of the published centroids. Empty clusters stay empty."""
        if not result.history:
            skipped.append("no step over the rows was completed")
        return self.evaluate(result)

    def evaluate(self, result: RunResult) -> tuple[RunResult, float]:
        rows = self.rows
        state = self.publish(partition.initial_partition(rows, result.state.centers))
        state = partition.label(rows, state, self.assign)
        k, d = state.centers.shape
        total = sum_responsibilities(rows, state.centers.astype(FLOAT), self.density, move=False)
        info = MixtureInfo(total.energy, log_likelihood(total, self.density, k, d), 0.0, 0.0, len(rows), len(rows) * k)
        return result._replace(state=state, info=info), -info.log_likelihood

    def labelling_seconds(self, k: int) -> float:
        def likelihood(block: Any, centers: Centers) -> None:
            wide = type(block)(block.X.astype(FLOAT))
            for _ in in_pieces(wide, self.rows.prepare(centers.C.astype(FLOAT)), self.density):
                pass

        return super().labelling_seconds(k) + labelling_seconds(self.rows, k, likelihood)


class SphericalMixture(BaseCentroidClusterer):
    """Soft k-means: a mixture of Gaussians of equal weight and equal, fixed variance, of which only the means are learned.

    EM maximizes the likelihood of the rows. Each row belongs to all centroids with some probability (`predict_proba`).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of Gaussians.
    variance : float, default=1.0
        Variance of each column within a cluster, in squared units of X. It is not learned. Scale X to about unit variance
        within clusters, or pass an estimate, such as ``inertia_ / (n_samples * n_features)`` of a k-means model. With a
        small variance the result is that of k-means; with one far above that of X, all centroids coincide at the mean.
    init : {"k-means++", "k-means||", "afk-mc2", "random"}, callable or array-like, default="k-means++"
        Initial centroids. "k-means++" is the greedy variant on a sample of the rows, improved by a local search for up to
        256 clusters. "k-means||" and "afk-mc2" approximate k-means++. "random" draws rows. A callable is called as
        ``init(X, n_clusters, random_state=...)`` with a RandomState and returns an array of shape (n_clusters, n_features).
    n_init : int or "auto", default="auto"
        Number of initializations, of which the result with the highest likelihood is kept. "auto" is 10 for "random" and
        callables, and 1 otherwise. An array has a single initialization.
    max_iter : int, default=300
        Maximum number of iterations per initialization.
    tol : float, default=1e-4
        Stop when a step increases the mean log-likelihood of a row by at most `tol`.
    time_budget : float or None, default=None
        Seconds after which `fit` ends with the best centroids found so far. Initialization may use half of them; if it
        would take longer, it is simplified, with a ConvergenceWarning. The check of X, a short initialization and the final
        labels are computed in any case, so `n_iter_` may be 0. Compilation of kernels, on their first use, counts. None
        sets no limit, and the result does not depend on time.
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
    log_likelihood_ : float
        Log-likelihood of all rows: the weighted sum of ``score_samples(X)``.
    n_iter_ : int
        Number of iterations from the initialization that was kept.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the iterations ended. "time_budget" and "callback" also if they ended the fit before all initializations were
        tried.
    history_ : list of dict
        One record per step: step, seconds, energy and log_likelihood (of the incoming centroids), gain (increase of the
        mean log-likelihood over the previous step), shift (sum of the squared movements of the centroids), rows
        (processed), distances (computed) and start (number of the initialization).
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    KMeans : Hard assignments.
    sklearn.mixture.GaussianMixture : Mixtures whose weights and covariances are learned.

    Notes
    -----
    A step computes n_samples * n_clusters distances and exponentials in float64, which takes several times as long as a step of
    `KMeans`. `predict` returns the nearest centroid, which is also the most probable one, and `inertia_` is the energy of
    k-means. `score` is the mean log-likelihood, as in `sklearn.mixture.GaussianMixture`.

    Differs from [1]_: the variance is a parameter. A centroid whose responsibilities are all zero moves to the row with the
    largest error.

    References
    ----------
    .. [1] L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS.
    .. [2] A. P. Dempster, N. M. Laird, D. B. Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm,
           doi:10.1111/j.2517-6161.1977.tb01600.x.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import SphericalMixture
    >>> X = np.array([[0.0], [2.0], [6.0], [8.0]])
    >>> model = SphericalMixture(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.ravel().round(2).tolist())
    [1.0, 7.0]
    >>> model.predict_proba([[4.0], [100.0]]).max(axis=1).round(2).tolist()
    [0.5, 1.0]
    """

    _center_arrays = (6, 3)
    _dense_shares = True
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: rule for name, rule in BaseCentroidClusterer._parameter_constraints.items() if name != "metric"},
        "variance": [Interval(Real, 0, None, closed="neither")],
    }

    _model_parameters = ("variance",)

    log_likelihood_: float

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        variance: float = 1.0,
        init: Literal["k-means++", "k-means||", "afk-mc2", "random"] | Callable[..., Any] | ArrayLike = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.variance = variance
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _density(self, rows: Rows) -> Density:
        return Density(float(self.variance), rows.frame.exponent)

    def _make_solver(self, context: FitContext) -> MixtureSolver:
        return MixtureSolver(context.rows, self._density(context.rows), self.tol)

    def _fitted_schema(self) -> dict[str, Spec]:
        return {**super()._fitted_schema(), "log_likelihood_": Number(finite=False)}

    def _energy(self, result: FitResult) -> float:
        return float(result.run.info.energy)

    def _set_fitted_attributes(self, result: FitResult) -> None:
        super()._set_fitted_attributes(result)
        self.log_likelihood_ = -result.loss

    def _explain_empty_clusters(self, found: int, rows: Rows) -> str:
        return (
            f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}): centroids coincide, or "
            f"are not the nearest of any row; variance={self.variance} is too large to separate them, or X has too few "
            "distinct rows."
        )

    def _evaluate(self, fn: Callable[..., None], rows: Rows, centers: Centers, out: Array) -> Array:
        """Fill `out` by a block function, in float64."""
        centers = rows.prepare(centers.C.astype(FLOAT))
        with on_threads(rows.with_dtype(FLOAT), self.n_threads) as rows:
            rows.for_each_raw(fn, rows, centers, self._density(rows), per_row=(out,))
        return out

    @lazy_on_dask
    def predict_proba(self, X: Any) -> Array:
        """Compute the probability of each cluster for each row.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the same columns as in `fit`.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_clusters)
            Probabilities, which add up to 1 in each row. float32 if X and the rows of the fit are float32, else float64.
        """
        rows, centers = self._rows(X)
        return self._evaluate(responsibilities_block, rows, centers, np.empty((len(rows), len(centers.C)), rows.dtype))

    @lazy_on_dask
    def score_samples(self, X: Any) -> Array:
        """Compute the log-likelihood of each row.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the same columns as in `fit`.

        Returns
        -------
        log_likelihoods : ndarray of shape (n_samples,)
            Log-likelihoods, float64.
        """
        rows, centers = self._rows(X)
        return self._evaluate(log_density_block, rows, centers, np.empty(len(rows)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the mean log-likelihood of the rows. Higher is better.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the same columns as in `fit`.
        y : None
            Ignored.
        sample_weight : array of shape (n_samples,), float or None, default=None
            Weight of each row; None is 1 for each.

        Returns
        -------
        score : float
            Weighted mean of ``score_samples(X)``.
        """
        samples = np.asarray(self.score_samples(X))
        weights = check_weights(sample_weight, len(samples))
        if weights is None:
            return float(samples.mean())
        return float(np.average(samples[weights > 0], weights=weights[weights > 0]))
