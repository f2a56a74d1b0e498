"""`LandmarkSpectral`: rows as mixtures of a few landmarks, and the eigenvectors of how alike the mixtures are.

X. Chen, D. Cai (2011), Large scale spectral clustering with landmark-based representation, AAAI (LSC-K).
Landmarks are centres of k-means; a row is like its nearest ones, in shares that add up to one, Z. With the columns of Z
scaled by the roots of their sums, the singular vectors of Z are the eigenvectors of Z Z', whose rows add up to one.
Differs from the paper: the kernel is exp(-d^2 / sigma^2), as everywhere here; and each row has a sigma of its own, unless
one is given.
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
from ..data.statistics import enter_frame
from ..data.types import Array
from ..execution.memory import Workload
from ..fit.checkpoint import CheckpointSession
from ..fit.parameters import Count
from ..fit.schema import Below, Number, Parts, RowsSpec, Spec, floats, matches, optional
from ..kmeans.kmeans import KMeans
from .embedding import NOISE, BaseSpectralClusterer, EmbeddingResult, SpectralInfo, tell_of_flat, zeros
from .laplacian import inverse_root
from .neighbors import nearest

TINY = 1e-300
AT_ONCE = 1 << 14  # rows that are embedded at a time
FEW_STEPS = 5  # of k-means: landmarks need not have converged


def in_frame(sigma: float, exponent: int) -> float:
    """Its square, in the rows' frame; infinite where it leaves the range: all landmarks are alike then."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.square(np.ldexp(sigma, exponent)))


def shares(near: Array, sigma2: float | None) -> Array:
    """How much of a row each of its nearest landmarks has, from squared distances: a line adds up to one."""
    scale = near.mean(axis=1, keepdims=True) if sigma2 is None else sigma2
    Z = np.exp(-(near - near[:, :1]) / np.maximum(scale, TINY))  # seen from the nearest, so that it can't vanish
    return np.asarray(Z / Z.sum(axis=1, keepdims=True))


class LandmarkMap(NamedTuple):
    """From a row's shares to its entries."""

    landmarks: Rows
    nearest: int
    sigma2: float | None
    P: Array  # (p, k)

    def embed(self, new: Rows) -> tuple[Array, Array]:
        near, who = nearest(new, self.landmarks, self.nearest, known=False)
        return self.of(shares(near, self.sigma2), who), np.ones(len(new), bool)

    def of(self, Z: Array, who: Array) -> Array:
        out = np.zeros((len(Z), self.P.shape[1]))
        for a in range(0, len(Z), AT_ONCE):
            here = slice(a, a + AT_ONCE)
            for z, landmark in zip(Z[here].T, who[here].T, strict=True):
                out[here] += z[:, None] * self.P[landmark]
        return out


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

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), "mixtures": 40.0 * load.n * min(self.n_nearest, self.n_landmarks)}

    def _embed(self, rows: Rows, X: Any, session: CheckpointSession, deadline: float | None) -> EmbeddingResult:
        n, k, p = len(rows), self.n_clusters, min(self.n_landmarks, len(rows))
        if p < k:
            raise ValueError(f"n_landmarks={p} landmarks have no n_clusters={k} singular vectors: ask for more of them.")
        rows, _ = enter_frame(rows)
        find = partial(self._landmarks, X, p, session)
        found = session.once("landmarks", find, partial(is_landmarks, p=p, d=rows.d))
        landmarks = Rows.of(ArraySource(found), frame=rows.frame).with_dtype(rows.dtype)
        count = min(self.n_nearest, len(landmarks))
        sigma2 = None if self.sigma is None else in_frame(self.sigma, rows.frame.exponent)

        def step() -> tuple[tuple[Array, Array, Array, Array], SpectralInfo]:
            near, who = nearest(rows, landmarks, count, known=False)
            Z = shares(near, sigma2)
            P, values = mixtures(Z, who, len(landmarks), k)
            flops = 2 * n * count**2 + 9 * p**3 + 2 * n * count * k
            return (P, values, Z, who), SpectralInfo(-float(values.sum()) / 2, 0.0, p, flops)

        q = len(landmarks)
        like = zeros((q, k)), zeros((k,)), zeros((n, count)), zeros((n, count), np.int64)
        outcome = self._at_once(session, step, like)
        P, values, Z, who = outcome.state
        session.trust(bool(who.max() < q))
        there = tell_of_flat(values, NOISE, "the embedding has zeros for the others")
        way = LandmarkMap(landmarks, count, sigma2, np.where(there, P, 0))
        self.sigma_ = None if self.sigma is None else float(self.sigma)
        return EmbeddingResult(way.of(Z, who).astype(rows.dtype), values, rows, way, outcome._replace(state=None))

    def _map_spec(self) -> Spec:
        sigma2 = optional(Number(0, finite=False))
        parts = {"landmarks": RowsSpec("b", "d"), "nearest": Below("b"), "sigma2": sigma2, "P": floats("b", "e")}
        return Parts(LandmarkMap, parts)

    def _fits_before(self) -> Sequence[Any]:
        return (KMeans(self.n_landmarks),)

    def _landmarks(self, X: Any, p: int, session: CheckpointSession) -> Array:
        model = KMeans(p, max_iter=FEW_STEPS, random_state=session.seed, n_threads=self.n_threads)
        assert session.inner is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than landmarks: then these are the rows
            return np.unique(model._fit(X, None, session.inner("landmarks")).cluster_centers_, axis=0)


def is_landmarks(found: Any, p: int, d: int) -> bool:
    """Whether landmarks from a checkpoint are at most p rows of d finite numbers."""
    return matches(floats("p", d), found, {}) and 0 < len(found) <= p


def mixtures(Z: Array, who: Array, p: int, k: int) -> tuple[Array, Array]:
    """(p, k): what turns shares into entries of the k leading singular vectors, and the squares of the singular values."""
    n, count = Z.shape
    shares_of = sparse.csr_array((Z.ravel(), who.ravel(), np.arange(0, n * count + 1, count)), shape=(n, p))
    roots = inverse_root(np.asarray(shares_of.sum(axis=0)).ravel())
    values, V = np.linalg.eigh(np.asarray((shares_of.T @ shares_of).todense()) * roots[:, None] * roots)
    values, V = values[::-1][:k], V[:, ::-1][:, :k]
    P = np.zeros((p, k))
    P[:, : V.shape[1]] = roots[:, None] * V * inverse_root(values)
    return P, np.r_[values, np.zeros(k - len(values))]
