"""Kernels for packed bits: rows of uint64 words, the first bit in the lowest place, what is left of the last word zero."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import fast_kernel, kernel

HIGH = np.uint64(32)  # a distance goes here, above the number of its centre: the least of both is the first of the nearest
LOW = np.int64((1 << 32) - 1)
FARTHEST = np.int64((1 << 63) - 1)


@intrinsic
def _ones(typingctx, word):
    """How many bits of a word are set: LLVM's own count, which vectorises on whatever machine it finds."""

    def codegen(context, b, signature, args):
        word = ir.IntType(64)
        return b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(word, [word]), "llvm.ctpop.i64"), args)

    return types.uint64(types.uint64), codegen


@kernel
def nearest(
    X,  # IN (n, words)
    Z,  # IN (words, k): centres side by side, so that they fill a vector
    labels,  # OUT (n) int32: the centre that differs in the fewest bits, the first of equals
    far,  # OUT (n) int32: in how many
):
    """Two words at a time, the last of them together with the search for the least: so nothing waits for memory."""
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
                keys[j] += np.int64((_ones(x ^ Z[t, j]) + _ones(y ^ Z[t + 1, j])) << HIGH)
        least = FARTHEST
        x = X[i, last]
        if last + 1 == words:
            for j in range(k):
                least = min(least, np.int64(_ones(x ^ Z[last, j]) << HIGH) + keys[j])
        else:
            y = X[i, last + 1]
            for j in range(k):
                least = min(least, np.int64((_ones(x ^ Z[last, j]) + _ones(y ^ Z[last + 1, j])) << HIGH) + keys[j])
        labels[i] = least & LOW
        far[i] = least >> 32


@kernel
def pair_distances(
    X,  # IN (n, words)
    rows,  # IN (m)
    centers,  # IN (m)
    Z,  # IN (words, k)
    out,  # OUT (m) float64: bits that differ
):
    for q in range(rows.shape[0]):
        total = np.uint64(0)
        for t in range(X.shape[1]):
            total += _ones(X[rows[q], t] ^ Z[t, centers[q]])
        out[q] = total


@kernel
def ones(
    X,  # IN (n, words)
    out,  # OUT (n) float64
):
    for i in range(X.shape[0]):
        total = np.uint64(0)
        for t in range(X.shape[1]):
            total += _ones(X[i, t])
        out[i] = total


@kernel
def _add(X, i, w, s, sums, weight_sums, squares):
    """w more for each bit of row i."""
    r, total = sums.shape[1], np.uint64(0)
    for t in range(X.shape[1]):
        word = X[i, t]
        total += _ones(word)
        for b in range(min(64, r - 64 * t)):
            sums[s, 64 * t + b] += w if (word >> np.uint64(b)) & np.uint64(1) else 0.0
    weight_sums[s] += w
    squares[s] += w * total


@kernel
def add_moves(
    X,  # IN (n, words)
    weights,  # IN (n) float64
    old,  # IN (n) int32, -1 for none
    new,  # IN (n) int32
    slots,  # IN (k) int32
    sums,  # ADD (touched, r) float64
    weight_sums,  # ADD (touched) float64
    squares,  # ADD (touched) float64: of w times the bits that are set
    counts,  # ADD (touched) int64: of rows with a positive weight
):
    """Take the bits of each moving row out of its old cluster's sums and put them into the new one's."""
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
    norms,  # OUT (n) float64: the sum of |x - mean|, which is no less than its length and does not underflow
):
    for i in range(X.shape[0]):
        total = 0.0
        for t in range(X.shape[1]):
            y = np.float64(X[i, t]) - mean[t]
            Y[i, t] = y
            total += abs(y)
        norms[i] = total


@kernel
def _dot(X, i, W, j):
    """x.w in float64, added up in the order of the columns: zeros left out would change nothing."""
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
    for i in range(X.shape[0]):
        for j in range(W.shape[0]):
            out[i, j] = _dot(X, i, W, j)


@kernel
def settle_signs(
    doubts,  # IN (n, ceil(r / 64)) uint64: which bits to settle
    X,  # IN (n, d)
    W,  # IN (r, d)
    heights,  # IN (r) float64
    words,  # OUT (n, ceil(r / 64)) uint64: those bits, by the sum that defines them
):
    """Is x.w above its height?"""
    for i in range(doubts.shape[0]):
        for t in range(doubts.shape[1]):
            if doubts[i, t]:
                for b in range(min(64, W.shape[0] - 64 * t)):
                    place = np.uint64(1) << np.uint64(b)
                    if doubts[i, t] & place:
                        above = _dot(X, i, W, 64 * t + b) > heights[64 * t + b]
                        words[i, t] = words[i, t] | place if above else words[i, t] & ~place


@kernel
def sparse_signs(
    data,  # IN (nnz)
    indices,  # IN (nnz), in order within a row
    indptr,  # IN (n + 1)
    W,  # IN (d, r)
    heights,  # IN (r) float64: mean.w
    words,  # OUT (n, ceil(r / 64)) uint64
):
    """Is x.w above mean.w? The same sums as those of dense rows."""
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
                word |= np.uint64(sums[j] > heights[j]) << np.uint64(j - first)
            words[i, first // 64] = word


@kernel
def _differ(Z, c, far):
    """Bits in which each column of Z (words, n) differs from column c."""
    n = Z.shape[1]
    x = Z[0, c]
    for i in range(n):
        far[i] = np.int64(_ones(x ^ Z[0, i]))
    for t in range(1, Z.shape[0]):
        x = Z[t, c]
        for i in range(n):
            far[i] += np.int64(_ones(x ^ Z[t, i]))


@fast_kernel
def _gain(far, mass, least):
    total = 0.0
    for i in range(far.shape[0]):
        gain = least[i] - far[i]
        total += mass[i] * gain if gain > 0 else 0.0
    return total


@kernel
def saved(
    Z,  # IN (words, n): codes side by side
    tried,  # IN (t): which of them are proposed as centres
    mass,  # IN (n) float64
    least,  # IN (n) float64: bits to the nearest centre so far
    out,  # OUT (t) float64: by how much each would lower the sum of mass times least
):
    far = np.empty(Z.shape[1], np.int64)
    for q in range(tried.shape[0]):
        _differ(Z, tried[q], far)
        out[q] = _gain(far, mass, least)


@kernel
def lower_least(
    Z,  # IN (words, n)
    c,  # IN which of the codes is the new centre
    least,  # ADD (n) float64
):
    far = np.empty(Z.shape[1], np.int64)
    _differ(Z, c, far)
    for i in range(far.shape[0]):
        least[i] = min(least[i], np.float64(far[i]))
