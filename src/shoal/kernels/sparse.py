"""Kernels for sparse rows: CSR blocks given as data, indices and indptr, with int32 or int64 indices."""

import numpy as np

from . import fast_kernel, kernel

MIN_SCORES_AS_INTEGERS = 32  # scores of a row from which on vectorized minima of integers pay
LANES = 16  # rows that others are compared with at a time

MIN_REMAINDER = 1e-6  # part of |c|^2 below which |c|^2 - covered has lost so many digits that the difference is summed directly
ENTRIES_PER_SUM = 1024  # entries of a row that are summed at once, as columns in `kernels.tiles`


@kernel
def stored_entries(
    C,  # IN (m, d): dense rows
    indices,  # OUT (m * d + 1) int32: columns of the entries other than zero, row by row
    values,  # OUT (m * d): the entries
    counts,  # OUT (m) int64: number of entries of each row
):
    """Find the entries of rows that are not zero, and return how many there are."""
    n = 0
    for j in range(C.shape[0]):
        first = n
        for t in range(C.shape[1]):
            indices[n] = t
            n += C[j, t] != 0  # no branch, which would often be predicted wrongly
        for p in range(first, n):
            values[p] = C[j, indices[p]]
        counts[j] = n - first
    return n


@kernel
def fill_columns(
    indices,  # IN (nnz) int32: columns of the entries of all centroids, one centroid after another
    values,  # IN (nnz)
    counts,  # IN (k) int64: number of entries of each centroid
    place,  # IN (d) int32: row of `table` for each column; the last one if it is stored as a list
    starts,  # ADD (d) int64: next position of each column in the lists
    table,  # ADD (columns + 1, k): entries times -2 of the columns of many centroids; the last row is left as it is
    ids,  # OUT (entries) int32: centroids of the other entries, column by column
    listed,  # OUT (entries): these entries times -2
):
    """Store centroids by column."""
    p, nothing = 0, table.shape[0] - 1
    for j in range(counts.shape[0]):
        for _ in range(counts[j]):
            t, value = indices[p], -2 * values[p]
            p += 1
            if place[t] < nothing:
                table[place[t], j] = value
            else:
                ids[starts[t]] = j
                listed[starts[t]] = value
                starts[t] += 1


@fast_kernel
def scores(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    place,  # IN (d) int32: row of `table` for each column; the last one if it is stored as a list
    table,  # IN (columns + 1, k): centroids times -2 in the columns in which many of them have an entry; zeros
    starts,  # IN (d + 1) int64: lists of the other columns
    ids,  # IN (entries) int32: their centroids
    listed,  # IN (entries): their entries, times -2
    z2,  # IN (k): |c|^2
    first,  # IN first centroid to score
    out,  # OUT (m, c): scores of the centroids first .. first + c - 1
):
    """Compute the scores |c|^2 - 2 x.c of every row for c centroids."""
    part, last = np.empty(out.shape[1], out.dtype), first + out.shape[1]
    for i in range(out.shape[0]):
        row, end = out[i], indptr[i]
        for j in range(row.shape[0]):
            row[j] = z2[first + j]
        while end < indptr[i + 1]:
            start, end = end, min(end + ENTRIES_PER_SUM, indptr[i + 1])
            part[:] = 0
            for p in range(start, end):
                v, t = data[p], indices[p]
                column = table[place[t], first:last]
                for j in range(row.shape[0]):
                    part[j] += v * column[j]
                for q in range(starts[t], starts[t + 1]):
                    if first <= ids[q] < last:
                        part[ids[q] - first] += v * listed[q]
            for j in range(row.shape[0]):
                row[j] += part[j]


@kernel
def _distance2(data, indices, first, last, C, j, c2):
    """Return (x - c)^2 in float64 for the row with the entries first .. last - 1 and the centroid j."""
    total = covered = 0.0
    for p in range(first, last):
        c = np.float64(C[j, indices[p]])
        e = np.float64(data[p]) - c
        total += e * e
        covered += c * c
    rest = c2[j] - covered
    if rest < MIN_REMAINDER * covered:
        rest, p = 0.0, first
        for t in range(C.shape[1]):
            if p < last and indices[p] == t:
                p += 1
            else:
                rest += np.float64(C[j, t]) * np.float64(C[j, t])
    return total + rest


