"""Affinities that are there already: a graph of neighbours, or a matrix that the user gives or asks for."""

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

ROUNDING = 64  # units in the last place by which a_ij and a_ji may differ
RANGE = 40  # powers of two: affinities that are all below, or some above, are scaled, or sums and squares would leave the range
LINES = 1 << 20  # numbers of a dense matrix that are looked at together


def _dense_block(start: int, raw: Any, out: Array, A: Array, ids: Array | slice, B: Array) -> None:
    """A is symmetric, so that its columns are rows: these lie together in memory."""
    stop = start + len(out)
    out[:] = np.asarray(A[ids, start:stop], B.dtype).T @ B if not isinstance(ids, slice) else np.asarray(raw, B.dtype) @ B


def _sum_block(start: int, raw: Any, out: Array) -> None:
    out[:] = np.asarray(raw.sum(axis=1, dtype=np.float64)).ravel()


class GraphAffinity:
    """A symmetric matrix without negative entries, dense (perhaps a memory map) or sparse, behind the verbs of a kernel."""

    is_stored = True

    def __init__(self, A: Any, rows: Rows) -> None:
        self.A, self.rows, self.n = A, rows, A.shape[0]
        self.dtype = np.dtype(np.float32 if A.dtype == np.float32 else np.float64)

    def product(self, B: Array, ids: Array | None = None) -> Array:
        """A[:, ids] B, or A B."""
        B = np.ascontiguousarray(B, self.dtype)
        if is_sparse(self.A):
            return np.asarray(self.A @ B if ids is None else self.A[ids].T @ B, self.dtype)
        out = np.empty((self.n, B.shape[1]), self.dtype)
        deque(self.rows.map_raw_blocks(_dense_block, self.A, slice(None) if ids is None else ids, B, per_row=(out,)), 0)
        return out

    def picked(self, B: Array, ids: Array) -> Array:
        """A[ids] B."""
        return np.asarray(self.A[ids] @ B, np.float64)

    def degrees(self) -> Array:
        out = np.empty(self.n)
        deque(self.rows.map_raw_blocks(_sum_block, per_row=(out,)), 0)
        return out

    def column_moments(self, ids: Array) -> tuple[Array, Array]:
        A = self.A[ids]
        squares = A.multiply(A) if is_sparse(A) else np.square(A, dtype=np.float64)
        return tuple(np.asarray(S.sum(axis=0, dtype=np.float64)).ravel() for S in (A, squares))  # type: ignore[return-value]

    def dense(self) -> Array:
        return np.asarray(self.A.toarray() if is_sparse(self.A) else self.A, self.dtype)

    def block(self, ids: Array) -> Array:
        """A[ids, ids]."""
        A = self.A[ids][:, ids]
        return np.asarray(A.toarray() if is_sparse(A) else A, self.dtype)


def affinity_bytes(affinity: Any) -> int:
    """Bytes of the whole matrix."""
    return int(affinity.n**2 * affinity.dtype.itemsize)


def stored(affinity: Any) -> GraphAffinity:
    """The whole matrix in memory, because the user asks for it."""
    size = affinity_bytes(affinity)
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else size
    if size > room:
        raise MemoryError(
            f"store=True asks for {affinity.n} x {affinity.n} affinities, {size >> 30} GiB, but there are {room >> 30} GiB of "
            "memory: use store=False."
        )
    A = affinity.dense()
    return GraphAffinity(A, affinity.rows.sibling(ArraySource(A)))


def neighbor_graph(rows: Rows, who: Array) -> GraphAffinity:
    """One where each of two rows is a neighbour of the other, a half where one is; as scikit-learn has it."""
    n, count = who.shape
    line = np.repeat(np.arange(n), count)
    A = sparse.csr_array((np.full(n * count, 0.5, rows.dtype), (line, who.ravel())), shape=(n, n))
    return of_matrix(sparse.csr_array(A + A.T), rows)


