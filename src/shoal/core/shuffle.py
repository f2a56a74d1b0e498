"""Rows in a random order that follows from what they hold, not from where they stand.

So equal rows come one after the other, as one heavy row would, and the order of the rows of X does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels import online
from .rows import Rows
from .seeding import KEYS, generator
from .types import Array, is_sparse


def keys_of(rows: Rows) -> Array:
    """(n) uint64: a number for what each row holds."""
    odd = 2 * generator(0, KEYS).integers(1 << 63, size=rows.d, dtype=np.uint64) + 1
    keys = np.empty(len(rows), np.uint64)
    for _ in rows.raw_shares(_keys_block, odd, per_row=(keys,)):
        pass
    return keys


def _keys_block(start: int, raw: Any, keys: Array, odd: Array) -> None:
    dtype = raw.dtype if raw.dtype in (np.float32, np.float64) else np.float64
    if is_sparse(raw):
        online.sparse_keys(raw.data.astype(dtype, copy=False), raw.indices, raw.indptr, odd, keys)
    else:
        online.dense_keys(np.ascontiguousarray(raw, dtype), odd, keys)


def shuffled(rows: Rows, keys: Array, rng: np.random.Generator) -> Array:
    """The rows that have a weight, sorted by their keys as SplitMix64 scrambles them (G. L. Steele et al. 2014,
    doi:10.1145/2660193.2660195).
    """
    z = keys ^ rng.integers(1 << 64, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    ids = np.argsort(z ^ (z >> np.uint64(31)))
    return ids[rows.weights[ids] > 0] if rows.has_weights else ids
