"""Compressed k-means exactly as printed, with its two stages, and k-means on random codes, its rival.

Letters and equation numbers are those of the paper: rows X (n, d), hyperplanes W (d, r), codes C (k, r) of the clusters, E and
H (n, r) of the rows, labels G (n). Codes are -1 and +1 in the paper and bits here; Hamming distances are computed on packed
bits. `shoal.CompressedKMeans` is the estimator for users.

Left open by the paper, with the choice made here: the sign of zero is -1, as below (6); a cluster without rows keeps its code;
the gradient on a small batch is the sum over its rows; x~ in (14) is x; (12) and (13) alternate until no label changes;
Algorithm 1 has converged once the upper bound has not reached a new minimum during one pass over the subset, or at least 10
rounds. `Reading` has the other readings of what the paper leaves open.

References
----------
X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.
Y. Gong et al. (2015), Web scale photo hash clustering on a single machine, CVPR (bk-means).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...data.types import Array
from ...kernels import bits, kernel

BATCH_SIZE = 128  # rows per gradient, as in the paper
MAX_ROUNDS = 1000  # of Algorithm 1
MIN_ROUNDS = 10  # rounds without a new minimum of the upper bound after which Algorithm 1 has converged
MAX_CLUSTER_STEPS = 300  # of (12) and (13)


class Reading(NamedTuple):
    """One reading of what the paper leaves open. The defaults are the letter."""

    gradient: str = "sum"  # of (14) over a batch: "sum" or "mean"
    alpha_in_gradient: bool = False  # (14) is the gradient of (8) divided by alpha
    clusters_on: str = "e"  # codes that (12) and (13) cluster: "e" as printed, or "h"
    bias: bool = False  # x~ = (x, 1)
    project_first: bool = False  # apply (15) before the first round
    batches_per_round: int = 1  # gradient steps between two updates of C and G
    majority: bool = False  # the second stage begins with the majorities of h instead of C


LETTER = Reading()


class Round(NamedTuple):
    """Variables after one round of Algorithm 1."""

    W: Array  # (d, r)
    C: Array  # (k, r) bool
    G: Array  # (n) int32: cluster of each row
    upper_bound: float  # surrogate objective (8) per row
    loss: float  # objective (5) per row
    steps: int  # of (12) and (13) in the round


class Compressed(NamedTuple):
    """Result of both stages."""

    W: Array  # (d, r)
    C: Array  # (k, r) bool
    G: Array  # (n) int32
    upper_bounds: list[float]  # after each round of the first stage, per row
    losses: list[float]
    steps: tuple[int, int]  # of (12) and (13) in both stages


@kernel
def _votes(
    E,  # IN (n, r) bool
    G,  # IN (n)
    votes,  # ADD (k, r): rows of the cluster with the bit set minus those without
    sizes,  # ADD (k)
):
    """Add up the codes of each cluster (equation 12)."""
    for i in range(E.shape[0]):
        sizes[G[i]] += 1
        for t in range(E.shape[1]):
            votes[G[i], t] += 1 if E[i, t] else -1


def pack(B: Array) -> Array:
    """Pack bits into words of 32 or 64 bits.

    Parameters
    ----------
    B : ndarray of shape (n, r), bool
        Codes. Up to 32 bits are packed into one word of 32.

    Returns
    -------
    words : ndarray of shape (n, n_words), uint32 or uint64
    """
    size = 32 if B.shape[1] <= 32 else 64
    full = np.zeros((len(B), -(-B.shape[1] // size) * size), bool)
    full[:, : B.shape[1]] = B
    return np.packbits(full, axis=1, bitorder="little").view(np.uint32 if size == 32 else np.uint64)


def assign(words: Array, C: Array) -> tuple[Array, Array]:
    """Return the nearest code of each row and the Hamming distance to it (equation 13).

    Parameters
    ----------
    words : ndarray of shape (n, n_words)
        Packed codes of the rows. See `pack`.
    C : ndarray of shape (k, r), bool
        Codes of the clusters.

    Returns
    -------
    G : ndarray of shape (n,), int32
        Of equally near codes, the first.
    distances : ndarray of shape (n,), int32
        Number of bits that differ; a quarter of (3).
    """
    words = words.astype(np.uint64, copy=False)  # one compiled form for both sizes
    G, distances = np.empty(len(words), np.int32), np.empty(len(words), np.int32)
    bits.nearest(words, np.ascontiguousarray(pack(C).astype(np.uint64).T), G, distances)
    return G, distances


def majority(E: Array, G: Array, C: Array) -> Array:
    """Return the codes of the clusters, the sign of the sum of their rows' codes (equation 12).

    Parameters
    ----------
    E : ndarray of shape (n, r), bool
        Codes of the rows.
    G : ndarray of shape (n,)
        Clusters of the rows.
    C : ndarray of shape (k, r), bool
        Codes that clusters without rows keep.

    Returns
    -------
    C : ndarray of shape (k, r), bool
    """
    votes, sizes = np.zeros(C.shape, np.int64), np.zeros(len(C), np.int64)
    _votes(E, G, votes, sizes)
    return np.where((sizes > 0)[:, None], votes > 0, C)


def bk_means(B: Array, C: Array, max_iter: int = MAX_CLUSTER_STEPS) -> Iterator[tuple[Array, Array]]:
    """Run k-means on codes: alternate (13) and (12) until no label changes, and generate codes C and labels G of each step.

    Parameters
    ----------
    B : ndarray of shape (n, r), bool
        Codes of the rows.
    C : ndarray of shape (k, r), bool
        Initial codes of the clusters.
    max_iter : int
        Maximum number of steps.

    Yields
    ------
    C : ndarray of shape (k, r), bool
    G : ndarray of shape (n,), int32
    """
    words, last = pack(B), None
    for _ in range(max_iter):
        G, _ = assign(words, C)
        C = majority(B, G, C)
        yield C, G
        if last is not None and np.array_equal(G, last):
            return
        last = G


def lsh(d: int, r: int, seed: int = 0) -> Array:
    """Draw a random Gaussian matrix, whose columns are hyperplanes through the origin (line 1).

    Parameters
    ----------
    d : int
        Number of columns of the rows.
    r : int
        Number of bits.
    seed : int, default=0
        Seed.

    Returns
    -------
    W : ndarray of shape (d, r)
    """
    return np.random.default_rng(seed).standard_normal((d, r))


def encode(X: Any, W: Array) -> Array:
    """Return the codes H of rows, as bits (equations 2 and 6).

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows.
    W : ndarray of shape (d, r)
        Hyperplanes.

    Returns
    -------
    H : ndarray of shape (n, r), bool
    """
    return _products(X, W) > 0


def loss_augmented(F: Array, own: Array, alpha: float) -> Array:
    """Return the loss-augmented codes E, as bits (equation 10).

    Parameters
    ----------
    F : ndarray of shape (n, r)
        Products of rows and hyperplanes.
    own : ndarray of shape (n, r), bool
        Codes of the clusters of the rows, C G.
    alpha : float
        Weight of the products.

    Returns
    -------
    E : ndarray of shape (n, r), bool
    """
    return np.asarray(alpha * F > np.where(own, 2, -2))


def project(W: Array, nu: float) -> Array:
    """Shorten hyperplanes to a norm of at most the root of nu (equation 15).

    Parameters
    ----------
    W : ndarray of shape (d, r)
        Hyperplanes.
    nu : float
        Maximum squared norm.

    Returns
    -------
    W : ndarray of shape (d, r)
    """
    norms = np.linalg.norm(W, axis=0)
    return np.asarray(np.minimum(1, np.sqrt(nu) / np.where(norms > 0, norms, 1)) * W)


def objectives(F: Array, own: Array, alpha: float) -> tuple[float, float]:
    """Return the surrogate objective (8) and the objective (5), per row.

    Parameters
    ----------
    F : ndarray of shape (n, r)
        Products of rows and hyperplanes.
    own : ndarray of shape (n, r), bool
        Codes of the clusters of the rows.
    alpha : float
        Weight of the products.

    Returns
    -------
    upper_bound, loss : float
    """
    E, H = loss_augmented(F, own, alpha), F > 0
    bound = 4 * (own != E).sum() + 2 * alpha * (F * (E.astype(np.int8) - H)).sum(dtype=np.float64)
    return float(bound) / len(F), 4 * float((own != H).sum()) / len(F)


def random_batches(n: int, n_batches: int, seed: int) -> Iterator[Array]:
    """Generate the row indices of each batch, drawn without replacement.

    Parameters
    ----------
    n : int
        Number of rows of the subset.
    n_batches : int
        Number of batches.
    seed : int
        Seed.

    Yields
    ------
    batch : ndarray of shape (min(n, 128),)
    """
    rng = np.random.default_rng(seed)
    for _ in range(n_batches):
        yield rng.choice(n, min(n, BATCH_SIZE), replace=False)


def algorithm_1(
    X: Any, W: Array, C: Array, batches: Iterable[Array], alpha: float, nu: float, eta: float, reading: Reading = LETTER
) -> Iterator[Round]:
    """Run Algorithm 1 from initial W and C (lines 4 to 9) and generate its rounds.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows of the subset; with `reading.bias`, with a last column of ones.
    W : ndarray of shape (d, r)
        Initial hyperplanes. See `lsh`.
    C : ndarray of shape (k, r), bool
        Initial codes of the clusters.
    batches : iterable of ndarray of int
        Rows of each gradient step. See `random_batches`.
    alpha, nu, eta : float
        Weight of the products, maximum squared norm of a hyperplane, and learning rate.
    reading : Reading
        What the paper leaves open.

    Yields
    ------
    state : Round
    """
    if reading.project_first:
        W = project(W, nu)
    F = _products(X, W)
    G, _ = assign(pack(F > 0), C)  # the paper does not say which labels (10) begins with
    for t, batch in enumerate(batches, 1):
        if (t - 1) % reading.batches_per_round == 0:
            E = loss_augmented(F, C[G], alpha) if reading.clusters_on == "e" else F > 0  # line 5
            path = list(bk_means(E, C))  # line 6
            (C, G), steps = path[-1], len(path)
        W = project(descend(X[batch], W, C[G[batch]], alpha, eta, reading), nu)  # lines 7 and 8
        if t % reading.batches_per_round == 0:
            F = _products(X, W)
            yield Round(W, C, G, *objectives(F, C[G], alpha), steps)


def descend(X: Any, W: Array, own: Array, alpha: float, eta: float, reading: Reading = LETTER) -> Array:
    """Take a gradient step on a batch (equation 14).

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (m, d)
        Rows of the batch.
    W : ndarray of shape (d, r)
        Hyperplanes.
    own : ndarray of shape (m, r), bool
        Codes of the clusters of the rows.
    alpha, eta : float
        Weight of the products and learning rate.
    reading : Reading
        What the paper leaves open.

    Returns
    -------
    W : ndarray of shape (d, r)
    """
    F = _products(X, W)
    differences = 2 * (loss_augmented(F, own, alpha).astype(np.float64) - (F > 0))  # e - h
    scale = eta * (alpha if reading.alpha_in_gradient else 1) / (X.shape[0] if reading.gradient == "mean" else 1)
    return np.asarray(W - scale * (X.T @ differences))


def until_converged(rounds: Iterable[Round], patience: int) -> Iterator[Round]:
    """Generate rounds until the upper bound has not reached a new minimum during this many rounds.

    Parameters
    ----------
    rounds : iterable of Round
        Rounds of `algorithm_1`.
    patience : int
        Number of rounds.

    Yields
    ------
    state : Round
    """
    least, since = np.inf, 0
    for state in rounds:
        yield state
        least, since = (state.upper_bound, 0) if state.upper_bound < least else (least, since + 1)
        if since >= patience:
            return


def ckm(
    X: Any,
    k: int,
    r: int,
    *,
    alpha: float = 10.0,
    nu: float = 1.0,
    eta: float = 0.001,
    beta: float = 0.01,
    seed: int = 0,
    reading: Reading = LETTER,
) -> Compressed:
    """Run compressed k-means: Algorithm 1 on a random subset of beta n rows, then k-means on the codes of all rows.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows, as they are: the paper does not center or scale them.
    k : int
        Number of clusters.
    r : int
        Number of bits.
    alpha, nu, eta : float
        Weight of the products, maximum squared norm of a hyperplane, and learning rate.
    beta : float
        Fraction of the rows in the subset. The subset has k rows at least, which line 3 needs.
    seed : int
        Seed of the subset, the hyperplanes, the initial codes and the batches.
    reading : Reading
        What the paper leaves open.

    Returns
    -------
    result : Compressed

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.papers import compressed
    >>> X = np.random.default_rng(0).normal(size=(300, 2)) + 50 * np.eye(2)[np.arange(300) % 2]
    >>> np.bincount(compressed.ckm(X, 2, 16, beta=0.2).G)
    array([150, 150])
    """
    rng, n = np.random.default_rng(seed), X.shape[0]
    X = with_ones(X) if reading.bias else X
    subset = X[rng.choice(n, max(k, round(beta * n)), replace=False)]
    W = lsh(X.shape[1], r, seed)
    C = encode(subset, W)[rng.choice(subset.shape[0], k, replace=False)]  # lines 2 and 3
    rounds_per_pass = -(-subset.shape[0] // BATCH_SIZE // reading.batches_per_round)
    batches = random_batches(subset.shape[0], MAX_ROUNDS * reading.batches_per_round, seed)
    rounds = list(
        until_converged(algorithm_1(subset, W, C, batches, alpha, nu, eta, reading), max(rounds_per_pass, MIN_ROUNDS))
    )
    last = rounds[-1]
    start = majority(encode(subset, last.W), last.G, last.C) if reading.majority else last.C
    path = list(bk_means(encode(X, last.W), start))
    bounds, losses = [state.upper_bound for state in rounds], [state.loss for state in rounds]
    return Compressed(last.W, *path[-1], bounds, losses, (sum(state.steps for state in rounds), len(path)))


def lsh_bk_means(X: Any, k: int, r: int, *, seed: int = 0) -> Array:
    """Run k-means on codes of random hyperplanes through the origin, "LSH + bk-means".

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows.
    k : int
        Number of clusters.
    r : int
        Number of bits.
    seed : int, default=0
        Seed of the hyperplanes and of the initial codes, those of random rows.

    Returns
    -------
    G : ndarray of shape (n,), int32
    """
    B = encode(X, lsh(X.shape[1], r, seed))
    *_, (_, G) = bk_means(B, B[np.random.default_rng(seed).choice(len(B), k, replace=False)])
    return G


def with_ones(X: Any) -> Any:
    """Append a column of ones, so that hyperplanes need not pass through the origin.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows.

    Returns
    -------
    X : ndarray or sparse matrix of shape (n, d + 1)
    """
    if hasattr(X, "toarray"):
        from scipy import sparse

        return sparse.csr_array(sparse.hstack([X, sparse.csr_array(np.ones((X.shape[0], 1), X.dtype))]))
    return np.concatenate([X, np.ones((len(X), 1), X.dtype)], axis=1)


def _products(X: Any, W: Array) -> Array:
    """Return W' x for each row, in the precision of floating-point rows."""
    return np.asarray(X @ W.astype(X.dtype if X.dtype.kind == "f" else np.float64))
