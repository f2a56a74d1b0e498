"""Kernels for centres that move as rows go by: a row moves the centre nearest to it before the next row is looked at.

A row pulls its centre c a share a of the way: c <- (1 - a) c + a x. In cosine's world rows and centres have length one: the
mean is kept as its direction, the centre, and its length. Sparse rows touch few columns, so a centre is kept as a column
of numbers times one number, `scales`, and a row costs what it holds.
"""

import numpy as np

from . import UP, fast_kernel, kernel

FADED = 1e-100  # a scale this small is multiplied into its column
NOWHERE = 1e-7  # a mean of directions this short has none: its square is what rounding leaves


@kernel
def _pull(w, rate, weight_sums, j):
    """The share a of the way for a row of weight w: that of w rows, one after the other. (The nearest centre stays it.)"""
    if rate > 0.0:
        return -np.expm1(w * np.log1p(-rate))
    weight_sums[j] += w
    return w / weight_sums[j]


@fast_kernel
def _squared_distance(X, i, C, j):
    """(x - c)^2 in float64 of row i and centre j."""
    total = 0.0
    for t in range(X.shape[1]):
        e = np.float64(X[i, t]) - C[j, t]
        total += e * e
    return total


@fast_kernel
def _move_dense(X, i, a, best, rate, unit, C, lengths, j):
    """Row i, at the squared distance `best`, pulls centre j. Returns how far that moves it, at most."""
    b = (1.0 - a) * lengths[j]
    if not unit:
        for t in range(X.shape[1]):
            x = np.float64(X[i, t])
            C[j, t] = x + b * (C[j, t] - x)  # x itself where b is 0, or where the centre is at x
        return a * np.sqrt(best)
    if b * b + 2 * a * b * (1 - best / 2) + a * a < NOWHERE**2:
        lengths[j] = 0.0
        return 0.0
    square = 0.0
    for t in range(X.shape[1]):
        C[j, t] = b * C[j, t] + a * np.float64(X[i, t])
        square += C[j, t] * C[j, t]
    length = np.sqrt(square)
    for t in range(X.shape[1]):
        C[j, t] /= length
    lengths[j] = 1.0 if rate > 0.0 else length
    return 2 * a * np.sqrt(best) / length


@fast_kernel
def follow_dense(
    X,  # IN (m, d)
    weights,  # IN (m) float64
    S,  # IN (m, k): scores |c|^2 - 2 x.c of the centres as they were
    base,  # IN (m) float64: what makes a score a lower bound of the squared distance
    rate,  # IN the learning rate, or 0 for running means
    unit,  # IN are centres directions?
    C,  # ADD (k, d) float64
    weight_sums,  # ADD (k) float64
    lengths,  # ADD (k) float64
    paths,  # ADD (k) float64: no less than how far the centres are from where they were
    labels,  # OUT (m) int32
    distances,  # OUT (m) float64: squared, of the row from its centre before that moves
):
    """One row after the other. Returns how many distances its scores left to compute."""
    k = C.shape[0]
    bounds = np.empty(k)
    computed = 0
    for i in range(X.shape[0]):
        for j in range(k):
            square = S[i, j] + base[i]
            bounds[j] = np.sqrt(square if square > 0.0 else 0.0) - UP * paths[j]
        first = 0
        for j in range(k):
            first = j if bounds[j] < bounds[first] else first
        label, best = first, _squared_distance(X, i, C, first)
        reach = UP * np.sqrt(best)
        for j in range(k):
            if bounds[j] <= reach and j != first:
                distance = _squared_distance(X, i, C, j)
                computed += 1
                if distance < best or (distance == best and j < label):
                    label, best = j, distance
                    reach = UP * np.sqrt(best)
        labels[i] = label
        distances[i] = best
        if weights[i] > 0.0:
            a = _pull(weights[i], rate, weight_sums, label)
            paths[label] += _move_dense(X, i, a, best, rate, unit, C, lengths, label)
    return computed


@fast_kernel
def merge_means(
    sums,  # IN (k, d) float64: of a batch of rows
    weights,  # IN (k) float64: of these rows
    unit,  # IN are centres directions?
    C,  # ADD (k, d) float64
    weight_sums,  # ADD (k) float64
    lengths,  # ADD (k) float64
):
    """Centres become the means of the rows so far and of the batch. Returns the sum of their squared moves."""
    shift = 0.0
    for j in range(C.shape[0]):
        if weights[j] == 0.0:
            continue
        a = 1.0 / (weight_sums[j] + weights[j])
        b = weight_sums[j] * lengths[j] * a
        weight_sums[j] += weights[j]
        if unit:
            square = 0.0
            for t in range(C.shape[1]):
                mean = b * C[j, t] + a * sums[j, t]
                square += mean * mean
            lengths[j] = np.sqrt(square)
            if lengths[j] < NOWHERE:
                lengths[j] = 0.0
                continue
            a, b = a / lengths[j], b / lengths[j]
        for t in range(C.shape[1]):
            mean = b * C[j, t] + a * sums[j, t]
            shift += (mean - C[j, t]) ** 2
            C[j, t] = mean
    return shift


