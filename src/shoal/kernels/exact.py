"""Kernels that find columns in which subtracting a shift is inexact."""

import numpy as np

from . import kernel


@kernel
def inexact_dense(
    X,  # IN (n, d)
    shift,  # IN (d) float64
    single,  # ADD (d) bool: whether x - shift is not representable in float32 for some row
    double,  # ADD (d) bool: whether x - shift is not representable in float64 for some row
):
    """Mark the columns in which x - shift is rounded.

    `e + error` is the exact difference (D. E. Knuth, The Art of Computer Programming, vol. 2, section 4.2.2, theorem B).
    """
    for i in range(X.shape[0]):
        for t in range(X.shape[1]):
            x, s = np.float64(X[i, t]), shift[t]
            e = x - s
            part = e - x
            error = (x - (e - part)) - (s + part)
            double[t] |= error != 0
            single[t] |= (error != 0) | (np.float64(np.float32(e)) != e)


@kernel
def inexact_sparse(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    shift,  # IN (d) float64
    single,  # ADD (d) bool: whether x - shift is not representable in float32 for some stored x
    double,  # ADD (d) bool: whether x - shift is not representable in float64 for some stored x
    stored,  # ADD (d) int64: number of stored entries per column
):
    """Do the same for the stored entries of CSR rows, and count them per column."""
    for p in range(data.shape[0]):
        t = indices[p]
        x, s = np.float64(data[p]), shift[t]
        e = x - s
        part = e - x
        error = (x - (e - part)) - (s + part)
        double[t] |= error != 0
        single[t] |= (error != 0) | (np.float64(np.float32(e)) != e)
        stored[t] += 1
