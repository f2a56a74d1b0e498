"""Random orders of rows: a permutation that is computed on demand, and an order that depends on the content of rows only.

In the second, equal rows are adjacent, so they act as one row of larger weight, and the order of the rows of X does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..kernels import keys as kernels
from .random_streams import Stream, generator

PERMUTED_AT_ONCE = 1 << 18  # rows permuted at a time, since each needs several temporary integers


class Order:
    """Random permutation of n rows, any part of which is computed without the rest, by a Feistel network on row numbers.

    M. Luby, C. Rackoff (1988), doi:10.1137/0217022. Numbers from n on are permuted again until they are below n.
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self.n, bits = n, max(int(n - 1).bit_length(), 2)
        self.low = np.uint64(bits // 2)
        self.masks = [np.uint64((1 << half) - 1) for half in (bits // 2, bits - bits // 2)]
        self.keys = rng.integers(1 << 64, size=6, dtype=np.uint64)

    def first(self, count: int) -> Array:
        """Return the first `count` rows of the permutation, int64."""
        out = np.empty(count, np.int64)
        for a in range(0, count, PERMUTED_AT_ONCE):
            out[a : a + PERMUTED_AT_ONCE] = self._at(np.arange(a, min(a + PERMUTED_AT_ONCE, count), dtype=np.uint64))
        return out

    def _at(self, places: Array) -> Array:
        """Return the rows at the given places of the permutation."""
        out = self._permute(places)
        while len(beyond := np.flatnonzero(out >= self.n)):
            out[beyond] = self._permute(out[beyond])
        return out

    def _permute(self, x: Array) -> Array:
        """Permute integers below the power of two that is at least n."""
        low, high = x & self.masks[0], x >> self.low
        for i, key in enumerate(self.keys):
            if i % 2:
                low ^= scramble(high ^ key) & self.masks[0]
            else:
                high ^= scramble(low ^ key) & self.masks[1]
        return (high << self.low) | low


def scramble(z: Array) -> Array:
    """Mix the bits of integers as SplitMix64 does (G. L. Steele et al. 2014, doi:10.1145/2660193.2660195)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z ^ (z >> np.uint64(31)))


def keys_of(rows: Rows) -> Array:
    """Return a hash of the content of each row, (n) uint64."""
    salts = generator(0, Stream.ROW_KEYS).integers(1 << 64, size=rows.d, dtype=np.uint64)
    keys = np.empty(len(rows), np.uint64)
    rows.for_each_raw(_keys_block, salts, per_row=(keys,))
    return keys


def _keys_block(start: int, raw: Any, keys: Array, salts: Array) -> None:
    """Write the hashes of a block of rows."""
    dtype = raw.dtype if raw.dtype in (np.float32, np.float64) else np.float64
    if is_sparse(raw):
        kernels.sparse_keys(raw.data.astype(dtype, copy=False), raw.indices, raw.indptr, salts, keys)
    else:
        kernels.dense_keys(np.ascontiguousarray(raw, dtype), salts, keys)


def shuffled(rows: Rows, keys: Array, rng: np.random.Generator) -> Array:
    """Return the rows of positive weight in a random order that depends on their keys."""
    salt, mixed = rng.integers(1 << 64, dtype=np.uint64), np.empty_like(keys)
    for a in range(0, len(keys), PERMUTED_AT_ONCE):
        mixed[a : a + PERMUTED_AT_ONCE] = scramble(keys[a : a + PERMUTED_AT_ONCE] ^ salt)
    ids = np.argsort(mixed)
    return ids[rows.weights[ids] > 0] if rows.has_weights else ids
