"""How long labelling all rows will take, measured on a few of them, so that a fit under a time budget can leave time for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .blocks import Block, Centers
from .rows import Rows
from .types import Array

CENTERS, ROWS = 1024, 512  # to try, at most
NUMBERS = 1 << 22  # of the centres to try: wide ones are fewer
PRODUCTS = 1 << 28  # to try: some 10 ms


def label(block: Block, centers: Centers) -> Any:
    return block.nearest(centers)


def labelling_seconds(rows: Rows, k: int, work: Callable[[Block, Centers], Any] = label) -> float:
    """Estimated seconds of `work` on all rows and k centres, by the threads of these rows, without reading them.

    Distances that are computed twice to tell near centres apart are counted as far as they occur among means of random
    rows. The first try, which may compile the kernels, does not count. Rows that are elsewhere are not measured: 0.
    """
    if rows.is_far:
        return 0.0
    few = max(1, min(k, CENTERS, NUMBERS // rows.d))
    m = min(len(rows), rows.block_rows, max(32, min(ROWS, PRODUCTS // (few * rows.d))))
    block, centers = rows.convert(rows.source.read(0, m)), rows.prepare(_some_centers(rows, few))
    seconds = min(_time(work, block, centers) for _ in range(3))
    threads = min(rows.n_threads, -(-len(rows) // rows.block_rows))
    return seconds * (len(rows) / m) * (k / few) / threads


def _some_centers(rows: Rows, k: int) -> Array:
    """Centres as a fit might have them: means of two rows each; of bits, random ones."""
    rng = np.random.default_rng(0)
    if rows.frame.bits:
        return rng.integers(2, size=(k, rows.d)).astype(rows.dtype)
    some = rows.take(np.arange(min(len(rows), k + 1)))
    one, other = rng.integers(len(some), size=(2, k))
    share = rng.random((k, 1)).astype(rows.dtype)
    return np.ascontiguousarray(share * some[one] + (1 - share) * some[other])


def _time(work: Callable[[Block, Centers], Any], block: Block, centers: Centers) -> float:
    begun = time.perf_counter()
    work(block, centers)
    return time.perf_counter() - begun
