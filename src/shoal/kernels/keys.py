"""Keys of rows: a number for each that depends on what it holds alone, the same dense and sparse."""

import numpy as np

from . import kernel


@kernel
def _key(x, salt):
    """What a number in a column adds to a row's key, 0 for both zeros: its bits and the column's, mixed (SplitMix64).

    Without the mixing, numbers that differ in a bit or two, such as -1 and 1, would leave most of a key as it is.
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
    salts,  # IN (d) uint64
    out,  # OUT (n) uint64
):
    """A number for what each row holds. Zeros add nothing, so that sparse rows have the same."""
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
    salts,  # IN (d) uint64
    out,  # OUT (n) uint64
):
    for i in range(out.shape[0]):
        key = np.uint64(0)
        for p in range(indptr[i], indptr[i + 1]):
            key += _key(data[p], salts[indices[p]])
        out[i] = key
