"""Kernels for dense rows: C-contiguous float32 or float64 blocks.

Centroids are compared by two kinds of numbers. A *score* ``|c|^2 - 2 x.c`` is fast, and inexact because of rounding. A
*distance* ``(x - c)^2`` is slower and computed in float64. Scores only exclude centroids, with a margin for their rounding;
the remaining ones are compared by distance. A label therefore does not depend on the block, the thread or the method that
computed it.
"""

import numpy as np

from . import fast_kernel, kernel

# Rows that `two_best_narrow` transposes and scores together. A multiple of the vector width, but not a power of two: columns
# would then map to the same cache sets. Only speed depends on it.
TILE = 240


@fast_kernel
def squared_distance(X, i, C, j):
    """Return (x - c)^2 of row i and centroid j in float64. Rows are passed by index: a slice would cost a reference count."""
    total = 0.0
    for t in range(X.shape[1]):
        e = np.float64(X[i, t]) - np.float64(C[j, t])
        total += e * e
    return total


@fast_kernel
def _norm2(X, i, width):
    """Return |x|^2 of the first `width` columns of row i, in float64."""
    total = 0.0
    for t in range(width):
        total += np.float64(X[i, t]) * np.float64(X[i, t])
    return total


@fast_kernel
def squared_norms(
    X,  # IN (n, d), any layout
    out,  # OUT (n) float64
):
    """Compute |x|^2 of every row."""
    for i in range(X.shape[0]):
        out[i] = _norm2(X, i, X.shape[1])


@kernel
def pair_distances(
    X,  # IN (n, d)
    rows,  # IN (m): row of each pair
    centers,  # IN (m): centroid of each pair
    C,  # IN (k, d)
    out,  # OUT (m) float64
):
    """Compute (x - c)^2 of pairs in float64."""
    for q in range(rows.shape[0]):
        out[q] = squared_distance(X, rows[q], C, centers[q])


@fast_kernel
def _score_pair(
    columns,  # IN (h, TILE): the rows of a tile, transposed
    Z,  # IN (k, h): centroids times -2
    j0,  # IN the two centroids to score
    j1,
    z2,  # IN (k): |c|^2
    out,  # OUT (2, TILE)
):
    """Compute the scores of a tile's rows for two centroids, four columns per pass to reduce loads and stores of `out`."""
    h, rows = columns.shape
    s0, s1 = z2[j0], z2[j1]
    for i in range(rows):
        out[0, i] = s0
        out[1, i] = s1
    whole = h - h % 4
    for t in range(0, whole, 4):
        a0, a1, a2, a3 = Z[j0, t], Z[j0, t + 1], Z[j0, t + 2], Z[j0, t + 3]
        b0, b1, b2, b3 = Z[j1, t], Z[j1, t + 1], Z[j1, t + 2], Z[j1, t + 3]
        for i in range(rows):
            u0, u1, u2, u3 = columns[t, i], columns[t + 1, i], columns[t + 2, i], columns[t + 3, i]
            out[0, i] = (((out[0, i] + u0 * a0) + u1 * a1) + u2 * a2) + u3 * a3
            out[1, i] = (((out[1, i] + u0 * b0) + u1 * b1) + u2 * b2) + u3 * b3
    for t in range(whole, h):
        a0, b0 = Z[j0, t], Z[j1, t]
        for i in range(rows):
            out[0, i] += columns[t, i] * a0
            out[1, i] += columns[t, i] * b0


@fast_kernel
def _merge_two_best(
    s0,  # IN (rows): scores of centroid j
    s1,  # IN (rows): scores of centroid j + 1
    j,
    labels,  # IN (rows) int32
    best,  # IN (rows)
    second,  # IN (rows)
    labels_out,  # OUT (rows) int32
    best_out,  # OUT (rows)
    second_out,  # OUT (rows)
):
    """Merge the scores of two more centroids into the lowest two. Stores in place would prevent vectorization."""
    for i in range(s0.shape[0]):
        v, w, b, s = s0[i], s1[i], best[i], second[i]
        low = v if v <= w else w
        high = w if v <= w else v
        which = j if v <= w else j + 1
        loser = b if low < b else low
        loser = loser if loser < high else high
        second_out[i] = loser if loser < s else s
        labels_out[i] = which if low < b else labels[i]
        best_out[i] = low if low < b else b


@fast_kernel
def two_best_narrow(
    X,  # IN (n, h)
    Z,  # IN (k, h): centroids times -2
    z2,  # IN (k): |c|^2
    labels,  # OUT (n) int32: centroid of the lowest score; of equal ones, the first
    best,  # OUT (n): its score
    second,  # OUT (n): lowest score of the other centroids
):
    """Find the two lowest scores of each row, for few columns, where storing the result of a GEMM would dominate the time."""
    n, h = X.shape
    k = Z.shape[0]
    columns = np.zeros((h, TILE), X.dtype)
    scores = np.empty((2, TILE), X.dtype)
    lab = np.empty((2, TILE), np.int32)
    low = np.empty((2, 2, TILE), X.dtype)
    for start in range(0, n, TILE):
        rows = min(TILE, n - start)
        for i in range(rows):
            for t in range(h):
                columns[t, i] = X[start + i, t]
        lab[0] = 0
        low[0] = np.inf
        now = 0
        for j in range(0, k, 2):
            last = min(j + 1, k - 1)
            _score_pair(columns, Z, j, last, z2, scores)
            if last == j:
                scores[1] = np.inf
            new = 1 - now
            _merge_two_best(scores[0], scores[1], j, lab[now], low[now, 0], low[now, 1], lab[new], low[new, 0], low[new, 1])
            now = new
        for i in range(rows):
            labels[start + i] = lab[now, i]
            best[start + i] = low[now, 0, i]
            second[start + i] = low[now, 1, i]


