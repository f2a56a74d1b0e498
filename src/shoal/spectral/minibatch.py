"""Spectral clustering by stochastic gradients on the Stiefel manifold.

References
----------
Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346.

Differs from the paper: W starts from the eigenvectors of a sample of the rows, extended to all rows, as random vectors take
thousands of columns to get there. Each step uses columns that no other step of the same epoch uses, each with a random vector
of its own, which has the least variance. Step lengths are harmonic, in units of the inverse eigenvalues, instead of AdaGrad's.
At the end, W is rotated into eigenvectors. The algorithms as printed are in `shoal.papers.spectral`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.linalg import eigh
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.types import Array, is_sparse
from ..fit.parameters import Count
from ..fit.random_streams import Stream, generator
from .affinity import KernelAffinity
from .affinity_factory import AffinityName
from .graph import GraphAffinity
from .lanczos import LanczosSolver
from .laplacian import Affinity, Laplacian, inverse_root
from .laplacian_operator import BaseLaplacianClusterer, EigenProblem, LaplacianSolver, rayleigh_ritz
from .manifold import inner, project, random_point, retract, subspace_change
from .solver import SpectralInfo, array_template

MIN_SAMPLE_ROWS, MAX_SAMPLE_ROWS = 1000, 3000  # rows of the sample whose eigenvectors are the initial ones
ROWS_PER_SAMPLE_ROW = 200  # of larger data sets, one in so many rows is in the sample
MAX_STEPS = 200  # default of max_iter
MAX_ROWS_FOR_EXACT_DEGREES = 20_000  # for degree_samples="auto"
DEGREE_COLUMNS = 4096  # columns from which the degrees of more rows are estimated
QUOTIENT_ROWS_PER_VECTOR = 4  # rows of L W per eigenvector, at least `MIN_SAMPLE_ROWS`, from which W' L W is estimated
START_NOISE = 1e-3  # relative length of noise in the initial vectors, and of extended vectors that are only rounding error
MIN_DIVISOR = 1e-15
MIN_RELATIVE_EIGENVALUE = 1e-3  # relative to the largest; smaller eigenvalues are divided by as if they were this large


class MiniBatchSpectralState(NamedTuple):
    """State between two steps."""

    W: Array  # (n, k) orthonormal
    T: Array  # (k, k) float64: average of W' L W
    t: int  # number of steps
    n_start_steps: float  # number of steps that the initialization counts as


def sample_size(n: int) -> int:
    """Return the number of rows whose eigenvectors are the initial ones."""
    return min(int(np.clip(n // ROWS_PER_SAMPLE_ROW, MIN_SAMPLE_ROWS, MAX_SAMPLE_ROWS)), n)


def batch_columns(n: int, size: int, t: int, seed: int) -> Array:
    """Return the columns of step t in ascending order. The steps of an epoch use different columns."""
    epoch, place = divmod(t, max(n // size, 1))
    return np.sort(generator(seed, Stream.PROBE_ORDER, epoch).permutation(n)[place * size :][:size])


def start_from_sample(L: Laplacian, k: int, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the leading eigenvectors (n, k) of a random sample of the rows, extended to all rows, and their eigenvalues (k).

    Noise is added for eigenvectors that the sample does not have: its graph may have many components of a single row.
    """
    n = L.n
    ids = np.sort(rng.choice(n, size, replace=False))
    A = L.affinity.submatrix(ids).astype(np.float64)
    s = inverse_root(A.sum(axis=1))[:, None]
    values, U = (found[..., ::-1] for found in eigh(s * A * s.T, subset_by_index=[size - k, size - 1]))
    W = rng.standard_normal((n, k)) * START_NOISE / np.sqrt(n)
    Y = L.times(np.asarray(s * U / np.maximum(L.s[ids], MIN_DIVISOR), L.dtype), ids)
    lengths = np.linalg.norm(Y, axis=0)
    lengths = np.maximum(lengths, max(START_NOISE * lengths.max(), MIN_DIVISOR))  # shorter vectors are rounding errors
    return retract(((L.s > 0) * (W + Y / lengths)).astype(L.dtype)), values


def stochastic_gradient(L: Laplacian, ids: Array, W: Array) -> Array:
    """Return n / m L[:, ids] W[ids], whose mean over random sets of m columns is L W."""
    scale = np.sqrt(L.n)  # of a random vector with one entry that is not zero (Algorithm 1)
    B = scale * (scale * W[ids].astype(np.float64)) / len(ids)
    return L.times(B.astype(W.dtype), ids)


