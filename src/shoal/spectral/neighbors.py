"""Nearest neighbors of rows: exact, from all distances in blocks, or approximate, by pynndescent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Centers
from ..data.rows import Rows
from ..data.types import Array
from ..kernels.affinity import keep_nearest
from .tiles import convert_block, dense_rows, prepare_columns, tiles, with_small_blocks

MAX_RELATIVE_ERROR = 1e-2  # rounding error of a squared distance, above which distances are computed in float64


def nearest_rows(rows: Rows, among: Rows, count: int, same_rows: bool) -> tuple[Array, Array]:
    """Return squared distances (n, count) and numbers (n, count) of each row's nearest rows `among` others, nearest first.

    `same_rows` states that both are the same rows, none of which is its own neighbor. Distances are computed in float64 if they
    are so small compared with the norms of the rows that float32 would lose their digits.
    """
    distances2, neighbors, max_norm2 = _search(rows, among, among.dtype, count, same_rows)
    if MAX_RELATIVE_ERROR * float(np.median(distances2[:, -1])) < np.finfo(among.dtype).eps * max_norm2:
        distances2, neighbors, _ = _search(rows, among, np.dtype(np.float64), count, same_rows)
    return distances2, neighbors


def _search(rows: Rows, among: Rows, dtype: np.dtype, count: int, same_rows: bool) -> tuple[Array, Array, float]:
    """Return the result of `nearest_rows` computed in this dtype, and the largest squared norm of a row."""
    rows, among = (with_small_blocks(some).with_dtype(dtype) for some in (rows, among))
    distances2, neighbors = np.full((len(rows), count), np.inf), np.full((len(rows), count), -1)
    for a in range(0, len(among), among.block_rows):
        ids = np.arange(a, min(a + among.block_rows, len(among)))
        centers = prepare_columns(rows, dense_rows(among, among.source.read(a, int(ids[-1]) + 1)))
        rows.for_each_raw(_search_block, rows, centers, ids, same_rows, per_row=(distances2, neighbors))
    none = prepare_columns(rows, np.empty((0, rows.d), dtype))
    norms = rows.map_raw_blocks(_add_norms, rows, none, same_rows, per_row=(distances2,))
    return distances2, neighbors, max(norms, default=0.0)


def _search_block(
    start: int, raw: Any, scores: Array, neighbors: Array, rows: Rows, centers: Centers, ids: Array, same_rows: bool
) -> None:
    """Update the nearest rows of a block by a chunk of columns. The scores are distances less the norm of the row."""
    block, centers = convert_block(start, raw, rows, centers, same_rows)
    for where in tiles(block, len(ids)):
        S = block.take(where).scores(centers, slice(None))
        own = np.arange(start + where.start, start + where.stop) if same_rows else np.full(len(S), -1)
        keep_nearest(S, ids, own, scores[where], neighbors[where])


def _add_norms(start: int, raw: Any, scores: Array, rows: Rows, none: Centers, same_rows: bool) -> float:
    """Turn the scores of a block into squared distances, in place. Return the largest squared norm."""
    norms2 = convert_block(start, raw, rows, none, same_rows)[0].squared_norms()  # in the frame of the scores
    scores += norms2[:, None]
    np.maximum(scores, 0, out=scores)
    return float(norms2.max(initial=0))


def approximate_neighbors(rows: Rows, count: int, seed: int) -> Array:
    """Return the numbers (n, count) of approximate nearest neighbors by pynndescent, in about n log n time."""
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError("neighbors='pynndescent' needs that package: pip install 'shoal[neighbors]'.") from error
    X: Any = rows.convert(rows.source.read(0, len(rows)), np.dtype(np.float32)).X
    index = NNDescent(X, n_neighbors=count + 1, random_state=seed % 2**31, n_jobs=rows.n_threads)
    neighbors, _ = index.neighbor_graph
    own = neighbors == np.arange(len(rows))[:, None]
    own[~own.any(axis=1), -1] = True  # equal rows may have displaced the row itself: the last neighbor is dropped instead
    return np.asarray(neighbors[~own].reshape(len(rows), count), np.int64)
