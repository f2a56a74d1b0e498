"""Kernels that hash rows by their values; dense and sparse rows of equal values have equal hashes."""

import numpy as np

from . import kernel


@kernel
def _key(x, salt):
    """Hash one value with its column's salt by the finalizer of SplitMix64; 0.0 and -0.0 give 0.

    Without the finalizer, values that differ in one or two bits, such as -1 and 1, would have similar hashes.
    """
    z = np.float64(x + 0.0).view(np.uint64)
    if z == np.uint64(0):
        return z
    z ^= salt
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def dense_keys(
    X,  # IN (n, d)
    salts,  # IN (d) uint64: a random number per column
    out,  # OUT (n) uint64
):
    """Sum the hashes of each row's values, modulo 2^64. Zeros add nothing, so that sparse rows have the same hash."""
    for i in range(X.shape[0]):
        key = np.uint64(0)
        for t in range(X.shape[1]):
            key += _key(X[i, t], salts[t])
        out[i] = key


@kernel
def sparse_keys(
    data,  # IN (nnz)
    indices,  # IN (nnz)
    indptr,  # IN (n + 1)
    salts,  # IN (d) uint64: a random number per column
    out,  # OUT (n) uint64
):
    """Do the same for the stored entries of CSR rows."""
    for i in range(out.shape[0]):
        key = np.uint64(0)
        for p in range(indptr[i], indptr[i + 1]):
            key += _key(data[p], salts[indices[p]])
        out[i] = key
