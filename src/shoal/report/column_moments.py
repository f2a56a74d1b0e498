"""Means and variances of columns, accumulated block by block without cancellation for data far from the origin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ..data.types import Array, is_sparse


class ColumnMoments(NamedTuple):
    """Mean and sum of squared deviations from the mean of each column. Those of blocks are combined by `merge_moments`."""

    n: int  # number of rows
    means: Array  # (d)
    squares: Array  # (d): sums of squared deviations from `means`


def column_moments(X: Any) -> ColumnMoments:
    """Return the moments of dense or sparse rows, computed in two passes.

    Sums of squares minus squared means would cancel for columns whose mean is large compared to their deviation.
    """
    n, d = X.shape
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if is_sparse(X):
            means = np.bincount(X.indices, X.data, d) / n
            n_zeros = n - np.bincount(X.indices, minlength=d)  # entries that are not stored
            deviations = X.data - means[X.indices]
            sums = np.bincount(X.indices, deviations, d) - n_zeros * means
            squares = np.bincount(X.indices, deviations**2, d) + n_zeros * means**2
        else:
            means = X.mean(axis=0, dtype=np.float64)
            deviations = X - means
            sums, squares = deviations.sum(axis=0), np.einsum("ij,ij->j", deviations, deviations)
        correction = sums / n  # rounding error of the means; a constant column then has (nearly) no squares
        return ColumnMoments(n, means + correction, np.maximum(squares - n * correction**2, 0))


def merge_moments(a: ColumnMoments | None, b: ColumnMoments) -> ColumnMoments:
    """Return the moments of the rows of a and b (Chan, Golub and LeVeque, 1983). The first block has no a."""
    if a is None:
        return b
    n = a.n + b.n
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        difference = b.means - a.means
        return ColumnMoments(n, a.means + difference * (b.n / n), a.squares + b.squares + difference**2 * (a.n / n * b.n))


def cluster_sums(X: Any, labels: Array, k: int) -> Array:
    """Return the column sums of the rows of each cluster, of shape (k, d), in float64."""
    indicator = sparse.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(k, len(labels)))
    sums = indicator @ X
    return np.asarray(sums.toarray() if is_sparse(sums) else sums)