@fast_kernel
def label_rows(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    place,  # IN (d) int32: row of `table` for each column; the last one if it is stored as a list
    table,  # IN (columns + 1, k): centroids times -2 in the columns in which many of them have an entry; zeros
    starts,  # IN (d + 1) int64: lists of the other columns
    ids,  # IN (entries) int32: their centroids
    listed,  # IN (entries): their entries, times -2
    z2,  # IN (k): |c|^2, less the centroid's part of a score's rounding error
    C,  # IN (k, d): centroids
    c2,  # IN (k) float64: |c|^2
    error,  # IN rounding error of a score, relative to |x|^2 + |c|^2
    row,  # OUT (k): scores of a row
    bits,  # OUT (k): the memory of `row` as integers
    largest,  # IN largest of these integers
    labels,  # OUT (m) int32: nearest centroid; of equally near ones, the first
):
    """Find the nearest of at least two centroids by scores, which stay in the first-level cache.

    Where the two lowest scores are too close, all centroids whose scores are that close are compared by exact distances.
    Four columns of the table are added at a time, since loading them takes longer than the additions. Minima of many scores are
    those of integers in the same order, because minima of numbers that may be NaN are not vectorized.
    """
    k, nothing, shift = row.shape[0], table.shape[0] - 1, 8 * row.itemsize - 1
    part, infinity = np.empty(k, row.dtype), z2.dtype.type(np.inf)
    for i in range(labels.shape[0]):
        start, stop = indptr[i], indptr[i + 1]
        for j in range(k):
            row[j] = z2[j]
        end = start
        while end < stop:
            begin, end = end, min(end + ENTRIES_PER_SUM, stop)
            part[:] = 0
            fours = begin + (end - begin) // 4 * 4
            for p in range(begin, fours, 4):
                u, v, w, x = data[p], data[p + 1], data[p + 2], data[p + 3]
                one, two = table[place[indices[p]]], table[place[indices[p + 1]]]
                three, four = table[place[indices[p + 2]]], table[place[indices[p + 3]]]
                for j in range(k):
                    part[j] += u * one[j] + v * two[j] + w * three[j] + x * four[j]
            for p in range(fours, end):
                v, column = data[p], table[place[indices[p]]]
                for j in range(k):
                    part[j] += v * column[j]
            if ids.shape[0]:
                for p in range(begin, end):
                    t = indices[p]
                    if place[t] == nothing:
                        for q in range(starts[t], starts[t + 1]):
                            part[ids[q]] += data[p] * listed[q]
            for j in range(k):
                row[j] += part[j]
        label = 0
        if k < MIN_SCORES_AS_INTEGERS:
            best, second = row[0], infinity
            for j in range(1, k):  # no branches, which would often be predicted wrongly
                v = row[j]
                is_lower = v < best
                larger = best if is_lower else v
                second = larger if larger < second else second
                label = j if is_lower else label
                best = v if is_lower else best
        else:
            low = high = largest
            for j in range(k):
                bits[j] ^= (bits[j] >> shift) & largest
                low = min(low, bits[j])
            while bits[label] != low:
                label += 1
            bits[label] = largest
            for j in range(k):
                high = min(high, bits[j])
                bits[j] ^= (bits[j] >> shift) & largest  # the scores again
            bits[label] = high ^ ((high >> shift) & largest)
            second = row[label]
            bits[label] = low ^ ((low >> shift) & largest)
        norm2 = 0.0
        for p in range(start, stop):
            norm2 += np.float64(data[p]) * np.float64(data[p])
        limit = row[label] + 2 * error * (norm2 + c2[label])
        if not second > limit:
            least = _distance2(data, indices, start, stop, C, label, c2)
            row[label] = np.inf
            for j in range(k):
                if row[j] <= limit:
                    distance = _distance2(data, indices, start, stop, C, j, c2)
                    if distance < least or (distance == least and j < label):
                        least, label = distance, j
        labels[i] = label


