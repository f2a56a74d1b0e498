"""Spectral clustering of rows that are represented by their nearest landmarks.

The landmarks are centroids of k-means. Each row is a convex combination of its nearest landmarks, with the weights Z. If the
columns of Z are scaled by the inverse roots of their sums, its left singular vectors are the eigenvectors of the affinities
Z Z', whose rows sum to one.

References
----------
X. Chen, D. Cai (2011), Large scale spectral clustering with landmark-based representation, AAAI (LSC-K).

Differs from the paper: the kernel is exp(-d^2 / sigma^2), as in the other methods here, and each row has a sigma of its own
unless one is given.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

from ..data.rows import Rows
from ..data.sources import ArraySource
from ..data.types import Array
from ..execution.memory import Workload
from ..fit.context import FitContext
from ..fit.environment import FitEnvironment
from ..fit.parameters import Count
from ..fit.schema import Below, Number, Parts, RowsSpec, Spec, floats, matches, optional
from ..kmeans.kmeans import KMeans
from .base import BaseSpectralClusterer
from .laplacian import inverse_root
from .neighbors import nearest_rows
from .solver import Embedding, SpectralInfo, SpectralSolver, array_template, positive_eigenvalues

MIN_SQUARED_SCALE = 1e-300  # avoids a division by zero
EMBEDDED_ROWS = 1 << 14  # rows that are embedded at a time
LANDMARK_MAX_ITER = 5  # steps of k-means: landmarks need not have converged
EIGENVALUE_ROUNDING = 1e-6  # eigenvalues up to this are rounding errors


def squared_sigma_in_frame(sigma: float, exponent: int) -> float:
    """Return the square of sigma in the frame of the rows; infinite if it overflows, so that all weights of a row are equal."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.square(np.ldexp(sigma, exponent)))


def landmark_weights(distances2: Array, sigma2: float | None) -> Array:
    """Return the weights of each row's nearest landmarks, which sum to one, given squared distances, nearest first."""
    scale = distances2.mean(axis=1, keepdims=True) if sigma2 is None else sigma2
    excess = distances2 - distances2[:, :1]  # the nearest landmark has the weight 1 before normalization, so no sum is zero
    Z = np.exp(-excess / np.maximum(scale, MIN_SQUARED_SCALE))
    return np.asarray(Z / Z.sum(axis=1, keepdims=True))


class LandmarkMap(NamedTuple):
    """Mapping from rows to their entries in the eigenvectors: weighted sums of the entries of their nearest landmarks."""

    landmarks: Rows
    nearest: int  # number of landmarks per row
    sigma2: float | None  # in the frame of the rows
    P: Array  # (p, k): entries of the landmarks

    def embed(self, new: Rows) -> tuple[Array, Array]:
        """Return the entries of new rows, and a mask of the rows that are not isolated, which is true everywhere."""
        distances2, neighbors = nearest_rows(new, self.landmarks, self.nearest, same_rows=False)
        return self.combine(landmark_weights(distances2, self.sigma2), neighbors), np.ones(len(new), bool)

    def combine(self, Z: Array, neighbors: Array) -> Array:
        """Return the entries of rows, given the weights and the numbers of their nearest landmarks."""
        out = np.zeros((len(Z), self.P.shape[1]))
        for a in range(0, len(Z), EMBEDDED_ROWS):
            here = slice(a, a + EMBEDDED_ROWS)
            for z, landmark in zip(Z[here].T, neighbors[here].T, strict=True):
                out[here] += z[:, None] * self.P[landmark]
        return out


class LandmarkState(NamedTuple):
    """Result of the only step."""

    P: Array  # (p, k): entries of the landmarks
    values: Array  # (k,) in descending order
    Z: Array  # (n, n_nearest): weights of the nearest landmarks
    neighbors: Array  # (n, n_nearest) int64: their numbers