def of_matrix(A: Any, rows: Rows) -> GraphAffinity:
    """A graph; the user is told if it falls into pieces. (Of rows without any affinity, the degrees tell.)"""
    names = pieces(A)
    counts = np.bincount(names)
    single = np.flatnonzero(counts[names] == 1)
    own = single[np.asarray(A.diagonal())[single] > 0]  # like themselves alone
    count = len(counts) - len(single) + len(own)
    if count > 1:
        of_one = f", {len(own)} of them of one row (the first is row {own[0]})" if len(own) else ""
        warn(
            f"The graph of affinities falls into {count} pieces with no way from one to another{of_one}: clusters should "
            "follow the pieces, and where these are more, chance says which go together; more neighbours, or a larger sigma, "
            "would join them.",
            UserWarning,
        )
    return GraphAffinity(A, rows.sibling(find_source(A)))


def pieces(A: Any) -> Array:
    """(n) numbers: which connected piece of a symmetric matrix each row is in."""
    if is_sparse(A):
        if not A.data.all():  # a zero that is stored is no edge
            A = A.copy()
            A.eliminate_zeros()
        return np.asarray(connected_components(A, directed=False)[1])
    n = len(A)
    lines = A if A.flags.c_contiguous else A.T
    names, step = np.full(n, -1), max(1, LINES // n)
    for first in range(n):
        if names[first] >= 0:
            continue
        name = names.max() + 1
        names[first], ahead = name, np.array([first])
        while len(ahead) and (names < 0).any():  # one look at a row is enough, and none once all have been reached
            now, ahead = ahead[:step], ahead[step:]
            found = np.flatnonzero((names < 0) & (lines[now] != 0).any(axis=0))
            names[found] = name
            ahead = np.concatenate([ahead, found])
    return names


def precomputed(rows: Rows) -> tuple[GraphAffinity, int]:
    """The rows of X as affinities, checked, and the power of two that they are scaled by."""
    source = rows.source
    if source.shape[0] != source.shape[1]:
        raise ValueError(f"affinity='precomputed' needs a square X, one row and one column a sample, not {source.shape}.")
    top = max(rows.map_raw_blocks(check_block))
    A: Any = source.read(0, source.shape[0])  # an array or a memory map stays where it is
    dtype = np.dtype(np.float32 if A.dtype == np.float32 else np.float64)
    if A.dtype != dtype:
        A = A.astype(dtype)
    deque(rows.map_raw_blocks(_mirror_block, A, A.T.tocsr() if is_sparse(A) else A), 0)
    exponent = -int(np.frexp(top)[1])
    exponent = exponent if abs(exponent) > RANGE else 0
    return of_matrix(scaled(A, exponent), rows), exponent


def scaled(A: Any, exponent: int) -> Any:
    """A * 2^exponent: a copy, unless that is A."""
    return times_power(A, exponent) if exponent else A


def check_block(start: int, raw: Any) -> float:
    """Finite, and nothing below zero. The largest of all."""
    check_finite(start, raw)
    values = raw.data if is_sparse(raw) else raw
    if values.size and values.min() < 0:
        place = raw.tocoo() if is_sparse(raw) else None
        at = int(values.argmin())
        row, column = (place.row[at], place.col[at]) if place is not None else divmod(at, raw.shape[1])
        raise ValueError(
            f"affinity='precomputed', but X holds {values.min()} at row {start + row}, column {column}: affinities must not be "
            "negative."
        )
    return float(values.max(initial=0))


def _mirror_block(start: int, raw: Any, A: Any, mirror: Any) -> None:
    """Is each a_ij what a_ji is, but for rounding?"""
    stop = start + raw.shape[0]
    raw = raw.astype(A.dtype)
    other = mirror[start:stop] if is_sparse(A) else np.asarray(mirror[:, start:stop]).T
    apart = abs(raw - other) - 2 * ROUNDING * float(np.finfo(A.dtype).eps) * (raw / 2 + other / 2)  # sums may overflow
    worst = int(apart.argmax())
    row, column = divmod(worst, A.shape[1])
    if apart[row, column] > 0:
        i = start + row
        raise ValueError(
            f"affinity='precomputed', but X[{i}, {column}] is {raw[row, column]} and X[{column}, {i}] is {other[row, column]}: "
            "affinities must be symmetric; (X + X.T) / 2 would be."
        )
