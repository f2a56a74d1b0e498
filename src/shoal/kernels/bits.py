"""Kernels for packed bits: rows of uint64 words, least significant bit first; unused bits of the last word are zero."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import fast_kernel, kernel

# A Hamming distance and its centroid share one int64 key, the distance in the high half: the smallest key belongs to the
# nearest centroid and, of equally near ones, to the first. Distances must be below 2^31 and centroid numbers below 2^32.
DISTANCE_SHIFT = np.uint64(32)  # bits
CENTER_MASK = np.int64((1 << 32) - 1)
MAX_KEY = np.int64((1 << 63) - 1)


@intrinsic
def _popcount(typingctx, word):
    """Return the number of set bits of a word, by LLVM's intrinsic, which is vectorized on every target."""

    def codegen(context, b, signature, args):
        word = ir.IntType(64)
        return b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(word, [word]), "llvm.ctpop.i64"), args)

    return types.uint64(types.uint64), codegen


@kernel
def nearest(
    X,  # IN (n, words)
    Z,  # IN (words, k): centroids, transposed, so that one word of consecutive centroids fills a vector register
    labels,  # OUT (n) int32: nearest centroid by Hamming distance; of equal ones, the first
    distances,  # OUT (n) int32: Hamming distance to it
):
    """Find the nearest centroid of each row.

    Two words are processed per pass over the keys, and the last pass also takes the minimum: fewer passes over `keys` than one
    per word keep the loop from being bound by memory bandwidth.
    """
    n, words = X.shape
    k = Z.shape[1]
    keys = np.arange(k)
    last = (words - 1) // 2 * 2
    for i in range(n):
        if last:
            for j in range(k):
                keys[j] = j
        for t in range(0, last, 2):
            x, y = X[i, t], X[i, t + 1]
            for j in range(k):
                keys[j] += np.int64((_popcount(x ^ Z[t, j]) + _popcount(y ^ Z[t + 1, j])) << DISTANCE_SHIFT)
        least = MAX_KEY
        x = X[i, last]
        if last + 1 == words:
            for j in range(k):
                least = min(least, np.int64(_popcount(x ^ Z[last, j]) << DISTANCE_SHIFT) + keys[j])
        else:
            y = X[i, last + 1]
            for j in range(k):
                differing = _popcount(x ^ Z[last, j]) + _popcount(y ^ Z[last + 1, j])
                least = min(least, np.int64(differing << DISTANCE_SHIFT) + keys[j])
        labels[i] = least & CENTER_MASK
        distances[i] = least >> 32


@kernel
def pair_distances(
    X,  # IN (n, words)
    rows,  # IN (m): row of each pair
    centers,  # IN (m): centroid of each pair
    Z,  # IN (words, k)
    out,  # OUT (m) float64
):
    """Compute the Hamming distances of pairs."""
    for q in range(rows.shape[0]):
        total = np.uint64(0)
        for t in range(X.shape[1]):
            total += _popcount(X[rows[q], t] ^ Z[t, centers[q]])
        out[q] = total


@kernel
def ones(
    X,  # IN (n, words)
    out,  # OUT (n) float64
):
    """Count the set bits of each row."""
    for i in range(X.shape[0]):
        total = np.uint64(0)
        for t in range(X.shape[1]):
            total += _popcount(X[i, t])
        out[i] = total


@kernel
def _add(X, i, w, s, sums, weight_sums, squares):
    """Add row i, with weight w, to the bit counts, the weight and the weighted number of set bits of cluster slot s."""
    r, total = sums.shape[1], np.uint64(0)
    for t in range(X.shape[1]):
        word = X[i, t]
        total += _popcount(word)
        for b in range(min(64, r - 64 * t)):
            sums[s, 64 * t + b] += w if (word >> np.uint64(b)) & np.uint64(1) else 0.0
    weight_sums[s] += w
    squares[s] += w * total


@kernel
def add_moves(
    X,  # IN (n, words)
    weights,  # IN (n) float64
    old,  # IN (n) int32: previous labels; -1 for none
    new,  # IN (n) int32: new labels
    slots,  # IN (k) int32: row of `sums` of each cluster, see `dense.touched_slots`
    sums,  # ADD (touched, r) float64: weighted counts of each bit
    weight_sums,  # ADD (touched) float64
    squares,  # ADD (touched) float64: sums of w times the number of set bits
    counts,  # ADD (touched) int64: number of rows with a positive weight
):
    """Subtract each reassigned row from the sums of its old cluster and add it to those of the new one."""
    for i in range(X.shape[0]):
        if old[i] == new[i]:
            continue
        w = weights[i]
        _add(X, i, w, slots[new[i]], sums, weight_sums, squares)
        counts[slots[new[i]]] += w > 0
        if old[i] >= 0:
            _add(X, i, -w, slots[old[i]], sums, weight_sums, squares)
            counts[slots[old[i]]] -= w > 0


