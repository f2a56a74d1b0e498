"""Rows in a random order: one that is never held, and one that follows from what rows hold, not from where they stand.

In the second, equal rows come one after the other, as one heavy row would, and the order of the rows of X does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..kernels import keys as kernels
from .random_streams import Stream, generator

TOGETHER = 1 << 18  # rows that are sent on their way at a time: each takes several numbers as long as it is


class Order:
    """A permutation of n rows, of which any part can be had without the rest: a Feistel network on their numbers.

    M. Luby, C. Rackoff (1988), doi:10.1137/0217022. Numbers beyond n are sent on until they fall below it.
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self.n, bits = n, max(int(n - 1).bit_length(), 2)
        self.low = np.uint64(bits // 2)
        self.masks = [np.uint64((1 << half) - 1) for half in (bits // 2, bits - bits // 2)]
        self.keys = rng.integers(1 << 64, size=6, dtype=np.uint64)

    def first(self, count: int) -> Array:
        """The rows at the first places, int64."""
        out = np.empty(count, np.int64)
        for a in range(0, count, TOGETHER):
            out[a : a + TOGETHER] = self._at(np.arange(a, min(a + TOGETHER, count), dtype=np.uint64))
        return out

    def _at(self, places: Array) -> Array:
        out = self._send(places)
        while len(beyond := np.flatnonzero(out >= self.n)):
            out[beyond] = self._send(out[beyond])
        return out

    def _send(self, x: Array) -> Array:
        low, high = x & self.masks[0], x >> self.low
        for i, key in enumerate(self.keys):
            if i % 2:
                low ^= scramble(high ^ key) & self.masks[0]
            else:
                high ^= scramble(low ^ key) & self.masks[1]
        return (high << self.low) | low


def scramble(z: Array) -> Array:
    """SplitMix64's way to mix the bits of numbers (G. L. Steele et al. 2014, doi:10.1145/2660193.2660195)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z ^ (z >> np.uint64(31)))


def keys_of(rows: Rows) -> Array:
    """(n) uint64: a number for what each row holds."""
    salts = generator(0, Stream.ROW_KEYS).integers(1 << 64, size=rows.d, dtype=np.uint64)
    keys = np.empty(len(rows), np.uint64)
    for _ in rows.map_raw_blocks(_keys_block, salts, per_row=(keys,)):
        pass
    return keys


def _keys_block(start: int, raw: Any, keys: Array, salts: Array) -> None:
    dtype = raw.dtype if raw.dtype in (np.float32, np.float64) else np.float64
    if is_sparse(raw):
        kernels.sparse_keys(raw.data.astype(dtype, copy=False), raw.indices, raw.indptr, salts, keys)
    else:
        kernels.dense_keys(np.ascontiguousarray(raw, dtype), salts, keys)


def shuffled(rows: Rows, keys: Array, rng: np.random.Generator) -> Array:
    """The rows that have a weight, sorted by their keys, scrambled."""
    salt, mixed = rng.integers(1 << 64, dtype=np.uint64), np.empty_like(keys)
    for a in range(0, len(keys), TOGETHER):
        mixed[a : a + TOGETHER] = scramble(keys[a : a + TOGETHER] ^ salt)
    ids = np.argsort(mixed)
    return ids[rows.weights[ids] > 0] if rows.has_weights else ids
