"""Approximate principal directions, and lower bounds of distances from projections on them.

Let y be the coordinates of a row x along a few orthonormal directions and rho the norm of the residual x - x_projected;
let z and r be the same for a centroid c. Then |x - c|^2 = |y - z|^2 + |x_rest - c_rest|^2 >= |y - z|^2 + (rho - r)^2.
So (y, rho), the *head* of a row, is a short vector whose distances are lower bounds of the true ones.
"""

from __future__ import annotations

import numpy as np

from .blocks import DenseBlock
from .types import Array

# Squared norm of the residual, relative to that of the row, below which the difference |x|^2 - |y|^2 has lost too many
# digits and the residual is computed explicitly.
MIN_RESIDUAL_RATIO = 1e-3
SAMPLE = 2048  # rows from which the directions are computed; more rows would hardly change them


def basis_of(X: Array, count: int, sweeps: int = 2) -> Array:
    """Return an orthonormal basis (d, count) of approximate principal directions, by subspace iteration on a sample."""
    X = X if len(X) <= SAMPLE else X[np.linspace(0, len(X) - 1, SAMPLE).astype(int)]
    A = X.astype(np.float32, copy=False)
    rng = np.random.Generator(np.random.Philox(key=[A.shape[1], count]))
    Q = rng.standard_normal((A.shape[1], min(count + 8, A.shape[1]))).astype(np.float32)
    for _ in range(sweeps):
        Q = np.linalg.qr(A.T @ (A @ np.linalg.qr(Q)[0]))[0]
    projected = (A @ Q).astype(np.float64)
    V = np.linalg.eigh(projected.T @ projected)[1][:, ::-1][:, :count]
    return np.ascontiguousarray(np.linalg.qr(Q.astype(np.float64) @ V)[0], X.dtype)


def memory(n: int, d: int, count: int, itemsize: int) -> float:
    """Return the bytes that `basis_of` allocates for n rows: its sample and matrices of shape (d, count + 8)."""
    return (float(SAMPLE) * d * itemsize if n > SAMPLE else 0.0) + 40.0 * d * min(count + 8, d)


def head_of(X: Array, basis: Array, coarse: int = 0) -> Array:
    """Return the heads of the rows: coordinates along the basis and the norm of the residual, (n, count + 1).

    If `coarse` is given, the heads are nested, (n, count + 2): the first `coarse` columns are a head of fewer directions,
    whose last column is its own residual norm. All columns except that one are the full head.
    """
    y = X @ basis
    norms2 = DenseBlock(X).squared_norms()
    residual2 = norms2 - DenseBlock(y).squared_norms()
    cancelled = np.flatnonzero(residual2 < MIN_RESIDUAL_RATIO * norms2)
    if len(cancelled):
        residual2[cancelled] = DenseBlock(X[cancelled] - y[cancelled] @ basis.T).squared_norms()
    residual = np.sqrt(residual2)[:, None]
    if not coarse:
        return np.ascontiguousarray(np.hstack([y, residual]), X.dtype)
    finer = y[:, coarse - 1 :]
    coarse_residual = np.sqrt(residual2 + np.einsum("ij,ij->i", finer, finer, dtype=np.float64))[:, None]
    return np.ascontiguousarray(np.hstack([y[:, : coarse - 1], coarse_residual, finer, residual]), X.dtype)


def signed(V: Array) -> Array:
    """Flip the sign of each column so that its entry of largest magnitude is positive, to make directions unique."""
    top = np.abs(V).argmax(axis=0)
    return np.asarray(V * np.where(V[top, np.arange(V.shape[1])] < 0, -1, 1).astype(V.dtype))


def of_unit_length(Y: Array) -> Array:
    """Scale each row to unit length; rows of zeros stay zero."""
    lengths = np.linalg.norm(Y, axis=1, keepdims=True)
    return np.asarray(Y / np.where(lengths > 0, lengths, 1))
