"""The nearest rows of each row: by all distances, in blocks, or by what pynndescent guesses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Centers
from ..data.rows import Rows
from ..data.types import Array
from ..kernels.affinity import keep_nearest
from .tiles import block_of, dense_rows, prepare, small_blocks, tiles

DIGITS = 1e-2  # of a squared distance: how far off it may be


def _nearest_block(
    start: int, raw: Any, best: Array, who: Array, rows: Rows, centers: Centers, ids: Array, known: bool
) -> None:
    block, centers = block_of(start, raw, rows, centers, known)
    for where in tiles(block, len(ids)):
        S = block.take(where).scores(centers, slice(None))
        own = np.arange(start + where.start, start + where.stop) if known else np.full(len(S), -1)
        keep_nearest(S, ids, own, best[where], who[where])


def _add_norms(start: int, raw: Any, best: Array, rows: Rows, none: Centers, known: bool) -> float:
    norms2 = block_of(start, raw, rows, none, known)[0].squared_norms()  # in the frame of the scores
    best += norms2[:, None]
    np.maximum(best, 0, out=best)
    return float(norms2.max(initial=0))


def nearest(rows: Rows, among: Rows, count: int, known: bool) -> tuple[Array, Array]:
    """Squared distances (n, count) and numbers of each row's nearest rows `among` others, nearest first.

    `known`: they are the same rows, and none is its own neighbour. Rows that lie far out, beside how near they are to each
    other, are compared in float64.
    """
    best, who, reach = _search(rows, among, among.dtype, count, known)
    if DIGITS * float(np.median(best[:, -1])) < np.finfo(among.dtype).eps * reach:
        best, who, _ = _search(rows, among, np.dtype(np.float64), count, known)
    return best, who


def _search(rows: Rows, among: Rows, dtype: np.dtype, count: int, known: bool) -> tuple[Array, Array, float]:
    """The same, and the largest squared norm of a row."""
    rows, among = (small_blocks(some).with_dtype(dtype) for some in (rows, among))
    best, who = np.full((len(rows), count), np.inf), np.full((len(rows), count), -1)
    for a in range(0, len(among), among.block_rows):
        ids = np.arange(a, min(a + among.block_rows, len(among)))
        centers = prepare(rows, dense_rows(among, among.source.read(a, int(ids[-1]) + 1)))
        rows.for_each_raw(_nearest_block, rows, centers, ids, known, per_row=(best, who))
    none = prepare(rows, np.empty((0, rows.d), dtype))
    return best, who, max(rows.map_raw_blocks(_add_norms, rows, none, known, per_row=(best,)), default=0.0)


def approximate(rows: Rows, count: int, seed: int) -> Array:
    """The numbers of all rows' nearest among themselves, by pynndescent: most of them, in about n log n time."""
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError("neighbors='pynndescent' needs that package: pip install 'shoal[neighbors]'.") from error
    X: Any = rows.convert(rows.source.read(0, len(rows)), np.dtype(np.float32)).X
    index = NNDescent(X, n_neighbors=count + 1, random_state=seed % 2**31, n_jobs=rows.n_threads)
    who, _ = index.neighbor_graph
    own = who == np.arange(len(rows))[:, None]
    own[~own.any(axis=1), -1] = True  # equal rows may have pushed it out: then the last goes
    return np.asarray(who[~own].reshape(len(rows), count), np.int64)
