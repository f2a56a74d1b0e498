"""Estimate how long labelling all rows takes from a few rows, so that a fit with a time budget reserves time for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.blocks import Block, Centers
from ..data.cancellation import now
from ..data.rows import Rows
from ..data.types import Array, is_sparse

MEASURED_MULTIPLICATIONS = 1 << 29  # about 20 ms
MIN_MEASURED_ROWS = 64  # per thread; rows scored at once if there are many centroids
SAFETY_FACTOR = 1.2  # the measured rows and centroids are in the cache


def label(block: Block, centers: Centers) -> Any:
    """Return the nearest centroid of each row."""
    return block.nearest(centers)


def labelling_seconds(rows: Rows, k: int, work: Callable[[Block, Centers], Any] = label) -> float:
    """Estimate the seconds of `work` on all rows with k centroids from their first rows; 0 for distributed rows.

    The first of two measurements, which may include compiling kernels, does not count.
    """
    if rows.is_distributed:
        return 0.0
    centers, n = rows.prepare(_some_centers(rows, k)), len(rows)
    head: Any = rows.source.read(0, min(n, MIN_MEASURED_ROWS))
    width = max(1, head.nnz // head.shape[0]) if is_sparse(head) else rows.d
    m = max(MIN_MEASURED_ROWS, min(rows.block_rows, MEASURED_MULTIPLICATIONS // (k * width * rows.n_threads)))
    for count in (min(n, MIN_MEASURED_ROWS), min(n, m * rows.n_threads)):
        some = rows.subset(np.arange(count), k).with_block_rows(m)
        started = now()
        some.for_each(work, centers)
        seconds = now() - started
    return SAFETY_FACTOR * seconds * n / count


def _some_centers(rows: Rows, k: int) -> Array:
    """Return plausible centroids: points between two rows each; random ones for bits."""
    rng = np.random.default_rng(0)
    if rows.frame.bits:
        return rng.integers(2, size=(k, rows.d)).astype(rows.dtype)
    C = rows.take(np.arange(k))
    share = rng.random((k, 1)).astype(rows.dtype)
    return np.ascontiguousarray(share * C + (1 - share) * C[rng.permutation(k)])
