"""Mini-batch spectral clustering as printed: Algorithms 1 and 2, and the variance of the stochastic gradients.

Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346. The names are those of the
paper: Laplacian L, embedding W, random vectors r, probability p, number of vectors N_r, mini-batch size m, master step length
lambda. `shoal.MiniBatchSpectral` is the estimator for users.

Corrected: Algorithm 1 as printed lacks the minus sign of the gradient (equation 3), so that Algorithm 2 would minimize
Tr(W' L W). Left open by the paper: the master step length. The experiments here use 1 / sqrt(n), the root mean square of an
eigenvector's entries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from ...data.rows import Rows
from ...data.statistics import enter_frame
from ...data.types import Array
from ...execution.threads import on_threads
from ...fit.input import check_rows
from ...fit.random_streams import Stream, generator
from ...spectral.affinity_factory import AffinityParameters, make_kernel_affinity
from ...spectral.laplacian import Laplacian
from ...spectral.laplacian_operator import compute_degrees


def rbf_affinity(X: Array, sigma: float, *, squared: bool = True) -> Array:
    """Return the affinity matrix exp(-|x - y|^2 / sigma^2) with a zero diagonal.

    Section 4 prints it without the square, which ``squared=False`` gives. The published results need the square.
    """
    A: Array = np.exp(-cdist(X, X, "sqeuclidean" if squared else "euclidean") / sigma**2)
    np.fill_diagonal(A, 0)
    return A


def normalized_laplacian(A: Array) -> Array:
    """Return L = D^-1/2 A D^-1/2 (equation 2)."""
    d = A.sum(axis=1)
    return np.asarray(A / np.sqrt(np.outer(d, d)))


@contextlib.contextmanager
def laplacian_by_columns(X: Any, sigma: float, degree_columns: int | None = None, seed: int = 0) -> Iterator[Laplacian]:
    """Provide the L of rows without storing it: its columns are computed when they are used (MBSC-E, section 4.2).

    If `degree_columns` is given, the degrees are estimated from that many random columns.
    """
    with on_threads(Rows.of(check_rows(None, X, reset=False)), None) as rows:
        rows, _ = enter_frame(rows)
        affinity, _ = make_kernel_affinity(rows, AffinityParameters("rbf", sigma), 1, seed)
        yield Laplacian(affinity, compute_degrees(affinity, degree_columns, seed)[0])


def random_vectors(n: int, p: float, N_r: int, T: int, seed: int = 0) -> Iterator[Any]:
    """Generate the vectors r of T steps, as sparse matrices of shape (N_r, n) with a vector per row.

    Entries are -p^-1/2, 0 and p^-1/2 with probabilities p/2, 1 - p and p/2 (section 3.2), so that E[r r'] = I.
    """
    for t in range(T):
        rng = generator(seed, Stream.PROBE_SIGNS, t)
        counts = rng.binomial(n, p, size=N_r)
        ids = np.concatenate([rng.choice(n, count, replace=False, shuffle=False) for count in counts])
        yield _sparse_vectors(ids, counts, np.full(len(ids), p), n, rng)


def shuffled_vectors(n: int, m: int, N_r: int, T: int, seed: int = 0) -> Iterator[Any]:
    """Generate the vectors r of T steps, as `random_vectors` does, from mini-batches of shuffled columns (section 3.2).

    A step uses m columns, each in one of the N_r vectors, and no column is used again before n // m steps have been made. A
    vector with l entries that are not zero has p = l / n.
    """
    for t in range(T):
        epoch, place = divmod(t, max(n // m, 1))
        ids = generator(seed, Stream.PROBE_ORDER, epoch).permutation(n)[place * m :][:m]
        counts = np.diff(np.arange(N_r + 1) * len(ids) // N_r)
        yield _sparse_vectors(ids, counts, np.repeat(counts, counts) / n, n, generator(seed, Stream.PROBE_SIGNS, t))


def _sparse_vectors(ids: Array, counts: Array, p: Array, n: int, rng: np.random.Generator) -> Any:
    """Return vectors with these numbers of entries that are not zero, at `ids`, with random signs."""
    entries = np.where(rng.random(len(ids)) < 0.5, -1.0, 1.0) / np.sqrt(p)
    return sparse.csr_array((entries, ids, np.r_[0, np.cumsum(counts)]), shape=(len(counts), n))


def htild(L: Array | Laplacian, vectors: Any, W: Array) -> Array:
    """Return the stochastic Riemannian gradient of -1/2 Tr(W' L W) (Algorithm 1, and equations 4 and 7).

    Only the columns of L at which a vector is not zero are used.

    Parameters
    ----------
    L : ndarray of shape (n, n) or Laplacian
        Normalized Laplacian, in memory or computed by the column (`laplacian_by_columns`).
    vectors : sparse matrix of shape (N_r, n)
        The vectors r, one per row.
    W : ndarray of shape (n, k)
        Orthonormal columns.

    Returns
    -------
    H : ndarray of shape (n, k)
    """
    ids = np.unique(vectors.indices)
    B = (vectors.T @ (vectors @ W))[ids] / vectors.shape[0]
    G = -(L.times(B, ids) if isinstance(L, Laplacian) else (B.T @ L[ids]).T)  # L is symmetric, and its rows are contiguous
    return np.asarray(G - W @ (W.T @ G))


def mini_batch_spectral(
    L: Array | Laplacian, W: Array, batches: Iterable[Any], lambda_: float, epsilon: float = 1e-10
) -> Iterator[Array]:
    """Run Algorithm 2 without its last line: generate W after each step. K-means on the rows of the last W gives the labels.

    Parameters
    ----------
    L : ndarray of shape (n, n) or Laplacian
        Normalized Laplacian, in memory or computed by the column (`laplacian_by_columns`).
    W : ndarray of shape (n, k)
        Initial vectors, orthonormal; random in the paper.
    batches : iterable of sparse matrix of shape (N_r, n)
        The vectors r of each step. See `random_vectors` and `shuffled_vectors`.
    lambda_ : float
        Master step length.
    epsilon : float, default=1e-10
        Regularization factor of AdaGrad.

    Yields
    ------
    W : ndarray of shape (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.papers.spectral import (
    ...     mini_batch_spectral, normalized_laplacian, random_vectors, rbf_affinity
    ... )
    >>> X = np.repeat([[0.0], [9.0]], 20, axis=0) + np.linspace(0, 1, 40)[:, None]
    >>> L = normalized_laplacian(rbf_affinity(X, sigma=3.0))
    >>> W, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 2)))
    >>> *_, W = mini_batch_spectral(L, W, random_vectors(40, p=0.2, N_r=4, T=100), lambda_=40**-0.5)
    >>> bool(np.trace(W.T @ L @ W) > 1.98)  # the two largest eigenvalues are 1
    True
    """
    W = np.asarray(W, np.float64)
    M = np.zeros_like(W)
    for vectors in batches:
        H = htild(L, vectors, W)
        M += H**2
        Q, R = np.linalg.qr(W - lambda_ * H / (epsilon + np.sqrt(M)))
        W = Q * np.where(np.diag(R) < 0, -1, 1)  # the Q of a QR decomposition whose R has a positive diagonal
        yield W


NEGLIGIBLE = 1e-10  # eigenvalue, relative to the largest, below which a direction is left out of an inverse


def step_cost(n: int, k: int, m: int) -> int:
    """Return the floating-point operations of a step, given the affinities (section 4.1)."""
    return 2 * n * k * m + 6 * n * k**2 - k**2


def gradient_variance(L: Any, w: Any, p: float, N_r: int = 1) -> Array:
    """Return the variance of each entry of the stochastic gradient of one column w of W (section 3.3 and the supplement).

    The gradient is the mean of L r r' w over N_r vectors of `random_vectors`. Its variance is
    ((L w)^2 + (1/p - 3) L^2 w^2 + |w|^2 L^2 1) / N_r, where L^2 and w^2 are squared entry by entry.

    Parameters
    ----------
    L : array-like of shape (n, n)
        Normalized Laplacian.
    w : array-like of shape (n,)
        Column of W.
    p : float
        Probability of an entry that is not zero.
    N_r : int, default=1
        Number of vectors.

    Returns
    -------
    variance : ndarray of shape (n,)

    Examples
    --------
    >>> from shoal.papers.spectral import gradient_variance
    >>> gradient_variance([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], p=0.5)
    array([1., 1.])
    """
    L, w = np.asarray(L, np.float64), np.asarray(w, np.float64)
    if L.ndim != 2 or w.shape != (len(L),) or L.shape != (len(L), len(L)):
        raise ValueError(f"L must be square and w have an entry for each of its columns, but they are {L.shape} and {w.shape}.")
    if not 0 < p <= 1 or N_r < 1:
        raise ValueError(f"p must lie in (0, 1] and N_r be 1 or more, but they are {p} and {N_r}.")
    squares = L**2
    return np.asarray(((L @ w) ** 2 + (1 / p - 3) * squares @ w**2 + squares.sum(axis=1) * (w @ w)) / N_r)


def power_method(L: Any, S: Array, p: int) -> Array:
    """Return the left singular vectors of L^p S, an orthonormal basis of the dominant eigenvectors (Boutsidis et al. 2015).

    Parameters
    ----------
    L : array or Laplacian of shape (n, n)
        Normalized Laplacian.
    S : ndarray of shape (n, k)
        Random Gaussian matrix.
    p : int
        Number of products with L.

    Returns
    -------
    W : ndarray of shape (n, k)
    """
    B = S
    for _ in range(p):
        B = product(L, B)
    return np.asarray(np.linalg.svd(B, full_matrices=False)[0])


def product(L: Any, B: Array) -> Array:
    """Return L B, for L in memory or computed by the column.

    Parameters
    ----------
    L : array or Laplacian of shape (n, n)
        Normalized Laplacian.
    B : ndarray of shape (n, k)
        Factor.

    Returns
    -------
    LB : ndarray of shape (n, k)
    """
    return np.asarray(L.times(B) if isinstance(L, Laplacian) else L @ B)


def nystrom(A: Array, B: Array, k: int) -> Array:
    """Return orthonormal eigenvectors of the Nyström approximation, by the one-shot method (Fowlkes et al. 2004).

    Parameters
    ----------
    A : ndarray of shape (m, m)
        Affinities of the sample, with ones on the diagonal: with the zeros that section 4 prints, A would not be positive
        definite, and its root does not exist. Directions of negligible eigenvalue are left out of the inverse.
    B : ndarray of shape (m, n - m)
        Affinities of the sample to all other rows.
    k : int
        Number of eigenvectors.

    Returns
    -------
    V : ndarray of shape (n, k)
        The rows of the sample come first.
    """
    m = len(A)
    inverse = np.linalg.pinv(A, rcond=NEGLIGIBLE, hermitian=True)
    d = np.r_[A.sum(axis=1) + B.sum(axis=1), B.sum(axis=0) + B.T @ (inverse @ B.sum(axis=1))]
    d = np.sqrt(1 / np.maximum(d, NEGLIGIBLE))  # estimated degrees may be negative by rounding
    A, B = A * np.outer(d[:m], d[:m]), B * np.outer(d[:m], d[m:])
    values, vectors = np.linalg.eigh(A)
    kept = values > NEGLIGIBLE * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept]) @ vectors[:, kept].T
    R = A + root @ (B @ B.T) @ root
    values, U = np.linalg.eigh((R + R.T) / 2)
    values, U = values[::-1][:k], U[:, ::-1][:, :k]
    return np.asarray(np.vstack([A, B.T]) @ root @ U / np.sqrt(np.maximum(values, NEGLIGIBLE)))


def nystrom_cost(n: int, k: int, m: int) -> int:
    """Return the floating-point operations of `nystrom`, given the affinities (section 4.1).

    Parameters
    ----------
    n, k, m : int
        Numbers of rows, eigenvectors and rows in the sample.

    Returns
    -------
    operations : int
    """
    return 6 * n * k + 8 * k**3 - 3 * k**2 + 4 * n * k**2 - 3 * k + 2 * n * k * m + n * m + 2 * n * m**2 + m**2 + m**3 - n


def power_cost(n: int, k: int, p: int) -> int:
    """Return the floating-point operations of `power_method` with p products, given the affinities (section 4.1).

    The paper states 4 n^2 k - 2 n k, which are two products; a product is half of that.

    Parameters
    ----------
    n, k, p : int
        Numbers of rows, eigenvectors and products.

    Returns
    -------
    operations : int
    """
    return p * (2 * n**2 * k - n * k) + 2 * n * k**2 + 2 * k**3
