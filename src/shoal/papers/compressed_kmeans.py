"""Compressed k-means exactly as the paper states it, as functions of arrays.

X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI. Equation numbers and
letters are those of the paper: rows X (n, d), hyperplanes W (d, r), codes C (k, r) of the clusters and H, E (n, r) of the rows,
all codes of -1 and +1. `shoal.CompressedKMeans` is the estimator for users.

Left open by the paper: a gradient is the sum over its batch; bits with tied votes keep their value; an empty cluster moves to
the row with the largest error; learning converges when the upper bound falls by less than a tenth over as many batches as cover
the subset. Differs from the paper: rows are centered, because all rows on one side of the origin would have similar codes, and
the subset has at least 5000 rows and 10 per cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..binary import hamming
from ..binary.binary_kmeans import BinaryKMeans
from ..binary.code_learner import MIN_SUBSET, MIN_SUBSET_PER_CLUSTER
from ..binary.codes import Codes
from ..binary.linear_code import LinearCode
from ..binary.sample import Centered, draw
from ..binary.seeding import random_codes
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.sources import find_source
from ..data.types import Array, is_sparse
from ..execution.threads import on_threads
from ..fit import partition
from ..fit.random_streams import Stream, generator
from ..kernels.learning import bound_and_loss

BATCH_SIZE = 128  # rows per gradient, as in the paper
MAX_ROUNDS = 300  # of Algorithm 1
MAX_CLUSTER_STEPS = 300  # of (12) and (13) in a round
MIN_DECREASE = 0.1  # relative decrease of the upper bound over one pass below which learning has converged


class Round(NamedTuple):
    """Variables after one round of Algorithm 1."""

    W: Array  # (d, r)
    C: Array  # (k, r) of -1 and +1
    labels: Array  # (n) int: the cluster of each row, as G in the paper
    upper_bound: float  # surrogate objective (8), in bits per row: a quarter of squared distances
    loss: float  # objective (5), in bits per row


class CompressedResult(NamedTuple):
    """Result of both stages."""

    code: LinearCode
    centers: Array  # (k, r) bool
    labels: Array  # (n) int
    upper_bounds: list[float]  # after each round of the first stage, in bits per row
    losses: list[float]


def compressed_kmeans(
    X: Any, k: int, r: int, *, alpha: float = 10.0, nu: float = 1.0, eta: float = 0.001, beta: float = 0.01, seed: int = 0
) -> CompressedResult:
    """Run the two stages: Algorithm 1 on a random subset, then k-means on the codes of all rows.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
        Rows to cluster.
    k : int
        Number of clusters.
    r : int
        Number of bits per code.
    alpha, nu, eta : float
        Weight of the products with the hyperplanes, maximum squared norm of a hyperplane, and learning rate.
    beta : float
        Fraction of the rows in the subset.
    seed : int
        Seed of the subset, the hyperplanes, the initial codes and the batches.

    Returns
    -------
    CompressedResult
        Code, clusters, and the curves of the first stage.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.papers.compressed_kmeans import compressed_kmeans
    >>> X = np.random.default_rng(0).normal(size=(300, 2)) + 50 * (np.arange(300)[:, None] % 2)
    >>> np.bincount(compressed_kmeans(X, 2, 16).labels)
    array([150, 150])
    """
    with on_threads(Rows.of(find_source(X)), None) as rows:
        size = max(MIN_SUBSET, MIN_SUBSET_PER_CLUSTER * k, int(np.ceil(beta * len(rows))))
        subset = draw(rows, size, generator(seed, Stream.CODE_SAMPLE))
        centered = center(subset.raw, subset.mean, rows.dtype)
        n_batches = -(-len(subset.weights) // BATCH_SIZE)
        batches = random_batches(len(subset.weights), MAX_ROUNDS, seed)
        W, C = random_start(centered, k, r, seed)
        rounds = list(until_converged(algorithm_1(centered, W, C, batches, alpha, nu, eta), n_batches))
    code = LinearCode(subset.mean, rounds[-1].W.astype(np.float32))
    model = BinaryKMeans(k, init=rounds[-1].C > 0).fit(code.encode(X))
    bounds, losses = [state.upper_bound for state in rounds], [state.loss for state in rounds]
    return CompressedResult(code, model.cluster_centers_, model.labels_, bounds, losses)


def center(X: Any, mean: Array, dtype: np.dtype) -> Centered:
    """Return X - mean, where sparse rows stay sparse."""
    weights = np.ones(X.shape[0])
    if is_sparse(X):
        return Centered(X.astype(dtype), weights, mean.astype(dtype))
    return Centered(np.subtract(X, mean).astype(dtype), weights)


def random_start(X: Centered, k: int, r: int, seed: int) -> tuple[Array, Array]:
    """Draw W from a normal distribution (LSH) and C from the codes of the rows (lines 1 to 3)."""
    dtype = X.A.dtype
    W = generator(seed, Stream.CODE_DIRECTIONS).standard_normal((X.A.shape[1], r)).astype(dtype)
    codes = Rows.of(Codes.pack(X.along(W)), None, Frame.of("hamming"))
    return W, _plus_minus(random_codes(codes, k, generator(seed, Stream.CODE_CENTERS, 0)), dtype)


def random_batches(n: int, n_batches: int, seed: int) -> Iterator[Array]:
    """Generate the row indices of each batch, without replacement."""
    for t in range(n_batches):
        rng = generator(seed, Stream.CODE_BATCHES, 0, t)
        yield np.arange(n) if n <= BATCH_SIZE else rng.choice(n, BATCH_SIZE, replace=False, shuffle=False)


def algorithm_1(
    X: Array | Centered, W: Array, C: Array, batches: Iterable[Array], alpha: float, nu: float, eta: float
) -> Iterator[Round]:
    """Generate the rounds of Algorithm 1, one per batch, from initial hyperplanes W and codes C of the clusters."""
    X = X if isinstance(X, Centered) else Centered(X, np.ones(len(X)))
    F = X.along(W)
    labels = assign(F > 0, C)
    C, labels = learn_clusters(F, C, labels, alpha)
    for batch in batches:
        W = project(descend(X.take(batch), W, C[labels[batch]], alpha, eta), nu)
        F = X.along(W)
        C, labels = learn_clusters(F, C, labels, alpha)
        bound, loss = bound_and_loss(F, C, labels, X.weights, alpha)
        yield Round(W, C, labels, bound / len(F), loss / len(F))


def until_converged(rounds: Iterable[Round], n_batches: int) -> Iterator[Round]:
    """Generate rounds until the upper bound has hardly decreased over one pass of `n_batches` batches."""
    bounds: list[float] = []
    for state in rounds:
        yield state
        bounds.append(state.upper_bound)
        if len(bounds) > n_batches and bounds[-1] >= (1 - MIN_DECREASE) * bounds[-1 - n_batches]:
            return


def sign(F: Array) -> Array:
    """Return the codes H of rows whose products with W are F (equation 6)."""
    H: Array = np.where(F > 0, F.dtype.type(1), F.dtype.type(-1))
    return H


def _plus_minus(bits: Array, dtype: np.dtype) -> Array:
    """Return bits as codes of -1 and +1."""
    return sign(2 * bits.astype(dtype) - 1)


def loss_augmented(F: Array, CG: Array, alpha: float) -> Array:
    """Return the loss-augmented codes E of rows whose clusters have the codes CG (equation 10)."""
    return sign(alpha * F - 2 * CG)


def learn_clusters(F: Array, C: Array, labels: Array, alpha: float) -> tuple[Array, Array]:
    """Update C and G by k-means on the loss-augmented codes (lines 5 and 6)."""
    return binary_kmeans(loss_augmented(F, C[labels], alpha) > 0, C)


@contextlib.contextmanager
def _rows_of_bits(B: Array) -> Iterator[Rows]:
    """Open bits as packed rows with the Hamming distance."""
    with on_threads(Rows.of(Codes.pack(B), None, Frame.of("hamming")), None) as rows:
        yield rows


def assign(B: Array, C: Array) -> Array:
    """Return the nearest code of each row of bits (equation 13)."""
    with _rows_of_bits(B) as rows:
        state = partition.initial_partition(rows, (C > 0).astype(rows.dtype))
        return partition.label(rows, state, hamming.assign).labels


def binary_kmeans(B: Array, C: Array) -> tuple[Array, Array]:
    """Alternate (12) and (13) on rows of bits until no code changes."""
    with _rows_of_bits(B) as rows:
        solver = hamming.HammingSolver(rows)
        state = solver.init((C > 0).astype(rows.dtype), 0)
        for _ in range(MAX_CLUSTER_STEPS):
            state, info = solver.step(state)
            if solver.converged(state, info):
                break
        return _plus_minus(state.centers, C.dtype), state.labels


def descend(X: Centered, W: Array, CG: Array, alpha: float, eta: float) -> Array:
    """Take a gradient step on a batch of rows whose clusters have the codes CG (equation 14)."""
    F = X.along(W)
    E, H = loss_augmented(F.astype(np.float64), CG, alpha), sign(F)
    return np.asarray(W - X.back((eta * (E - H)).astype(F.dtype)))


def project(W: Array, nu: float) -> Array:
    """Shorten hyperplanes to a squared norm of at most nu (equation 15)."""
    norms = np.linalg.norm(W, axis=0)
    return np.asarray(W * np.minimum(1, np.sqrt(nu) / np.where(norms > 0, norms, 1)).astype(W.dtype))
