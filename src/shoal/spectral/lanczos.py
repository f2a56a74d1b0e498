"""The leading eigenvectors of L by Lanczos' method: ARPACK's, through SciPy.

ARPACK may take one of several equal eigenvalues (1, of a graph in pieces) for all of them, and go on to lesser ones: from one
vector to start from, products with L lead to one vector of each eigenspace. So what is left of L without the vectors found is
looked at, each time from a new start, until it has no eigenvalue above theirs.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import signature
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ..data.types import Array
from ..fit.random_streams import generator
from .laplacian import Laplacian

SMALL, MEDIUM = 200, 4000  # rows up to which no ARPACK is needed, and up to which one can do without
DIGITS = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-8}  # asked of ARPACK
RESTARTS = {True: 20, False: 100}  # of ARPACK, with and without another way; if these won't do, ten times as many seldom do

# SciPy 1.17 draws the vectors with which ARPACK continues after an invariant subspace from `rng`, by default without a seed.
# Earlier versions have no such argument; their ARPACK has a generator of its own with a fixed seed.
TAKES_RNG = "rng" in signature(eigsh).parameters


def leading(L: Laplacian, k: int, seed: int) -> tuple[Array, Array, int]:
    """The k leading eigenvectors and eigenvalues, the largest first, and how many products with L they took."""
    if L.n <= SMALL or 4 * k >= L.n:
        return *at_once(L, k), L.n
    rest, rng, digits = Rest(L), generator(seed, 1 << 42), DIGITS[L.dtype]
    for width in (max(3 * k, 40), max(6 * k, 200)):
        limits = {"ncv": min(L.n - 1, width), "maxiter": RESTARTS[L.n <= MEDIUM], "tol": digits}
        try:
            rest.find(k, rng, limits)
        except ArpackNoConvergence:
            if L.n <= MEDIUM:
                return *at_once(L, k), rest.products + L.n
            continue
        with suppress(ArpackNoConvergence):  # then nothing is known to be missing
            while rest.find(1, rng, limits) > rest.values[k] + 10 * digits:  # the least of those before
                pass
        return rest.vectors[:, :k], rest.values[:k], rest.products
    raise ValueError(
        f"The n_clusters={k} leading eigenvalues lie too close to others for ARPACK to tell them apart: affinities that reach "
        "further (a larger sigma, more neighbours) or another n_clusters would part them; `PowerSpectral` needs no such gap."
    )


class Rest:
    """L, but for the eigenvectors that are known: those have the eigenvalue -2 here, below all others."""

    def __init__(self, L: Laplacian) -> None:
        self.L, self.products = L, 0
        self.vectors, self.values = np.empty((L.n, 0)), np.empty(0)
        self.operator = LinearOperator((L.n, L.n), matvec=self.times, matmat=self.times, dtype=np.float64)

    def times(self, v: Array) -> Array:
        V = v.reshape(self.L.n, -1)
        self.products += V.shape[1]
        out = self.L.times(V.astype(self.L.dtype)) - self.vectors @ ((self.values + 2)[:, None] * (self.vectors.T @ V))
        return np.asarray(out, np.float64).reshape(v.shape)

    def find(self, k: int, rng: np.random.Generator, limits: dict[str, Any]) -> float:
        """k more; the largest of their values."""
        seeded = {**limits, "rng": rng} if TAKES_RNG else limits
        found, vectors = eigsh(self.operator, k, which="LA", v0=rng.standard_normal(self.L.n), **seeded)
        values = np.r_[self.values, found]
        order = np.argsort(-values, kind="stable")
        self.vectors, self.values = np.column_stack([self.vectors, vectors])[:, order], values[order]
        return float(found.max())


def at_once(L: Laplacian, k: int) -> tuple[Array, Array]:
    """The same from the whole matrix, without ARPACK."""
    A = L.s * L.affinity.dense().astype(np.float64) * L.s.T
    try:
        values, vectors = eigh(A, subset_by_index=[L.n - k, L.n - 1])
    except np.linalg.LinAlgError:  # LAPACK's method for some of them may fail where many eigenvalues are equal
        values, vectors = eigh(A, driver="ev")
    return vectors[:, : -k - 1 : -1], values[: -k - 1 : -1]
