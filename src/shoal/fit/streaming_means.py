"""Centres that rows move as they go by: batch after batch, or row after row.

They are float64 and lie as suits the rows: for sparse ones, column by column and times a number each, so that a batch
costs nothing for columns that it does not touch. Like `blocks`, this file knows both layouts, and nothing above it does.
The arrays are written to as rows are taken in.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from ..data.blocks import DenseBlock, SparseBlock, rounding
from ..data.cancellation import check_cancelled, pieces
from ..data.rows import Rows
from ..data.types import Array
from ..kernels import online
from .partition import FEW_DIGITS, energy_block, label_block

STRETCHES = (64, 1024)  # rows scored at once, fewer while centres move so far that the scores are of no use
USEFUL = 1 / 8  # scores are of use if they leave no more than this share of the distances to compute
TOGETHER = 4096  # rows read at once
PRODUCTS_AT_ONCE = 1 << 25  # of numbers of sparse rows and of centres


class AssignedSums(NamedTuple):
    """Rows under the centres nearest to them. Blocks' shares add up."""

    energy: float
    sums: Array  # (k, d) float64
    weight_sums: Array  # (k) float64
    reassigned: int


def assign_and_sum(rows: Rows, C: Array, labels: Array) -> AssignedSums:
    """Label all rows; what they have to say to their centres."""
    k = len(C)
    centers = rows.prepare(np.ascontiguousarray(C, rows.dtype))
    sums, weight_sums, squares, counts = np.zeros(C.shape), np.zeros(k), np.zeros(k), np.zeros(k, np.int64)
    reassigned = 0
    for share in rows.map_blocks(label_block, centers, True, per_row=(labels, labels.copy(), rows.weights)):
        share.moves.add_to(sums, weight_sums, squares, counts)
        reassigned += share.moves.moved
    energy = squares.sum() - 2 * np.vdot(centers.C.astype(np.float64), sums) + weight_sums @ centers.norms2
    if energy < FEW_DIGITS * squares.sum():
        energy = sum(rows.map_blocks(energy_block, centers, per_row=(rows.weights, labels)))
    return AssignedSums(float(energy), sums, weight_sums, reassigned)


def directions(M: Array, instead: Array) -> tuple[Array, Array]:
    """Rows scaled to length one (`instead`, where they have none), and their lengths."""
    lengths = np.linalg.norm(M, axis=1)
    some = lengths > 0
    return np.where(some[:, None], M / np.where(some, lengths, 1)[:, None], instead), lengths