class LandmarkSolver(SpectralSolver):
    """Direct solver of the eigenvalue problem of Z Z'."""

    is_direct = True

    def __init__(self, rows: Rows, landmarks: Array, n_nearest: int, k: int, sigma: float | None) -> None:
        super().__init__(rows, k, None if sigma is None else float(sigma))
        self.landmarks = Rows.of(ArraySource(landmarks), frame=rows.frame).with_dtype(rows.dtype)
        self.n_nearest = min(n_nearest, len(landmarks))
        self.sigma2 = None if sigma is None else squared_sigma_in_frame(sigma, rows.frame.exponent)

    def init(self) -> None:
        """Return None: there is no state before the only step."""

    def step(self, state: None) -> tuple[LandmarkState, SpectralInfo]:
        """Compute the weights, and the singular vectors of their matrix."""
        n, k, p, count = len(self.rows), self.k, len(self.landmarks), self.n_nearest
        distances2, neighbors = nearest_rows(self.rows, self.landmarks, count, same_rows=False)
        Z = landmark_weights(distances2, self.sigma2)
        P, values = landmark_eigenvectors(Z, neighbors, p, k)
        flops = 2 * n * count**2 + 9 * p**3 + 2 * n * count * k
        return LandmarkState(P, values, Z, neighbors), SpectralInfo(-float(values.sum()) / 2, 0.0, p, flops)

    def converged(self, state: LandmarkState, info: SpectralInfo) -> bool:
        """Return True: there is only one step."""
        return True

    def finalize(self, state: LandmarkState) -> Embedding:
        """Return the eigenvectors, and the map to them."""
        there = positive_eigenvalues(state.values, EIGENVALUE_ROUNDING, "the embedding has zeros for the others")
        embedding_map = LandmarkMap(self.landmarks, self.n_nearest, self.sigma2, np.where(there, state.P, 0))
        vectors = embedding_map.combine(state.Z, state.neighbors).astype(self.rows.dtype)
        return Embedding(vectors, state.values, embedding_map)

    def template(self) -> LandmarkState:
        """Return a state of the right types and shapes."""
        p, k, shape = len(self.landmarks), self.k, (len(self.rows), self.n_nearest)
        return LandmarkState(
            array_template((p, k)), array_template((k,)), array_template(shape), array_template(shape, np.int64)
        )

    def is_valid_state(self, state: LandmarkState) -> bool:
        """Return whether all neighbors are numbers of landmarks."""
        return bool(state.neighbors.max() < len(self.landmarks))


