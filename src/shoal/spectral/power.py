"""Spectral clustering by the block power method.

References
----------
C. Boutsidis, P. Kambadur, A. Gittens (2015), Spectral clustering via the power method - provably, ICML.

Differs from the paper: the vectors are orthonormalized after each power, which changes no subspace but keeps float32 from
losing the small eigenvalues; steps end early once the subspace does not change; and the powers are those of L + c I, where -c
is the smallest eigenvalue of W' L W found so far, because negative eigenvalues of large magnitude would dominate otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from ..data.types import Array
from ..fit.parameters import Count
from ..fit.random_streams import Stream, generator
from .affinity_factory import AffinityName
from .laplacian_operator import BaseLaplacianClusterer, EigenProblem, LaplacianSolver
from .manifold import inner, random_point, retract, subspace_change
from .solver import SpectralInfo, array_template


class PowerState(NamedTuple):
    """State between two steps."""

    W: Array  # (n, k) orthonormal
    Y: Array  # (n, k): L + c I times the previous W
    c: float


class PowerSolver(LaplacianSolver):
    """Power iteration on k vectors, which are orthonormalized after each step."""

    def __init__(self, problem: EigenProblem, max_iter: int, tol: float) -> None:
        super().__init__(problem)
        self.max_iter, self.tol = max_iter, tol

    def init(self) -> PowerState:
        """Return random vectors; rows of degree zero are zero."""
        L = self.laplacian
        W = random_point(L.n, self.k, generator(self.seed, Stream.INITIAL_SUBSPACE), L.dtype)
        W = retract((L.s > 0) * W)
        return PowerState(W, W, 0.0)

    def step(self, state: PowerState) -> tuple[PowerState, SpectralInfo]:
        """Multiply by L + c I once."""
        n, k = state.W.shape
        Y = self.laplacian.times(state.W)
        T = inner(state.W, Y)
        c = max(state.c, -float(np.linalg.eigvalsh((T + T.T) / 2)[0]))
        Y += Y.dtype.type(c) * state.W
        W = retract(Y)
        info = SpectralInfo(-float(np.trace(T)) / 2, subspace_change(state.W, W), n, 2 * n * n * k - n * k)
        return PowerState(W, Y, c), info

    def converged(self, state: PowerState, info: SpectralInfo) -> bool:
        """Return whether the subspace changed by no more than the tolerance."""
        return info.change <= self.tol

    def eigenvectors(self, state: PowerState) -> tuple[Array, Array]:
        """Return the left singular vectors of the last product, and the singular values without the shift."""
        U, values, _ = np.linalg.svd(state.Y, full_matrices=False)
        return U, values.astype(np.float64) - state.c

    @property
    def overhead(self) -> Mapping[str, int]:
        """Operations of the singular value decomposition."""
        return {"flops": 2 * self.laplacian.n * self.k**2 + 2 * self.k**3}

    def template(self) -> PowerState:
        """Return a state of the right types and shapes."""
        n, k = self.laplacian.n, self.k
        return PowerState(array_template((n, k)), array_template((n, k)), 0.0)


class PowerSpectral(BaseLaplacianClusterer):
    """Spectral clustering by the block power method.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, and of eigenvectors in the embedding.
    affinity : {"rbf", "self-tuning", "knn", "precomputed"}, default="rbf"
        Affinity between two rows. The affinity of a row to itself is zero.

        - "rbf": ``exp(-|x - y|^2 / sigma^2)``.
        - "self-tuning": ``exp(-|x - y|^2 / (s_x s_y))``, where ``s_x`` is the distance from row x to its nearest neighbor
          number `n_neighbors`.
        - "knn": graph that connects each row with its `n_neighbors` nearest neighbors.
        - "precomputed": X holds the affinities, dense or sparse, symmetric and non-negative. New rows hold their affinities
          to the rows of the fit.
    sigma : float or None, default=None
        Scale of the affinity "rbf". None estimates it from a sample of the rows: the median distance within which the nearer
        half of a row's cluster lies, if all clusters have the same size. Non-convex clusters, such as rings, need a smaller
        value.
    n_neighbors : int or None, default=None
        Number of neighbors for the affinities "knn" (None is 10) and "self-tuning" (None is 7).
    neighbors : {"exact", "pynndescent"}, default="exact"
        Neighbor search for the affinity "knn": all pairwise distances, in blocks, or the approximate search of the package
        pynndescent (dense rows only).
    degree_samples : int or None, default=None
        Number of random columns from which to estimate the degrees (the row sums of the affinity matrix). None computes them
        from all pairs of rows, which is also done if the affinities are stored. `degree_error_` is the estimated error. The
        degrees of new rows are exact: if those of the fit are inaccurate, similar rows may get different embeddings.
    store : bool or "auto", default=False
        Whether to keep the full matrix of n_samples x n_samples affinities in memory instead of computing columns when they
        are needed. "auto" stores up to 1 GiB (about 16,000 rows of float32). Graphs ("knn", "precomputed") are in memory
        anyway, and stay sparse if they are sparse.
    max_iter : int, default=300
        Maximum number of power iterations.
    tol : float, default=1e-3
        Stop when the subspace changes by no more than this in one step (`change` in `history_`).
    time_budget : float or None, default=None
        Time limit in seconds, counted from the call of `fit`. The steps may use three quarters of the time that the degrees
        leave, k-means the rest. A fit always computes the affinities, the degrees, the initialization (or one step if there is
        none) and one k-means initialization, even if this exceeds the limit.
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
        Cluster of each row. Equal to ``predict(X)``, unless the affinity is precomputed.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Leading eigenvectors, one per column.
    eigenvalues_ : ndarray of shape (n_clusters,)
        Eigenvalues of D^-1/2 A D^-1/2 in descending order. Values above 1 occur only if they, or the degrees, are estimates.
    kmeans_ : KMeans
        Model fitted to the embedding.
    sigma_ : float or None
        Scale that was used; None if there is no common scale.
    degree_error_ : float
        Root mean square of the relative standard errors of the degrees; 0 if they are exact.
    history_ : list of dict
        One record per step: step, seconds, objective (-1/2 Tr(W' L W) or an estimate of it), change (root mean square of the
        sines of the angles between the subspaces before and after the step), columns (number of columns of the affinity matrix
        used) and flops (operation count by the formulas of [2]_, given the affinities).
    n_iter_ : int
        Number of steps.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the steps ended.
    extension_ : Extension
        Nyström extension used by `predict` and `transform`. It refers to X, which is not copied and must not be
        modified.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    ExactSpectral : Leading eigenvectors from ARPACK.
    LandmarkSpectral : Approximation by nearest landmarks; the fastest.
    MiniBatchSpectral : Stochastic gradients on a few columns per step.
    NystromSpectral : Approximation from the affinities to a random sample.

    Notes
    -----
    Each step multiplies n_clusters vectors by L, which uses all pairs of rows. Unlike ARPACK, it needs no gap between
    neighboring eigenvalues to give a usable subspace.

    Differs from [1]_: the vectors are orthonormalized after each step, the iteration may end before `max_iter`, and L is
    shifted so that negative eigenvalues do not dominate.

    References
    ----------
    .. [1] C. Boutsidis, P. Kambadur and A. Gittens (2015), Spectral clustering via the power method - provably, ICML.
    .. [2] Y. Han and M. Filippone (2017), Mini-batch spectral clustering, IJCNN. doi:10.1109/IJCNN.2017.7966346

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import PowerSpectral
    >>> X = np.random.default_rng(0).normal(size=(300, 2)) + 9 * (np.arange(300) % 3)[:, None]
    >>> model = PowerSpectral(n_clusters=3, random_state=0).fit(X)
    >>> sorted(np.bincount(model.labels_).tolist())
    [100, 100, 100]
    """

    _not_distributable_because = (
        "it compares all rows with all others: use NystromSpectral, LandmarkSpectral or MiniBatchSpectral"
    )
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseLaplacianClusterer._parameter_constraints,
        "max_iter": [Count()],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="right"), None],
    }

    max_iter: int
    tol: float
    time_budget: float | None

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: AffinityName = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        neighbors: Literal["exact", "pynndescent"] = "exact",
        degree_samples: int | None = None,
        store: bool | Literal["auto"] = False,
        max_iter: int = 300,
        tol: float = 1e-3,
        time_budget: float | None = None,
        normalize: bool = False,
        n_init: int = 10,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.neighbors = neighbors
        self.degree_samples = degree_samples
        self.store = store
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.normalize = normalize
        self.n_init = n_init
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _make_laplacian_solver(self, problem: EigenProblem) -> PowerSolver:
        return PowerSolver(problem, self.max_iter, self.tol)
