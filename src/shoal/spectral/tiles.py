"""Tiles: blocks of rows compared with a limited number of other rows (the columns) at a time.

Affinities and nearest neighbors are both computed tile by tile, so that a tile stays in the cache of the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data.blocks import Block, Centers, SparseBlock
from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..fit.centroid_model import near_block

MAX_BLOCK_ROWS = 1024  # rows per block, and columns at a time
MIN_BLOCK_ROWS = 64  # rows per block, however wide the rows are
TILE_ENTRIES = 1 << 18  # entries per tile: 1 or 2 MB
MAX_COLUMN_VALUES = 1 << 23  # values of the rows behind the columns at a time, unless `MIN_BLOCK_ROWS` rows have more


def with_small_blocks(rows: Rows) -> Rows:
    """Return the rows in blocks small enough for work that grows with the number of columns."""
    return rows.with_block_rows(min(rows.block_rows, MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, MAX_COLUMN_VALUES // rows.d)))


def prepare_columns(rows: Rows, C: Any) -> Centers:
    """Return the rows C as columns that `rows` are compared with. Scores are |y|^2 - 2 x.y, without a margin for rounding."""
    if is_sparse(C):
        return prepare_sparse_columns(C)
    centers = rows.prepare(C)
    return centers._replace(z2=centers.norms2.astype(C.dtype))


def prepare_sparse_columns(X: Any) -> Centers:
    """Return sparse rows as columns that stay sparse, for rows too many and too wide to be dense."""
    norms2 = SparseBlock(X).squared_norms()
    return Centers(X, (-2 * X.T).tocsr(), norms2.astype(X.dtype), norms2)


def scores(block: Block, centers: Centers) -> Array:
    """Return |y|^2 - 2 x.y for rows x and columns y."""
    if not is_sparse(centers.Z):
        return block.scores(centers, slice(None))
    product: Any = block.X @ centers.Z
    return np.asarray(product.toarray() + centers.z2)


def tiles(block: Block, n_columns: int) -> Iterator[slice]:
    """Generate ranges of the block's rows, each of which makes up a tile with this many columns."""
    step = max(1, TILE_ENTRIES // n_columns)
    return (slice(a, min(a + step, len(block))) for a in range(0, len(block), step))


def dense_rows(rows: Rows, raw: Any) -> Array:
    """Return raw rows as a dense array in the frame of `rows`."""
    X: Any = rows.convert(raw).X
    return np.ascontiguousarray(X.toarray() if hasattr(X, "toarray") else X)


def convert_block(start: int, raw: Any, rows: Rows, centers: Centers, same_rows: bool) -> tuple[Block, Centers]:
    """Return a block and the columns to compare it with.

    `same_rows` states that the columns are some of the same rows, which were validated. New rows may lie so far from the others
    that their distances need float64.
    """
    return (rows.convert(raw), centers) if same_rows else near_block(start, raw, rows, centers, prepare_columns)