@kernel
def _square_elsewhere(indices, first, last, U, scale, j):
    """What the columns that the row does not hold add to |c|^2."""
    total = 0.0
    p = first
    for t in range(U.shape[0]):
        if p < last and indices[p] == t:
            p += 1
        else:
            total += (U[t, j] * scale) * (U[t, j] * scale)
    return total


@fast_kernel
def _nearest_sparse(data, indices, first, last, U, scales, squares, near, covered):
    """The nearest centre of a row, the first of equals. Distances go to `near`."""
    near[:] = 0.0
    covered[:] = 0.0
    for p in range(first, last):
        x = np.float64(data[p])
        column = U[indices[p]]
        for j in range(near.shape[0]):
            c = column[j] * scales[j]
            e = x - c
            near[j] += e * e
            covered[j] += c * c
    label = 0
    for j in range(near.shape[0]):
        rest = squares[j] - covered[j]
        if rest < 1e-6 * covered[j]:  # too few digits are left of the difference
            rest = _square_elsewhere(indices, first, last, U, scales[j], j)
        near[j] += rest
        label = j if near[j] < near[label] else label
    return label


@fast_kernel
def _move_sparse(data, indices, first, last, w, rate, unit, U, scales, squares, weight_sums, lengths, j):
    """The row pulls centre j. Returns the shares of the old centre and of the row in the new one, and |x|^2."""
    norm2 = dot = 0.0
    for p in range(first, last):
        x = np.float64(data[p])
        norm2 += x * x
        dot += x * U[indices[p], j]
    a = _pull(w, rate, weight_sums, j)
    b = (1.0 - a) * lengths[j]
    square = b * b * squares[j] + 2 * a * b * dot * scales[j] + a * a * norm2
    if unit:
        if square < NOWHERE**2:
            lengths[j] = 0.0
            return 1.0, 0.0, norm2
        length = np.sqrt(square)
        a, b, square = a / length, b / length, 1.0
        lengths[j] = 1.0 if rate > 0.0 else length
    scale = b * scales[j]
    if scale < FADED:
        for t in range(U.shape[0]):
            U[t, j] *= scale
        scale = 1.0
    for p in range(first, last):
        U[indices[p], j] += a / scale * np.float64(data[p])
    scales[j] = scale
    squares[j] = max(square, 0.0)
    return b, a, norm2


@fast_kernel
def follow_sparse(
    data,  # IN (nnz)
    indices,  # IN (nnz), in order within a row
    indptr,  # IN (m + 1)
    weights,  # IN (m) float64
    rate,  # IN the learning rate, or 0 for running means
    unit,  # IN are centres directions?
    U,  # ADD (d, k) float64: centres divided by their scales
    scales,  # ADD (k) float64
    squares,  # ADD (k) float64: |c|^2
    weight_sums,  # ADD (k) float64
    lengths,  # ADD (k) float64
    labels,  # OUT (m) int32
    distances,  # OUT (m) float64: squared, of the row from its centre before that moves
):
    """One row after the other."""
    near, covered = np.empty(scales.shape[0]), np.empty(scales.shape[0])
    for i in range(labels.shape[0]):
        first, last = indptr[i], indptr[i + 1]
        j = _nearest_sparse(data, indices, first, last, U, scales, squares, near, covered)
        labels[i] = j
        distances[i] = near[j]
        if weights[i] > 0.0:
            _move_sparse(data, indices, first, last, weights[i], rate, unit, U, scales, squares, weight_sums, lengths, j)


@fast_kernel
def label_sparse(
    data,  # IN (nnz)
    indices,  # IN (nnz), in order within a row
    indptr,  # IN (m + 1)
    U,  # IN (d, k) float64
    scales,  # IN (k) float64
    squares,  # IN (k) float64
    labels,  # OUT (m) int32
    distances,  # OUT (m) float64: squared
):
    """The first half of a batch: all rows find their centres."""
    near, covered = np.empty(scales.shape[0]), np.empty(scales.shape[0])
    for i in range(labels.shape[0]):
        labels[i] = _nearest_sparse(data, indices, indptr[i], indptr[i + 1], U, scales, squares, near, covered)
        distances[i] = near[labels[i]]


@fast_kernel
def move_sparse(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    weights,  # IN (m) float64
    labels,  # IN (m) int32
    distances,  # IN (m) float64: squared, from the centres as they were
    before,  # IN (k) float64: |c|^2 of these
    unit,  # IN are centres directions?
    U,  # ADD (d, k) float64
    scales,  # ADD (k) float64
    squares,  # ADD (k) float64
    weight_sums,  # ADD (k) float64
    lengths,  # ADD (k) float64
    products,  # ADD (k) float64: of the centres with what they were
):
    """The second half: all rows pull them."""
    for i in range(labels.shape[0]):
        if weights[i] > 0.0:
            j, first, last = labels[i], indptr[i], indptr[i + 1]
            b, a, norm2 = _move_sparse(
                data, indices, first, last, weights[i], 0.0, unit, U, scales, squares, weight_sums, lengths, j
            )
            products[j] = b * products[j] + a * (norm2 + before[j] - distances[i]) / 2
