"""The normalized Laplacian L = D^-1/2 A D^-1/2 of an affinity matrix A with degrees D.

References
----------
A. Ng, M. Jordan, Y. Weiss (2002), On spectral clustering: analysis and an algorithm, NIPS. (Elsewhere, I - L has this name.)
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..data.types import Array, warn
from ..fit.random_streams import Stream, generator

MIN_DEGREE = 1e-30  # smaller degrees count as zero: in float32, the affinities that make them up have few correct digits
MIN_RELATIVE_DEGREE = 1e-2  # smallest estimated degree, relative to the mean of the estimates above `MIN_DEGREE`
MAX_DEGREE_ERROR = 0.5  # relative error of estimated degrees above which a warning is issued


class Affinity(Protocol):
    """Symmetric affinity matrix A of shape (n, n), in memory or computed by the column."""

    is_stored: bool  # whether A is in memory, so that the sums of its rows are cheap

    @property
    def n(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    def product(self, B: Array, ids: Array | None = None) -> Array:
        """Return A[:, ids] B, or A B."""

    def row_product(self, B: Array, ids: Array) -> Array:
        """Return A[ids] B."""

    def degrees(self) -> Array:
        """Return the sums of the rows of A in float64."""

    def column_moments(self, ids: Array) -> tuple[Array, Array]:
        """Return the sums of the rows of A[:, ids], and those of the squared entries."""

    def dense(self) -> Array:
        """Return A as a dense array."""

    def submatrix(self, ids: Array) -> Array:
        """Return A[ids, ids] as a dense array."""


class Laplacian:
    """Products with L. Rows of degree zero are zero in L and in the embedding."""

    def __init__(self, affinity: Affinity, degrees: Array) -> None:
        self.affinity, self.n, self.dtype = affinity, affinity.n, affinity.dtype
        self.s = inverse_root(degrees)[:, None].astype(self.dtype)  # (n, 1): diagonal of D^-1/2

    def times(self, B: Array, ids: Array | None = None) -> Array:
        """Return L[:, ids] B, or L B."""
        scaled = self.s * B if ids is None else self.s[ids] * B
        return self.s * self.affinity.product(scaled, ids)


def inverse_root(degrees: Array) -> Array:
    """Return 1 / sqrt(degrees), and 0 where the degree is zero."""
    there = degrees > MIN_DEGREE
    return np.where(there, 1 / np.sqrt(np.where(there, degrees, 1)), 0)


def check_degrees(degrees: Array, remedy: str, others: str = "any other row") -> None:
    """Raise ValueError if all rows are isolated, and warn if some are. `others` names the rows that they are compared with."""
    isolated = np.flatnonzero(degrees <= MIN_DEGREE)
    if len(isolated) == len(degrees) > 1:
        raise ValueError(f"No row has an affinity to {others}: {remedy}.")
    if len(isolated) and len(degrees) > 1:
        warn(
            f"{len(isolated)} of {len(degrees)} rows have no affinity to {others} (the first is row {isolated[0]}): they are "
            f"embedded at zero and share a cluster; {remedy}.",
            UserWarning,
        )


def estimate_degrees(affinity: Affinity, n_columns: int, seed: int) -> tuple[Array, float]:
    """Estimate the degrees from random columns. Return them and the root mean square of their relative standard errors.

    The diagonal of A is zero, so a row that is itself among the columns has one value less. A row without affinity to any of
    them gets a small degree instead of zero, for its entries in L are divided by the degree; its relative error counts as 1.
    """
    n = affinity.n
    if n_columns >= n or affinity.is_stored:
        return affinity.degrees(), 0.0
    ids = np.sort(generator(seed, Stream.DEGREE_SAMPLE).choice(n, n_columns, replace=False))
    counts = np.full(n, float(n_columns))
    counts[ids] -= 1
    sums, squares = affinity.column_moments(ids)
    mean = sums / np.maximum(counts, 1)
    variance = np.maximum(squares / np.maximum(counts, 1) - mean**2, 0) * counts / np.maximum(counts - 1, 1)
    unseen = 1 - counts / (n - 1)  # fraction of columns outside the sample: the others contribute no error
    there = sums > MIN_DEGREE
    if not there.any():
        raise ValueError(f"No row has an affinity to any of the degree_samples={n_columns} columns: raise it, or sigma.")
    errors = np.ones(n)
    errors[there] = np.sqrt(unseen * variance / np.maximum(counts, 1))[there] / mean[there]
    error = float(np.sqrt(np.mean(errors**2))) if n_columns > 1 else np.inf  # the variance of one value is unknown
    if error > MAX_DEGREE_ERROR:
        warn(
            f"Degrees estimated from degree_samples={n_columns} columns have a relative error of {error:.2g}: raise it.",
            UserWarning,
        )
    return (n - 1) * np.maximum(mean, MIN_RELATIVE_DEGREE * mean[there].mean()), error
