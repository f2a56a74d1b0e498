"""Spectral rivals of compressed k-means, as their authors have them: LSC-K, and Nyström with orthogonalization.

References
----------
X. Chen, D. Cai (2011), Large scale spectral clustering with landmark-based representation, AAAI.
W.-Y. Chen, Y. Song, H. Bai, C.-J. Lin, E. Y. Chang (2011), Parallel spectral clustering in distributed systems, TPAMI.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ...data.types import Array
from ...kmeans.kmeans import KMeans

LANDMARK_STEPS = 5  # of the k-means that selects landmarks, as in the authors' program
ROWS_AT_ONCE = 5000  # rows whose distances to the landmarks are in memory at a time


def squared_distances(X: Any, C: Array) -> Array:
    """Return the squared distances of rows, dense or sparse, to centers.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows.
    C : ndarray of shape (m, d)
        Centers.

    Returns
    -------
    distances : ndarray of shape (n, m)
    """
    squares = X.power(2).sum(axis=1) if hasattr(X, "power") else np.einsum("ij,ij->i", X, X)
    found = np.asarray(squares).reshape(-1, 1) - 2 * np.asarray(X @ C.T.astype(X.dtype)) + np.einsum("ij,ij->i", C, C)
    return np.asarray(np.maximum(found, 0), np.float64)


def representation(X: Any, landmarks: Array, r: int) -> Any:
    """Return the weights Z of the r nearest landmarks of each row, which add up to one.

    The weight is exp(-d^2 / (2 sigma^2)) up to the scale. As in the authors' program, sigma is one number, the mean of all
    squared distances.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows.
    landmarks : ndarray of shape (p, d)
        Landmarks.
    r : int
        Number of landmarks per row.

    Returns
    -------
    Z : sparse matrix of shape (n, p)
    """
    n, near, far, total = X.shape[0], [], [], 0.0
    for start in range(0, n, ROWS_AT_ONCE):
        D = squared_distances(X[start : start + ROWS_AT_ONCE], landmarks)
        total += D.sum()
        ids = np.argsort(D, axis=1, kind="stable")[:, :r]
        near.append(ids)
        far.append(np.take_along_axis(D, ids, axis=1))
    D, sigma = np.concatenate(far), total / (n * len(landmarks))
    weights = np.exp(
        -(D - D[:, :1]) / (2 * max(sigma, 1e-300) ** 2)
    )  # the shift cancels, and keeps small weights from vanishing
    weights /= weights.sum(axis=1, keepdims=True)
    return sparse.csr_array((weights.ravel(), np.concatenate(near).ravel(), np.arange(0, n * r + 1, r)), (n, len(landmarks)))


def lsc_embedding(Z: Any, k: int) -> Array:
    """Return k of the k + 1 leading left singular vectors of the scaled weights, without the first, as unit rows.

    Parameters
    ----------
    Z : sparse matrix of shape (n, p)
        Weights.
    k : int
        Number of clusters.

    Returns
    -------
    U : ndarray of shape (n, k)
    """
    Z = Z @ sparse.diags_array(1 / np.maximum(np.sqrt(np.asarray(Z.sum(axis=0)).ravel()), 1e-12))
    values, V = np.linalg.eigh((Z.T @ Z).toarray())
    V, values = V[:, ::-1][:, 1 : k + 1], values[::-1][1 : k + 1]
    U = np.asarray(Z @ V) / np.sqrt(np.maximum(values, 1e-12))
    return unit_rows(U)


def unit_rows(U: Array) -> Array:
    """Scale rows to unit length; zero rows stay zero.

    Parameters
    ----------
    U : ndarray of shape (n, k)
        Rows.

    Returns
    -------
    U : ndarray of shape (n, k)
    """
    norms = np.linalg.norm(U, axis=1, keepdims=True)
    return np.asarray(U / np.where(norms > 0, norms, 1))


def lsc_k(X: Any, k: int, *, p: int = 500, r: int = 6, seed: int = 0) -> Array:
    """Run LSC-K, landmark-based spectral clustering with landmarks by k-means.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows.
    k : int
        Number of clusters.
    p : int, default=500
        Number of landmarks.
    r : int, default=6
        Number of landmarks per row.
    seed : int, default=0
        Seed.

    Returns
    -------
    labels : ndarray of shape (n,)
    """
    start = KMeans(p, init="random", n_init=1, max_iter=LANDMARK_STEPS, algorithm="lloyd", random_state=seed).fit(X)
    U = lsc_embedding(representation(X, start.cluster_centers_, r), k)
    return np.asarray(KMeans(k, init="random", n_init=10, max_iter=100, random_state=seed).fit(U).labels_)
