"""Leading eigenvectors of L by the Lanczos method (ARPACK, through SciPy), or by LAPACK for few rows.

ARPACK may miss some of several equal eigenvalues, such as the 1 of each component of a graph that is not connected, and return
smaller ones instead: products with L of one initial vector stay in one vector of each eigenspace. Therefore L is deflated by
the eigenvectors found and searched again from new initial vectors, until it has no larger eigenvalue.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ..data.types import Array
from ..fit.random_streams import Stream, generator
from .laplacian import Laplacian
from .laplacian_operator import LaplacianSolver
from .solver import SpectralInfo, array_template

MAX_LAPACK_ROWS = 200  # rows up to which the full matrix is faster
MAX_FALLBACK_ROWS = 4000  # rows up to which the full matrix is affordable if ARPACK does not converge
TOLERANCES = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-8}  # of ARPACK, by the dtype of the affinities
RESTARTS = {True: 20, False: 100}  # ARPACK's maxiter, by whether there is a fallback; ten times as many seldom help

# SciPy 1.17 draws the vectors with which ARPACK continues after an invariant subspace from `rng`, by default without a seed.
# Earlier versions have no such argument; their ARPACK has a generator of its own with a fixed seed.
TAKES_RNG = "rng" in signature(eigsh).parameters


class LanczosState(NamedTuple):
    """Result of the only step."""

    vectors: Array  # (n, k) float64
    values: Array  # (k,) float64, in descending order


class LanczosSolver(LaplacianSolver):
    """Direct solver of the eigenvalue problem, exact up to rounding."""

    is_direct = True

    def init(self) -> None:
        """Return None: there is no state before the only step."""

    def step(self, state: None) -> tuple[LanczosState, SpectralInfo]:
        """Compute the eigenvectors."""
        n = self.laplacian.n
        vectors, values, products = leading_eigenvectors(self.laplacian, self.k, self.seed)
        info = SpectralInfo(-float(values.sum()) / 2, 0.0, products * n, products * (2 * n**2 - n))
        return LanczosState(vectors, values), info

    def converged(self, state: LanczosState, info: SpectralInfo) -> bool:
        """Return True: there is only one step."""
        return True

    def eigenvectors(self, state: LanczosState) -> tuple[Array, Array]:
        """Return the eigenvectors and the eigenvalues."""
        return state.vectors.astype(self.laplacian.dtype), state.values

    def template(self) -> LanczosState:
        """Return a state of the right types and shapes."""
        return LanczosState(array_template((self.laplacian.n, self.k)), array_template((self.k,)))


def leading_eigenvectors(L: Laplacian, k: int, seed: int) -> tuple[Array, Array, int]:
    """Return the k leading eigenvectors and eigenvalues in descending order, and the number of products with L."""
    if L.n <= MAX_LAPACK_ROWS or 4 * k >= L.n:
        return *dense_eigenvectors(L, k), L.n
    deflated, rng, tolerance = DeflatedLaplacian(L), generator(seed, Stream.EIGENSOLVER), TOLERANCES[L.dtype]
    for width in (max(3 * k, 40), max(6 * k, 200)):
        limits = {"ncv": min(L.n - 1, width), "maxiter": RESTARTS[L.n <= MAX_FALLBACK_ROWS], "tol": tolerance}
        try:
            deflated.search(k, rng, limits)
        except ArpackNoConvergence:
            if L.n <= MAX_FALLBACK_ROWS:
                return *dense_eigenvectors(L, k), deflated.products + L.n
            continue
        with suppress(ArpackNoConvergence):  # no sign that an eigenvalue is missing
            while deflated.search(1, rng, limits) > deflated.values[k] + 10 * tolerance:  # [k] was the smallest of the k
                pass
        return deflated.vectors[:, :k], deflated.values[:k], deflated.products
    raise ValueError(
        f"ARPACK did not converge, as the n_clusters={k} leading eigenvalues are too close to others: affinities with a longer "
        "range (a larger sigma, more neighbors) or another n_clusters would separate them; `PowerSpectral` needs no such gap."
    )


class DeflatedLaplacian:
    """L with the eigenvalues of known eigenvectors replaced by -2, which is below all others."""

    def __init__(self, L: Laplacian) -> None:
        self.L, self.products = L, 0
        self.vectors, self.values = np.empty((L.n, 0)), np.empty(0)
        self.operator = LinearOperator((L.n, L.n), matvec=self.times, matmat=self.times, dtype=np.float64)

    def times(self, v: Array) -> Array:
        """Return the product with one or more vectors."""
        V = v.reshape(self.L.n, -1)
        self.products += V.shape[1]
        out = self.L.times(V.astype(self.L.dtype)) - self.vectors @ ((self.values + 2)[:, None] * (self.vectors.T @ V))
        return np.asarray(out, np.float64).reshape(v.shape)

    def search(self, k: int, rng: np.random.Generator, limits: dict[str, Any]) -> float:
        """Compute k more eigenvectors. Return the largest of their eigenvalues."""
        seeded = {**limits, "rng": rng} if TAKES_RNG else limits
        found, vectors = eigsh(self.operator, k, which="LA", v0=rng.standard_normal(self.L.n), **seeded)
        values = np.r_[self.values, found]
        order = np.argsort(-values, kind="stable")
        self.vectors, self.values = np.column_stack([self.vectors, vectors])[:, order], values[order]
        return float(found.max())


def dense_eigenvectors(L: Laplacian, k: int) -> tuple[Array, Array]:
    """Return the k leading eigenvectors and eigenvalues by LAPACK, from the full matrix."""
    A = L.s * L.affinity.dense().astype(np.float64) * L.s.T
    try:
        values, vectors = eigh(A, subset_by_index=[L.n - k, L.n - 1])
    except np.linalg.LinAlgError:  # LAPACK's method for a subset may fail if many eigenvalues are equal
        values, vectors = eigh(A, driver="ev")
    return vectors[:, : -k - 1 : -1], values[: -k - 1 : -1]
