"""Affinity matrices in memory: neighbor graphs, precomputed affinities, and affinities that the user asks to store."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from ..data.frame import times_power
from ..data.rows import Rows
from ..data.sources import ArraySource, find_source
from ..data.statistics import check_finite
from ..data.types import Array, is_sparse, warn

MAX_ASYMMETRY_ULPS = 64  # units in the last place by which a_ij and a_ji may differ
MAX_EXPONENT = 40  # power of two of the largest affinity beyond which all are scaled, so that sums and squares stay in range
SEARCH_ENTRIES = 1 << 20  # entries of a dense matrix that the search for connected components reads at a time


def _product_block(start: int, raw: Any, out: Array, A: Array, ids: Array | slice, B: Array) -> None:
    """Compute a block of A[:, ids] B or, if `ids` is a slice, of A B. As A is symmetric, A[ids] is read for A[:, ids]."""
    stop = start + len(out)
    out[:] = np.asarray(A[ids, start:stop], B.dtype).T @ B if not isinstance(ids, slice) else np.asarray(raw, B.dtype) @ B


def _sum_block(start: int, raw: Any, out: Array) -> None:
    out[:] = np.asarray(raw.sum(axis=1, dtype=np.float64)).ravel()


class GraphAffinity:
    """Symmetric affinity matrix without negative entries in memory: dense, memory-mapped or sparse."""

    is_stored = True

    def __init__(self, A: Any, rows: Rows) -> None:
        self.A, self.rows, self.n = A, rows, A.shape[0]
        self.dtype = np.dtype(np.float32 if A.dtype == np.float32 else np.float64)

    def product(self, B: Array, ids: Array | None = None) -> Array:
        """Return A[:, ids] B, or A B."""
        B = np.ascontiguousarray(B, self.dtype)
        if is_sparse(self.A):
            return np.asarray(self.A @ B if ids is None else self.A[ids].T @ B, self.dtype)
        out = np.empty((self.n, B.shape[1]), self.dtype)
        deque(self.rows.map_raw_blocks(_product_block, self.A, slice(None) if ids is None else ids, B, per_row=(out,)), 0)
        return out

    def row_product(self, B: Array, ids: Array) -> Array:
        """Return A[ids] B."""
        return np.asarray(self.A[ids] @ B, np.float64)

    def degrees(self) -> Array:
        """Return the sums of the rows of A in float64."""
        out = np.empty(self.n)
        deque(self.rows.map_raw_blocks(_sum_block, per_row=(out,)), 0)
        return out

    def column_moments(self, ids: Array) -> tuple[Array, Array]:
        """Return the sums of the rows of A[:, ids], and those of the squared entries."""
        A = self.A[ids]
        squares = A.multiply(A) if is_sparse(A) else np.square(A, dtype=np.float64)
        return tuple(np.asarray(S.sum(axis=0, dtype=np.float64)).ravel() for S in (A, squares))  # type: ignore[return-value]

    def dense(self) -> Array:
        """Return A as a dense array."""
        return np.asarray(self.A.toarray() if is_sparse(self.A) else self.A, self.dtype)

    def submatrix(self, ids: Array) -> Array:
        """Return A[ids, ids] as a dense array."""
        A = self.A[ids][:, ids]
        return np.asarray(A.toarray() if is_sparse(A) else A, self.dtype)


def affinity_bytes(affinity: Any) -> int:
    """Return the bytes of the full matrix."""
    return int(affinity.n**2 * affinity.dtype.itemsize)


def store_affinity(affinity: Any) -> GraphAffinity:
    """Return the affinities as a full matrix in memory."""
    size = affinity_bytes(affinity)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else size
    if size > memory:
        raise MemoryError(
            f"store=True asks for {affinity.n} x {affinity.n} affinities, {size >> 30} GiB, but there are {memory >> 30} GiB "
            "of memory: use store=False."
        )
    A = affinity.dense()
    return GraphAffinity(A, affinity.rows.sibling(ArraySource(A)))


def neighbor_graph(rows: Rows, neighbors: Array) -> GraphAffinity:
    """Return the graph of nearest neighbors: weight 1 for mutual neighbors, 0.5 if one is a neighbor of the other."""
    n, count = neighbors.shape
    ids = np.repeat(np.arange(n), count)
    A = sparse.csr_array((np.full(n * count, 0.5, rows.dtype), (ids, neighbors.ravel())), shape=(n, n))
    return make_graph(sparse.csr_array(A + A.T), rows)


def make_graph(A: Any, rows: Rows) -> GraphAffinity:
    """Return the graph of an affinity matrix. Warn if it is not connected; isolated rows are reported with the degrees."""
    components = component_labels(A)
    sizes = np.bincount(components)
    single = np.flatnonzero(sizes[components] == 1)
    loops = single[np.asarray(A.diagonal())[single] > 0]  # rows connected with themselves only
    count = len(sizes) - len(single) + len(loops)
    if count > 1:
        of_one = f", {len(loops)} of them of one row (the first is row {loops[0]})" if len(loops) else ""
        warn(
            f"The affinity graph has {count} connected components{of_one}. If there are more components than clusters, which "
            "of them share a cluster is arbitrary: ask for more neighbors or raise sigma to connect them.",
            UserWarning,
        )
    return GraphAffinity(A, rows.sibling(find_source(A)))


def component_labels(A: Any) -> Array:
    """Return the number of each row's connected component in a symmetric matrix."""
    if is_sparse(A):
        if not A.data.all():  # a stored zero is no edge
            A = A.copy()
            A.eliminate_zeros()
        return np.asarray(connected_components(A, directed=False)[1])
    n = len(A)
    lines = A if A.flags.c_contiguous else A.T
    labels, step = np.full(n, -1), max(1, SEARCH_ENTRIES // n)
    for first in range(n):
        if labels[first] >= 0:
            continue
        label = labels.max() + 1
        labels[first], queue = label, np.array([first])
        while len(queue) and (labels < 0).any():  # each row is read at most once
            now, queue = queue[:step], queue[step:]
            found = np.flatnonzero((labels < 0) & (lines[now] != 0).any(axis=0))
            labels[found] = label
            queue = np.concatenate([queue, found])
    return labels


def precomputed_graph(rows: Rows) -> tuple[GraphAffinity, int]:
    """Return the rows of X as an affinity matrix, validated, and the power of two by which it is scaled."""
    source = rows.source
    if source.shape[0] != source.shape[1]:
        raise ValueError(
            f"affinity='precomputed' needs a square X, one row and one column per sample, but its shape is {source.shape}."
        )
    top = max(rows.map_raw_blocks(check_affinities))
    A: Any = source.read(0, source.shape[0])  # arrays and memory maps are not copied
    dtype = np.dtype(np.float32 if A.dtype == np.float32 else np.float64)
    if A.dtype != dtype:
        A = A.astype(dtype)
    deque(rows.map_raw_blocks(_check_symmetry, A, A.T.tocsr() if is_sparse(A) else A), 0)
    exponent = -int(np.frexp(top)[1])
    exponent = exponent if abs(exponent) > MAX_EXPONENT else 0
    return make_graph(scale_by_power(A, exponent), rows), exponent


def scale_by_power(A: Any, exponent: int) -> Any:
    """Return A * 2^exponent: a copy, or A itself if the exponent is 0."""
    return times_power(A, exponent) if exponent else A


def check_affinities(start: int, raw: Any) -> float:
    """Check that the values of a block are finite and not negative. Return the largest."""
    check_finite(start, raw)
    values = raw.data if is_sparse(raw) else raw
    if values.size and values.min() < 0:
        entries = raw.tocoo() if is_sparse(raw) else None
        at = int(values.argmin())
        row, column = (entries.row[at], entries.col[at]) if entries is not None else divmod(at, raw.shape[1])
        raise ValueError(
            f"affinity='precomputed', but X holds {values.min()} at row {start + row}, column {column}: affinities must not be "
            "negative."
        )
    return float(values.max(initial=0))


def _check_symmetry(start: int, raw: Any, A: Any, mirror: Any) -> None:
    """Check that the a_ij of a block equal the a_ji up to rounding."""
    stop = start + raw.shape[0]
    raw = raw.astype(A.dtype)
    other = mirror[start:stop] if is_sparse(A) else np.asarray(mirror[:, start:stop]).T
    tolerance = 2 * MAX_ASYMMETRY_ULPS * float(np.finfo(A.dtype).eps)
    excess = abs(raw - other) - tolerance * (raw / 2 + other / 2)  # raw + other might overflow
    worst = int(excess.argmax())
    row, column = divmod(worst, A.shape[1])
    if excess[row, column] > 0:
        i = start + row
        raise ValueError(
            f"affinity='precomputed', but X[{i}, {column}] is {raw[row, column]} and X[{column}, {i}] is {other[row, column]}: "
            "affinities must be symmetric, as those of (X + X.T) / 2 are."
        )
