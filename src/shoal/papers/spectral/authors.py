"""Mini-batch spectral clustering as its authors ran it, which differs from the printed algorithm.

Their public program (one data set of the paper) shows: the affinity is exp(-gamma |x - y|^2), and all values of sigma in Table
1 are 1 / sqrt(gamma) for round gamma; the start is not random but a Nyström embedding from 10 rows, scaled to unit rows; N_r =
50 subsets of l = 2 columns make a gradient, without random signs, so that columns of one subset do not mix; the master step
length is 0.0025 and epsilon 1e-6; k-means, with 50 starts, runs on W times the roots of the degrees; the power p means 2 p + 1
products.

References
----------
Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from ...data.types import Array
from ...kmeans.kmeans import KMeans
from ...spectral.laplacian import Laplacian
from .letter import mini_batch_spectral, nystrom, power_method

START_ROWS = 10  # rows of the Nyström embedding that the iteration starts from
SUBSETS, COLUMNS = 50, 2  # N_r and l
STEP, EPSILON = 0.0025, 1e-6
KMEANS_STARTS = 50


def column_subsets(n: int, T: int, seed: int = 0, N_r: int = SUBSETS, l: int = COLUMNS) -> Iterator[Any]:
    """Generate the vectors r of T steps: one per column, with its only entry positive.

    Parameters
    ----------
    n : int
        Number of columns.
    T : int
        Number of steps.
    seed : int, default=0
        Seed.
    N_r, l : int
        Number of subsets per step and of columns per subset, which are drawn without replacement.

    Yields
    ------
    vectors : sparse matrix of shape (N_r l, n)
    """
    rng = np.random.default_rng(seed)
    for _ in range(T):
        ids = np.concatenate([rng.choice(n, min(l, n), replace=False) for _ in range(N_r)])
        yield sparse.csr_array((np.full(len(ids), np.sqrt(n)), ids, np.arange(len(ids) + 1)), shape=(len(ids), n))


def nystrom_embedding(X: Array, sigma: float, k: int, m: int, seed: int = 0) -> Array:
    """Return the Nyström embedding from m random rows, scaled to unit rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    sigma : float
        Width of the affinity.
    k, m : int
        Number of eigenvectors and of rows in the sample.
    seed : int, default=0
        Seed of the sample.

    Returns
    -------
    V : ndarray of shape (n, k)
    """
    order = np.random.default_rng(seed).permutation(len(X))
    some, rest = X[order[:m]], X[order[m:]]
    V = np.empty((len(X), k))
    A, B = (np.exp(-cdist(some, other, "sqeuclidean") / sigma**2) for other in (some, rest))
    V[order] = nystrom(A, B, k)
    return np.asarray(V / (np.linalg.norm(V, axis=1, keepdims=True) + 1e-20))


def run(X: Array, L: Array | Laplacian, sigma: float, k: int, T: int, seed: int = 0) -> Iterator[Array]:
    """Run T steps from the Nyström embedding and generate W after each.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    L : ndarray of shape (n, n) or Laplacian
        Normalized Laplacian of the rows.
    sigma : float
        Width of the affinity.
    k : int
        Number of eigenvectors.
    T : int
        Number of steps; 600 in the program, 200 in Table 2.
    seed : int, default=0
        Seed.

    Yields
    ------
    W : ndarray of shape (n, k)
    """
    m = max(START_ROWS, k)
    W, _ = np.linalg.qr(nystrom_embedding(X, sigma, k, m, seed))
    return mini_batch_spectral(L, W, column_subsets(len(X), T, seed), STEP, EPSILON)


def power(L: Any, k: int, p: int, seed: int = 0) -> Array:
    """Return the basis of the power method with 2 p + 1 products.

    Parameters
    ----------
    L : array or Laplacian of shape (n, n)
        Normalized Laplacian.
    k, p : int
        Number of vectors, and the power.
    seed : int, default=0
        Seed of the random start.

    Returns
    -------
    W : ndarray of shape (n, k)
    """
    n = L.n if isinstance(L, Laplacian) else len(L)
    return power_method(L, np.random.default_rng(seed).standard_normal((n, k)), 2 * p + 1)


def cluster(W: Array, degrees: Array | None, k: int, seed: int = 0, n_init: int = KMEANS_STARTS) -> Array:
    """Run k-means on the rows of W times the roots of the degrees.

    Parameters
    ----------
    W : ndarray of shape (n, k)
        Embedding.
    degrees : ndarray of shape (n,) or None
        Degrees of the rows; None to use W as it is, as for Nyström embeddings.
    k : int
        Number of clusters.
    seed : int, default=0
        Seed.
    n_init : int, default=50
        Number of starts.

    Returns
    -------
    labels : ndarray of shape (n,)
    """
    rows = W if degrees is None else W * np.sqrt(degrees)[:, None]
    return np.asarray(KMeans(k, n_init=n_init, random_state=seed).fit(rows).labels_)
