"""Affinities exp(-|x - y|^2 / (s_x s_y)), computed by the column when they are needed.

A column takes a matrix product and an exponential per entry. Tiles of rows and columns stay in the cache of the CPU, and the
threads of the rows share the tiles. The affinity of a row to itself is zero.

References
----------
L. Zelnik-Manor, P. Perona (2004), Self-tuning spectral clustering, NIPS: the scale s_x of a row is its distance from a near
neighbor. All rows have the same scale otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, Centers
from ..data.jobs import Span
from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..fit.random_streams import Stream, generator
from ..kernels import affinity as kernels
from .neighbors import nearest_rows
from .tiles import (
    MAX_COLUMN_VALUES,
    convert_block,
    dense_rows,
    prepare_columns,
    prepare_sparse_columns,
    scores,
    tiles,
    with_small_blocks,
)

SIGMA_SAMPLE_ROWS = 1000  # rows from which sigma is estimated
SIGMA_CLUSTER_PARTS = 2  # sigma is the distance within which one part in so many of a row's cluster lies
MIN_SIGMA_NEIGHBORS = 7  # number of the neighbor at that distance, at least
MAX_EXPONENT_ERROR = 1e-2  # rounding error of an exponent above which distances are computed in float64
EQUAL_ROWS_TOLERANCE = 1e-12  # squared distance of equal rows, relative to their squared norms, that rounding may cause
MIN_RELATIVE_SCALE = 1e-3  # scale of a row among duplicates, relative to the median scale

TileFunction = Callable[[Array, Array], Any]  # (rows of the result that belong to a tile, tile) -> share


class AffinityColumns(NamedTuple):
    """Rows that are prepared for the comparison with others."""

    ids: Array  # int64: their row numbers, in ascending order
    centers: Centers
    inverse_scales: Array


class ComparedRows(NamedTuple):
    """Rows to compare with columns."""

    rows: Rows
    same_rows: bool  # whether the columns are some of these rows, which were validated


def _affinity_tile(start: int, block: Block, where: slice, u: Array, columns: AffinityColumns, same_rows: bool) -> Array:
    """Return the affinities of a range of a block's rows to the columns."""
    part = block.take(where)
    S = scores(part, columns.centers)
    v = columns.inverse_scales.astype(S.dtype)
    kernels.fall_off(S, part.squared_norms().astype(S.dtype), u[where].astype(S.dtype), v)
    if same_rows:
        first, last = np.searchsorted(columns.ids, [start + where.start, start + where.stop])
        S[columns.ids[first:last] - start - where.start, np.arange(first, last)] = 0
    return S


def _map_block(
    start: int,
    raw: Any,
    u: Array,
    out: Array,
    compared: ComparedRows,
    columns: AffinityColumns,
    tile_function: TileFunction,
    first_start: int = 0,
) -> Any:
    """Return the sum of the shares of a block's tiles. Blocks before `first_start` are skipped."""
    if start < first_start:
        return 0.0
    block, centers = convert_block(start, raw, compared.rows, columns.centers, compared.same_rows)
    columns = columns._replace(centers=centers)
    shares = (
        tile_function(out[where], _affinity_tile(start, block, where, u, columns, compared.same_rows))
        for where in tiles(block, len(columns.ids))
    )
    return sum(shares, start=0.0)


def _add_product(out: Array, S: Array, B: Array) -> float:
    out += S @ B
    return 0.0


def copy_tile(out: Array, S: Array, where: slice) -> float:
    """Copy a tile to these columns of the result."""
    out[:, where] = S
    return 0.0


def _add_moments(out: Array, S: Array) -> float:
    out[:, 0] += S.sum(axis=1)
    out[:, 1] += np.einsum("ij,ij->i", S, S)
    return 0.0


def _transposed_product(out: Array, S: Array) -> Array:
    return (S.T @ out).astype(np.float64)


def _add_row_sums(out: Array, S: Array) -> Array:
    """Add the row sums of a tile to the result. Return its column sums."""
    out += S @ np.ones(S.shape[1], S.dtype)
    return (np.ones(len(S), S.dtype) @ S).astype(np.float64)


