"""Nested mini-batch k-means exactly as printed: Algorithms 1 to 5.

The letters are those of the paper: N rows x(i), k centroids c(j), assignments a(i), distances d(i), lower bounds l(i, j), sums
S(j), counts v(j), sums of squares sse(j), distances moved p(j), doubling threshold rho. `shoal.NestedKMeans` is the estimator
for users.

As printed, the row that starts a centroid keeps its vote for good: S(j) and v(j) begin with x(i) and 1 (Algorithm 2), and the
row votes once more when it is assigned. The batch is a prefix of rows that were shuffled once, and the first k of them are the
initial centroids (section 4).

Left open by the paper: in the doubling condition (lines 31 and 36), a centroid that has not moved has an infinite ratio, and
one without rows has a standard deviation of zero; otherwise 0 / 0 would stop the batch from growing. Distances of sparse rows
are computed from |x|^2 - 2 x'c + |c|^2.

References
----------
J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from ...data.types import Array, is_sparse
from ...kernels import fast_kernel


class Iteration(NamedTuple):
    """Cost of an iteration."""

    b: int  # rows in the batch
    seconds: float  # since the beginning, without the initialization
    distances: int  # row-centroid distances computed since the beginning
    n_changed: int  # rows of the batch whose assignment changed, or that are new


class NestedState(NamedTuple):
    """Variables of Algorithm 5 after an iteration. The arrays are updated in place by the next one."""

    c: Array  # (k, d)
    a: Array  # (N) int64: assignments; valid for the rows of the batch
    d: Array  # (N) distance to the centroid that the row was assigned to
    l: Array  # (N, k) lower bounds
    S: Array  # (k, d) float64
    v: Array  # (k) float64
    sse: Array  # (k) float64
    p: Array  # (k) float64
    history: list[Iteration]


def _squared(X: Any, i: int, c: Array, j: int, norms: Array) -> float:  # pragma: no cover
    """Return |x(i) - c(j)|^2; `norms` are the |c(j)|^2, which only sparse rows need. Compiled for each layout."""
    raise NotImplementedError


def _add(X: Any, i: int, S: Array, j: int, sign: int) -> None:  # pragma: no cover
    """Add x(i) to S(j), or subtract it. Compiled for each layout."""
    raise NotImplementedError


@overload(_squared)
def _squared_of_layout(X, i, c, j, norms):
    if isinstance(X, types.Array):

        def dense(X, i, c, j, norms):
            total = c[j, 0] * 0
            for t in range(c.shape[1]):
                total += (X[i, t] - c[j, t]) ** 2
            return np.float64(total)

        return dense

    def csr(X, i, c, j, norms):
        data, indices, indptr, squares = X
        total = 0.0
        for q in range(indptr[i], indptr[i + 1]):
            total += data[q] * c[j, indices[q]]
        return max(squares[i] - 2 * total + norms[j], 0.0)

    return csr


@overload(_add)
def _add_of_layout(X, i, S, j, sign):
    if isinstance(X, types.Array):

        def dense(X, i, S, j, sign):
            for t in range(S.shape[1]):
                S[j, t] += sign * X[i, t]

        return dense

    def csr(X, i, S, j, sign):
        data, indices, indptr, _ = X
        for q in range(indptr[i], indptr[i + 1]):
            S[j, indices[q]] += sign * data[q]

    return csr


@fast_kernel
def _assign(
    X,  # IN rows, dense or CSR
    i,  # IN row
    c,  # IN (k, d)
    norms,  # IN (k)
):
    """Return the centroid nearest to a row and the distance to it (Algorithm 4, line 5)."""
    best, least = 0, np.inf
    for j in range(c.shape[0]):
        far = _squared(X, i, c, j, norms)
        if far < least:
            best, least = j, far
    return best, np.sqrt(least)


@fast_kernel
def _assign_with_bounds(
    X,  # IN rows
    i,  # IN row
    c,  # IN (k, d)
    norms,  # IN (k)
    l,  # ADD (N, k)
    a,  # ADD (N)
    d,  # OUT (N)
    test,  # IN bool: whether to test bounds (line 3); otherwise every distance is computed
):
    """Run Algorithm 1, assignment-with-bounds(i). Return the number of distances computed."""
    first = a[i]
    d[i] = np.sqrt(_squared(X, i, c, first, norms))
    computed = 1
    for j in range(c.shape[0]):
        if j != first and (not test or l[i, j] < d[i]):
            l[i, j] = np.sqrt(_squared(X, i, c, j, norms))
            computed += 1
            if l[i, j] < d[i]:
                a[i] = j
                d[i] = l[i, j]
    return computed


@fast_kernel
def _accumulate(
    X,  # IN rows
    M,  # IN (b) int64: rows of the batch
    c,  # IN (k, d)
    norms,  # IN (k)
    S,  # ADD (k, d)
    v,  # ADD (k)
):
    """Assign the rows of a batch and accumulate them (Algorithm 4, lines 4 to 7, and Algorithm 3)."""
    for q in range(M.shape[0]):
        j, _ = _assign(X, M[q], c, norms)
        _add(X, M[q], S, j, 1)
        v[j] += 1


@fast_kernel
def _nested_iteration(
    X,  # IN rows
    before,  # IN size of the last batch, M_{t-1}
    b,  # IN size of this batch, M_t
    c,  # IN (k, d)
    norms,  # IN (k)
    S,  # ADD (k, d)
    v,  # ADD (k)
    sse,  # ADD (k)
    a,  # ADD (N)
    d,  # ADD (N)
    l,  # ADD (N, k)
    p,  # IN (k)
    test,  # IN bool
):
    """Run lines 9 to 29 of Algorithm 5. Return the numbers of distances computed and of changed assignments."""
    k = c.shape[0]
    computed, changed = 0, b - before
    for i in range(before):
        for j in range(k):
            l[i, j] -= p[j]
    for i in range(before):
        old = a[i]
        sse[old] -= d[i] ** 2
        _add(X, i, S, old, -1)
        v[old] -= 1
        computed += _assign_with_bounds(X, i, c, norms, l, a, d, test)
        _add(X, i, S, a[i], 1)
        v[a[i]] += 1
        sse[a[i]] += d[i] ** 2
        changed += a[i] != old
    for i in range(before, b):
        a[i], d[i] = 0, np.inf
        for j in range(k):
            l[i, j] = np.sqrt(_squared(X, i, c, j, norms))
            if l[i, j] < d[i]:
                a[i], d[i] = j, l[i, j]
        computed += k
        _add(X, i, S, a[i], 1)
        v[a[i]] += 1
        sse[a[i]] += d[i] ** 2
    return computed, changed


def shuffled(X: Any, seed: int) -> Any:
    """Shuffle the rows once, as the experiments of the paper do (section 4).

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (N, d)
        Rows.
    seed : int
        Seed of the order.

    Returns
    -------
    X : ndarray or sparse matrix of shape (N, d)
    """
    return X[np.random.default_rng(seed).permutation(X.shape[0])]


def _rows(X: Any) -> Any:
    """Return what the kernels take: an array of float32 or float64, or the arrays of a CSR matrix and the |x(i)|^2."""
    if is_sparse(X):
        X = X.tocsr()
        data = X.data.astype(np.float64, copy=False)
        squares = np.asarray(X.astype(np.float64).power(2).sum(axis=1)).ravel()
        return data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64, copy=False), squares
    return np.ascontiguousarray(X, np.float32 if np.asarray(X).dtype == np.float32 else np.float64)


def _first(X: Any, k: int) -> Array:
    """Return the first k rows as initial centroids."""
    if not 1 <= k <= X.shape[0]:
        raise ValueError(f"k must be from 1 to the number of rows, {X.shape[0]}, but is {k}.")
    c = X[:k].toarray() if is_sparse(X) else np.asarray(X[:k])
    return np.array(c, np.float32 if c.dtype == np.float32 and not is_sparse(X) else np.float64)


def _norms(c: Array) -> Array:
    return np.asarray(np.einsum("jt,jt->j", c, c, dtype=np.float64))


def nmbatch_iterations(
    X: Any, k: int, rho: float = 100.0, *, b: int = 5000, test: bool = True, max_iter: int = 10_000
) -> Iterator[NestedState]:
    """Run Algorithm 5 and generate its variables after each iteration. See `nmbatch`, which returns the last ones.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (N, d)
        Rows in random order. See `shuffled`.
    k : int
        Number of clusters. The first k rows are the initial centroids.
    rho : float, default=100.0
        Doubling threshold.
    b : int, default=5000
        Size of the first batch.
    test : bool, default=True
        Whether to test bounds (line 3 of Algorithm 1). Without the test every distance is computed (Figure 3).
    max_iter : int, default=10000
        Maximum number of iterations.

    Yields
    ------
    state : NestedState
    """
    rows, N, c = _rows(X), X.shape[0], _first(X, k)
    S, v, sse, p = c.astype(np.float64), np.ones(k), np.zeros(k), np.zeros(k)  # Algorithm 2, and lines 5 to 7
    a, d, l = np.zeros(N, np.int64), np.zeros(N), np.zeros((N, k))
    before, b, seconds, distances, history = 0, min(b, N), 0.0, 0, list[Iteration]()
    for _ in range(max_iter):
        started = time.perf_counter()
        computed, changed = _nested_iteration(rows, before, b, c, _norms(c), S, v, sse, a, d, l, p, test)
        sigma = np.sqrt(np.maximum(sse, 0) / np.maximum(v * (v - 1), 1))  # line 31; sse may be negative by rounding
        old = c.copy()
        c[:] = S / v[:, None]
        p[:] = np.linalg.norm(c.astype(np.float64) - old, axis=1)
        ratio = np.divide(sigma, p, out=np.full(k, np.inf), where=p > 0)
        before, larger = b, min(2 * b, N) if ratio.min() > rho else b
        seconds += time.perf_counter() - started
        distances += int(computed)
        history.append(Iteration(b, seconds, distances, int(changed)))
        yield NestedState(c, a, d, l, S, v, sse, p, history)
        if b == N and changed == 0:
            return
        b = larger


def nmbatch(X: Any, k: int, rho: float = 100.0, *, b: int = 5000, test: bool = True, max_iter: int = 10_000) -> NestedState:
    """Run nested mini-batch k-means (Algorithm 5) until no assignment changes on all rows.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (N, d)
        Rows in random order. See `shuffled`.
    k : int
        Number of clusters. The first k rows are the initial centroids.
    rho : float, default=100.0
        Doubling threshold.
    b : int, default=5000
        Size of the first batch.
    test : bool, default=True
        Whether to test bounds (line 3 of Algorithm 1).
    max_iter : int, default=10000
        Maximum number of iterations.

    Returns
    -------
    state : NestedState
        Centroids c, assignments a, and all other variables of the algorithm, with the history of its iterations.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.papers import nested
    >>> X = np.random.default_rng(0).normal(size=(400, 2)) + 40 * (np.arange(400)[:, None] % 2)
    >>> found = nested.nmbatch(nested.shuffled(X, seed=0), 2, rho=100, b=50)
    >>> [int(count) for count in np.bincount(found.a)], sorted({step.b for step in found.history})
    ([200, 200], [50, 100, 200, 400])
    """
    *_, state = nmbatch_iterations(X, k, rho, b=b, test=test, max_iter=max_iter)
    return state


def mbatch_iterations(X: Any, k: int, *, b: int = 5000, seed: int = 0) -> Iterator[tuple[Array, Array, Iteration]]:
    """Run Algorithm 4 without end and generate centroids, counts v and the cost after each iteration.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (N, d)
        Rows. The first k are the initial centroids.
    k : int
        Number of clusters.
    b : int, default=5000
        Size of the batches, which are drawn without replacement.
    seed : int, default=0
        Seed of the batches.

    Yields
    ------
    c : ndarray of shape (k, d)
    v : ndarray of shape (k,)
    cost : Iteration
    """
    rows, N, c, rng = _rows(X), X.shape[0], _first(X, k), np.random.default_rng(seed)
    S, v, b, seconds, distances = c.astype(np.float64), np.ones(k), min(b, N), 0.0, 0
    while True:
        started = time.perf_counter()
        M = rng.choice(N, b, replace=False, shuffle=False)
        _accumulate(rows, M, c, _norms(c), S, v)
        c[:] = S / v[:, None]
        seconds += time.perf_counter() - started
        distances += b * k
        yield c, v, Iteration(b, seconds, distances, b)


def mbatch(X: Any, k: int, *, b: int = 5000, seed: int = 0, T: int = 100) -> Array:
    """Run T iterations of mini-batch k-means (Algorithm 4).

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (N, d)
        Rows. The first k are the initial centroids.
    k : int
        Number of clusters.
    b : int, default=5000
        Size of the batches.
    seed : int, default=0
        Seed of the batches.
    T : int, default=100
        Number of iterations.

    Returns
    -------
    c : ndarray of shape (k, d)
    """
    *_, (c, _, _) = islice(mbatch_iterations(X, k, b=b, seed=seed), T)
    return c


def lloyd(X: Any, k: int, max_iter: int = 10_000) -> Iterator[tuple[Array, Iteration]]:
    """Run Lloyd's algorithm with the loops of the other algorithms here, and generate centroids and cost after each iteration.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (N, d)
        Rows. The first k are the initial centroids.
    k : int
        Number of clusters. A centroid without rows keeps its position.
    max_iter : int, default=10000
        Maximum number of iterations.

    Yields
    ------
    c : ndarray of shape (k, d)
    cost : Iteration
    """
    rows, N, c, seconds, M = _rows(X), X.shape[0], _first(X, k), 0.0, np.arange(X.shape[0])
    for t in range(1, max_iter + 1):
        started = time.perf_counter()
        S, v = np.zeros(c.shape), np.zeros(k)
        _accumulate(rows, M, c, _norms(c), S, v)
        old = c.copy()
        c[v > 0] = S[v > 0] / v[v > 0, None]
        seconds += time.perf_counter() - started
        changed = int((c != old).any(axis=1).sum())
        yield c, Iteration(N, seconds, t * N * k, changed)
        if changed == 0:
            return
