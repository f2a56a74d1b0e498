"""Blocks of dense or sparse rows behind one interface. No other module depends on the layout.

The label of a row is the index of the centroid with the smallest squared distance ``(x - c)^2``, computed in float64;
ties go to the lowest index. Scores ``|c|^2 - 2 x.c`` in the dtype of the rows only rule centroids out. A score is off by
at most ``rounding * (|x|^2 + |c|^2) + underflow``: the centroid's part of that bound is subtracted from the score when
centroids are prepared, the rest is `slack_of` the row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import sparse

from ..kernels import dense as dense_kernels
from ..kernels import sparse as sparse_kernels
from ..kernels import tiles
from .cancellation import pieces
from .types import Array, contiguous, read_only

# Columns and centroids up to which rows are compared along the lanes of a vector, instead of centroids.
FUSED_MAX_COLUMNS, FUSED_MAX_CENTERS = 24, 96
SCORES_AT_ONCE = 1 << 20  # entries of one score matrix, so that it stays in the cache
# Entries of one score matrix of undecided rows. Fewer, since float64 distances of the same shape must stay in the cache too.
UNDECIDED_SCORES_AT_ONCE = 1 << 17
# Share of the centroids up to which those with an entry in a column are listed; a sum over all of them is vectorized instead.
MAX_LISTED_SHARE, MAX_CENTERS_IN_TABLE = 1 / 16, 64  # the second: number of centroids up to which there are no lists
ENTRIES_AT_ONCE = 1 << 20  # entries of dense centroids that are searched for zeros together
# Multiplications per call of the fused kernel. A call cannot be interrupted; this many take about 50 ms.
FUSED_MULTIPLICATIONS_PER_CALL = 1 << 28


class Centers(NamedTuple):
    """Centroids prepared for scoring."""

    C: Array  # (k, d)
    Z: Any  # (k, d): centroids times -2; `Columns` for sparse rows; (words, k) packed bits for binary rows
    z2: Array  # (k): |c|^2, less the centroid's part of a score's rounding error
    norms2: Array  # (k) float64: |c|^2
    slices: Any = ()  # lookup tables of binary centroids, see `bits.build_slice_tables`
    packs: Any = ()  # of dense centroids: Z and z2 in the layout of `kernels.tiles`
    in_double: Any = None  # the same centroids prepared in float64, if squares of some underflow in float32


class CenterLists(NamedTuple):
    """Centroids that the rows of each group are compared with."""

    indptr: Array  # (groups + 1) int64: where each list starts in `ids`; no list is empty
    ids: Array  # (m) int32: centroids


class Columns(NamedTuple):
    """Centroids times -2, by column, for sparse rows. Most centroids of such rows are zero in most columns."""

    place: Array  # (d) int32: row of `table` for each column; the last one if it is stored as a list
    table: Array  # (columns + 1, k): columns in which many centroids have an entry; zeros
    starts: Array  # (d + 1) int64: start of the list of each of the other columns
    ids: Array  # (entries) int32: centroids of the lists
    listed: Array  # (entries): their entries

    @classmethod
    def of(cls, C: Array) -> Columns:
        """Return centroids by column."""
        k, d = C.shape
        found = [_stored_entries(C[s]) for s in pieces(max(k, 1), max(1, ENTRIES_AT_ONCE // d))]
        indices, values, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        lengths = np.bincount(indices, minlength=d)
        in_table = lengths > (MAX_LISTED_SHARE * k if k > MAX_CENTERS_IN_TABLE else 0)
        n = int(np.count_nonzero(in_table))
        place = np.where(in_table, np.cumsum(in_table, dtype=np.int32) - 1, np.int32(n))
        starts = np.zeros(d + 1, np.int64)
        np.cumsum(np.where(in_table, 0, lengths), out=starts[1:])
        table = np.zeros((n + 1, k), C.dtype)
        ids, listed = np.empty(starts[-1], np.int32), np.empty(starts[-1], C.dtype)
        sparse_kernels.fill_columns(indices, values, counts, place, starts[:-1].copy(), table, ids, listed)
        return cls(place, table, starts, ids, listed)


def _stored_entries(C: Array) -> tuple[Array, Array, Array]:
    """Return the columns and values of the entries that are not zero, row by row, and their number in each row."""
    indices, values, counts = np.empty(C.size + 1, np.int32), np.empty(C.size, C.dtype), np.empty(len(C), np.int64)
    n = sparse_kernels.stored_entries(C, indices, values, counts)
    return indices[:n].copy(), values[:n].copy(), counts


class SumDeltas(NamedTuple):
    """Changes of the cluster sums caused by the rows that changed cluster. Applied by `add_to`."""

    ids: Array  # (t) clusters touched
    sums: Any  # (t, d) float64, or for sparse rows a list of CSR parts and their clusters: sums of w x
    weight_sums: Array  # (t) float64
    squares: Array  # (t) float64: sums of w |x|^2
    counts: Array  # (t) int64: numbers of rows of positive weight
    moved: int  # number of rows that changed cluster

    def plus(self, other: SumDeltas) -> SumDeltas:
        """Return the sum of both. The arrays of `self` may be overwritten."""
        ids = _union(self.ids, other.ids)
        total = self if len(ids) == len(self.ids) else self._expand(ids)
        at = slice(None) if len(ids) == len(other.ids) else np.searchsorted(ids, other.ids)
        for mine, theirs in zip(total[2:5], other[2:5], strict=True):
            mine[at] += theirs
        if isinstance(self.sums, list):  # a sum of sparse matrices takes longer than adding them to the totals one by one
            return total._replace(sums=self.sums + other.sums, moved=self.moved + other.moved)
        total.sums[at] += other.sums
        return total._replace(moved=self.moved + other.moved)

    def _expand(self, ids: Array) -> SumDeltas:
        """Return the same changes for a superset of the clusters; those of the added clusters are zero."""
        at, k = np.searchsorted(ids, self.ids), len(ids)
        total = SumDeltas(ids, self.sums, np.zeros(k), np.zeros(k), np.zeros(k, np.int64), self.moved)
        for expanded, mine in zip(total[2:5], self[2:5], strict=True):
            expanded[at] = mine
        if isinstance(self.sums, list):
            return total
        sums = np.zeros((k, self.sums.shape[1]))
        sums[at] = self.sums
        return total._replace(sums=sums)

    def add_to(self, sums: Array, weight_sums: Array, squares: Array, counts: Array) -> None:
        """Add the changes to the sums of all clusters, in place."""
        if isinstance(self.sums, list):
            for data, indices, indptr, ids in self.sums:
                sparse_kernels.add_rows(data, indices, indptr, ids, sums)
        elif len(self.ids) == len(sums):
            sums += self.sums
        else:
            sums[self.ids] += self.sums
        weight_sums[self.ids] += self.weight_sums
        squares[self.ids] += self.squares
        counts[self.ids] += self.counts


def _union(a: Array, b: Array) -> Array:
    """Return the sorted union of two sorted arrays of small numbers; several times faster than `np.union1d`."""
    if np.array_equal(a, b) or not len(b):
        return a
    is_in = np.zeros(1 + max(a[-1] if len(a) else 0, b[-1]), bool)
    is_in[a] = is_in[b] = True
    return np.flatnonzero(is_in)


def rounding(dtype: np.dtype, columns: int) -> float:
    """Return a bound of the error of a score, relative to |x|^2 + |c|^2.

    A wide margin over random rounding errors, and not less than the error of a sum in parts of 1024 terms, even if all its
    rounding errors have the same sign.
    """
    return float(np.finfo(dtype).eps) * (64 + 32 * math.sqrt(columns))


def underflow(dtype: np.dtype, columns: int) -> float:
    """Return a bound of the error of a score from products and sums that underflow, even if they are flushed to zero."""
    return float(np.finfo(dtype).tiny) * (4 * columns + 8)


def squares_underflow(C: Array, norms2: Array) -> bool:
    """Return whether the error of a score from underflow may exceed that from rounding, because a float32 centroid is tiny.

    A frame is chosen by the largest rows, so that an outlier makes the others tiny. Zero is exact.
    """
    dtype, d = C.dtype, C.shape[1]
    threshold = 4 * underflow(dtype, d) / rounding(dtype, d)
    return dtype == np.float32 and bool(((norms2 > 0) & (norms2 < threshold)).any())


def prepare_pairs(C: Array, Z: Any = None) -> Centers:
    """Return centroids with their norms: prepared for `pair_distances`, and for scores too if Z is given."""
    norms2 = DenseBlock(C).squared_norms()
    return Centers(C, Z, (norms2 * (1 - rounding(C.dtype, C.shape[1]))).astype(C.dtype), norms2)


class DenseBlock:
    """A block of rows as a C-contiguous, read-only float32 or float64 array."""

    _add_moves = staticmethod(dense_kernels.add_moves)

    def __init__(self, X: Array) -> None:
        self.width = int(X.shape[1])
        self.X = read_only(X)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @staticmethod
    def prepare(C: Array) -> Centers:
        """Prepare centroids for scoring rows of this layout."""
        centers = prepare_pairs(C, -2 * C)
        if squares_underflow(C, centers.norms2):
            centers = centers._replace(in_double=DenseBlock.prepare(C.astype(np.float64)))
        if C.shape[1] <= FUSED_MAX_COLUMNS and len(C) <= FUSED_MAX_CENTERS:
            return centers
        return centers._replace(packs=(tiles.pack(centers.Z), tiles.pack_norms(centers.z2)))

    def squared_norms(self) -> Array:
        """Return |x|^2 of each row in float64."""
        out = np.empty(len(self))
        dense_kernels.squared_norms(self.X, out)
        return out

    def reach(self) -> float:
        """Return the largest absolute coordinate."""
        return float(max(self.X.max(initial=0), -self.X.min(initial=0)))

    def take(self, rows: Array | slice) -> DenseBlock:
        """Return some rows as a block."""
        return DenseBlock(self.X[rows])

    def nearest(self, centers: Centers) -> Array:
        """Return the label of each row."""
        labels = np.full(len(self), -1, np.int32)
        self.relabel(centers, labels)
        return labels

    def relabel(self, centers: Centers, labels: Array) -> None:
        """Set the label of each row, in place. Present labels that are likely to be right save time; -1 for none."""
        if centers.in_double is not None and self.X.dtype == np.float32:
            DenseBlock(self.X.astype(np.float64)).relabel(centers.in_double, labels)
            return
        n, d = self.X.shape
        limits, second = np.empty((2, n), self.X.dtype)
        error, k = rounding(self.X.dtype, d), len(centers.C)
        size = max(1, FUSED_MULTIPLICATIONS_PER_CALL // (k * max(d, 1) * dense_kernels.TILE)) * dense_kernels.TILE
        for s in pieces(n, size):
            if centers.packs:
                packs, z2 = centers.packs
                tiles.two_best_packed(self.X[s], error, centers.C, packs, z2, labels[s], limits[s], second[s])
                continue
            dense_kernels.two_best_narrow(self.X[s], centers.Z, centers.z2, labels[s], limits[s], second[s])
            margin = np.empty(s.stop - s.start, self.X.dtype)
            dense_kernels.margins(self.X[s], error, centers.norms2, labels[s], margin)
            limits[s] += margin
        _label_undecided(self, np.flatnonzero(~(second > limits)), limits, centers, labels)

    def relabel_listed(self, centers: Centers, lists: CenterLists, groups: Array, labels: Array) -> int:
        """Set the label of each row to the nearest centroid listed for its group, in place. Return the number of distances.

        A present label saves time if it is in the list and likely to be right; -1 for none.
        """
        if centers.in_double is not None and self.X.dtype == np.float32:
            return DenseBlock(self.X.astype(np.float64)).relabel_listed(centers.in_double, lists, groups, labels)
        n, d = self.X.shape
        error, compared = rounding(self.X.dtype, d), 0
        mean_length = max(1, len(lists.ids) // (len(lists.indptr) - 1))
        for s in pieces(n, max(1024, FUSED_MULTIPLICATIONS_PER_CALL // (mean_length * max(d, 1)))):
            compared += tiles.nearest_listed(self.X[s], groups[s], error, centers.C, centers.z2, *lists, labels[s])
        return compared

    def scores(self, centers: Centers, columns: slice) -> Array:
        """Return the scores |c|^2 - 2 x.c, (rows, centroids). Less `slack_of` the row, they are lower bounds."""
        S: Array = self.X @ centers.Z[columns].T
        S += centers.z2[columns]
        return S

    def pair_distances(self, rows: Array, ids: Array, centers: Centers) -> Array:
        """Return the squared distance of each pair (row, centroid)."""
        out = np.empty(len(rows))
        dense_kernels.pair_distances(self.X, contiguous(rows), contiguous(ids), centers.C, out)
        return out

    def moves(self, weights: Array, old: Array, new: Array, k: int, recompute: bool) -> SumDeltas:
        """Return the changes of the cluster sums due to rows whose label changed; the full sums if `recompute` is true."""
        moved = int(np.count_nonzero(old != new))
        old = np.full_like(old, -1) if recompute else old
        slots = np.empty(k, np.int32)
        n_touched = dense_kernels.touched_slots(old, new, slots)
        sums = np.zeros((n_touched, self.width))
        weight_sums, squares = np.zeros((2, n_touched))
        counts = np.zeros(n_touched, np.int64)
        self._add_moves(self.X, weights, old, new, slots, sums, weight_sums, squares, counts)
        return SumDeltas(np.flatnonzero(slots >= 0), sums, weight_sums, squares, counts, moved)


class SparseBlock:
    """A block of rows as a CSR matrix. The methods are those of `DenseBlock`."""

    def __init__(self, X: sparse.csr_array) -> None:
        self.X = X

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @staticmethod
    def prepare(C: Array) -> Centers:
        centers = prepare_pairs(C, Columns.of(C))
        if squares_underflow(C, centers.norms2):
            return centers._replace(in_double=SparseBlock.prepare(C.astype(np.float64)))
        return centers

    def squared_norms(self) -> Array:
        out = np.empty(len(self))
        sparse_kernels.squared_norms(self.X.data, self.X.indptr, out)
        return out

    def reach(self) -> float:
        return float(max(self.X.data.max(initial=0), -self.X.data.min(initial=0)))

    def take(self, rows: Array | slice) -> SparseBlock:
        return SparseBlock(self.X[rows])

    def relabel(self, centers: Centers, labels: Array) -> None:
        labels[:] = self.nearest(centers)

    def nearest(self, centers: Centers) -> Array:
        if centers.in_double is not None and self.X.dtype == np.float32:
            return SparseBlock(self.X.astype(np.float64)).nearest(centers.in_double)
        X, n, k = self.X, len(self), len(centers.C)
        if k == 1:
            return np.zeros(n, np.int32)
        columns: Columns = centers.Z
        error = rounding(X.dtype, int(np.diff(X.indptr).max(initial=0)))  # only the entries of a row are added up
        labels, row, z2 = np.empty(n, np.int32), np.empty(k, X.dtype), (centers.norms2 * (1 - error)).astype(X.dtype)
        integers = row.view(f"i{row.itemsize}")
        exact = centers.C, centers.norms2, error, row, integers, integers.dtype.type(np.iinfo(integers.dtype).max)
        for s in pieces(n, max(64, SCORES_AT_ONCE // k)):
            part = X.data, X.indices, X.indptr[s.start : s.stop + 1]
            sparse_kernels.label_rows(*part, *columns, z2, *exact, labels[s])
        return labels

    def relabel_listed(self, centers: Centers, lists: CenterLists, groups: Array, labels: Array) -> int:
        compared = 0
        for g in np.unique(groups):
            rows, ids = np.flatnonzero(groups == g), lists.ids[lists.indptr[g] : lists.indptr[g + 1]]
            ids = np.unique(ids)
            labels[rows] = ids[self.take(rows).nearest(self.prepare(centers.C[ids]))]
            compared += len(rows) * len(ids)
        return compared

    def scores(self, centers: Centers, columns: slice) -> Array:
        first, last, _ = columns.indices(len(centers.C))
        S = np.empty((len(self), last - first), centers.C.dtype)
        X, by_column = self.X, cast(Columns, centers.Z)
        sparse_kernels.scores(X.data, X.indices, X.indptr, *by_column, centers.z2, first, S)
        return S

    def pair_distances(self, rows: Array, ids: Array, centers: Centers) -> Array:
        out = np.empty(len(rows))
        X, pairs = self.X, (contiguous(rows), contiguous(ids))
        sparse_kernels.pair_distances(X.data, X.indices, X.indptr, *pairs, centers.C, centers.norms2, out)
        return out

    def moves(self, weights: Array, old: Array, new: Array, k: int, recompute: bool) -> SumDeltas:
        joining = np.flatnonzero(old != new)
        moved = len(joining)
        if recompute:
            old, joining = np.full_like(old, -1), np.arange(len(new))
        if not len(joining):
            return SumDeltas(joining, [], np.empty(0), np.empty(0), joining, 0)
        leaving = joining[old[joining] >= 0]
        clusters = np.concatenate([new[joining], old[leaving]])
        rows = np.concatenate([joining, leaving])
        sign = np.concatenate([np.ones(len(joining)), -np.ones(len(leaving))])
        ids, slots = np.unique(clusters, return_inverse=True)
        factors = sign * weights[rows]
        weight_sums = np.bincount(slots, factors, len(ids))
        norms2 = np.empty(len(rows))
        sparse_kernels.some_squared_norms(self.X.data, self.X.indptr, rows, norms2)
        squares = np.bincount(slots, factors * norms2, len(ids))
        counts = np.bincount(slots, sign * (weights[rows] > 0), len(ids)).astype(np.int64)
        order = np.argsort(slots, kind="stable")
        ends = np.cumsum(np.bincount(slots, minlength=len(ids)))
        sums = [(*self._sum_rows(rows[order], factors[order], ends), ids)]
        return SumDeltas(ids, sums, weight_sums, squares, counts, moved)

    def _sum_rows(self, rows: Array, factors: Array, ends: Array) -> tuple[Array, Array, Array]:
        """Return sums of multiples of rows, each of a range of `rows`: data, indices (not sorted) and indptr of CSR."""
        X, d = self.X, self.X.shape[1]
        size = int((X.indptr[rows + 1] - X.indptr[rows]).sum())
        indices, data, indptr = np.empty(size, X.indices.dtype), np.empty(size), np.empty(len(ends) + 1, np.int64)
        space = np.zeros(d), np.full(d, -1, np.int32)
        n = sparse_kernels.sum_rows(X.data, X.indices, X.indptr, rows, factors, ends, *space, indices, data, indptr)
        return data[:n], indices[:n], indptr


Block = DenseBlock | SparseBlock


def _label_undecided(block: Block, rows: Array, limit: Array, centers: Centers, labels: Array) -> None:
    """Label the rows for which scores do not determine the nearest centroid, by exact distances.

    The candidates of a row are the centroids whose scores do not exceed its limit.
    """
    step = max(1, UNDECIDED_SCORES_AT_ONCE // len(centers.C))
    for s in pieces(len(rows), step):
        ids = rows[s]
        part = block.take(ids)
        is_candidate = part.scores(centers, slice(None)) <= limit[ids, None]
        is_candidate[np.arange(len(ids)), labels[ids]] = True
        labels[ids] = _nearest_candidate(part, is_candidate, centers)


def _nearest_candidate(block: Block, is_candidate: Array, centers: Centers) -> Array:
    """Return the nearest candidate of each row by exact distance, the first of ties. `is_candidate` is (rows, centroids)."""
    rows, ids = np.nonzero(is_candidate)
    distances = np.full(is_candidate.shape, np.inf)
    distances[rows, ids] = block.pair_distances(rows, ids, centers)
    nearest: Array = distances.argmin(axis=1)
    return nearest


def nearest_others(block: Block, labels: Array, centers: Centers) -> Array:
    """Return the nearest centroid of each row other than that of its label, the first of ties."""
    others, dtype = np.empty(len(block), np.intp), block.X.dtype
    for s in pieces(len(block), max(1, UNDECIDED_SCORES_AT_ONCE // len(centers.C))):
        part = block.take(s)
        all_rows, S = np.arange(len(part)), part.scores(centers, slice(None))
        S[all_rows, labels[s]] = np.inf
        best = S.argmin(axis=1)
        margin = 2 * slack_of(part.squared_norms() + centers.norms2[best], dtype, block.X.shape[1])
        others[s] = _nearest_candidate(part, (S[all_rows, best] + margin)[:, None] >= S, centers)
    return others


def slack_of(norms2: Array, dtype: np.dtype, columns: int) -> Array:
    """Return the bound of the error of the scores of rows, given their |x|^2, without the centroid's part."""
    return rounding(dtype, columns) * norms2 + underflow(dtype, columns)