@fast_kernel
def some_squared_norms(
    data,  # IN (nnz)
    indptr,  # IN (m + 1)
    rows,  # IN (r)
    out,  # OUT (r) float64
):
    """Compute |x|^2 of some rows."""
    for q in range(rows.shape[0]):
        total = 0.0
        for p in range(indptr[rows[q]], indptr[rows[q] + 1]):
            total += np.float64(data[p]) * np.float64(data[p])
        out[q] = total


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
def ordered_norms(
    data,  # IN (nnz)
    indptr,  # IN (m + 1)
    out,  # OUT (m) float64
):
    """Compute |x|^2 of every row by the sum in which `products` computes x.x, so that equal rows have a distance of zero."""
    for i in range(out.shape[0]):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * np.float64(data[p])
        out[i] = total


@kernel
def table_of_rows(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1): at most LANES rows
    place,  # ADD (d) int32: row of `table` for each column; -1 for none
    table,  # ADD (nnz, LANES) float64: zeros; the rows by column
):
    """Store a few rows by column."""
    n = 0
    for i in range(indptr.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            t = indices[p]
            if place[t] < 0:
                place[t] = n
                n += 1
            table[place[t], i] = np.float64(data[p])


@kernel
def products(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (n + 1)
    place,  # IN (d) int32: from `table_of_rows`
    table,  # IN (columns, LANES) float64: from `table_of_rows`
    hits,  # OUT (longest row + 1) int64: entries of a row in columns of the table
    sums,  # OUT (LANES) float64: products of a row
    out,  # OUT (n, m): dot products of these rows and the first m rows of the table
):
    """Compute dot products of rows, in float64, with a few others."""
    for i in range(out.shape[0]):
        sums[:] = 0
        n = 0
        for p in range(indptr[i], indptr[i + 1]):
            hits[n] = p
            n += place[indices[p]] >= 0  # no branch, which would often be predicted wrongly
        for q in range(n):
            v, column = np.float64(data[hits[q]]), table[place[indices[hits[q]]]]
            for e in range(LANES):
                sums[e] += v * column[e]
        for j in range(out.shape[1]):
            out[i, j] = sums[j]


@kernel
def lower_distances(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (n + 1)
    place,  # IN (d) int32: from `table_of_rows`
    table,  # IN (columns, LANES) float64: from `table_of_rows`
    own,  # IN (m) float64: |c|^2 of the rows of the table
    norms2,  # IN (n) float64: |x|^2
    hits,  # OUT (longest row + 1) int64: entries of a row in columns of the table
    sums,  # OUT (LANES) float64: products of a row
    out,  # ADD (n) float64: squared distances to the nearest of all centroids
):
    """Lower squared distances to those to new centroids, the rows of a table."""
    for i in range(out.shape[0]):
        sums[:] = 0
        n = 0
        for p in range(indptr[i], indptr[i + 1]):
            hits[n] = p
            n += place[indices[p]] >= 0  # no branch, which would often be predicted wrongly
        for q in range(n):
            v, column = np.float64(data[hits[q]]), table[place[indices[hits[q]]]]
            for e in range(LANES):
                sums[e] += v * column[e]
        for j in range(own.shape[0]):
            out[i] = min(out[i], max(norms2[i] + own[j] - 2 * sums[j], 0.0))


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
        out[q] = _distance2(data, indices, indptr[rows[q]], indptr[rows[q] + 1], C, centers[q], c2)


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


@kernel
def sum_rows(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (m + 1)
    rows,  # IN (r): rows to add up, one sum after another
    factors,  # IN (r) float64: multiple of each row
    ends,  # IN (t) int64: end of each sum in `rows`
    total,  # ADD (d) float64: zeros; overwritten
    last,  # ADD (d) int32: -1; overwritten by the last sum with an entry in a column
    out_indices,  # OUT (all entries of these rows): columns of each sum, in order of appearance
    out_data,  # OUT (the same) float64: its entries
    out_indptr,  # OUT (t + 1) int64
):
    """Compute weighted sums of rows, each as a sparse row, and return the number of entries."""
    n = q = 0
    out_indptr[0] = 0
    for s in range(ends.shape[0]):
        first = n
        while q < ends[s]:
            i, factor = rows[q], factors[q]
            q += 1
            for p in range(indptr[i], indptr[i + 1]):
                t = indices[p]
                if last[t] != s:
                    last[t] = s
                    total[t] = 0.0
                    out_indices[n] = t
                    n += 1
                total[t] += factor * np.float64(data[p])
        for p in range(first, n):
            out_data[p] = total[out_indices[p]]
        out_indptr[s + 1] = n
    return n
