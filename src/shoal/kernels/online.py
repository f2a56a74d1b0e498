"""Kernels for sequential k-means: each row updates its nearest centroid before the next row is assigned.

The update is c <- (1 - a) c + a x with a step size a. With the cosine metric, rows and centroids have unit length: the mean is
stored as its direction (the centroid) and its length. For sparse rows, a centroid is stored as a column of `U` times a scalar
in `scales`, so that an update costs as much as the row has stored entries.
"""

import numpy as np

from . import UP, fast_kernel, kernel

MIN_SCALE = 1e-100  # a smaller scale is multiplied into its column of `U`, whose entries would overflow otherwise
MIN_MEAN_LENGTH = 1e-7  # a shorter mean of unit vectors has no direction: its square is of the size of rounding errors
MIN_REMAINDER = 1e-6  # part of |c|^2 below which |c|^2 - covered has lost so many digits that the difference is summed directly


@kernel
def _pull(w, rate, weight_sums, j):
    """Return the step size a for a row of weight w, equivalent to w consecutive updates by the row.

    With a learning rate, a = 1 - (1 - rate)^w. Otherwise the centroid is a running mean, and its weight is updated.
    """
    if rate > 0.0:
        return -np.expm1(w * np.log1p(-rate))
    weight_sums[j] += w
    return w / weight_sums[j]


@fast_kernel
def _squared_distance(X, i, C, j):
    """Return (x - c)^2 of row i and centroid j in float64."""
    total = 0.0
    for t in range(X.shape[1]):
        e = np.float64(X[i, t]) - C[j, t]
        total += e * e
    return total


@fast_kernel
def _move_dense(X, i, a, best, rate, unit, C, lengths, j):
    """Update centroid j by row i, whose squared distance is `best`, and return an upper bound of the centroid's movement."""
    b = (1.0 - a) * lengths[j]
    if not unit:
        for t in range(X.shape[1]):
            x = np.float64(X[i, t])
            C[j, t] = x + b * (C[j, t] - x)  # exactly x if b is 0 or c equals x
        return a * np.sqrt(best)
    if b * b + 2 * a * b * (1 - best / 2) + a * a < MIN_MEAN_LENGTH**2:
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
def update_sequential_dense(
    X,  # IN (m, d)
    weights,  # IN (m) float64
    S,  # IN (m, k): scores |c|^2 - 2 x.c of earlier centroids
    base,  # IN (m) float64: score + base is a lower bound of the squared distance to the earlier centroid
    rate,  # IN learning rate, or 0 for running means
    unit,  # IN bool: normalize centroids to unit length (cosine metric)
    C,  # ADD (k, d) float64: centroids
    weight_sums,  # ADD (k) float64
    lengths,  # ADD (k) float64: lengths of the means if `unit`, else 1
    paths,  # ADD (k) float64: upper bounds of the movement of the centroids since the scores were computed
    labels,  # OUT (m) int32
    distances,  # OUT (m) float64: squared distances to the assigned centroids before their update
):
    """Assign each row and update its centroid, in row order. Return the number of distances that the bounds did not avoid.

    Only centroids whose lower bound, score minus movement, does not exceed the best distance so far are compared exactly.
    """
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
    sums,  # IN (k, d) float64: weighted sums of the rows of a batch, per cluster
    weights,  # IN (k) float64: weights of these rows
    unit,  # IN bool: normalize centroids to unit length (cosine metric)
    C,  # ADD (k, d) float64: centroids
    weight_sums,  # ADD (k) float64: weights of all rows so far
    lengths,  # ADD (k) float64: lengths of the means if `unit`, else 1
):
    """Merge a batch into the running means. Return the sum of the squared movements of the centroids."""
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
            if lengths[j] < MIN_MEAN_LENGTH:
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
    """Return |c|^2 of the columns in which the row has no stored entry."""
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
    """Return the nearest centroid of a row; of equal ones, the first. Squared distances are written to `near`."""
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
        if rest < MIN_REMAINDER * covered[j]:
            rest = _square_elsewhere(indices, first, last, U, scales[j], j)
        near[j] += rest
        label = j if near[j] < near[label] else label
    return label


@fast_kernel
def _move_sparse(data, indices, first, last, w, rate, unit, U, scales, squares, weight_sums, lengths, j):
    """Update centroid j by a row. Return b, a and |x|^2, where the new centroid is b c + a x."""
    norm2 = dot = 0.0
    for p in range(first, last):
        x = np.float64(data[p])
        norm2 += x * x
        dot += x * U[indices[p], j]
    a = _pull(w, rate, weight_sums, j)
    b = (1.0 - a) * lengths[j]
    square = b * b * squares[j] + 2 * a * b * dot * scales[j] + a * a * norm2
    if unit:
        if square < MIN_MEAN_LENGTH**2:
            lengths[j] = 0.0
            return 1.0, 0.0, norm2
        length = np.sqrt(square)
        a, b, square = a / length, b / length, 1.0
        lengths[j] = 1.0 if rate > 0.0 else length
    scale = b * scales[j]
    if scale < MIN_SCALE:
        for t in range(U.shape[0]):
            U[t, j] *= scale
        scale = 1.0
    for p in range(first, last):
        U[indices[p], j] += a / scale * np.float64(data[p])
    scales[j] = scale
    squares[j] = max(square, 0.0)
    return b, a, norm2


@fast_kernel
def update_sequential_sparse(
    data,  # IN (nnz)
    indices,  # IN (nnz), in order within a row
    indptr,  # IN (m + 1)
    weights,  # IN (m) float64
    rate,  # IN learning rate, or 0 for running means
    unit,  # IN bool: normalize centroids to unit length (cosine metric)
    U,  # ADD (d, k) float64: centroids divided by their scales, transposed
    scales,  # ADD (k) float64
    squares,  # ADD (k) float64: |c|^2
    weight_sums,  # ADD (k) float64
    lengths,  # ADD (k) float64: lengths of the means if `unit`, else 1
    labels,  # OUT (m) int32
    distances,  # OUT (m) float64: squared distances to the assigned centroids before their update
):
    """Assign each row and update its centroid, in row order."""
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
    """Assign all rows of a batch; `move_sparse` then updates the centroids."""
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
    distances,  # IN (m) float64: squared distances to the centroids before the batch
    before,  # IN (k) float64: |c|^2 of the centroids before the batch
    unit,  # IN bool: normalize centroids to unit length (cosine metric)
    U,  # ADD (d, k) float64: centroids divided by their scales, transposed
    scales,  # ADD (k) float64
    squares,  # ADD (k) float64
    weight_sums,  # ADD (k) float64
    lengths,  # ADD (k) float64
    products,  # ADD (k) float64: dot products of the centroids with those before the batch
):
    """Update the centroids by all rows of a batch, in row order."""
    for i in range(labels.shape[0]):
        if weights[i] > 0.0:
            j, first, last = labels[i], indptr[i], indptr[i + 1]
            b, a, norm2 = _move_sparse(
                data, indices, first, last, weights[i], 0.0, unit, U, scales, squares, weight_sums, lengths, j
            )
            products[j] = b * products[j] + a * (norm2 + before[j] - distances[i]) / 2
