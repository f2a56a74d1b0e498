"""The Stiefel manifold: matrices W of n rows whose k columns are orthonormal.

S. Bonnabel (2013), Stochastic gradient descent on Riemannian manifolds, doi:10.1109/TAC.2013.2254619.
T. Fukaya et al. (2014), CholeskyQR2: a simple and communication-avoiding algorithm for computing a tall-skinny QR
factorization on a large-scale parallel system, doi:10.1109/ScalA.2014.11.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ..data.types import Array

PIECE = 1 << 15  # rows whose products are added up at a time, in float64
STEEP = 1e-3  # a pivot this small beside the largest: Cholesky's factor would have lost too many digits


def inner(A: Array, B: Array) -> Array:
    """A' B in float64, whatever A and B are: sums of half a million float32 products would not be orthonormal."""
    total = np.zeros((A.shape[1], B.shape[1]))
    for a in range(0, len(A), PIECE):
        total += A[a : a + PIECE].astype(np.float64).T @ B[a : a + PIECE].astype(np.float64)
    return total


def project(W: Array, G: Array) -> tuple[Array, Array]:
    """What of G leads out of the span of W: (I - W W') G, the Riemannian gradient; and W' G."""
    T = inner(W, G)
    return G - W @ T.astype(W.dtype), T


def retract(A: Array) -> Array:
    """The Q of A = Q R, where R has a positive diagonal; orthonormal to the last digits of A's type.

    R comes from Cholesky's factor of A' A, twice, which is as good as Householder's and a fraction of the work for few
    columns. Where the columns are nearly dependent, Householder does it.
    """
    Q = A
    try:
        for _ in range(2):
            R = cholesky(inner(Q, Q))
            pivots = np.diag(R)
            if not pivots.min() > STEEP * pivots.max():
                raise LinAlgError
            Q = (Q @ solve_triangular(R, np.eye(len(R))).astype(A.dtype)).astype(A.dtype, copy=False)
    except (LinAlgError, ValueError):
        Q, R = np.linalg.qr(A)
        Q = Q * np.where(np.diag(R) < 0, -1, 1).astype(A.dtype)
    return Q


def random_point(n: int, k: int, rng: np.random.Generator, dtype: Any = np.float64) -> Array:
    """A random W: the directions of k Gaussian vectors, made orthonormal."""
    return retract(rng.standard_normal((n, k), np.float64).astype(dtype))


def change(old: Array, new: Array) -> float:
    """How far apart two subspaces are: the root mean square of the sines of the angles between them, from 0 to 1."""
    k = old.shape[1]
    return float(np.sqrt(max(k - np.square(inner(old, new)).sum(), 0.0) / k))