@fast_kernel
def margins(
    X,  # IN (n, d)
    rounding,  # IN largest error of a score, relative to |x|^2 + |c|^2
    norms2,  # IN (k): |c|^2
    labels,  # IN (n) int32: centroid of the lowest score
    out,  # OUT (n): a centroid whose score exceeds the lowest by more than this is not the nearest
):
    """Compute the margin within which scores do not decide which centroid is nearest."""
    for i in range(X.shape[0]):
        norm2 = X.dtype.type(0)  # float32 is accurate enough for a margin
        for t in range(X.shape[1]):
            norm2 += X[i, t] * X[i, t]
        out[i] = 2 * rounding * (norm2 + norms2[labels[i]])


@kernel
def touched_slots(
    old,  # IN (n) int32: previous labels; -1 for none
    new,  # IN (n) int32: new labels
    slots,  # OUT (k) int32: row of each touched cluster in compact sums; -1 for other clusters
):
    """Number the clusters that a reassigned row leaves or joins, and return how many there are."""
    slots[:] = -1
    for i in range(new.shape[0]):
        if old[i] != new[i]:
            slots[new[i]] = 0
            if old[i] >= 0:
                slots[old[i]] = 0
    count = 0
    for j in range(slots.shape[0]):
        if slots[j] == 0:
            slots[j] = count
            count += 1
    return count


@kernel
def add_moves(
    X,  # IN (n, d)
    weights,  # IN (n) float64
    old,  # IN (n) int32: previous labels; -1 for none
    new,  # IN (n) int32: new labels
    slots,  # IN (k) int32: from `touched_slots`
    sums,  # ADD (touched, d) float64: sums of w x
    weight_sums,  # ADD (touched) float64
    squares,  # ADD (touched) float64: sums of w |x|^2
    counts,  # ADD (touched) int64: number of rows with a positive weight
):
    """Subtract each reassigned row from the sums of its old cluster and add it to those of the new one."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        if old[i] == new[i]:
            continue
        w = weights[i]
        into = sums[slots[new[i]]]
        for t in range(d):
            into[t] += w * X[i, t]
        square = w * _norm2(X, i, d)
        weight_sums[slots[new[i]]] += w
        squares[slots[new[i]]] += square
        counts[slots[new[i]]] += w > 0
        if old[i] >= 0:
            out_of = sums[slots[old[i]]]
            for t in range(d):
                out_of[t] -= w * X[i, t]
            weight_sums[slots[old[i]]] -= w
            squares[slots[old[i]]] -= square
            counts[slots[old[i]]] -= w > 0


@kernel
def column_moments(
    X,  # IN (n, d)
    weights,  # IN (n) float64
    origin,  # IN (d) float64
    scale,  # IN a power of two, so that multiplying by it is exact
    sums,  # ADD (d) float64: sums of w e, where e = (x - origin) scale
    squares,  # ADD (d) float64: sums of w e^2
    largest,  # ADD (d) float64: maxima of |e|
):
    """Add up the first and second moment of every column, and find its largest magnitude."""
    n, d = X.shape
    for i in range(n):
        w = weights[i]
        for t in range(d):
            e = (np.float64(X[i, t]) - origin[t]) * scale
            sums[t] += w * e
            squares[t] += w * (e * e)
            a = abs(e)
            largest[t] = a if a > largest[t] else largest[t]


@fast_kernel
def weighted_sums(
    X,  # IN (n, d)
    v,  # IN (d) float64
    out,  # OUT (n) float64
):
    """Compute x.v of every row in float64."""
    for i in range(X.shape[0]):
        total = 0.0
        for t in range(X.shape[1]):
            total += np.float64(X[i, t]) * v[t]
        out[i] = total


@fast_kernel
def saved_energy(
    products,  # IN (t, n): dot products of the candidates, rows proposed as centroids, with all rows
    own,  # IN (t) float64: |c|^2 of the candidates
    norms2,  # IN (n) float64: |x|^2
    weights,  # IN (n) float64
    least,  # IN (n) float64: squared distance to the nearest centroid so far
    saved,  # OUT (t) float64
):
    """Compute by how much each candidate lowers the energy."""
    for q in range(products.shape[0]):
        total = 0.0
        for i in range(least.shape[0]):
            gain = least[i] - (own[q] + norms2[i] - 2 * np.float64(products[q, i]))
            total += weights[i] * gain if gain > 0 else 0.0
        saved[q] = total


@fast_kernel
def swap_gain(
    weights,  # IN (n) float64
    first,  # IN (n): nearest centroid
    near,  # IN (n) float64: squared distance to it
    to_new,  # IN (n) float64: squared distance to a proposed centroid, or to the second nearest one if that is less
    lost,  # OUT (k) float64: by how much the energy increases if a centroid is removed after the proposed one was added
):
    """Compute by how much a proposed centroid lowers the energy."""
    lost[:] = 0
    saved = 0.0
    for i in range(near.shape[0]):
        least = min(near[i], to_new[i])
        saved += weights[i] * (near[i] - least)
        lost[first[i]] += weights[i] * (to_new[i] - least)
    return saved
