"""Spectral clustering by the Nyström approximation: from the affinities of all rows to a few.

With C the affinities of all rows to m of them and A those of the m rows among themselves, C A^-1 C' approximates the full
matrix. Its orthonormal eigenvectors follow from an m x m matrix.

References
----------
C. Fowlkes, S. Belongie, F. Chung, J. Malik (2004), Spectral grouping using the Nyström method, doi:10.1109/TPAMI.2004.1262185.

Differs from the paper: directions of negligible eigenvalue are left out of the inverse of A, and C is computed three times
instead of stored. The affinity of a row to itself is one, without which A would not be positive definite. Isolated rows among
the m rows are left out of A, so that they are embedded at zero, as with any other method.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit.context import FitContext
from ..fit.parameters import Count
from ..fit.random_streams import Stream, generator
from .affinity import KernelAffinity, copy_tile
from .affinity_factory import KERNELS, AffinityParameters, KernelName, make_kernel_affinity
from .base import BaseSpectralClusterer
from .extension import NystromMap
from .laplacian import check_degrees, inverse_root
from .solver import Embedding, SpectralInfo, SpectralSolver, array_template, positive_eigenvalues

CUTOFF = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-10}  # rounding error of eigenvalues relative to the largest
MAX_ISOLATED_DEGREE = 1e-6  # rounding error of the affinities of an isolated row to all other rows
EIGENVALUE_ROUNDING = 1e-6  # eigenvalues up to this are rounding errors


def _column_sums(out: Array, S: Array) -> Array:
    return np.asarray(S.sum(axis=0, dtype=np.float64))


def _degrees_and_gram(out: Array, S: Array, q: Array) -> Array:
    """Compute the degrees of the rows of a tile. Return its share of C' D^-1 C."""
    out[:] = S @ q
    Z = S * inverse_root(out)[:, None].astype(S.dtype)
    return np.asarray(Z.T @ Z, np.float64)


class FittedRowsAffinity(NamedTuple):
    """Affinities of the rows of the fit to the basis, with the scales of these rows among themselves."""

    basis: KernelAffinity
    inverse_scales: Array

    def out_of_sample_product(self, new: Rows, B: Array) -> Array:
        """Return the product of the affinities of these rows to the basis with B."""
        return self.basis.out_of_sample_product(new, B, self.inverse_scales)


class NystromState(NamedTuple):
    """Result of the only step: row affinities a to the basis are embedded at a P / sqrt(a q)."""

    P: Array  # (m, k)
    q: Array  # (m,)
    values: Array  # (k,) in descending order
    degrees: Array  # (n,)


def nystrom(rows: Rows, inverse_scales: Array, basis: KernelAffinity, k: int) -> NystromState:
    """Compute the eigenvectors of the approximation, given some of the rows as a basis, and the inverse scales of all rows."""
    m = basis.n
    columns = basis.columns(np.arange(m), rows)
    A = np.empty((m, m), basis.dtype)
    basis_rows = rows.sibling(basis.rows.source, frame=rows.frame)
    deque(basis.map_new_rows(basis_rows, basis.inverse_scales, columns, A, partial(copy_tile, where=slice(None))), 0)
    degrees = np.zeros(len(rows))
    sums = sum(basis.map_new_rows(rows, inverse_scales, columns, degrees, _column_sums), start=np.zeros(m))
    isolated = sums - A.diagonal() <= MAX_ISOLATED_DEGREE
    A[isolated] = A[:, isolated] = 0
    values, V = np.linalg.eigh((A + A.T).astype(np.float64) / 2)
    there = values > CUTOFF[basis.dtype] * values[-1]
    half = V[:, there] / np.sqrt(values[there])  # A^-1/2 up to a rotation
    q = half @ (half.T @ sums)
    tile_function = partial(_degrees_and_gram, q=q.astype(basis.dtype))
    gram = sum(basis.map_new_rows(rows, inverse_scales, columns, degrees, tile_function), start=np.zeros((m, m)))
    values, Q = np.linalg.eigh(half.T @ gram @ half)
    found, values = min(k, len(values)), values[::-1]
    P = np.zeros((m, k))
    P[:, :found] = half @ (Q[:, ::-1][:, :found] * inverse_root(values[:found]))
    return NystromState(P, q, np.r_[values[:found], np.zeros(k - found)], degrees)


