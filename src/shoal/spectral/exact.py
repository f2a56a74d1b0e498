"""`ExactSpectral`: spectral clustering by the leading eigenvectors themselves.

A. Ng, M. Jordan, Y. Weiss (2002), On spectral clustering: analysis and an algorithm, NIPS.
Differs from the paper: rows of the embedding are scaled to unit length only if asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ..core.driver import Outcome
from ..core.fitting import keep
from ..core.seeding import generator
from ..core.types import Array
from .embedding import Info
from .laplacian import Laplacian
from .operator import LaplacianEstimator

SMALL, MEDIUM = 200, 4000  # rows up to which no ARPACK is needed, and up to which one can do without
DIGITS = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 0.0}  # asked of ARPACK: if few, it misses equal eigenvalues
RESTARTS = 100  # of ARPACK; where eigenvalues lie so close that these won't do, ten times as many seldom do


def leading(L: Laplacian, k: int, seed: int) -> tuple[Array, Array, int]:
    """The k leading eigenvectors and eigenvalues, the largest first, and how many products with L they took."""
    n = L.n
    if n <= SMALL or 4 * k >= n:
        return *at_once(L, k), n
    count = [0]

    def times(v: Array) -> Array:
        count[0] += 1
        return L.times(v.reshape(n, -1).astype(L.dtype)).astype(np.float64).reshape(v.shape)

    operator = LinearOperator((n, n), matvec=times, matmat=times, dtype=np.float64)
    start = generator(seed, 1 << 42).standard_normal(n)
    for width in (max(3 * k, 40), max(6 * k, 200)):
        try:
            values, vectors = eigsh(operator, k, None, None, "LA", start, min(n - 1, width), RESTARTS, DIGITS[L.dtype])
        except ArpackNoConvergence:
            if n <= MEDIUM:
                return *at_once(L, k), count[0] + n
        else:
            order = np.argsort(-values, kind="stable")
            return vectors[:, order], values[order], count[0]
    raise ValueError(
        f"The n_clusters={k} leading eigenvalues lie too close to others for ARPACK to tell them apart: affinities that reach "
        "further (a larger sigma, more neighbours) or another n_clusters would part them; `PowerSpectral` needs no such gap."
    )


def at_once(L: Laplacian, k: int) -> tuple[Array, Array]:
    """The same from the whole matrix, without ARPACK."""
    values, vectors = eigh(L.s * L.affinity.dense().astype(np.float64) * L.s.T, subset_by_index=[L.n - k, L.n - 1])
    return vectors[:, ::-1], values[::-1]


class ExactSpectral(LaplacianEstimator):
    """Spectral clustering by the exact leading eigenvectors (ARPACK's, through SciPy).

    Parameters
    ----------
    ...

    Attributes
    ----------
    ...

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import ExactSpectral
    >>> angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> rings = np.concatenate([r * np.column_stack([np.cos(angles), np.sin(angles)]) for r in (1, 4)])
    >>> labels = ExactSpectral(n_clusters=2, sigma=0.5, random_state=0).fit_predict(rings)
    >>> len(set(labels[:200])), len(set(labels[200:])), len(set(labels))
    (1, 1, 2)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        neighbors: str = "exact",
        degree_samples: int | None = None,
        store: bool = True,
        normalize: bool = False,
        n_init: int = 10,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _solve(self, L: Laplacian, seed: int, deadline: float | None) -> tuple[Array, Array, Outcome]:
        def step() -> tuple[tuple[Array, Array], Info]:
            vectors, values, products = leading(L, self.n_clusters, seed)
            return (vectors, values), Info(-float(values.sum()) / 2, 0.0, products * L.n, products * (2 * L.n**2 - L.n))

        outcome = self._at_once(step)
        vectors, values = outcome.state
        return vectors.astype(L.dtype), values, outcome