def regularized_inverse(T: Array) -> Array:
    """Return the inverse of a symmetric matrix, with a lower bound for its eigenvalues."""
    values, V = np.linalg.eigh(T)
    return np.asarray(V / np.maximum(values, max(MIN_RELATIVE_EIGENVALUE * values[-1], MIN_DIVISOR)) @ V.T)


def estimate_quotient(L: Laplacian, W: Array, n_rows: int, rng: np.random.Generator) -> Array:
    """Estimate W' L W from random rows of L: the T for which these rows of W T are nearest to those of L W.

    The estimate is exact if W spans eigenvectors. Half of the rows are drawn by their norms in W, which may be zero except in a
    few rows.
    """
    there, norms2 = (L.s > 0).ravel(), np.einsum("ij,ij->i", W, W, dtype=np.float64)
    p = (norms2 / norms2.sum() + there / there.sum()) / 2
    ids, times = np.unique(rng.choice(L.n, n_rows, p=p), return_counts=True)
    Y = L.s[ids] * L.affinity.row_product(L.s * W, ids)
    scale = np.sqrt(times / p[ids])[:, None]
    T: Array = np.linalg.lstsq(scale * W[ids].astype(np.float64), scale * Y, rcond=None)[0]
    return T


class MiniBatchSpectralSolver(LaplacianSolver):
    """Stochastic gradient ascent of Tr(W' L W) with harmonic step lengths."""

    def __init__(
        self, problem: EigenProblem, batch_size: int, init: Literal["sample", "random"], max_iter: int | None, tol: float
    ) -> None:
        super().__init__(problem)
        n = problem.laplacian.n
        self.batch_size, self.tol = min(batch_size, n), tol
        self.sample_size = sample_size(n) if init == "sample" and self.k <= MIN_SAMPLE_ROWS else 0
        self.needs_step = not self.sample_size
        one_pass = min(-(-n // self.batch_size), MAX_STEPS)
        self.max_iter = max_iter or (one_pass if self.sample_size else MAX_STEPS)

    def init(self) -> MiniBatchSpectralState:
        """Return the eigenvectors of a sample of the rows, or random vectors. Rows of degree zero are zero."""
        L, k, rng = self.laplacian, self.k, generator(self.seed, Stream.INITIAL_SUBSPACE)
        if self.sample_size:
            W, values = start_from_sample(L, k, self.sample_size, rng)
            return MiniBatchSpectralState(W, np.diag(values), 0, self.sample_size / self.batch_size)
        return MiniBatchSpectralState(retract((L.s > 0) * random_point(L.n, k, rng, L.dtype)), np.zeros((k, k)), 0, 0.0)

    def step(self, state: MiniBatchSpectralState) -> tuple[MiniBatchSpectralState, SpectralInfo]:
        """Follow the stochastic gradient of a few columns."""
        W, m = state.W, self.batch_size
        n, k = W.shape
        G = stochastic_gradient(self.laplacian, batch_columns(n, m, state.t, self.seed), W)
        H, T = project(W, G)
        rate = 1 / (1 + (state.t + state.n_start_steps) / 2)
        mean = (1 - rate) * state.T + rate * (T + T.T) / 2
        new = retract(W + H @ (rate * regularized_inverse(mean)).astype(W.dtype))
        flops = 2 * n * k * m + 6 * n * k**2 - k**2
        info = SpectralInfo(-float(np.trace(T)) / 2, subspace_change(W, new), m, flops)
        return state._replace(W=new, T=mean, t=state.t + 1), info

    def converged(self, state: MiniBatchSpectralState, info: SpectralInfo) -> bool:
        """Return whether the subspace hardly changed, after at least as many columns as the initialization used."""
        return info.change <= self.tol and state.t * self.batch_size >= self.sample_size

    def eigenvectors(self, state: MiniBatchSpectralState) -> tuple[Array, Array]:
        """Return the Ritz vectors and values of the subspace, given W' L W or an estimate of it."""
        L, W = self.laplacian, state.W
        if self._n_quotient_rows:
            T = estimate_quotient(L, W, self._n_quotient_rows, generator(self.seed, Stream.QUOTIENT_SAMPLE))
        else:
            T = inner(W, L.times(W))
        return rayleigh_ritz(W, T)

    @property
    def _n_quotient_rows(self) -> int:
        """Number of rows of L W from which W' L W is estimated; 0 if it is computed exactly."""
        L = self.laplacian
        n_rows = max(MIN_SAMPLE_ROWS, QUOTIENT_ROWS_PER_VECTOR * self.k)
        return n_rows if isinstance(L.affinity, KernelAffinity) and n_rows < L.n else 0

    @property
    def overhead(self) -> Mapping[str, int]:
        """Columns that the initialization and the estimate of W' L W use."""
        return {"columns": self.sample_size + self._n_quotient_rows}

    def template(self) -> MiniBatchSpectralState:
        """Return a state of the right types and shapes."""
        return MiniBatchSpectralState(array_template((self.laplacian.n, self.k)), array_template((self.k, self.k)), 0, 0.0)


class MiniBatchSpectral(BaseLaplacianClusterer):
    """Spectral clustering by stochastic gradients on the Stiefel manifold.

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
    degree_samples : "auto", int or None, default="auto"
        Number of random columns from which to estimate the degrees (the row sums of the affinity matrix). None computes them
        from all pairs of rows. "auto" is None for up to 20,000 rows and for affinities in memory, and 4096 otherwise.
        `degree_error_` is the estimated error.
    store : bool or "auto", default=False
        Whether to keep the full matrix of n_samples x n_samples affinities in memory instead of computing columns when they
        are needed. "auto" stores up to 1 GiB (about 16,000 rows of float32). Graphs ("knn", "precomputed") are in memory
        anyway, and stay sparse if they are sparse.
    batch_size : int, default=500
        Number of columns per step. All columns are used, in random order, before any is used again.
    init : {"sample", "random"}, default="sample"
        Initialization of the eigenvectors. "sample" extends the eigenvectors of 1000 rows (up to 3000 if there are more than
        200,000 rows) to all rows. "random" starts from random vectors; it is always used for more than 1000 clusters. For a
        sparse graph, "sample" uses the Lanczos method, as `ExactSpectral` does, and no batches, because a product with the
        whole graph is cheap.
    max_iter : int or None, default=None
        Maximum number of steps. None is 200; with ``init="sample"``, the number of steps that use each column once, if that is
        smaller.
    tol : float, default=0.02
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
        used) and flops (operation count by the formulas of [1]_, given the affinities).
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
    NystromSpectral : Approximation from the affinities to a random sample.
    PowerSpectral : Block power iteration.

    Notes
    -----
    Each step uses a few columns of L. The full affinity matrix is neither computed nor stored, unless `store` is set.

    `eigenvalues_` are those of W' L W. For more than 1000 rows whose affinities are not in memory, this matrix is estimated
    from 1000 rows of L W: accurately where W is close to the eigenvectors, and within a few hundredths elsewhere.

    Step t has the length ``2 / (t + 2)``, in units of the inverse eigenvalues; the columns used by the initialization count as
    steps.

    Differs from [1]_: W starts from the eigenvectors of a sample, step lengths are harmonic instead of AdaGrad's, and W is
    rotated into eigenvectors at the end.

    References
    ----------
    .. [1] Y. Han and M. Filippone (2017), Mini-batch spectral clustering, IJCNN. doi:10.1109/IJCNN.2017.7966346

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import MiniBatchSpectral
    >>> angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> rings = np.concatenate([r * np.column_stack([np.cos(angles), np.sin(angles)]) for r in (1, 4)])
    >>> model = MiniBatchSpectral(n_clusters=2, sigma=0.5, random_state=0).fit(rings)
    >>> sorted(np.bincount(model.labels_).tolist())
    [200, 200]
    >>> model.predict([[0.0, 1.1]]) == model.labels_[0]
    array([ True])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseLaplacianClusterer._parameter_constraints,
        "degree_samples": [StrOptions({"auto"}), Count(), None],
        "batch_size": [Count()],
        "init": [StrOptions({"sample", "random"})],
        "max_iter": [Count(), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="right"), None],
    }

    batch_size: int
    init: Literal["sample", "random"]
    max_iter: int | None
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
        degree_samples: int | Literal["auto"] | None = "auto",
        store: bool | Literal["auto"] = False,
        batch_size: int = 500,
        init: Literal["sample", "random"] = "sample",
        max_iter: int | None = None,
        tol: float = 0.02,
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
        self.batch_size = batch_size
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.normalize = normalize
        self.n_init = n_init
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _n_degree_columns(self, affinity: Affinity) -> int | None:
        if self.degree_samples != "auto":
            return super()._n_degree_columns(affinity)
        is_large = affinity.n > MAX_ROWS_FOR_EXACT_DEGREES and isinstance(affinity, KernelAffinity)
        return DEGREE_COLUMNS if is_large else None

    def _make_laplacian_solver(self, problem: EigenProblem) -> LaplacianSolver:
        affinity = problem.laplacian.affinity
        if self.init == "sample" and isinstance(affinity, GraphAffinity) and is_sparse(affinity.A):
            return LanczosSolver(problem)
        return MiniBatchSpectralSolver(problem, self.batch_size, self.init, self.max_iter, self.tol)
