"""Binary rows packed into 64-bit words, least significant bit first; unused bits of the last word are zero.

The squared Euclidean distance between binary vectors equals their Hamming distance, so the code that updates centroids
from squared distances also works for packed rows. Centroids are binary as well; see `partition.means_of`.
"""

from __future__ import annotations

import numpy as np

from ..kernels import bits, slices
from .blocks import Centers, DenseBlock
from .cancellation import pieces
from .types import Array, contiguous

# Word comparisons per kernel call. A call cannot be interrupted; this many take about 50 ms.
MAX_COMPARISONS_PER_CALL = 1 << 27
# The bit-sliced kernel processes centroids in groups of fixed size. If a smaller fraction of the groups is used,
# the plain kernel is faster.
MIN_SLICE_OCCUPANCY = 0.6
# Words per row up to which the bit-sliced kernel is used. Its compile time grows with the number of words.
MAX_SLICED_WORDS = 4


def words_for(n_bits: int) -> int:
    """Return the number of 64-bit words that hold this many bits."""
    return -(-n_bits // 64)


def packed(rows: Array) -> Array:
    """Pack an (n, r) bool array into an (n, words) uint64 array."""
    out = np.zeros((len(rows), 8 * words_for(rows.shape[1])), np.uint8)
    out[:, : -(-rows.shape[1] // 8)] = np.packbits(rows, axis=1, bitorder="little")
    return out.view("<u8").astype(np.uint64, copy=False)


def unpacked(words: Array, n_bits: int) -> Array:
    """Unpack an (n, words) uint64 array into an (n, r) bool array."""
    bytes_ = np.ascontiguousarray(words, "<u8").view(np.uint8)
    return np.unpackbits(bytes_, axis=1, count=n_bits, bitorder="little").view(bool)


def build_slice_tables(words: Array) -> tuple[Array, ...]:
    """Return the lookup tables of centroids (k, words) for `slices.nearest`, one table per word.

    Return no tables where the plain kernel is to be used instead: for long rows, or if too few centroids fill the vectors.
    """
    k, n_words = words.shape
    n_slices = -(-k // slices.SLICE_CENTERS)
    if n_words > MAX_SLICED_WORDS or k <= MIN_SLICE_OCCUPANCY * slices.SLICE_CENTERS * n_slices:
        return ()
    # Pad the last slice with repeated centroids. Ties go to the lowest index, so the copies are never chosen.
    padded = np.resize(words, (slices.SLICE_CENTERS * n_slices, n_words))
    bit_planes = np.zeros((n_words, 3 * slices.TRIPLES, n_slices, slices.SLICE_CENTERS // 64), np.uint64)
    bit_planes[:, :64] = packed(unpacked(padded, 64 * n_words).T).reshape(n_words, 64, n_slices, -1)
    row_bits = np.arange(8)[:, None] >> np.arange(3) & 1  # (8, 3): the values that three bits of a row can have
    row_masks = np.where(row_bits, ~np.uint64(0), np.uint64(0))
    differences = bit_planes.reshape(n_words, slices.TRIPLES, 1, 3, n_slices, -1) ^ row_masks[:, :, None, None]
    x, y, z = (differences[:, :, :, i] for i in range(3))
    sum_and_carry = np.stack([x ^ y ^ z, x & y | z & (x ^ y)], axis=3)
    return tuple(np.ascontiguousarray(sum_and_carry.transpose(0, 4, 1, 2, 3, 5)))


class BitBlock(DenseBlock):
    """A block of packed binary rows. Centroids are passed as zeros and ones, (k, r), and stored packed, one per column."""

    _add_moves = staticmethod(bits.add_moves)

    def __init__(self, words: Array, n_bits: int) -> None:
        super().__init__(np.ascontiguousarray(words))
        self.width = n_bits

    @staticmethod
    def prepare(C: Array) -> Centers:
        """Pack centroids and count their bits."""
        words = packed(C > 0.5)
        norms2 = np.empty(len(C))
        bits.ones(words, norms2)
        return Centers(C, np.ascontiguousarray(words.T), norms2, norms2, build_slice_tables(words))

    def squared_norms(self) -> Array:
        """Return the number of bits set in each row."""
        out = np.empty(len(self))
        bits.ones(self.X, out)
        return out

    def reach(self) -> float:
        """Return an upper bound of the absolute coordinates."""
        return 1.0

    def take(self, rows: Array | slice) -> BitBlock:
        """Return some rows as a block."""
        if isinstance(rows, slice):
            return BitBlock(self.X[rows], self.width)
        return BitBlock(np.take(self.X, rows, axis=0, mode="clip"), self.width)  # np.take is twice as fast as indexing

    def nearest_and_far(self, centers: Centers) -> tuple[Array, Array]:
        """Return the label of each row and its Hamming distance to that centroid."""
        labels, distances = np.empty((2, len(self)), np.int32)
        for s in pieces(len(self), max(64, MAX_COMPARISONS_PER_CALL // max(centers.Z.size, 1))):
            if centers.slices:
                slices.nearest(self.X[s], centers.slices, labels[s], distances[s])
            else:
                bits.nearest(self.X[s], centers.Z, labels[s], distances[s])
        return labels, distances

    def relabel(self, centers: Centers, labels: Array) -> None:
        """Set the label of each row, in place."""
        labels[:] = self.nearest(centers)

    def nearest(self, centers: Centers) -> Array:
        """Return the label of each row."""
        return self.nearest_and_far(centers)[0]

    def pair_distances(self, rows: Array, ids: Array, centers: Centers) -> Array:
        """Return the Hamming distance of each pair (row, centroid)."""
        out = np.empty(len(rows))
        bits.pair_distances(self.X, contiguous(rows), contiguous(ids), centers.Z, out)
        return out
