"""Centroids that are running means of rows, updated batch by batch or row by row.

Centroids are float64, in a layout that suits the rows: for sparse rows they are transposed and have a scale each, so that a
batch costs nothing for columns without entries. Updates are in place. Like `blocks`, this file handles both layouts, and its
callers need not distinguish them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from ..data.blocks import DenseBlock, SparseBlock, rounding, underflow
from ..data.cancellation import check_cancelled, pieces
from ..data.rows import Rows
from ..data.types import Array
from ..kernels import online
from .partition import MIN_ENERGY_RATIO, energy_block, label_block

ROWS_SCORED_AT_ONCE = (
    64,
    1024,
)  # fewest and most; fewer while centroids move too far for scores to pay
MAX_COMPUTED_SHARE = 1 / 8  # largest share of distances left to compute for which scores pay
ROWS_READ_AT_ONCE = 4096  # rows read at once
PRODUCTS_AT_ONCE = 1 << 25  # multiplications in one call of a kernel for sparse rows, about 50 ms


class AssignedSums(NamedTuple):
    """Sums of all rows by their nearest centroids."""

    energy: float
    sums: Array  # (k, d) float64
    weight_sums: Array  # (k) float64
    reassigned: int


def assign_and_sum(rows: Rows, C: Array, labels: Array) -> AssignedSums:
    """Label all rows and return their sums by cluster."""
    k = len(C)
    centers = rows.prepare(np.ascontiguousarray(C, rows.dtype))
    sums, weight_sums, squares, counts = np.zeros(C.shape), np.zeros(k), np.zeros(k), np.zeros(k, np.int64)
    reassigned = 0
    for share in rows.map_blocks(label_block, centers, True, per_row=(labels, labels.copy(), rows.weights)):
        share.moves.add_to(sums, weight_sums, squares, counts)
        reassigned += share.moves.moved
    energy = squares.sum() - 2 * np.vdot(centers.C.astype(np.float64), sums) + weight_sums @ centers.norms2
    if energy < MIN_ENERGY_RATIO * squares.sum():
        energy = sum(rows.map_blocks(energy_block, centers, per_row=(rows.weights, labels)))
    return AssignedSums(float(energy), sums, weight_sums, reassigned)


def directions(M: Array, instead: Array) -> tuple[Array, Array]:
    """Return the rows of M scaled to unit length (those of `instead` for zero rows), and their lengths."""
    lengths = np.linalg.norm(M, axis=1)
    some = lengths > 0
    return np.where(some[:, None], M / np.where(some, lengths, 1)[:, None], instead), lengths


class DenseMeans(NamedTuple):
    """Running means of dense rows."""

    C: Array  # (k, d) float64
    weight_sums: Array  # (k) float64: sum of the weights of the rows so far
    lengths: Array  # (k) float64: lengths of the means if the centroids are directions; else 1
    unit: bool  # whether centroids are directions

    @classmethod
    def begin(cls, C: Array, weight_sums: Array, lengths: Array, unit: bool) -> Self:
        """Return means that start from centroids C; the arrays are copied."""
        return cls(C.astype(np.float64), weight_sums.copy(), lengths.copy(), unit)

    @property
    def centers(self) -> Array:
        """Centroids, (k, d) float64."""
        return self.C

    def put(self, C: Array) -> None:
        """Replace the centroids and keep their weights."""
        self.C[:] = C

    def update_batch(self, batch: Rows) -> tuple[float, float]:
        """Label all rows, then update the means with them. Return the energy and the sum of squared centroid movements."""
        assigned = assign_and_sum(batch, self.C, np.full(len(batch), -1, np.int32))
        return assigned.energy, online.merge_means(assigned.sums, assigned.weight_sums, self.unit, *self[:3])

    def update_sequential(self, block: DenseBlock, weights: Array, rate: float = 0.0) -> tuple[Array, Array]:
        """Update the nearest mean with each row before the next row is assigned. Return labels and squared distances.

        Rows are scored several at a time. The scores give bounds on the distances to centroids that have moved since.
        """
        dtype, k = block.X.dtype, len(self.C)
        d, eps = block.X.shape[1], float(np.finfo(dtype).eps)
        base = block.squared_norms() * (1 - rounding(dtype, d)) - underflow(dtype, d)
        labels, distances = np.empty(len(block), np.int32), np.empty(len(block))
        start, size = 0, ROWS_SCORED_AT_ONCE[0]
        while start < len(block):
            check_cancelled()
            s = slice(start, min(start + size, len(block)))
            some = DenseBlock(block.X[s])
            centers = some.prepare(self.C.astype(dtype))
            paths = eps * np.sqrt(centers.norms2)  # distances by which rounding has moved the centroids
            S = some.scores(centers, slice(None))
            computed = online.update_sequential_dense(
                some.X, weights[s], S, base[s], rate, self.unit, *self[:3], paths, labels[s], distances[s]
            )
            start, useful = s.stop, computed <= MAX_COMPUTED_SHARE * len(some) * k
            size = min(2 * size, ROWS_SCORED_AT_ONCE[1]) if useful else max(size // 2, ROWS_SCORED_AT_ONCE[0])
        return labels, distances


class SparseMeans(NamedTuple):
    """Running means of sparse rows."""

    U: Array  # (d, k) float64: centroids divided by their scales
    scales: Array  # (k) float64
    squares: Array  # (k) float64: |c|^2
    weight_sums: Array  # (k) float64: sum of the weights of the rows so far
    lengths: Array  # (k) float64: lengths of the means if the centroids are directions; else 1
    unit: bool  # whether centroids are directions

    @classmethod
    def begin(cls, C: Array, weight_sums: Array, lengths: Array, unit: bool) -> Self:
        """Return means that start from centroids C; the arrays are copied."""
        U = np.array(C.T, np.float64, order="C")
        return cls(U, np.ones(len(C)), np.einsum("ij,ij->j", U, U), weight_sums.copy(), lengths.copy(), unit)

    @property
    def centers(self) -> Array:
        """Centroids, (k, d) float64."""
        return np.ascontiguousarray((self.U * self.scales).T)

    def put(self, C: Array) -> None:
        """Replace the centroids and keep their weights."""
        self.U[:], self.scales[:] = C.T, 1
        self.squares[:] = np.einsum("ij,ij->j", self.U, self.U)

    def update_batch(self, batch: Rows) -> tuple[float, float]:
        """Label all rows, then update the means with them. Return the energy and the sum of squared centroid movements."""
        labels, distances = np.empty(len(batch), np.int32), np.empty(len(batch))
        blocks = list(batch.map_blocks(_label_sparse, self[:3], per_row=(labels, distances)))
        before, products = self.squares.copy(), self.squares.copy()
        start = 0
        for X in blocks:
            s = slice(start, start + X.shape[0])
            weights = np.ascontiguousarray(batch.weights[s])
            parts = (X.data, X.indices, X.indptr, weights, labels[s], distances[s])
            online.move_sparse(*parts, before, self.unit, *self[:5], products)
            start = s.stop
        shift = np.maximum(self.squares + before - 2 * products, 0).sum()
        return float(batch.weights @ distances), float(shift)

    def update_sequential(self, block: SparseBlock, weights: Array, rate: float = 0.0) -> tuple[Array, Array]:
        """Update the nearest mean with each row before the next row is assigned. Return labels and squared distances."""
        labels, distances = np.empty(len(block), np.int32), np.empty(len(block))
        X = block.X
        for s in pieces(len(block), _rows_at_once(X, len(self.weight_sums))):
            indptr = X.indptr[s.start : s.stop + 1]
            online.update_sequential_sparse(
                X.data, X.indices, indptr, weights[s], rate, self.unit, *self[:5], labels[s], distances[s]
            )
        return labels, distances


def _label_sparse(block: SparseBlock, labels: Array, distances: Array, centers: tuple[Array, Array, Array]) -> Any:
    """Write the labels and squared distances of a block, and return its rows."""
    X = block.X
    for s in pieces(len(block), _rows_at_once(X, len(centers[1]))):
        online.label_sparse(X.data, X.indices, X.indptr[s.start : s.stop + 1], *centers, labels[s], distances[s])
    return X


def _rows_at_once(X: Any, k: int) -> int:
    """Return the number of sparse rows for one call of a kernel, which cannot be interrupted."""
    return max(1, int(PRODUCTS_AT_ONCE * X.shape[0] // (max(X.nnz, X.shape[0]) * k)))


Means = DenseMeans | SparseMeans


def initial_means(rows: Rows, C: Array, weight_sums: Array | None = None, lengths: Array | None = None) -> Means:
    """Return running means that start from centroids C in the frame of the rows.

    `weight_sums` (default 0) are their weights and `lengths` (default 1) the lengths of the means whose directions they are.
    """
    if rows.frame.unit:
        C, _ = directions(C.astype(np.float64), C)
    kind: type[Means] = SparseMeans if rows.is_sparse else DenseMeans
    nothing, one = np.zeros(len(C)), np.ones(len(C))
    return kind.begin(C, nothing if weight_sums is None else weight_sums, one if lengths is None else lengths, rows.frame.unit)


class Epoch(NamedTuple):
    """Result of one pass over the rows."""

    energy: float  # sum over the rows of the distance to the centroid at the time of the row
    shift: float
    reassigned: int


def run_epoch(rows: Rows, means: Means, ids: Array, labels: Array, rate: float = 0.0) -> Epoch:
    """Update the nearest mean with each row in the order of `ids`. The labels are updated in place."""
    before = means.centers.copy()
    energy, reassigned = 0.0, 0
    for s in pieces(len(ids), ROWS_READ_AT_ONCE):
        some = ids[s]
        block: Any = rows.convert(rows.source.take(some))
        weights = np.ascontiguousarray(rows.weights[some])
        found, distances = means.update_sequential(block, weights, rate)
        energy += float(weights @ distances)
        reassigned += int(np.count_nonzero(labels[some] != found))
        labels[some] = found
    return Epoch(energy, float(((means.centers - before) ** 2).sum()), reassigned)
