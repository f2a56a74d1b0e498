"""`MiniBatchSpectral`: the leading eigenvectors of L by stochastic gradients on the Stiefel manifold.

Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346 (Algorithms 1 and 2).
Differs from the paper: its Algorithm 1 leaves out the minus sign of the gradient, and Algorithm 2 then subtracts it; steps
go uphill here. The step length is in units of 1 / sqrt(n), the size of an eigenvector's entries. In the end the basis is
turned by W' L W, from some rows of it where all would cost much, into eigenvectors with their values. W starts from the
eigenvectors of a sample of the rows, extended to all: random vectors, as in the paper, take thousands of columns to get where
these are. AdaGrad's sums then start from what the squares of a gradient's entries would be, not from zero, or the first step
would throw the start away.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.types import Array, is_sparse
from ..fit.checkpoint import CheckpointSession
from ..fit.loop import Limits, RunResult
from ..fit.parameters import Count
from ..fit.random_streams import generator
from .affinity import KernelAffinity
from .embedding import SpectralInfo, zeros
from .graph import GraphAffinity
from .laplacian import Affinity, Laplacian, inverse_root
from .laplacian_operator import BaseLaplacianClusterer, rotated
from .manifold import change, inner, project, random_point, retract

START, START_SHARE, START_MOST = 1000, 200, 3000  # rows in the sample to start from; of many, one in so many
RATES, FURTHEST = {"sample": 0.3, "random": 1.0}, 1e6  # beyond, float32 would forget where a step began
MOST = 200  # steps
FEW_ROWS, COLUMNS = 20_000, 4096  # up to which degrees are exact, and from how many columns they are estimated
PER_VECTOR = 4  # rows of L W, at least 1000, for W' L W
NOISE, TINY = 1e-3, 1e-15
EPSILON = 1e-10  # beside entries of some 1 / sqrt(n)
FLAT = 1e-3  # of the largest eigenvalue: a smaller one is taken for this much when it is divided by


class MiniBatchSpectralState(NamedTuple):
    W: Array  # (n, k) orthonormal
    M: Array  # (n, k): sums of squared gradients
    T: Array  # (k, k) float64: W' L W, averaged
    t: int  # steps so far
    before: float  # as how many steps the start counts


class Batches(NamedTuple):
    """Where the vectors r come from."""

    n: int
    size: int  # m: columns of a step
    vectors: int  # N_r
    drawn: bool  # each entry by chance, or each row once before any comes again
    seed: int

    def draw(self, t: int) -> Any:
        """(N_r, n) sparse: the vectors r of step t, a row each. E[r r'] = I."""
        rng, each = generator(self.seed, 1, t), np.full(self.vectors, self.size / self.vectors)
        if self.drawn:
            counts = rng.binomial(self.n, each / self.n)
            ids = np.concatenate([rng.choice(self.n, c, replace=False, shuffle=False) for c in counts])
        else:
            epoch, place = divmod(t, max(self.n // self.size, 1))
            ids = generator(self.seed, 2, epoch).permutation(self.n)[place * self.size :][: self.size]
            each = counts = np.diff(np.arange(self.vectors + 1) * self.size // self.vectors)
        signs = np.where(rng.random(len(ids)) < 0.5, -1.0, 1.0) * np.sqrt(self.n / np.repeat(each, counts))
        return sparse.csr_array((signs, ids, np.r_[0, np.cumsum(counts)]), shape=(self.vectors, self.n))


def sample_size(n: int) -> int:
    """Rows, and columns of L, to start from."""
    return min(int(np.clip(n // START_SHARE, START, START_MOST)), n)


def start_from_sample(L: Laplacian, k: int, size: int, rng: np.random.Generator) -> MiniBatchSpectralState:
    """The leading eigenvectors of so many rows among themselves, extended to all rows.

    A little noise fills up what the sample has no vectors for: it may fall into pieces of which most are single rows.
    """
    n = L.n
    ids = np.sort(rng.choice(n, size, replace=False))
    A = L.affinity.block(ids).astype(np.float64)
    s = inverse_root(A.sum(axis=1))[:, None]
    values, U = (found[..., ::-1] for found in eigh(s * A * s.T, subset_by_index=[size - k, size - 1]))
    W = rng.standard_normal((n, k)) * NOISE / np.sqrt(n)
    Y = L.times(np.asarray(s * U / np.maximum(L.s[ids], TINY), L.dtype), ids)
    lengths = np.linalg.norm(Y, axis=0)
    lengths = np.maximum(lengths, max(NOISE * lengths.max(), TINY))  # what is shorter is rounding, and leans on the others
    W = retract(((L.s > 0) * (W + Y / lengths)).astype(L.dtype))
    return MiniBatchSpectralState(W, np.broadcast_to(values**2 / n, W.shape).astype(L.dtype), np.diag(values), 0, 0.0)


def stochastic_gradient(L: Laplacian, R: Any, W: Array) -> tuple[Array, int]:
    """The mean of L r r' W over the rows r of R (Algorithm 1, before the projection), and how many columns of L it took."""
    ids, at = np.unique(R.indices, return_inverse=True)
    r = sparse.csr_array((R.data, at, R.indptr), shape=(R.shape[0], len(ids)))
    B = r.T @ (r @ W[ids].astype(np.float64)) / R.shape[0]
    return L.times(B.astype(W.dtype), ids), len(ids)


def inverse(T: Array) -> Array:
    """Of a symmetric matrix whose eigenvalues should be positive."""
    values, V = np.linalg.eigh(T)
    return np.asarray(V / np.maximum(values, max(FLAT * values[-1], TINY)) @ V.T)


def step(
    L: Laplacian, batches: Batches, rate: float | None, state: MiniBatchSpectralState
) -> tuple[MiniBatchSpectralState, SpectralInfo]:
    """One step of Algorithm 2; without a rate, one of harmonic length, in units of the eigenvalues."""
    W, t = state.W, state.t + 1
    n, k = W.shape
    G, columns = stochastic_gradient(L, batches.draw(state.t), W)
    H, T = project(W, G)
    share = 1 / (1 + (state.t + state.before) / 2)
    mean, M = (1 - share) * state.T + share * (T + T.T) / 2, state.M
    if rate is None:
        new = retract(W + H @ (share * inverse(mean)).astype(W.dtype))
    else:
        M = M + H * H
        new = retract(W + W.dtype.type(rate / np.sqrt(n)) * H / (np.sqrt(M) + W.dtype.type(EPSILON)))
    return MiniBatchSpectralState(new, M, mean, t, state.before), SpectralInfo(
        -float(np.trace(T)) / 2, change(W, new), columns, 2 * n * k * columns + 6 * n * k**2 - k**2
    )


def quotients(L: Laplacian, W: Array, count: int, rng: np.random.Generator) -> Array:
    """W' L W from so many rows of L: the T for which these rows of W T are nearest to those of L W.

    It has no error where W spans eigenvectors. Half of the rows are drawn by their weight in W, which may live on few.
    """
    there, weight = (L.s > 0).ravel(), np.einsum("ij,ij->i", W, W, dtype=np.float64)
    chances = (weight / weight.sum() + there / there.sum()) / 2
    ids, times = np.unique(rng.choice(L.n, count, p=chances), return_counts=True)
    Y = L.s[ids] * L.affinity.picked(L.s * W, ids)
    scale = np.sqrt(times / chances[ids])[:, None]
    T: Array = np.linalg.lstsq(scale * W[ids].astype(np.float64), scale * Y, rcond=None)[0]
    return T


class MiniBatchSpectral(BaseLaplacianClusterer):
    """Spectral clustering by stochastic gradients on the Stiefel manifold.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, and of eigenvectors in the embedding.
    affinity : {"rbf", "rbf-norm", "self-tuning", "knn", "precomputed"}, default="rbf"
        Affinity between two rows. The affinity of a row to itself is zero.

        - "rbf": ``exp(-|x - y|^2 / sigma^2)``.
        - "rbf-norm": ``exp(-|x - y| / sigma^2)``, as printed in [1]_.
        - "self-tuning": ``exp(-|x - y|^2 / (s_x s_y))``, where ``s_x`` is the distance from row x to its nearest neighbor
          number `n_neighbors`.
        - "knn": graph that connects each row with its `n_neighbors` nearest neighbors.
        - "precomputed": X holds the affinities, dense or sparse, symmetric and non-negative. New rows hold their affinities
          to the rows of the fit.
    sigma : float or None, default=None
        Scale of the affinities "rbf" and "rbf-norm". None estimates it from a sample of the rows: the median distance within
        which the nearer half of a row's cluster lies, if all clusters have the same size. Non-convex clusters, such as rings,
        need a smaller value.
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
        Number of columns per step (m in the paper); the expected number if ``batch="drawn"``.
    n_vectors : int or None, default=None
        Number of random vectors averaged per gradient (N_r in the paper). None uses one per column, which has the least
        variance.
    batch : {"shuffled", "drawn"}, default="shuffled"
        Sampling of the columns. "shuffled" visits all columns in random order before any is used again. "drawn" includes each
        column in each vector with probability ``batch_size / (n_vectors * n_samples)``, as in the paper.
    init : {"sample", "random"}, default="sample"
        Initialization of the eigenvectors. "sample" extends the eigenvectors of 1000 rows (up to 3000 if there are more than
        200,000 rows) to all rows. "random" starts from random vectors, as in the paper; it is always used for more than 1000
        clusters. For a sparse graph, "sample" uses the Lanczos method, as `ExactSpectral` does, and no batches, because a
        product with the whole graph is cheap.
    steps : {"adagrad", "harmonic"}, default="harmonic"
        Step lengths. "adagrad" adapts them per entry, as in the paper. "harmonic" uses ``2 / (t + 2)`` in step t, in units of
        the inverse eigenvalues; the columns used by the initialization count as steps.
    learning_rate : float or None, default=None
        Master step length of AdaGrad, in units of ``1 / sqrt(n_samples)``, at most 1e6. None is 0.3 for ``init="sample"`` and 1
        for ``init="random"``. It must be None for ``steps="harmonic"``.
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
        used) and flops (operation count by the formulas of Han and Filippone, given the affinities).
    n_iter_ : int
        Number of steps.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the steps ended.
    extension_ : Extension
        Nystroem extension used by `predict` and `transform`. It refers to X, which is not copied and must not be
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

    Differs from [1]_: W starts from the eigenvectors of a sample, steps are harmonic by default, the step length is in units of
    ``1 / sqrt(n_samples)``, and W is rotated into eigenvectors at the end.

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
        "n_vectors": [Count(), None],
        "batch": [StrOptions({"shuffled", "drawn"})],
        "init": [StrOptions(set(RATES))],
        "steps": [StrOptions({"adagrad", "harmonic"})],
        "learning_rate": [Interval(Real, 0, FURTHEST, closed="right"), None],
        "max_iter": [Count(), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="right"), None],
    }

    batch_size: int
    n_vectors: int | None
    batch: Literal["shuffled", "drawn"]
    init: Literal["sample", "random"]
    steps: Literal["adagrad", "harmonic"]
    learning_rate: float | None
    max_iter: int | None
    tol: float

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: Literal["rbf", "rbf-norm", "self-tuning", "knn", "precomputed"] = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        neighbors: Literal["exact", "pynndescent"] = "exact",
        degree_samples: int | Literal["auto"] | None = "auto",
        store: bool | Literal["auto"] = False,
        batch_size: int = 500,
        n_vectors: int | None = None,
        batch: Literal["shuffled", "drawn"] = "shuffled",
        init: Literal["sample", "random"] = "sample",
        steps: Literal["adagrad", "harmonic"] = "harmonic",
        learning_rate: float | None = None,
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
        self.n_vectors = n_vectors
        self.batch = batch
        self.init = init
        self.steps = steps
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.normalize = normalize
        self.n_init = n_init
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _validate_params(self) -> None:
        super()._validate_params()
        if (self.n_vectors or 1) > self.batch_size:
            raise ValueError(f"n_vectors={self.n_vectors} vectors share batch_size={self.batch_size} columns: ask for fewer.")
        if self.learning_rate is not None and self.steps == "harmonic":
            raise ValueError(
                f"learning_rate={self.learning_rate} is AdaGrad's, but steps='harmonic' have lengths of their own: leave it at "
                "None, or ask for steps='adagrad'."
            )

    def _degree_columns(self, affinity: Affinity) -> int | None:
        if self.degree_samples != "auto":
            return super()._degree_columns(affinity)
        return COLUMNS if affinity.n > FEW_ROWS and isinstance(affinity, KernelAffinity) else None

    def _solve(self, L: Laplacian, session: CheckpointSession, deadline: float | None) -> tuple[Array, Array, RunResult]:
        k, size = self.n_clusters, min(self.batch_size, L.n)
        if self.init == "sample" and isinstance(L.affinity, GraphAffinity) and is_sparse(L.affinity.A):
            return self._solve_at_once(L, session)
        batches = Batches(L.n, size, min(self.n_vectors or size, size), self.batch == "drawn", session.seed)
        rng, used = generator(session.seed, 1 << 43), 0
        if self.init == "sample" and k <= START:
            used = sample_size(L.n)

        def begin() -> MiniBatchSpectralState:
            if used:
                return start_from_sample(L, k, used, rng)._replace(before=used / size)
            W = retract((L.s > 0) * random_point(L.n, k, rng, L.dtype))  # rows of degree zero stay zero
            return MiniBatchSpectralState(W, np.zeros_like(W), np.zeros((k, k)), 0, 0.0)

        looks = max(START, PER_VECTOR * k) if isinstance(L.affinity, KernelAffinity) else 0
        looks *= looks < L.n
        rate = None if self.steps == "harmonic" else self.learning_rate or RATES[self.init]
        outcome = self._drive(
            session,
            lambda state: step(L, batches, rate, state),
            begin,
            lambda state, info: info.change <= self.tol and state.t * size >= used and info.columns > 0,  # a draw may be empty
            Limits(self.max_iter or (min(-(-L.n // size), MOST) if used else MOST), deadline, needs_step=not used),
            {"columns": used + looks},
            like=MiniBatchSpectralState(zeros((L.n, k)), zeros((L.n, k)), zeros((k, k)), 0, 0.0),
        )
        W = outcome.state.W
        W, values = rotated(W, quotients(L, W, looks, generator(session.seed, 1 << 45)) if looks else inner(W, L.times(W)))
        return W, values, outcome
