"""How long labelling all rows will take, measured on a few of them, so that a fit under a time budget can leave time for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.blocks import Block, Centers
from ..data.cancellation import now
from ..data.rows import Rows
from ..data.types import Array, is_sparse

PRODUCTS = 1 << 29  # multiplications to measure, at least for a few rows: some 20 ms
ROWS = 64  # for each thread, at least: as many as are scored at once where there are many centres
MARGIN = 1.2  # what is measured is the best case: the rows are in the cache, and no step has left it


def label(block: Block, centers: Centers) -> Any:
    return block.nearest(centers)


def labelling_seconds(rows: Rows, k: int, work: Callable[[Block, Centers], Any] = label) -> float:
    """Estimated seconds of `work` on all rows and k centres, by the threads of these rows, without reading them.

    The first try, which may compile the kernels, does not count. Rows that are elsewhere are not measured: 0.
    """
    if rows.is_distributed:
        return 0.0
    centers, n = rows.prepare(_some_centers(rows, k)), len(rows)
    head: Any = rows.source.read(0, min(n, ROWS))
    width = max(1, head.nnz // head.shape[0]) if is_sparse(head) else rows.d
    m = max(ROWS, min(rows.block_rows, PRODUCTS // (k * width * rows.n_threads)))
    for count in (min(n, ROWS), min(n, m * rows.n_threads)):
        some = rows.subset(np.arange(count), k).with_block_rows(m)
        begun = now()
        some.for_each(work, centers)
        seconds = now() - begun
    return MARGIN * seconds * n / count


def _some_centers(rows: Rows, k: int) -> Array:
    """Centres as a fit might have them: somewhere between two rows each; of bits, random ones."""
    rng = np.random.default_rng(0)
    if rows.frame.bits:
        return rng.integers(2, size=(k, rows.d)).astype(rows.dtype)
    C = rows.take(np.arange(k))
    share = rng.random((k, 1)).astype(rows.dtype)
    return np.ascontiguousarray(share * C + (1 - share) * C[rng.permutation(k)])
