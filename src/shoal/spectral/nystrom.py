"""`NystromSpectral`: spectral clustering from the affinities of all rows to a few.

C. Fowlkes, S. Belongie, F. Chung, J. Malik (2004), Spectral grouping using the Nystroem method, doi:10.1109/TPAMI.2004.1262185.
With C the affinities of all rows to m of them and A those of the m among themselves, C A^-1 C' stands for the whole matrix;
its eigenvectors, made orthonormal in one go, follow from an m x m matrix.
Differs from the paper: directions in which A has next to nothing are left out of its inverse; C is computed three times and
never held; and rows are like themselves, without which A would not be positive (but those of the m that are like no other
are left out of A: as anywhere else, they are embedded at zero).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.rows import Rows
from ..data.statistics import enter_frame
from ..data.types import Array
from ..execution.memory import Workload
from ..fit.checkpoint import CheckpointSession
from ..fit.parameters import Count
from ..fit.random_streams import generator
from .affinity import KernelAffinity, fill
from .affinity_factory import KERNELS, Choice, kernel
from .embedding import NOISE, BaseSpectralClusterer, EmbeddingResult, Map, SpectralInfo, tell_of_flat, zeros
from .laplacian import check_degrees, inverse_root

CUTOFF = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-10}  # of the largest eigenvalue: what is below it is noise
ALONE = 1e-6  # how much a row may seem to be like all others together, by rounding, and yet be like none


def _column_sums(out: Array, S: Array) -> Array:
    return np.asarray(S.sum(axis=0, dtype=np.float64))


def _gram(out: Array, S: Array, q: Array) -> Array:
    """A tile's share of C' D^-1 C; the degrees are kept."""
    out[:] = S @ q
    Z = S * inverse_root(out)[:, None].astype(S.dtype)
    return np.asarray(Z.T @ Z, np.float64)


class Fitted(NamedTuple):
    """The rows of the fit as seen from the basis: on the scales that they have among themselves."""

    basis: KernelAffinity
    u: Array

    def against(self, new: Rows, B: Array) -> Array:
        return self.basis.against(new, B, self.u)


def nystrom(rows: Rows, u: Array, basis: KernelAffinity, k: int) -> tuple[Map, Array, Array]:
    """How rows are embedded, the eigenvalues and the degrees, given some rows as a basis; u is one over the rows' scales."""
    m = basis.n
    columns = basis.columns(np.arange(m), rows)
    A = np.empty((m, m), basis.dtype)
    basis_rows = rows.sibling(basis.rows.source, frame=rows.frame)
    for _ in basis.compare(basis_rows, basis.u, columns, A, partial(fill, where=slice(None))):
        pass
    degrees = np.zeros(len(rows))
    sums = sum(basis.compare(rows, u, columns, degrees, _column_sums), start=np.zeros(m))
    alone = sums - A.diagonal() <= ALONE
    A[alone] = A[:, alone] = 0
    values, V = np.linalg.eigh((A + A.T).astype(np.float64) / 2)
    there = values > CUTOFF[basis.dtype] * values[-1]
    half = V[:, there] / np.sqrt(values[there])  # A^-1/2, but for a rotation
    q = half @ (half.T @ sums)
    gram = sum(basis.compare(rows, u, columns, degrees, partial(_gram, q=q.astype(basis.dtype))), start=np.zeros((m, m)))
    values, Q = np.linalg.eigh(half.T @ gram @ half)
    found, values = min(k, len(values)), values[::-1]
    P = np.zeros((m, k))
    P[:, :found] = half @ (Q[:, ::-1][:, :found] * inverse_root(values[:found]))
    return Map(basis, P, q), np.r_[values[:found], np.zeros(k - found)], degrees


class NystromSpectral(BaseSpectralClusterer):
    """Spectral clustering by the Nystroem approximation of the affinity matrix.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, and of eigenvectors in the embedding.
    n_samples : int, default=500
        Number of rows drawn at random as the basis (all rows, if there are fewer).
    affinity : {"rbf", "rbf-norm", "self-tuning"}, default="rbf"
        Affinity between two rows.

        - "rbf": ``exp(-|x - y|^2 / sigma^2)``.
        - "rbf-norm": ``exp(-|x - y| / sigma^2)``.
        - "self-tuning": ``exp(-|x - y|^2 / (s_x s_y))``, where ``s_x`` is the distance from row x to its nearest neighbor
          number `n_neighbors`.
    sigma : float or None, default=None
        Scale of the affinities "rbf" and "rbf-norm". None estimates it from a sample of the rows: the median distance within
        which the nearer half of a row's cluster lies, if all clusters have the same size. Non-convex clusters, such as rings,
        need a smaller value.
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
        used) and flops (operation count by the formulas of Han and Filippone, given the affinities).
    n_iter_ : int
        Number of steps.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the steps ended.
    extension_ : Extension
        Nystroem extension used by `predict` and `transform`.
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
    .. [1] C. Fowlkes, S. Belongie, F. Chung and J. Malik (2004), Spectral grouping using the Nystroem method.
           doi:10.1109/TPAMI.2004.1262185

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
    affinity: Literal["rbf", "rbf-norm", "self-tuning"]
    sigma: float | None
    n_neighbors: int | None

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_samples: int = 500,
        affinity: Literal["rbf", "rbf-norm", "self-tuning"] = "rbf",
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

    def _compared_with(self, load: Workload) -> int:
        return min(load.n, self.n_samples)

    def _embed(self, rows: Rows, X: Any, session: CheckpointSession, deadline: float | None) -> EmbeddingResult:
        n, k, m = len(rows), self.n_clusters, min(self.n_samples, len(rows))
        if m < k:
            raise ValueError(f"n_samples={m} rows have no n_clusters={k} eigenvectors: take more of them.")
        seed = session.seed
        rows, _ = enter_frame(rows)
        affinity, self.sigma_ = kernel(rows, Choice(self.affinity, self.sigma, self.n_neighbors, "exact"), k, seed)
        basis = affinity.part(np.sort(generator(seed, 1 << 44).choice(n, m, replace=False)))

        def step() -> tuple[tuple[Array, ...], SpectralInfo]:
            way, values, degrees = nystrom(rows, affinity.u, basis, k)
            flops = 6 * n * k + 8 * k**3 - 3 * k**2 + 4 * n * k**2 - 3 * k + 2 * n * k * m + n * m + 2 * n * m**2
            flops += m**2 + m**3 - n
            return (way.P, way.q, values, degrees), SpectralInfo(-float(values.sum()) / 2, 0.0, m, flops)

        outcome = self._at_once(session, step, (zeros((m, k)), zeros((m,)), zeros((k,)), zeros((n,))))
        P, q, values, degrees = outcome.state
        check_degrees(degrees, "raise sigma, or take more rows by n_samples", f"any of the n_samples={m} that were drawn")
        P = np.where(tell_of_flat(values, NOISE, "the embedding has zeros for the others"), P, 0)
        vectors, _ = Map(Fitted(basis, affinity.u), P, q).embed(rows)
        return EmbeddingResult(vectors.astype(affinity.dtype), values, rows, Map(basis, P, q), outcome)
