"""Variance-reduced k-means exactly as printed, row by row: Algorithms 1 to 4.

The letters are those of the paper: n rows X, K centroids C, labels I, cluster sizes v, learning rate eta, epoch size T.
`shoal.VarianceReducedKMeans` is the estimator for users, which takes the steps of a block of rows together.

As printed, VRKM adds the K x d batch gradient in each step, the rate has no cap, and both algorithms skip rows whose nearest
centroid is unchanged in number and position (line 12 of Algorithm 3, line 9 of Algorithm 4).

Left open by the paper: a centroid without rows keeps its position. Without position correction the condition of line 12 is
false for every row, because an epoch begins with the centroids of its snapshot: no step would ever be taken. `svrg`, whose
divergence Figure 3 shows, therefore omits it.

References
----------
Y. Zhao et al. (2018), Large-scale k-means clustering via variance reduction, doi:10.1016/j.neucom.2018.03.059.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ...data.types import Array
from ...fit.random_streams import generator
from ...kernels import fast_kernel


class Epoch(NamedTuple):
    """Result of an epoch. The next one updates the centroids in place."""

    C: Array  # (K, d)
    energy: float  # sum of squared distances at the beginning of the epoch; NaN where it is not computed
    seconds: float  # since the beginning
    distances: int  # row-centroid distances computed since the beginning


@fast_kernel
def _nearest(
    x,  # IN (d)
    C,  # IN (K, d)
):
    """Return the index of the centroid nearest to a row, and the squared distance to it."""
    best, least = 0, np.inf
    for j in range(C.shape[0]):
        far = C[j, 0] * 0
        for t in range(C.shape[1]):
            far += (x[t] - C[j, t]) ** 2
        if far < least:
            best, least = j, np.float64(far)
    return best, least


@fast_kernel
def _partition(
    X,  # IN (n, d)
    C,  # IN (K, d)
    I,  # OUT (n) int64
    sums,  # ADD (K, d) float64
    v,  # ADD (K) float64
):
    """Assign all rows and add them up. Return the sum of squared distances."""
    energy = 0.0
    for i in range(X.shape[0]):
        j, far = _nearest(X[i], C)
        I[i] = j
        energy += far
        v[j] += 1
        for t in range(C.shape[1]):
            sums[j, t] += X[i, t]
    return energy


@fast_kernel
def _add_up(
    X,  # IN (n, d)
    I,  # IN (n) int64
    sums,  # OUT (K, d) float64
):
    """Add up the rows of each cluster."""
    sums[:] = 0
    for i in range(X.shape[0]):
        for t in range(X.shape[1]):
            sums[I[i], t] += X[i, t]


@fast_kernel
def _batches(
    X,  # IN (n, d)
    picked,  # IN (T) int64: rows of all batches, one after the other
    m,  # IN rows per batch
    C,  # ADD (K, d)
    v,  # ADD (K) float64
):
    """Run lines 4 to 11 of Algorithm 1 for each batch."""
    nearest = np.zeros(m, np.int64)
    for start in range(0, picked.shape[0], m):
        end = min(start + m, picked.shape[0])
        for q in range(start, end):
            nearest[q - start], _ = _nearest(X[picked[q]], C)
        for q in range(start, end):
            j = nearest[q - start]
            v[j] += 1
            for t in range(C.shape[1]):
                C[j, t] -= (C[j, t] - X[picked[q], t]) / v[j]


@fast_kernel
def _inner_loop(
    X,  # IN (n, d)
    picked,  # IN (T) int64: rows that the epoch picks
    I,  # IN (n) int64: labels of the snapshot's partition
    snapshot,  # IN (K, d)
    gradient,  # IN (K, d): batch gradient of the snapshot
    eta,  # IN learning rate
    with_gradient,  # IN bool: whether to add the batch gradient
    skip,  # IN bool: whether to skip rows whose nearest centroid is unchanged
    frozen,  # IN bool: whether rows keep their labels
    C,  # ADD (K, d)
):
    """Run lines 9 to 15 of Algorithm 3, or lines 6 to 12 of Algorithm 4."""
    K, d = C.shape
    for q in range(picked.shape[0]):
        i = picked[q]
        old = I[i]
        new = old if frozen else _nearest(X[i], C)[0]
        same = skip and new == old
        if same:
            for t in range(d):
                same &= C[new, t] == snapshot[old, t]
        if same:
            continue
        if new == old:
            for t in range(d):
                C[new, t] -= eta * (C[new, t] - snapshot[old, t])
        else:
            for t in range(d):
                C[new, t] -= eta * (C[new, t] - X[i, t])
                C[old, t] += eta * (snapshot[old, t] - X[i, t])
        if with_gradient:
            for j in range(K):
                for t in range(d):
                    C[j, t] -= eta * gradient[j, t]


def random_epochs(n: int, T: int, n_epochs: int, seed: int) -> Iterator[Array]:
    """Generate the row indices that each epoch picks (line 10 of Algorithm 3).

    Parameters
    ----------
    n : int
        Number of rows.
    T : int
        Epoch size.
    n_epochs : int
        Number of epochs.
    seed : int
        Seed. The indices are those that `shoal.VarianceReducedKMeans` picks.

    Yields
    ------
    picked : ndarray of shape (T,)
    """
    for epoch in range(1, n_epochs + 1):
        yield generator(seed, 0, epoch).integers(n, size=T)


def doubling_epochs(n: int, n_epochs: int, seed: int) -> Iterator[Array]:
    """Generate the row indices of epochs of size T = 2^s (section 5.2).

    Parameters
    ----------
    n : int
        Number of rows.
    n_epochs : int
        Number of epochs.
    seed : int
        Seed.

    Yields
    ------
    picked : ndarray of shape (2^s,)
        For s = 1, 2, ...
    """
    for s in range(1, n_epochs + 1):
        yield generator(seed, 0, s).integers(n, size=2**s)


def _start(X: Array, C: Array) -> tuple[Array, Array]:
    """Return rows and a copy of the initial centroids in one dtype, float32 or float64."""
    dtype = np.float32 if np.asarray(X).dtype == np.float32 else np.float64
    return np.ascontiguousarray(X, dtype), np.array(C, dtype, order="C")


def batch_kmeans(X: Array, C: Array, n_epochs: int) -> Iterator[Epoch]:
    """Run batch k-means with the loops of the other algorithms here, and generate its epochs.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    C : ndarray of shape (K, d)
        Initial centroids.
    n_epochs : int
        Maximum number of epochs. It also ends once no label changes.

    Yields
    ------
    epoch : Epoch
    """
    X, C = _start(X, C)
    (n, d), K, seconds, last = X.shape, len(C), 0.0, np.full(len(X), -1)
    for s in range(1, n_epochs + 1):
        started = time.perf_counter()
        I, sums, v = np.zeros(n, np.int64), np.zeros((K, d)), np.zeros(K)
        energy = _partition(X, C, I, sums, v)
        C[v > 0] = sums[v > 0] / v[v > 0, None]
        seconds += time.perf_counter() - started
        yield Epoch(C, float(energy), seconds, s * n * K)
        if np.array_equal(I, last):
            return
        last = I


def algorithm_1(X: Array, C: Array, epochs: Iterable[Array], m: int = 1) -> Iterator[Epoch]:
    """Run SGD k-means (m = 1) or mini-batch k-means (Algorithm 1), and generate its epochs.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    C : ndarray of shape (K, d)
        Initial centroids.
    epochs : iterable of ndarray of int
        Indices of the rows that are picked, in order. An epoch only groups them. See `random_epochs`.
    m : int, default=1
        Batch size.

    Yields
    ------
    epoch : Epoch
        Without the energy, which the algorithm does not compute.
    """
    X, C = _start(X, C)
    v, seconds, distances = np.zeros(len(C)), 0.0, 0
    for picked in epochs:
        started = time.perf_counter()
        _batches(X, picked, m, C, v)
        seconds += time.perf_counter() - started
        distances += len(picked) * len(C)
        yield Epoch(C, float("nan"), seconds, distances)


def sgd_kmeans(X: Array, C: Array, epochs: Iterable[Array]) -> Iterator[Epoch]:
    """Run SGD k-means: Algorithm 1 with m = 1. Parameters and result are those of `algorithm_1`."""
    return algorithm_1(X, C, epochs, 1)


def vrkm(X: Array, C: Array, epochs: Iterable[Array], eta: float) -> Iterator[Epoch]:
    """Run VRKM (Algorithm 3), which adds the batch gradient in every step, and generate its epochs.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows.
    C : ndarray of shape (K, d)
        Initial centroids.
    epochs : iterable of ndarray of int
        Indices of the rows that each epoch picks, in order. See `random_epochs`.
    eta : float
        Constant learning rate. The paper recommends K / n.

    Yields
    ------
    epoch : Epoch

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.papers import variance
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> [epoch.energy for epoch in variance.vrkm(X, X[[1, 4]], variance.random_epochs(6, 6, 2, seed=0), eta=2 / 6)]
    [40.0, 16.0]
    """
    return _run(X, C, epochs, eta, corrected=True, gradient="computed")


def vrkm_plus_plus(X: Array, C: Array, epochs: Iterable[Array], eta: float) -> Iterator[Epoch]:
    """Run VRKM++ (Algorithm 4), which has no batch gradient. Parameters and result are those of `vrkm`."""
    return _run(X, C, epochs, eta, corrected=True, gradient="none")


def svrg(
    X: Array, C: Array, epochs: Iterable[Array], eta: float, *, frozen: bool = False, weighted: bool = False
) -> Iterator[Epoch]:
    """Run VRKM without position correction, "SVRG used trivially" (Figure 3), and generate its epochs.

    Parameters
    ----------
    X, C, epochs, eta
        As for `vrkm`.
    frozen : bool, default=False
        Keep the partition of the first epoch, to see whether the change of the partition causes the divergence.
    weighted : bool, default=False
        Weight the batch gradient of a centroid by v_k / n. As printed (line 7), it is the mean over the cluster, while the
        stochastic gradient of a random row meets the cluster with probability v_k / n only, so that (6) is biased.

    Yields
    ------
    epoch : Epoch
    """
    return _run(X, C, epochs, eta, corrected=False, gradient="weighted" if weighted else "computed", frozen=frozen)


def _run(
    X: Array, C: Array, epochs: Iterable[Array], eta: float, *, corrected: bool, gradient: str, frozen: bool = False
) -> Iterator[Epoch]:
    X, C = _start(X, C)
    (n, d), K, seconds, distances = X.shape, len(C), 0.0, 0
    I, v = np.zeros(n, np.int64), np.zeros(K)
    for s, picked in enumerate(epochs):
        started = time.perf_counter()
        labels, sums, counts = np.zeros(n, np.int64), np.zeros((K, d)), np.zeros(K)
        energy = _partition(X, C, labels, sums, counts)  # line 3
        if frozen and s:
            _add_up(X, I, sums)
        else:
            I, v = labels, counts
        snapshot = _means(sums, v, C) if corrected else C.copy()  # line 4
        if gradient == "computed" and corrected:
            _add_up(X, I, sums)  # line 7, another pass over the rows
        batch = (snapshot - _means(sums, v, snapshot)) * (v / n)[:, None] ** (gradient == "weighted")
        C[:] = snapshot  # line 5
        _inner_loop(X, picked, I, snapshot, batch.astype(C.dtype), eta, gradient != "none", corrected, frozen, C)
        seconds += time.perf_counter() - started
        distances += (n + len(picked)) * K
        yield Epoch(C, float(energy), seconds, distances)


def _means(sums: Array, v: Array, C: Array) -> Array:
    """Return the means of the clusters; one without rows keeps its centroid (equation 8)."""
    return np.divide(sums, v[:, None], out=C.astype(np.float64), where=v[:, None] > 0).astype(C.dtype)
