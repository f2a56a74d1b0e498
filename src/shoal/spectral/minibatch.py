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
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.types import Array, is_sparse
from ..fit.checkpoint import CheckpointSession
from ..fit.loop import Limits, RunResult
from ..fit.parameters import Count, keep
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
    """Spectral clustering by stochastic gradients: each step looks at a few columns of L, and no matrix of them all is made.

    Parameters
    ----------
    batch_size : int, default=500
        How many columns a step looks at (m); on average, where they are drawn.
    n_vectors : int or None, default=None
        Of how many random vectors a gradient is the mean (N_r). None for one a column, which has the least noise.
    batch : {"shuffled", "drawn"}, default="shuffled"
        "shuffled": rows are shuffled and come in turn, each column in the vector of its part of the batch. "drawn": each
        vector has each column with probability batch_size / (n_vectors n_samples).
    init : {"sample", "random"}, default="sample"
        Where W starts: from the eigenvectors of 1000 rows (of more than 200,000, up to 3000), extended to all, or from random
        vectors, as in the paper and for more than 1000 clusters. Some rows of a sparse graph say nothing of the others, and a
        whole product with it costs little: "sample" is then Lanczos' method, as in `ExactSpectral`, without any batches.
    steps : {"adagrad", "harmonic"}, default="harmonic"
        How far to go along a gradient: as AdaGrad says, entry by entry, as in the paper; or, in units of the eigenvalues,
        2 / (t + 2) of the way in step t, in which the start counts as the steps that its columns would have made.
    learning_rate : float or None, default=None
        AdaGrad's master step length, in units of 1 / sqrt(n_samples), up to 1e6. None for 0.3 from a sample and 1 from random
        vectors. Harmonic steps have none.
    max_iter : int or None, default=None
        Most steps. None for 200, or, from a sample, as many as look at each column once, if that is less.
    degree_samples : "auto", int or None, default="auto"
        From how many random columns to estimate the degrees (the sums of the affinities' rows); `degree_error_` says how far
        off they are. None to compute them, which looks at every pair of rows once. "auto" is None up to 20,000 rows and for
        affinities that are in memory, else 4096.
    ...

    Attributes
    ----------
    ...
    degree_error_ : float
        The root mean square of the relative standard errors of the degrees; 0 where they are exact.

    Notes
    -----
    `eigenvalues_` are those of W' L W. Of more than 1000 rows whose affinities are not in memory, it is estimated from 1000
    rows of L W: near where W has come near the eigenvectors, and within a few hundredths elsewhere.

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
    batch: str
    init: str
    steps: str
    learning_rate: float | None
    max_iter: int | None
    tol: float

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        neighbors: str = "exact",
        degree_samples: int | str | None = "auto",
        store: bool = False,
        batch_size: int = 500,
        n_vectors: int | None = None,
        batch: str = "shuffled",
        init: str = "sample",
        steps: str = "harmonic",
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
        keep(self, locals())

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
