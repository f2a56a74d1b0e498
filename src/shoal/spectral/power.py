"""`PowerSpectral`: spectral clustering by the power method.

C. Boutsidis, P. Kambadur, A. Gittens (2015), Spectral clustering via the power method - provably, ICML.
Differs from the paper: the vectors are made orthonormal between the powers, which changes no subspace but keeps float32
from losing the small eigenvalues; powers may end when the subspace does not change any more; and, as L may have negative
eigenvalues, whose powers grow as well, they are powers of L + c I, with c as far as W' L W has been found below zero.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from ..data.types import Array
from ..fit.checkpoint import CheckpointSession
from ..fit.loop import Limits, RunResult
from ..fit.parameters import Count, keep
from ..fit.random_streams import generator
from .embedding import SpectralInfo, zeros
from .laplacian import Laplacian
from .laplacian_operator import BaseLaplacianClusterer
from .manifold import change, inner, random_point, retract


class PowerState(NamedTuple):
    W: Array  # (n, k) orthonormal
    Y: Array  # (n, k): L + c I times the W before it
    c: float


def step(L: Laplacian, state: PowerState) -> tuple[PowerState, SpectralInfo]:
    """One power."""
    n, k = state.W.shape
    Y = L.times(state.W)
    T = inner(state.W, Y)
    c = max(state.c, -float(np.linalg.eigvalsh((T + T.T) / 2)[0]))
    Y += Y.dtype.type(c) * state.W
    W = retract(Y)
    return PowerState(W, Y, c), SpectralInfo(-float(np.trace(T)) / 2, change(state.W, W), n, 2 * n * n * k - n * k)


class PowerSpectral(BaseLaplacianClusterer):
    """Spectral clustering by powers of L times a Gaussian matrix.

    Parameters
    ----------
    ...

    Attributes
    ----------
    ...

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
        "it compares all rows with all others: take NystromSpectral, LandmarkSpectral or MiniBatchSpectral"
    )
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseLaplacianClusterer._parameter_constraints,
        "max_iter": [Count()],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="right"), None],
    }

    max_iter: int
    tol: float

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        neighbors: str = "exact",
        degree_samples: int | None = None,
        store: bool = False,
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
        keep(self, locals())

    def _solve(self, L: Laplacian, session: CheckpointSession, deadline: float | None) -> tuple[Array, Array, RunResult]:
        k = self.n_clusters

        def begin() -> PowerState:
            W = random_point(L.n, k, generator(session.seed, 1 << 43), L.dtype)
            W = retract((L.s > 0) * W)  # rows of degree zero stay zero
            return PowerState(W, W, 0.0)

        outcome = self._drive(
            session,
            lambda state: step(L, state),
            begin,
            lambda state, info: info.change <= self.tol,
            Limits(self.max_iter, deadline, needs_step=True),
            {"flops": 2 * L.n * k**2 + 2 * k**3},  # the SVD
            like=PowerState(zeros((L.n, k)), zeros((L.n, k)), 0.0),
        )
        U, values, _ = np.linalg.svd(outcome.state.Y, full_matrices=False)
        return U, values.astype(np.float64) - outcome.state.c, outcome