class KernelAffinity:
    """Affinity matrix with entries exp(-|x - y|^2 u_x u_y), where u are the inverse scales of the rows.

    Parameters
    ----------
    rows : Rows
        Rows of the fit.
    inverse_scales : ndarray of shape (n,)
        Inverse scale of each row.
    neighbor : int, default=0
        Number of the neighbor whose distance is a row's scale; 0 if all rows have the same scale.
    min_scale : float, default=0.0
        Lower bound of the scales of new rows.
    """

    is_stored = False
    parts = ("rows", "neighbor_rows", "inverse_scales", "neighbor", "min_scale")  # attributes that model files hold

    def __init__(self, rows: Rows, inverse_scales: Array, neighbor: int = 0, min_scale: float = 0.0) -> None:
        self.rows, self.neighbor, self.min_scale = with_small_blocks(rows), neighbor, min_scale
        self.neighbor_rows = self.rows if neighbor else None  # rows among which new rows have their neighbors
        rounding = float(np.finfo(rows.dtype).eps) * max(rows.map_blocks(_max_squared_norm), default=0.0)
        if rounding * float(inverse_scales.max()) ** 2 > MAX_EXPONENT_ERROR:
            self.rows = self.rows.with_dtype(np.dtype(np.float64))
        self.inverse_scales = inverse_scales.astype(self.rows.dtype)

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def dtype(self) -> np.dtype:
        return self.rows.dtype

    def subset(self, ids: Array) -> KernelAffinity:
        """Return the affinities among some of the rows, with the scales that they have among all rows."""
        some = copy(self)
        some.rows, some.inverse_scales = self.rows.materialize(ids, 1), self.inverse_scales[ids]
        return some

    def inverse_scales_of(self, new: Rows) -> Array:
        """Return the inverse scales of new rows."""
        if self.neighbor_rows is None:
            return np.full(len(new), self.inverse_scales[0])
        distances2, _ = nearest_rows(new, self.neighbor_rows, self.neighbor, same_rows=False)
        return inverse_neighbor_scales(distances2, self.min_scale)

    def columns(self, ids: Array, layout: Rows | None = None) -> AffinityColumns:
        """Return these rows as columns to compare with rows that are dense or sparse like `layout`, by default their own."""
        rows = self.rows
        is_range = ids[-1] - ids[0] + 1 == len(ids)
        raw = rows.source.read(int(ids[0]), int(ids[-1]) + 1) if is_range else rows.source.take(ids)
        if is_sparse(raw) and len(ids) > rows.block_rows and len(ids) * rows.d > MAX_COLUMN_VALUES:
            centers = prepare_sparse_columns(rows.convert(raw).X)
        else:
            centers = prepare_columns(layout or rows, dense_rows(rows, raw))
        return AffinityColumns(ids, centers, self.inverse_scales[ids])

    def column_chunks(self, ids: Array | None = None, layout: Rows | None = None) -> Iterator[tuple[AffinityColumns, slice]]:
        """Generate the columns `ids` (by default all), as many at a time as a tile is wide, and their positions in `ids`."""
        spans = self.rows.spans if ids is None else [Span(0, len(ids), self.rows.block_rows)]
        for where in (block for span in spans for block in span.blocks()):
            yield self.columns(np.arange(where.start, where.stop) if ids is None else ids[where], layout), where

    def _map_tiles(
        self, out: Array, columns: AffinityColumns, tile_function: TileFunction, first_start: int = 0
    ) -> Iterator[Any]:
        """Generate the shares of all blocks of the rows of the fit."""
        arrays, arguments = (self.inverse_scales, out), (ComparedRows(self.rows, True), columns, tile_function, first_start)
        return self.rows.map_raw_blocks(_map_block, *arguments, per_row=arrays)

    def map_new_rows(
        self, new: Rows, inverse_scales: Array, columns: AffinityColumns, out: Array, tile_function: TileFunction
    ) -> Iterator[Any]:
        """Generate the shares of all blocks of new rows, compared with these columns."""
        new = with_small_blocks(new).with_dtype(self.dtype)
        arguments = ComparedRows(new, False), columns, tile_function
        return new.map_raw_blocks(_map_block, *arguments, per_row=(inverse_scales, out))

    def product(self, B: Array, ids: Array | None = None) -> Array:
        """Return A[:, ids] B, or A B."""
        out, B = np.zeros((self.n, B.shape[1]), self.dtype), np.ascontiguousarray(B, self.dtype)
        for columns, where in self.column_chunks(ids):
            deque(self._map_tiles(out, columns, partial(_add_product, B=B[where])), 0)
        return out

    def row_product(self, B: Array, ids: Array) -> Array:
        """Return A[ids] B."""
        shares = (sum(self._map_tiles(B, columns, _transposed_product)) for columns, _ in self.column_chunks(ids))
        return np.concatenate(list(shares))

    def out_of_sample_product(self, new: Rows, B: Array, inverse_scales: Array | None = None) -> Array:
        """Return the product of the affinities of new rows to the rows of the fit with B."""
        out, B = np.zeros((len(new), B.shape[1])), np.ascontiguousarray(B, self.dtype)
        u = self.inverse_scales_of(new) if inverse_scales is None else inverse_scales
        for columns, where in self.column_chunks(None, new):
            deque(self.map_new_rows(new, u, columns, out, partial(_add_product, B=B[where])), 0)
        return out

    def degrees(self) -> Array:
        """Return the sums of the rows of A in float64. As A is symmetric, half of its tiles are computed."""
        out, starts = np.zeros(self.n), self.rows.starts
        for columns, where in self.column_chunks():
            shares = self._map_tiles(out, columns, _add_row_sums, where.start)
            for start, share in zip(starts, shares, strict=True):
                if start > where.start:
                    out[where] += share
        return out

    def column_moments(self, ids: Array) -> tuple[Array, Array]:
        """Return the sums of the rows of A[:, ids], and those of the squared entries."""
        out = np.zeros((self.n, 2))
        for columns, _ in self.column_chunks(ids):
            deque(self._map_tiles(out, columns, _add_moments), 0)
        return out[:, 0], out[:, 1]

    def dense(self) -> Array:
        """Return A as a dense array."""
        out = np.empty((self.n, self.n), self.dtype)
        for columns, where in self.column_chunks():
            deque(self._map_tiles(out, columns, partial(copy_tile, where=where)), 0)
        return out

    def submatrix(self, ids: Array) -> Array:
        """Return A[ids, ids] as a dense array."""
        return self.subset(ids).dense()


