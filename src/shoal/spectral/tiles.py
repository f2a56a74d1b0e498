"""Work on rows against rows, a tile at a time: the few things that affinities and neighbours both need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data.blocks import Block, Centers, SparseBlock
from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..fit.centroid_model import near_block

SIDE = 1024  # rows in a block, and columns at a time
TILE = 1 << 18  # entries that are worked on at once
COLUMN_NUMBERS, FEW = 1 << 23, 64  # in the rows behind the columns, however wide they are (but so many rows at least)


def small_blocks(rows: Rows) -> Rows:
    """The same rows in blocks of no more than SIDE: for work that grows with the columns, not with the rows' width."""
    return rows.with_block_rows(min(rows.block_rows, SIDE, max(FEW, COLUMN_NUMBERS // rows.d)))


def prepare(rows: Rows, C: Any) -> Centers:
    """Rows as columns for scores that are |y|^2 - 2 x.y, with no margin for rounding."""
    if is_sparse(C):
        return prepare_sparse(C)
    centers = rows.prepare(C)
    return centers._replace(z2=centers.norms2.astype(C.dtype))


def prepare_sparse(X: Any) -> Centers:
    """The same of sparse rows, which stay sparse: for more and wider ones than there is room for."""
    norms2 = SparseBlock(X).squared_norms()
    return Centers(X, (-2 * X.T).tocsr(), norms2.astype(X.dtype), norms2)


def scores(block: Block, centers: Centers) -> Array:
    """|y|^2 - 2 x.y of rows x and columns y."""
    if not is_sparse(centers.Z):
        return block.scores(centers, slice(None))
    product: Any = block.X @ centers.Z
    return np.asarray(product.toarray() + centers.z2)


def tiles(block: Block, width: int) -> Iterator[slice]:
    """Ranges of the block's rows that fill a tile."""
    step = max(1, TILE // width)
    return (slice(a, min(a + step, len(block))) for a in range(0, len(block), step))


def dense_rows(rows: Rows, raw: Any) -> Array:
    """Raw rows in the rows' frame, dense."""
    X: Any = rows.convert(raw).X
    return np.ascontiguousarray(X.toarray() if hasattr(X, "toarray") else X)


def block_of(start: int, raw: Any, rows: Rows, centers: Centers, known: bool) -> tuple[Block, Centers]:
    """A block, and the columns to compare it with. Rows that are new may lie so far out that it takes float64."""
    return (rows.convert(raw), centers) if known else near_block(start, raw, rows, centers, prepare)