@fast_kernel
def center(
    X,  # IN (n, d)
    mean,  # IN (d) float64
    Y,  # OUT (n, d): X - mean, rounded once
    norms,  # OUT (n) float64: L1 norms of x - mean, upper bounds of the L2 norms that do not underflow
):
    """Subtract the mean from each row."""
    for i in range(X.shape[0]):
        total = 0.0
        for t in range(X.shape[1]):
            y = np.float64(X[i, t]) - mean[t]
            Y[i, t] = y
            total += abs(y)
        norms[i] = total


@kernel
def _dot(X, i, W, j):
    """Return x.w in float64, summed in column order, so that leaving out zeros (as sparse rows do) changes no bit."""
    total = 0.0
    for t in range(X.shape[1]):
        total += np.float64(X[i, t]) * np.float64(W[j, t])
    return total


@kernel
def dots(
    X,  # IN (n, d)
    W,  # IN (r, d)
    out,  # OUT (n, r) float64
):
    """Compute the dot products of all rows with all hyperplane normals, in column order."""
    for i in range(X.shape[0]):
        for j in range(W.shape[0]):
            out[i, j] = _dot(X, i, W, j)


@kernel
def settle_signs(
    doubts,  # IN (n, ceil(r / 64)) uint64: mask of the bits that a matrix product could not decide because of rounding
    X,  # IN (n, d)
    W,  # IN (r, d)
    thresholds,  # IN (r) float64
    words,  # ADD (n, ceil(r / 64)) uint64: codes; the bits in `doubts` are overwritten
):
    """Set the undecided bits to x.w > threshold, by the float64 sum that defines them."""
    for i in range(doubts.shape[0]):
        for t in range(doubts.shape[1]):
            if doubts[i, t]:
                for b in range(min(64, W.shape[0] - 64 * t)):
                    bit = np.uint64(1) << np.uint64(b)
                    if doubts[i, t] & bit:
                        above = _dot(X, i, W, 64 * t + b) > thresholds[64 * t + b]
                        words[i, t] = words[i, t] | bit if above else words[i, t] & ~bit


@kernel
def sparse_signs(
    data,  # IN (nnz)
    indices,  # IN (nnz), in order within a row
    indptr,  # IN (n + 1)
    W,  # IN (d, r)
    thresholds,  # IN (r) float64: mean.w
    words,  # OUT (n, ceil(r / 64)) uint64
):
    """Compute the codes x.w > mean.w of CSR rows, by the same sums as those of dense rows."""
    r = W.shape[1]
    sums = np.empty(r)
    for i in range(words.shape[0]):
        sums[:] = 0
        for p in range(indptr[i], indptr[i + 1]):
            x, t = np.float64(data[p]), indices[p]
            for j in range(r):
                sums[j] += x * np.float64(W[t, j])
        for first in range(0, r, 64):
            word = np.uint64(0)
            for j in range(first, min(first + 64, r)):
                word |= np.uint64(sums[j] > thresholds[j]) << np.uint64(j - first)
            words[i, first // 64] = word


@kernel
def _hamming_to(Z, c, distances):
    """Compute the Hamming distance of each column of Z (words, n) from column c."""
    n = Z.shape[1]
    x = Z[0, c]
    for i in range(n):
        distances[i] = np.int64(_popcount(x ^ Z[0, i]))
    for t in range(1, Z.shape[0]):
        x = Z[t, c]
        for i in range(n):
            distances[i] += np.int64(_popcount(x ^ Z[t, i]))


@fast_kernel
def _reduction(distances, weights, least):
    """Return the weighted sum by which a new centroid at these distances lowers `least`."""
    total = 0.0
    for i in range(distances.shape[0]):
        gain = least[i] - distances[i]
        total += weights[i] * gain if gain > 0 else 0.0
    return total


@kernel
def saved(
    Z,  # IN (words, n): codes, transposed
    candidates,  # IN (t): codes proposed as centroids
    weights,  # IN (n) float64
    least,  # IN (n) float64: Hamming distance to the nearest centroid so far
    out,  # OUT (t) float64: reduction of the weighted sum of `least` by each candidate
):
    """Compute by how much each candidate centroid of k-means++ would lower the energy."""
    distances = np.empty(Z.shape[1], np.int64)
    for q in range(candidates.shape[0]):
        _hamming_to(Z, candidates[q], distances)
        out[q] = _reduction(distances, weights, least)


@kernel
def lower_least(
    Z,  # IN (words, n)
    c,  # IN code that is the new centroid
    least,  # ADD (n) float64: Hamming distance to the nearest centroid so far
):
    """Update the distances to the nearest centroid after adding one."""
    distances = np.empty(Z.shape[1], np.int64)
    _hamming_to(Z, c, distances)
    for i in range(distances.shape[0]):
        least[i] = min(least[i], np.float64(distances[i]))