class DenseMeans(NamedTuple):
    """Centres for dense rows."""

    C: Array  # (k, d) float64
    weight_sums: Array  # (k) float64: weights of all rows taken in
    lengths: Array  # (k) float64: of the means whose directions the centres are; else 1
    unit: bool  # are they directions?

    @classmethod
    def begin(cls, C: Array, weight_sums: Array, lengths: Array, unit: bool) -> Self:
        return cls(C.astype(np.float64), weight_sums.copy(), lengths.copy(), unit)

    @property
    def centers(self) -> Array:
        return self.C

    def put(self, C: Array) -> None:
        """Centres elsewhere, of the same mass."""
        self.C[:] = C

    def update_batch(self, batch: Rows) -> tuple[float, float]:
        """All rows find their centres, then they move them to the running means. Returns energy and shift."""
        served = assign_and_sum(batch, self.C, np.full(len(batch), -1, np.int32))
        return served.energy, online.merge_means(served.sums, served.weight_sums, self.unit, *self[:3])

    def update_sequential(self, block: DenseBlock, weights: Array, rate: float = 0.0) -> tuple[Array, Array]:
        """Each row moves the centre nearest to it, before the next row looks. Returns labels and squared distances.

        Rows are scored in stretches. What their scores say of centres that have moved since is a bound.
        """
        dtype, k = block.X.dtype, len(self.C)
        off, eps = rounding(dtype, block.X.shape[1]), float(np.finfo(dtype).eps)
        base = block.squared_norms() * (1 - off)
        labels, distances = np.empty(len(block), np.int32), np.empty(len(block))
        start, size = 0, STRETCHES[0]
        while start < len(block):
            check_cancelled()
            s = slice(start, min(start + size, len(block)))
            some = DenseBlock(block.X[s])
            centers = some.prepare(self.C.astype(dtype))
            paths = eps * np.sqrt(centers.norms2)  # what rounding has moved them
            S = some.scores(centers, slice(None))
            computed = online.follow_dense(
                some.X, weights[s], S, base[s], rate, self.unit, *self[:3], paths, labels[s], distances[s]
            )
            start, useful = s.stop, computed <= USEFUL * len(some) * k
            size = min(2 * size, STRETCHES[1]) if useful else max(size // 2, STRETCHES[0])
        return labels, distances


class SparseMeans(NamedTuple):
    """Centres for sparse rows."""

    U: Array  # (d, k) float64: divided by their scales
    scales: Array  # (k) float64
    squares: Array  # (k) float64: |c|^2
    weight_sums: Array  # (k) float64: weights of all rows taken in
    lengths: Array  # (k) float64: of the means whose directions the centres are; else 1
    unit: bool  # are they directions?

    @classmethod
    def begin(cls, C: Array, weight_sums: Array, lengths: Array, unit: bool) -> Self:
        U = np.array(C.T, np.float64, order="C")
        return cls(U, np.ones(len(C)), np.einsum("ij,ij->j", U, U), weight_sums.copy(), lengths.copy(), unit)

    @property
    def centers(self) -> Array:
        return np.ascontiguousarray((self.U * self.scales).T)

    def put(self, C: Array) -> None:
        self.U[:], self.scales[:] = C.T, 1
        self.squares[:] = np.einsum("ij,ij->j", self.U, self.U)

    def update_batch(self, batch: Rows) -> tuple[float, float]:
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
        labels, distances = np.empty(len(block), np.int32), np.empty(len(block))
        X = block.X
        for s in pieces(len(block), _rows_at_once(X, len(self.weight_sums))):
            indptr = X.indptr[s.start : s.stop + 1]
            online.follow_sparse(X.data, X.indices, indptr, weights[s], rate, self.unit, *self[:5], labels[s], distances[s])
        return labels, distances


def _label_sparse(block: SparseBlock, labels: Array, distances: Array, centers: tuple[Array, Array, Array]) -> Any:
    X = block.X
    for s in pieces(len(block), _rows_at_once(X, len(centers[1]))):
        online.label_sparse(X.data, X.indices, X.indptr[s.start : s.stop + 1], *centers, labels[s], distances[s])
    return X


def _rows_at_once(X: Any, k: int) -> int:
    """Sparse rows for one call of a kernel, which can't be interrupted: some 50 ms."""
    return max(1, int(PRODUCTS_AT_ONCE * X.shape[0] // (max(X.nnz, X.shape[0]) * k)))


Means = DenseMeans | SparseMeans


def initial_means(rows: Rows, C: Array, weight_sums: Array | None = None, lengths: Array | None = None) -> Means:
    """Centres at C, in the rows' frame, which weigh so much (nothing, unless it is said) and, if they are directions, are
    those of means of such lengths."""
    if rows.frame.unit:
        C, _ = directions(C.astype(np.float64), C)
    kind: type[Means] = SparseMeans if rows.is_sparse else DenseMeans
    nothing, one = np.zeros(len(C)), np.ones(len(C))
    return kind.begin(C, nothing if weight_sums is None else weight_sums, one if lengths is None else lengths, rows.frame.unit)


class Epoch(NamedTuple):
    """What one look at each of the rows learned."""

    energy: float  # of each row by the centres as it met them
    shift: float
    reassigned: int


def run_epoch(rows: Rows, means: Means, ids: Array, labels: Array, rate: float = 0.0) -> Epoch:
    """Rows, in the order named, each move the centre nearest to them. Labels are brought up to date."""
    before = means.centers.copy()
    energy, reassigned = 0.0, 0
    for s in pieces(len(ids), TOGETHER):
        some = ids[s]
        block: Any = rows.convert(rows.source.take(some))
        weights = np.ascontiguousarray(rows.weights[some])
        found, distances = means.update_sequential(block, weights, rate)
        energy += float(weights @ distances)
        reassigned += int(np.count_nonzero(labels[some] != found))
        labels[some] = found
    return Epoch(energy, float(((means.centers - before) ** 2).sum()), reassigned)
