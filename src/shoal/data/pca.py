"""Directions: those that lead, lower bounds of distances from them, their signs and lengths.

With y the coordinates of a row x along a few orthonormal directions and rho the norm of what they leave out, and z, r
the same of a centre c: |x - c|^2 = |y - z|^2 + |x_rest - c_rest|^2 >= |y - z|^2 + (rho - r)^2. So (y, rho), the *head*
of a row, is a short vector whose distances never exceed the true ones.
"""

from __future__ import annotations

import numpy as np

from ..kernels import dense
from .types import Array

FEW_DIGITS = 1e-3  # squared norms of what is left out, beside those of the rows, that need care
SAMPLE = 4096  # rows that directions are found from


def basis_of(X: Array, count: int, sweeps: int = 2) -> Array:
    """An orthonormal basis (d, count) of about the leading directions of the rows, by subspace iteration on a sample."""
    X = X if len(X) <= SAMPLE else X[np.linspace(0, len(X) - 1, SAMPLE).astype(int)]
    A = X.astype(np.float32, copy=False)
    rng = np.random.Generator(np.random.Philox(key=[A.shape[1], count]))
    Q = rng.standard_normal((A.shape[1], min(count + 8, A.shape[1]))).astype(np.float32)
    for _ in range(sweeps):
        Q = np.linalg.qr(A.T @ (A @ np.linalg.qr(Q)[0]))[0]
    inner = (A @ Q).astype(np.float64)
    V = np.linalg.eigh(inner.T @ inner)[1][:, ::-1][:, :count]
    return np.ascontiguousarray(np.linalg.qr(Q.astype(np.float64) @ V)[0], X.dtype)


def memory(n: int, d: int, count: int, itemsize: int) -> float:
    """Bytes that `basis_of` takes, beside n rows: those of its own sample, and matrices of as many rows as X has columns."""
    return (float(SAMPLE) * d * itemsize if n > SAMPLE else 0.0) + 40.0 * d * min(count + 8, d)


def head_of(X: Array, basis: Array, coarse: int = 0) -> Array:
    """Coordinates along the basis and the norm of the rest, (n, count + 1).

    With `coarse`, heads within heads, (n, count + 2): the first `coarse` columns are a head by themselves, and so are
    all columns without the one that ends it.
    """
    y = X @ basis
    norms2, within = np.empty((2, len(X)))
    dense.squared_norms(X, norms2)
    dense.squared_norms(y, within)
    rest2 = norms2 - within
    near = np.flatnonzero(rest2 < FEW_DIGITS * norms2)  # where the difference has lost its digits
    if len(near):
        squares = np.empty(len(near))
        dense.squared_norms(X[near] - y[near] @ basis.T, squares)
        rest2[near] = squares
    rest = np.sqrt(rest2)[:, None]
    if not coarse:
        return np.ascontiguousarray(np.hstack([y, rest]), X.dtype)
    finer = y[:, coarse - 1 :]
    middle = np.sqrt(rest2 + np.einsum("ij,ij->i", finer, finer, dtype=np.float64))[:, None]
    return np.ascontiguousarray(np.hstack([y[:, : coarse - 1], middle, finer, rest]), X.dtype)


def signed(V: Array) -> Array:
    """Each column with the sign that makes its largest entry positive: a direction has none of its own."""
    top = np.abs(V).argmax(axis=0)
    return np.asarray(V * np.where(V[top, np.arange(V.shape[1])] < 0, -1, 1).astype(V.dtype))


def of_unit_length(Y: Array) -> Array:
    """Each row over its length, or zeros."""
    lengths = np.linalg.norm(Y, axis=1, keepdims=True)
    return np.asarray(Y / np.where(lengths > 0, lengths, 1))
