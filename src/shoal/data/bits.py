"""Rows of bits in 64-bit words: the first bit in the lowest place, what is left of the last word zero.

Between bits, a squared distance is the number of bits that differ, so that whatever moves centres by squared distances
moves these. A centre is bits, too; see `partition.means_of`.
"""

from __future__ import annotations

import numpy as np

from ..kernels import bits, slices
from .blocks import Centers, DenseBlock
from .cancellation import pieces
from .types import Array

WORDS_AT_ONCE = 1 << 27  # comparisons of words in one call of a kernel, which can't be interrupted: some 50 ms
FILLED, WORDS_IN_SLICES = 0.6, 4  # slices pay when they are filled so far; of more words they take long to compile


def words_for(n_bits: int) -> int:
    return -(-n_bits // 64)


def packed(rows: Array) -> Array:
    """(n, r) bool -> (n, words) uint64."""
    out = np.zeros((len(rows), 8 * words_for(rows.shape[1])), np.uint8)
    out[:, : -(-rows.shape[1] // 8)] = np.packbits(rows, axis=1, bitorder="little")
    return out.view("<u8").astype(np.uint64, copy=False)


def unpacked(words: Array, n_bits: int) -> Array:
    """(n, words) uint64 -> (n, r) bool."""
    octets = np.ascontiguousarray(words, "<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_bits, bitorder="little").view(bool)


def sliced(words: Array) -> tuple[Array, ...]:
    """Centres (k, words) as tables for the kernel of slices, one a word; none where they are too few to fill its vectors."""
    k, w = words.shape
    count = -(-k // slices.CENTERS)
    if w > WORDS_IN_SLICES or k <= FILLED * slices.CENTERS * count:
        return ()
    repeated = np.resize(words, (slices.CENTERS * count, w))  # the first of equals wins: those beyond k never do
    planes = np.zeros((w, 3 * slices.TRIPLES, count, slices.CENTERS // 64), np.uint64)
    planes[:, :64] = packed(unpacked(repeated, 64 * w).T).reshape(w, 64, count, -1)
    value = np.arange(8)[:, None] >> np.arange(3) & 1  # (8, 3): of a row's three bits
    flip = np.where(value, ~np.uint64(0), np.uint64(0))
    triples = planes.reshape(w, slices.TRIPLES, 1, 3, count, -1) ^ flip[:, :, None, None]
    x, y, z = (triples[:, :, :, i] for i in range(3))
    both = np.stack([x ^ y ^ z, x & y | z & (x ^ y)], axis=3)
    return tuple(np.ascontiguousarray(both.transpose(0, 4, 1, 2, 3, 5)))


class BitBlock(DenseBlock):
    """Rows of one block as words. Centres are told as zeros and ones, (k, r), and kept as words beside each other."""

    _add_moves = staticmethod(bits.add_moves)

    def __init__(self, words: Array, n_bits: int) -> None:
        super().__init__(np.ascontiguousarray(words))
        self.width = n_bits

    @staticmethod
    def prepare(C: Array) -> Centers:
        words = packed(C > 0.5)
        norms2 = np.empty(len(C))
        bits.ones(words, norms2)
        return Centers(C, np.ascontiguousarray(words.T), norms2, norms2, sliced(words))

    def squared_norms(self) -> Array:
        out = np.empty(len(self))
        bits.ones(self.X, out)
        return out

    def reach(self) -> float:
        return 1.0

    def take(self, rows: Array | slice) -> BitBlock:
        if isinstance(rows, slice):
            return BitBlock(self.X[rows], self.width)
        return BitBlock(np.take(self.X, rows, axis=0, mode="clip"), self.width)  # twice as fast as with brackets

    def nearest_and_far(self, centers: Centers) -> tuple[Array, Array]:
        """Label of every row, and in how many bits it differs from that centre."""
        labels, far = np.empty((2, len(self)), np.int32)
        for s in pieces(len(self), max(64, WORDS_AT_ONCE // max(centers.Z.size, 1))):
            if centers.slices:
                slices.nearest(self.X[s], centers.slices, labels[s], far[s])
            else:
                bits.nearest(self.X[s], centers.Z, labels[s], far[s])
        return labels, far

    def nearest(self, centers: Centers) -> Array:
        return self.nearest_and_far(centers)[0]

    def pair_distances(self, rows: Array, ids: Array, centers: Centers) -> Array:
        out = np.empty(len(rows))
        bits.pair_distances(self.X, rows, ids, centers.Z, out)
        return out