class LandmarkSpectral(BaseSpectralClusterer):
    """Spectral clustering of rows represented by their nearest landmarks.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, and of eigenvectors in the embedding.
    n_landmarks : int, default=500
        Number of landmarks: the centroids of a k-means of a few steps (the number of rows, if that is smaller).
    n_nearest : int, default=6
        Number of nearest landmarks that represent a row.
    sigma : float or None, default=None
        Scale of the weights: a landmark at distance d has the weight ``exp(-d^2 / sigma^2)``, before the weights of a row are
        normalized to sum to one. None uses a scale per row, the root mean square of the distances to its landmarks. A single
        scale is too small for outlying rows: each of them would have the weight of one landmark only and form its own cluster.
    normalize : bool, default=False
        Whether to scale the rows of the embedding to unit length before k-means, as Ng, Jordan and Weiss do.
    n_init : int, default=10
        Number of k-means initializations on the embedding.
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
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row. Equal to ``predict(X)``.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Leading eigenvectors, one per column.
    eigenvalues_ : ndarray of shape (n_clusters,)
        Eigenvalues of D^-1/2 A D^-1/2 in descending order. Values above 1 occur only if they, or the degrees, are estimates.
    kmeans_ : KMeans
        Model fitted to the embedding.
    sigma_ : float or None
        Scale that was used; None if there is no common scale.
    history_ : list of dict
        One record per step: step, seconds, objective (-1/2 Tr(W' L W) or an estimate of it), change (root mean square of the
        sines of the angles between the subspaces before and after the step), columns (number of columns of the affinity matrix
        used) and flops (operation count, given the distances to the landmarks).
    n_iter_ : int
        Number of steps.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the steps ended.
    extension_ : Extension
        Mapping of new rows used by `predict` and `transform`.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    ExactSpectral : Leading eigenvectors from ARPACK.
    MiniBatchSpectral : Stochastic gradients on a few columns per step.
    NystromSpectral : Approximation from the affinities to a random sample.
    PowerSpectral : Block power iteration.

    Notes
    -----
    Each row is a convex combination of its nearest landmarks (LSC-K). The eigenvectors follow from a matrix of n_landmarks x
    n_landmarks, so the cost grows linearly with the number of rows.

    Differs from [1]_: the kernel is ``exp(-d^2 / sigma^2)``, and sigma is chosen per row by default.

    References
    ----------
    .. [1] X. Chen and D. Cai (2011), Large scale spectral clustering with landmark-based representation, AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import LandmarkSpectral
    >>> X = np.random.default_rng(0).normal(size=(300, 2)) + 9 * (np.arange(300) % 3)[:, None]
    >>> model = LandmarkSpectral(n_clusters=3, n_landmarks=30, random_state=0).fit(X)
    >>> sorted(np.bincount(model.labels_).tolist())
    [100, 100, 100]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseSpectralClusterer._parameter_constraints,
        "n_landmarks": [Count()],
        "n_nearest": [Count()],
        "sigma": [Interval(Real, 0, None, closed="neither"), None],
    }

    n_landmarks: int
    n_nearest: int
    sigma: float | None

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_landmarks: int = 500,
        n_nearest: int = 6,
        sigma: float | None = None,
        normalize: bool = False,
        n_init: int = 10,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_landmarks = n_landmarks
        self.n_nearest = n_nearest
        self.sigma = sigma
        self.normalize = normalize
        self.n_init = n_init
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _validate_input(self, X: Any, sample_weight: Any) -> tuple[Rows, None]:
        rows, _ = super()._validate_input(X, sample_weight)
        p = min(self.n_landmarks, len(rows))
        if p < self.n_clusters:
            raise ValueError(
                f"n_landmarks={p} landmarks have no n_clusters={self.n_clusters} singular vectors: use more of them."
            )
        return rows, None

    def _make_solver(self, context: FitContext) -> LandmarkSolver:
        rows, p = context.rows, min(self.n_landmarks, len(context.rows))
        model = KMeans(p, max_iter=LANDMARK_MAX_ITER, random_state=context.seed, n_threads=self.n_threads)
        compute = partial(fit_landmarks, model, context.X, context.inner("landmarks"))
        landmarks = context.session.once("landmarks", compute, partial(is_valid_landmarks, p=p, d=rows.d))
        return LandmarkSolver(rows, landmarks, self.n_nearest, self.n_clusters, self.sigma)

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), "landmark weights": 40.0 * load.n * min(self.n_nearest, self.n_landmarks)}

    def _fits_before(self) -> Sequence[Any]:
        return (KMeans(self.n_landmarks),)

    def _map_spec(self) -> Spec:
        sigma2 = optional(Number(0, finite=False))
        parts = {"landmarks": RowsSpec("b", "d"), "nearest": Below("b"), "sigma2": sigma2, "P": floats("b", "e")}
        return Parts(LandmarkMap, parts)


def fit_landmarks(model: KMeans, X: Any, environment: FitEnvironment) -> Array:
    """Return the landmarks: the distinct centroids of a k-means model that is fitted to X."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # if X has fewer distinct rows, these are the landmarks
        return np.unique(model._fit(X, None, environment).cluster_centers_, axis=0)


def is_valid_landmarks(saved: Any, p: int, d: int) -> bool:
    """Return whether landmarks from a checkpoint are at most p rows of d finite numbers."""
    return matches(floats("p", d), saved, {}) and 0 < len(saved) <= p


def landmark_eigenvectors(Z: Array, neighbors: Array, p: int, k: int) -> tuple[Array, Array]:
    """Return the entries (p, k) of the landmarks in the k leading left singular vectors, and the squared singular values."""
    n, count = Z.shape
    weights = sparse.csr_array((Z.ravel(), neighbors.ravel(), np.arange(0, n * count + 1, count)), shape=(n, p))
    roots = inverse_root(np.asarray(weights.sum(axis=0)).ravel())
    values, V = np.linalg.eigh(np.asarray((weights.T @ weights).todense()) * roots[:, None] * roots)
    values, V = values[::-1][:k], V[:, ::-1][:, :k]
    P = np.zeros((p, k))
    P[:, : V.shape[1]] = roots[:, None] * V * inverse_root(values)
    return P, np.r_[values, np.zeros(k - len(values))]