def _max_squared_norm(block: Block) -> float:
    return float(block.squared_norms().max(initial=0))


def min_neighbor_scale(distances2: Array) -> float:
    """Return the scale of rows that have too many duplicates for one of their own, given the neighbors of all rows."""
    distances = np.sqrt(distances2[:, -1])
    return MIN_RELATIVE_SCALE * (float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0)


def inverse_neighbor_scales(distances2: Array, min_scale: float) -> Array:
    """Return the inverse of each row's distance from the last of its neighbors."""
    return np.asarray(1 / np.maximum(np.sqrt(distances2[:, -1]), min_scale))


def estimate_sigma(rows: Rows, k: int, seed: int) -> float:
    """Return the median distance within which the nearer half of a row's cluster lies, if clusters have the same size.

    It is estimated from a random sample of the rows.
    """
    n = min(len(rows), SIGMA_SAMPLE_ROWS)
    ids = np.sort(generator(seed, Stream.BANDWIDTH_SAMPLE).choice(len(rows), n, replace=False))
    X: Any = rows.convert(rows.source.take(ids)).X.astype(np.float64)  # sparse rows stay sparse
    products = (X @ X.T).toarray() if is_sparse(X) else X @ X.T
    norms2 = products.diagonal().copy()
    sums = norms2[:, None] + norms2
    distances2 = np.where(sums - 2 * products > EQUAL_ROWS_TOLERANCE * sums, sums - 2 * products, 0)
    nth = min(max(n // (SIGMA_CLUSTER_PARTS * k), MIN_SIGMA_NEIGHBORS), n - 1)
    median = float(np.median(np.partition(distances2, nth, axis=1)[:, nth]))
    if not median:
        median = float(np.median(distances2[distances2 > 0])) if distances2.any() else 1.0
    return float(np.sqrt(median))
