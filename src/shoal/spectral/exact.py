"""`ExactSpectral`: spectral clustering by the leading eigenvectors themselves.

A. Ng, M. Jordan, Y. Weiss (2002), On spectral clustering: analysis and an algorithm, NIPS.
Differs from the paper: rows of the embedding are scaled to unit length only if asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ..core.driver import Outcome
from ..core.parameters import keep
from ..core.seeding import generator
from ..core.types import Array
from .embedding import Info
from .laplacian import Laplacian
from .operator import LaplacianEstimator

SMALL, MEDIUM = 200, 4000  # rows up to which no ARPACK is needed, and up to which one can do without
DIGITS = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 0.0}  # asked of ARPACK
RESTARTS = {True: 20, False: 100}  # of ARPACK, with and without another way; if these won't do, ten times as many seldom do
MISSED, LOOK = 1e-4, 1e-2  # by how much an eigenvalue is above those found, if it is not one of them; how closely to look


def leading(L: Laplacian, k: int, seed: int) -> tuple[Array, Array, int]:
    """The k leading eigenvectors and eigenvalues, the largest first, and how many products with L they took.

    ARPACK may take one of several equal eigenvalues (1, of a graph in pieces) for all of them, and go on to lesser ones. So
    what is left of L without the vectors found is looked at, until it has no eigenvalue above theirs.
    """
    if L.n <= SMALL or 4 * k >= L.n:
        return *at_once(L, k), L.n
    rest = Rest(L)
    start = generator(seed, 1 << 42).standard_normal(L.n)
    for width in (max(3 * k, 40), max(6 * k, 200)):
        arpack = partial(eigsh, rest.operator, which="LA", v0=start, ncv=min(L.n - 1, width), maxiter=RESTARTS[L.n <= MEDIUM])
        try:
            rest.leave_out(*arpack(k, tol=DIGITS[L.dtype]))
            while arpack(1, tol=LOOK)[0][0] > rest.values[k - 1] + MISSED:
                rest.leave_out(*arpack(1, tol=DIGITS[L.dtype]))
        except ArpackNoConvergence:
            if L.n <= MEDIUM:
                return *at_once(L, k), rest.products + L.n
            rest.forget()
        else:
            return rest.vectors[:, :k], rest.values[:k], rest.products
    raise ValueError(
        f"The n_clusters={k} leading eigenvalues lie too close to others for ARPACK to tell them apart: affinities that reach "
        "further (a larger sigma, more neighbours) or another n_clusters would part them; `PowerSpectral` needs no such gap."
    )


class Rest:
    """L, but for the eigenvectors that are known: those have the eigenvalue -2 here, below all others."""

    def __init__(self, L: Laplacian) -> None:
        self.L, self.products = L, 0
        self.operator = LinearOperator((L.n, L.n), matvec=self.times, matmat=self.times, dtype=np.float64)
        self.forget()

    def forget(self) -> None:
        self.vectors, self.values = np.empty((self.L.n, 0)), np.empty(0)

    def leave_out(self, values: Array, vectors: Array) -> None:
        values = np.r_[self.values, values]
        order = np.argsort(-values, kind="stable")
        self.vectors, self.values = np.column_stack([self.vectors, vectors])[:, order], values[order]

    def times(self, v: Array) -> Array:
        V = v.reshape(self.L.n, -1)
        self.products += V.shape[1]
        out = self.L.times(V.astype(self.L.dtype)) - self.vectors @ ((self.values + 2)[:, None] * (self.vectors.T @ V))
        return np.asarray(out, np.float64).reshape(v.shape)


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
