"""Kernels for sparse rows: CSR blocks given as data, indices and indptr, with int32 or int64 indices."""

import numpy as np

from . import fast_kernel, kernel

MIN_REMAINDER = 1e-6  # part of |c|^2 below which |c|^2 - covered has lost so many digits that the difference is summed directly
ENTRIES_PER_SUM = 1024  # entries of a row that are summed at once, as columns in `kernels.tiles`


@fast_kernel
def _add_products(data, indices, start, stop, ZT, first, row):
    """Add the products of some entries with the columns of all centroids to the scores of a row."""
    for p in range(start, stop):
        v = data[p]
        column = ZT[indices[p], first : first + row.shape[0]]
        for j in range(row.shape[0]):
            row[j] += v * column[j]


@fast_kernel
def scores(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    ZT,  # IN (d, k): centroids times -2, transposed, so that one column of all centroids is contiguous
    z2,  # IN (k): |c|^2
    first,  # IN first centroid to score
    out,  # OUT (m, c): scores of the centroids first .. first + c - 1
):
    """Compute the scores |c|^2 - 2 x.c of every row for c centroids."""
    part = np.empty(out.shape[1], out.dtype)
    for i in range(out.shape[0]):
        row = out[i]
        for j in range(row.shape[0]):
            row[j] = z2[first + j]
        stop = min(indptr[i] + ENTRIES_PER_SUM, indptr[i + 1])
        _add_products(data, indices, indptr[i], stop, ZT, first, row)
        while stop < indptr[i + 1]:
            start, stop = stop, min(stop + ENTRIES_PER_SUM, indptr[i + 1])
            part[:] = 0
            _add_products(data, indices, start, stop, ZT, first, part)
            for j in range(row.shape[0]):
                row[j] += part[j]


@fast_kernel
def squared_norms(
    data,  # IN (nnz)
    indptr,  # IN (m + 1)
    out,  # OUT (m) float64
):
    """Compute |x|^2 of every row."""
    for i in range(out.shape[0]):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * np.float64(data[p])
        out[i] = total


@kernel
def pair_distances(
    data,  # IN (nnz)
    indices,  # IN (nnz), in order within a row
    indptr,  # IN (n + 1)
    rows,  # IN (m): row of each pair
    centers,  # IN (m): centroid of each pair
    C,  # IN (k, d)
    c2,  # IN (k) float64: |c|^2
    out,  # OUT (m) float64
):
    """Compute (x - c)^2 of pairs in float64: over the stored columns of x, plus |c|^2 of the other columns."""
    for q in range(rows.shape[0]):
        i, j = rows[q], centers[q]
        total = covered = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            c = np.float64(C[j, indices[p]])
            e = np.float64(data[p]) - c
            total += e * e
            covered += c * c
        rest = c2[j] - covered
        if rest < MIN_REMAINDER * covered:
            rest = 0.0
            p, last = indptr[i], indptr[i + 1]
            for t in range(C.shape[1]):
                if p < last and indices[p] == t:
                    p += 1
                else:
                    rest += np.float64(C[j, t]) * np.float64(C[j, t])
        out[q] = total + rest


@kernel
def column_moments(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    weights,  # IN (m) float64
    origin,  # IN (d) float64
    scale,  # IN a power of two, so that multiplying by it is exact
    sums,  # ADD (d) float64: sums of w e, where e = (x - origin) scale
    squares,  # ADD (d) float64: sums of w e^2
    largest,  # ADD (d) float64: maxima of |e|
):
    """Add up the column moments of the stored entries alone."""
    for i in range(weights.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            t = indices[p]
            x = (np.float64(data[p]) - origin[t]) * scale
            sums[t] += weights[i] * x
            squares[t] += weights[i] * (x * x)
            largest[t] = max(largest[t], abs(x))


@kernel
def add_rows(
    data,  # IN (nnz) float64
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    ids,  # IN (m): row of `sums` for each row
    sums,  # ADD (k, d) float64
):
    """Add each row to the sum of its cluster."""
    for i in range(ids.shape[0]):
        total = sums[ids[i]]
        for p in range(indptr[i], indptr[i + 1]):
            total[indices[p]] += data[p]
