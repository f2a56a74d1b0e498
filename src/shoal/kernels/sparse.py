"""Kernels for sparse rows: CSR blocks as data, indices and indptr, with int32 or int64 indices."""

import numpy as np

from . import fast_kernel, kernel


@fast_kernel
def scores(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    ZT,  # IN (d, k): centres times -2, one column of the data a row, so that centres are neighbours
    z2,  # IN (k)
    first,  # IN score the centres from this one on
    out,  # OUT (m, c)
):
    """|c|^2 - 2 x.c of every row and c centres."""
    last = first + out.shape[1]
    for i in range(out.shape[0]):
        row = out[i]
        row[:] = z2[first:last]
        for p in range(indptr[i], indptr[i + 1]):
            v = data[p]
            column = ZT[indices[p], first:last]
            for j in range(row.shape[0]):
                row[j] += v * column[j]


@fast_kernel
def squared_norms(
    data,  # IN (nnz)
    indptr,  # IN (m + 1)
    out,  # OUT (m) float64
):
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
    rows,  # IN (m)
    centers,  # IN (m)
    C,  # IN (k, d)
    c2,  # IN (k) float64: |c|^2
    out,  # OUT (m) float64
):
    """(x - c)^2 in float64: at the columns where the row is not zero, and what they leave of the centre's norm."""
    for q in range(rows.shape[0]):
        i, j = rows[q], centers[q]
        total = covered = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            c = np.float64(C[j, indices[p]])
            e = np.float64(data[p]) - c
            total += e * e
            covered += c * c
        rest = c2[j] - covered
        if rest < 1e-6 * covered:  # too few digits are left of the difference: add up the other columns
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
    scale,  # IN a power of two
    sums,  # ADD (d) float64: of w e, where e = (x - origin) scale
    squares,  # ADD (d) float64: of w e^2
    largest,  # ADD (d) float64: of |e|
):
    """The same as for dense rows, of stored entries alone."""
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
    ids,  # IN (m): where each row goes
    sums,  # ADD (k, d) float64
):
    for i in range(ids.shape[0]):
        total = sums[ids[i]]
        for p in range(indptr[i], indptr[i + 1]):
            total[indices[p]] += data[p]