class NystromSolver(SpectralSolver):
    """Direct solver of the approximation by a basis of some of the rows."""

    is_direct = True

    def __init__(self, rows: Rows, affinity: KernelAffinity, ids: Array, k: int, sigma: float | None) -> None:
        super().__init__(rows, k, sigma)
        self.inverse_scales, self.basis = affinity.inverse_scales, affinity.subset(ids)

    def init(self) -> None:
        """Return None: there is no state before the only step."""

    def step(self, state: None) -> tuple[NystromState, SpectralInfo]:
        """Compute the eigenvectors of the approximation."""
        n, k, m = len(self.rows), self.k, self.basis.n
        result = nystrom(self.rows, self.inverse_scales, self.basis, k)
        flops = 6 * n * k + 8 * k**3 - 3 * k**2 + 4 * n * k**2 - 3 * k + 2 * n * k * m + n * m + 2 * n * m**2
        flops += m**2 + m**3 - n
        return result, SpectralInfo(-float(result.values.sum()) / 2, 0.0, m, flops)

    def converged(self, state: NystromState, info: SpectralInfo) -> bool:
        """Return True: there is only one step."""
        return True

    def finalize(self, state: NystromState) -> Embedding:
        """Return the eigenvectors, and the map to them from affinities to the basis."""
        others = f"any of the n_samples={self.basis.n} rows of the basis"
        check_degrees(state.degrees, "raise sigma, or use more rows by n_samples", others)
        there = positive_eigenvalues(state.values, EIGENVALUE_ROUNDING, "the embedding has zeros for the others")
        P = np.where(there, state.P, 0)
        vectors, _ = NystromMap(FittedRowsAffinity(self.basis, self.inverse_scales), P, state.q).embed(self.rows)
        return Embedding(vectors.astype(self.basis.dtype), state.values, NystromMap(self.basis, P, state.q))

    def template(self) -> NystromState:
        """Return a state of the right types and shapes."""
        m, k = self.basis.n, self.k
        return NystromState(
            array_template((m, k)), array_template((m,)), array_template((k,)), array_template((len(self.rows),))
        )


class NystromSpectral(BaseSpectralClusterer):
    """Spectral clustering by the Nyström approximation of the affinity matrix.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, and of eigenvectors in the embedding.
    n_samples : int, default=500
        Number of rows drawn at random as the basis (all rows, if there are fewer).
    affinity : {"rbf", "self-tuning"}, default="rbf"
        Affinity between two rows.

        - "rbf": ``exp(-|x - y|^2 / sigma^2)``.
        - "self-tuning": ``exp(-|x - y|^2 / (s_x s_y))``, where ``s_x`` is the distance from row x to its nearest neighbor
          number `n_neighbors`.
    sigma : float or None, default=None
        Scale of the affinity "rbf". None estimates it from a sample of the rows: the median distance within which the nearer
        half of a row's cluster lies, if all clusters have the same size. Non-convex clusters, such as rings, need a smaller
        value.
    n_neighbors : int or None, default=None
        Neighbor that defines the scale of a row for the affinity "self-tuning" (None is 7).
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
        used) and flops (operation count by the formulas of [2]_, given the affinities).
    n_iter_ : int
        Number of steps.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the steps ended.
    extension_ : Extension
        Nyström extension used by `predict` and `transform`.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    ExactSpectral : Leading eigenvectors from ARPACK.
    LandmarkSpectral : Approximation by nearest landmarks; the fastest.
    MiniBatchSpectral : Stochastic gradients on a few columns per step.
    PowerSpectral : Block power iteration.

    Notes
    -----
    The affinities of all rows to a random sample of m rows approximate the whole matrix. The cost is O(n m^2); no n x n matrix
    is computed.

    Differs from [1]_: negligible directions are left out of the inverse of the m x m matrix, and the n x m matrix is recomputed
    in blocks instead of stored.

    References
    ----------
    .. [1] C. Fowlkes, S. Belongie, F. Chung and J. Malik (2004), Spectral grouping using the Nyström method.
           doi:10.1109/TPAMI.2004.1262185
    .. [2] Y. Han and M. Filippone (2017), Mini-batch spectral clustering, IJCNN. doi:10.1109/IJCNN.2017.7966346

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import NystromSpectral
    >>> X = np.random.default_rng(0).normal(size=(300, 2)) + 9 * (np.arange(300) % 3)[:, None]
    >>> model = NystromSpectral(n_clusters=3, n_samples=50, random_state=0).fit(X)
    >>> sorted(np.bincount(model.labels_).tolist())
    [100, 100, 100]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseSpectralClusterer._parameter_constraints,
        "n_samples": [Count()],
        "affinity": [StrOptions(set(KERNELS))],
        "sigma": [Interval(Real, 0, None, closed="neither"), None],
        "n_neighbors": [Count(), None],
    }

    n_samples: int
    affinity: KernelName
    sigma: float | None
    n_neighbors: int | None

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_samples: int = 500,
        affinity: KernelName = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        normalize: bool = False,
        n_init: int = 10,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_samples = n_samples
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.normalize = normalize
        self.n_init = n_init
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _validate_input(self, X: Any, sample_weight: Any) -> tuple[Rows, None]:
        rows, _ = super()._validate_input(X, sample_weight)
        m = min(self.n_samples, len(rows))
        if m < self.n_clusters:
            raise ValueError(f"n_samples={m} rows have no n_clusters={self.n_clusters} eigenvectors: use more of them.")
        return rows, None

    def _make_solver(self, context: FitContext) -> NystromSolver:
        rows, k, seed = context.rows, self.n_clusters, context.seed
        parameters = AffinityParameters(self.affinity, self.sigma, self.n_neighbors)
        affinity, sigma = make_kernel_affinity(rows, parameters, k, seed)
        ids = np.sort(generator(seed, Stream.NYSTROM_SAMPLE).choice(len(rows), min(self.n_samples, len(rows)), replace=False))
        return NystromSolver(rows, affinity, ids, k, sigma)

    def _n_compared_rows(self, load: Workload) -> int:
        return min(load.n, self.n_samples)
