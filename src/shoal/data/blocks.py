"""One block of rows, dense or sparse, behind the same few verbs. The only place that knows both layouts.

Labels follow one rule everywhere: the centre of least squared distance ``(x - c)^2`` in float64, the first of equals.
Fast float32 scores narrow the choice down: `|c|^2 - 2 x.c`, less what rounding may have added of the centre's making.
`slack` is what it may have added of the row's.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ..kernels import choice
from ..kernels import dense as dense_kernels
from ..kernels import sparse as sparse_kernels
from .cancellation import pieces
from .types import Array, is_sparse

NARROW, FEW = 40, 12  # up to this many columns or centres the fused kernel beats a GEMM and a scan
SCORES_AT_ONCE = 1 << 20  # entries of one score matrix: it should stay in the cache
DOUBTS_AT_ONCE = 1 << 17  # the same, with distances in float64 beside it
NARROW_AT_ONCE = 1 << 28  # multiplications of one call of the fused kernel, which can't be interrupted: some 50 ms


class Centers(NamedTuple):
    """Centres made ready for scoring."""

    C: Array  # (k, d)
    Z: Array  # (k, d), or (d, k) for sparse rows: times -2
    z2: Array  # (k): |c|^2, less the centre's part of a score's rounding
    norms2: Array  # (k) float64
    slices: Any = ()  # of bits: see `bits.sliced`


class SumDeltas(NamedTuple):
    """What the rows that changed cluster do to the sums. Adds up by `add_to`."""

    ids: Array  # (t) clusters touched
    sums: Any  # (t, d) float64, or CSR
    weight_sums: Array  # (t) float64
    squares: Array  # (t) float64: of w |x|^2
    counts: Array  # (t) int64: rows of positive weight
    moved: int

    def plus(self, other: SumDeltas) -> SumDeltas:
        """Both. The arrays of this one may be reused."""
        ids = self.ids if np.array_equal(self.ids, other.ids) else np.union1d(self.ids, other.ids)
        total = self if len(ids) == len(self.ids) else self._among(ids)
        at = np.searchsorted(ids, other.ids)
        if is_sparse(self.sums):
            total = total._replace(sums=total.sums + _placed(other.sums, at, len(ids)))
        else:
            total.sums[at] += other.sums
        for mine, theirs in zip(total[2:5], other[2:5], strict=True):
            mine[at] += theirs
        return total._replace(moved=self.moved + other.moved)

    def _among(self, ids: Array) -> SumDeltas:
        """The same, with room for more clusters."""
        at, k = np.searchsorted(ids, self.ids), len(ids)
        total = SumDeltas(ids, np.zeros((k, 0)), np.zeros(k), np.zeros(k), np.zeros(k, np.int64), self.moved)
        for wide, mine in zip(total[2:5], self[2:5], strict=True):
            wide[at] = mine
        return total._replace(sums=_placed(self.sums, at, k))

    def add_to(self, sums: Array, weight_sums: Array, squares: Array, counts: Array) -> None:
        if is_sparse(self.sums):
            sparse_kernels.add_rows(self.sums.data, self.sums.indices, self.sums.indptr, self.ids, sums)
        elif len(self.ids) == len(sums):
            sums += self.sums
        else:
            sums[self.ids] += self.sums
        weight_sums[self.ids] += self.weight_sums
        squares[self.ids] += self.squares
        counts[self.ids] += self.counts


def _placed(sums: Any, at: Array, k: int) -> Any:
    """Rows put to these places among k, dense or sparse."""
    if not is_sparse(sums):
        out = np.zeros((k, sums.shape[1]))
        out[at] = sums
        return out
    counts = np.zeros(k, np.int64)
    counts[at] = np.diff(sums.indptr)
    return sparse.csr_array((sums.data, sums.indices, np.r_[0, np.cumsum(counts)]), shape=(k, sums.shape[1]))


def rounding(dtype: np.dtype, columns: int) -> float:
    """How far a score may be off, as a fraction of |x|^2 + |c|^2: a wide margin over random rounding errors."""
    return float(np.finfo(dtype).eps) * (64 + 32 * math.sqrt(columns))


def _centers(C: Array, Z: Array) -> Centers:
    norms2 = np.empty(len(C))
    dense_kernels.squared_norms(C, norms2)
    return Centers(C, Z, (norms2 * (1 - rounding(C.dtype, C.shape[1]))).astype(C.dtype), norms2)


class DenseBlock:
    """Rows of one block as a C-contiguous float32 or float64 array, not to be written to."""

    _add_moves = staticmethod(dense_kernels.add_moves)

    def __init__(self, X: Array) -> None:
        self.width = int(X.shape[1])
        self.X = X.view()
        self.X.flags.writeable = False  # and Numba compiles for one kind of array, not two

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @staticmethod
    def prepare(C: Array) -> Centers:
        return _centers(C, -2 * C)

    def squared_norms(self) -> Array:
        out = np.empty(len(self))
        dense_kernels.squared_norms(self.X, out)
        return out

    def reach(self) -> float:
        """The largest coordinate, whatever its sign."""
        return float(max(self.X.max(initial=0), -self.X.min(initial=0)))

    def take(self, rows: Array | slice) -> DenseBlock:
        return DenseBlock(self.X[rows])

    def nearest(self, centers: Centers) -> Array:
        """Label of every row."""
        n, d = self.X.shape
        labels = np.empty(n, np.int32)
        best, second = np.empty((2, n), self.X.dtype)
        if d <= NARROW or len(centers.C) <= FEW:
            tiles = NARROW_AT_ONCE // (len(centers.C) * max(d, 1) * dense_kernels.TILE)
            for s in pieces(n, max(1, tiles) * dense_kernels.TILE):
                dense_kernels.two_best_narrow(self.X[s], centers.Z, centers.z2, labels[s], best[s], second[s])
        else:
            step = max(64, min(512, SCORES_AT_ONCE // len(centers.C)))
            S = np.empty((len(centers.C), min(step, n)), self.X.dtype)
            for s in pieces(n, step):
                m = s.stop - s.start
                out = S if m == S.shape[1] else np.empty((len(S), m), S.dtype)
                np.dot(centers.Z, self.X[s].T, out=out)
                dense_kernels.two_best_wide(out, centers.z2, labels[s], best[s], second[s])
        margin = np.empty(n, self.X.dtype)
        dense_kernels.margins(self.X, rounding(self.X.dtype, d), centers.norms2, labels, margin)
        _decide(self, np.flatnonzero(~(second - best > margin)), best + margin, centers, labels)
        return labels

    def scores(self, centers: Centers, columns: slice) -> Array:
        """(rows, centres) of |c|^2 - 2 x.c, low enough to be a bound once `slack_of` the row is taken off."""
        S: Array = self.X @ centers.Z[columns].T
        S += centers.z2[columns]
        return S

    def pair_distances(self, rows: Array, ids: Array, centers: Centers) -> Array:
        """Squared distances of the pairs (row, centre)."""
        out = np.empty(len(rows))
        dense_kernels.pair_distances(self.X, rows, ids, centers.C, out)
        return out

    def moves(self, weights: Array, old: Array, new: Array, k: int, recompute: bool) -> SumDeltas:
        """What the rows whose label changed do to the sums; all rows do, when these are added up anew."""
        moved = int(np.count_nonzero(old != new))
        old = np.full_like(old, -1) if recompute else old
        slots = np.empty(k, np.int32)
        touched = dense_kernels.touched_slots(old, new, slots)
        sums = np.zeros((touched, self.width))
        weight_sums, squares = np.zeros((2, touched))
        counts = np.zeros(touched, np.int64)
        self._add_moves(self.X, weights, old, new, slots, sums, weight_sums, squares, counts)
        return SumDeltas(np.flatnonzero(slots >= 0), sums, weight_sums, squares, counts, moved)


class SparseBlock:
    """Rows of one block as a CSR matrix."""

    def __init__(self, X: sparse.csr_array) -> None:
        self.X = X

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @staticmethod
    def prepare(C: Array) -> Centers:
        return _centers(C, np.ascontiguousarray(-2 * C.T))

    def squared_norms(self) -> Array:
        out = np.empty(len(self))
        sparse_kernels.squared_norms(self.X.data, self.X.indptr, out)
        return out

    def reach(self) -> float:
        return float(max(self.X.data.max(initial=0), -self.X.data.min(initial=0)))

    def take(self, rows: Array | slice) -> SparseBlock:
        return SparseBlock(self.X[rows])

    def nearest(self, centers: Centers) -> Array:
        n = len(self)
        labels = np.empty(n, np.int32)
        best, second = np.empty((2, n), self.X.dtype)
        step = max(64, SCORES_AT_ONCE // len(centers.C))
        for where in pieces(n, step):
            S = self._scores(where, centers, slice(None))
            choice.two_best(S, labels[where], best[where], second[where])
        margin = 2 * rounding(self.X.dtype, self.X.shape[1]) * (self.squared_norms() + centers.norms2[labels])
        _decide(self, np.flatnonzero(~(second - best > margin)), best + margin, centers, labels)
        return labels

    def scores(self, centers: Centers, columns: slice) -> Array:
        return self._scores(slice(0, len(self)), centers, columns)

    def _scores(self, rows: slice, centers: Centers, columns: slice) -> Array:
        first, last, _ = columns.indices(len(centers.C))
        S = np.empty((rows.stop - rows.start, last - first), centers.C.dtype)
        X = self.X
        sparse_kernels.scores(X.data, X.indices, X.indptr[rows.start : rows.stop + 1], centers.Z, centers.z2, first, S)
        return S

    def pair_distances(self, rows: Array, ids: Array, centers: Centers) -> Array:
        out = np.empty(len(rows))
        X = self.X
        sparse_kernels.pair_distances(X.data, X.indices, X.indptr, rows, ids, centers.C, centers.norms2, out)
        return out

    def moves(self, weights: Array, old: Array, new: Array, k: int, recompute: bool) -> SumDeltas:
        moved = int(np.count_nonzero(old != new))
        old = np.full_like(old, -1) if recompute else old
        joins = np.flatnonzero(old != new)
        leaves = joins[old[joins] >= 0]
        into = np.concatenate([new[joins], old[leaves]])
        rows = np.concatenate([joins, leaves])
        sign = np.concatenate([np.ones(len(joins)), -np.ones(len(leaves))])
        ids, slots = np.unique(into, return_inverse=True)
        chosen = sparse.csr_array((sign * weights[rows], (slots, rows)), shape=(len(ids), len(self)))
        weight_sums = np.bincount(slots, sign * weights[rows], len(ids))
        squares = np.bincount(slots, sign * weights[rows] * self.squared_norms()[rows], len(ids))
        counts = np.bincount(slots, sign * (weights[rows] > 0), len(ids)).astype(np.int64)
        return SumDeltas(ids, chosen @ self.X.astype(np.float64), weight_sums, squares, counts, moved)


Block = DenseBlock | SparseBlock


def _decide(block: Block, rows: Array, limit: Array, centers: Centers, labels: Array) -> None:
    """Label rows for which scores leave several centres open, up to a limit: by distance, the first of equals."""
    step = max(1, DOUBTS_AT_ONCE // len(centers.C))
    for s in pieces(len(rows), step):
        some = rows[s]
        part = block.take(some)
        open_ = part.scores(centers, slice(None)) <= limit[some, None]
        open_[np.arange(len(some)), labels[some]] = True
        labels[some] = _nearest_open(part, open_, centers)


def _nearest_open(block: Block, open_: Array, centers: Centers) -> Array:
    """The nearest of those centres of each row that are open, (rows, centres) bool: by distance, the first of equals."""
    line, ids = np.nonzero(open_)
    distances = np.full(open_.shape, np.inf)
    distances[line, ids] = block.pair_distances(line, ids, centers)
    nearest: Array = distances.argmin(axis=1)
    return nearest


def nearest_others(block: Block, labels: Array, centers: Centers) -> Array:
    """The nearest centre of each row other than that of its label, the first of equals."""
    others, off = np.empty(len(block), np.intp), rounding(block.X.dtype, block.X.shape[1])
    for s in pieces(len(block), max(1, DOUBTS_AT_ONCE // len(centers.C))):
        part = block.take(s)
        every, S = np.arange(len(part)), part.scores(centers, slice(None))
        S[every, labels[s]] = np.inf
        best = S.argmin(axis=1)
        margin = 2 * off * (part.squared_norms() + centers.norms2[best])
        others[s] = _nearest_open(part, (S[every, best] + margin)[:, None] >= S, centers)
    return others


def slack_of(norms2: Array, dtype: np.dtype, columns: int) -> Array:
    """The row's part of how far its scores may be off."""
    return rounding(dtype, columns) * norms2
