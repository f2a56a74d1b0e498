"""Readings of the setup of Han and Filippone (2017): kernels, scales of rows, eigenvectors, and rows that k-means clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from scipy.sparse.linalg import eigsh

from ...data.types import Array
from ...kmeans.kmeans import KMeans
from . import authors
from .letter import power_method

MORE = 6  # eigenvectors beyond the number of clusters that readings use
AT_ONCE = 1000  # rows of the affinity matrix computed at a time
KERNELS = ("squared distance", "printed: distance")
SCALES = ("rows as they are", "unit rows")


def stored_laplacian(X: Array, sigma: float, squared: bool = True) -> tuple[Array, Array]:
    """Return the Laplacian in memory, in float32, and the degrees.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    sigma : float
        Width of the affinity.
    squared : bool, default=True
        Whether the affinity has the squared distance; otherwise it is the printed one.

    Returns
    -------
    L : ndarray of shape (n, n), float32
    degrees : ndarray of shape (n,)
    """
    n, squares = len(X), np.einsum("ij,ij->i", X, X, dtype=np.float64)
    L = np.empty((n, n), np.float32)
    for a in range(0, n, AT_ONCE):
        far = squares[a : a + AT_ONCE, None] - 2 * (X[a : a + AT_ONCE].astype(np.float64) @ X.T) + squares
        np.maximum(far, 0, out=far)
        L[a : a + AT_ONCE] = np.exp(-(far if squared else np.sqrt(far)) / sigma**2)
    np.fill_diagonal(L, 0)
    degrees = L.sum(axis=1, dtype=np.float64)
    root = 1 / np.sqrt(np.maximum(degrees, 1e-30))
    L *= root[:, None]
    L *= root
    return L, degrees


def labels(X: Array, sigma: float, k: int, n_init: int) -> Iterator[tuple[str, Array]]:
    """Generate the labels of each reading, with its description.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    sigma : float
        Width of the affinity.
    k : int
        Number of clusters.
    n_init : int
        Number of starts of k-means.

    Yields
    ------
    words : str
    labels : ndarray of shape (n,)
    """
    for kernel, scale in product(KERNELS, SCALES):
        rows = X if scale == SCALES[0] else X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
        L, degrees = stored_laplacian(rows, sigma, kernel == KERNELS[0])
        _, U = eigsh(L, k + MORE, which="LA", v0=np.ones(len(L), np.float32))
        for words, W in embeddings(rows, L, degrees, np.asarray(U[:, ::-1], np.float64), sigma, k):
            model = KMeans(k, n_init=n_init, max_iter=100, random_state=0)
            yield f"{kernel}; {scale}; {words}", np.asarray(model.fit(W).labels_)


def embeddings(X: Array, L: Array, degrees: Array, U: Array, sigma: float, k: int) -> Iterator[tuple[str, Array]]:
    """Generate the rows that k-means clusters, for each reading of the eigenvectors, with its description.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    L : ndarray of shape (n, n)
        Laplacian.
    degrees : ndarray of shape (n,)
        Degrees.
    U : ndarray of shape (n, k + 6)
        Leading eigenvectors.
    sigma : float
        Width of the affinity.
    k : int
        Number of clusters.

    Yields
    ------
    words : str
    W : ndarray
    """
    root = np.sqrt(np.maximum(degrees, 1e-30))[:, None]
    yield "W", U[:, :k]
    yield "W √degree", U[:, :k] * root
    yield "W / √degree", U[:, :k] / root
    yield "unit rows of W", U[:, :k] / np.maximum(np.linalg.norm(U[:, :k], axis=1, keepdims=True), 1e-30)
    yield "first vector dropped", U[:, 1 : k + 1]
    yield "first vector dropped, / √degree", U[:, 1 : k + 1] / root
    for more in (1, 2, 5):
        yield f"{more} more vectors", U[:, : k + more]
    seven = power_method(L, np.random.default_rng(0).standard_normal((len(L), k)), 7)
    yield "power method, 7 products", seven
    yield "power method, 7 products, √degree", seven * root
    *_, W = authors.run(X, L, sigma, k, 200)
    yield "200 steps of the authors' program", W
    yield "200 steps of the authors' program, √degree", W * root
