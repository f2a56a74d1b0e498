"""The Stiefel manifold: matrices W of shape (n, k) with orthonormal columns.

References
----------
S. Bonnabel (2013), Stochastic gradient descent on Riemannian manifolds, doi:10.1109/TAC.2013.2254619.
T. Fukaya et al. (2014), CholeskyQR2: a simple and communication-avoiding algorithm for computing a tall-skinny QR
factorization on a large-scale parallel system, doi:10.1109/ScalA.2014.11.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ..data.types import Array

PIECE_ROWS = 1 << 15  # rows that are converted to float64 at a time
MIN_PIVOT_RATIO = 1e-3  # smallest over largest pivot of a Cholesky factor that has enough correct digits


def inner(A: Array, B: Array) -> Array:
    """Return A' B in float64. Sums of many products in float32 would be too inexact to orthonormalize columns."""
    total = np.zeros((A.shape[1], B.shape[1]))
    for a in range(0, len(A), PIECE_ROWS):
        total += A[a : a + PIECE_ROWS].astype(np.float64).T @ B[a : a + PIECE_ROWS].astype(np.float64)
    return total


def project(W: Array, G: Array) -> tuple[Array, Array]:
    """Return the Riemannian gradient (I - W W') G, and W' G."""
    T = inner(W, G)
    return G - W @ T.astype(W.dtype), T


def retract(A: Array) -> Array:
    """Return the Q of A = Q R, where R has a positive diagonal, with columns orthonormal to the precision of A's dtype.

    Two rounds of Cholesky QR are as accurate as Householder's method and a fraction of the work if there are few columns.
    Householder's method is used if the columns are nearly dependent.
    """
    Q = A
    try:
        for _ in range(2):
            R = cholesky(inner(Q, Q))
            pivots = np.diag(R)
            if not pivots.min() > MIN_PIVOT_RATIO * pivots.max():
                raise LinAlgError
            Q = (Q @ solve_triangular(R, np.eye(len(R))).astype(A.dtype)).astype(A.dtype, copy=False)
    except (LinAlgError, ValueError):
        Q, R = np.linalg.qr(A)
        Q = Q * np.where(np.diag(R) < 0, -1, 1).astype(A.dtype)
    return Q


def random_point(n: int, k: int, rng: np.random.Generator, dtype: Any = np.float64) -> Array:
    """Return a random W: k Gaussian vectors, orthonormalized."""
    return retract(rng.standard_normal((n, k), np.float64).astype(dtype))


def subspace_change(old: Array, new: Array) -> float:
    """Return the root mean square of the sines of the angles between two subspaces, from 0 to 1."""
    k = old.shape[1]
    return float(np.sqrt(max(k - np.square(inner(old, new)).sum(), 0.0) / k))
