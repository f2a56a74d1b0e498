"""The normalised Laplacian L = D^-1/2 A D^-1/2 of an affinity A, and the degrees D that it needs.

A. Ng, M. Jordan, Y. Weiss (2002), On spectral clustering: analysis and an algorithm, NIPS. (Others call I - L so.)
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..data.types import Array, warn
from ..fit.random_streams import generator

FLOOR = 1e-2  # of the mean degree of others: what a row has at least whose sampled columns hold next to nothing
FAR_OFF = 0.5  # a relative error of the degrees that the user is told of
LEAST = 1e-30  # a degree below this is none: float32 has few digits left for what it is a sum of


class Affinity(Protocol):
    """A symmetric matrix of affinities, whether it is in memory or computed by the column."""

    is_stored: bool  # then sums of its rows are cheap

    @property
    def n(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    def product(self, B: Array, ids: Array | None = None) -> Array: ...

    def degrees(self) -> Array: ...

    def column_moments(self, ids: Array) -> tuple[Array, Array]: ...

    def dense(self) -> Array: ...

    def block(self, ids: Array) -> Array: ...

    def picked(self, B: Array, ids: Array) -> Array: ...


class Laplacian:
    """Products with L. Rows of degree zero have zeros in L and in the embedding."""

    def __init__(self, affinity: Affinity, degrees: Array) -> None:
        self.affinity, self.n, self.dtype = affinity, affinity.n, affinity.dtype
        self.s = inverse_root(degrees)[:, None].astype(self.dtype)

    def times(self, B: Array, ids: Array | None = None) -> Array:
        """L[:, ids] B, or L B."""
        scaled = self.s * B if ids is None else self.s[ids] * B
        return self.s * self.affinity.product(scaled, ids)


def inverse_root(degrees: Array) -> Array:
    """1 / sqrt(d), or 0 where there is no d."""
    there = degrees > LEAST
    return np.where(there, 1 / np.sqrt(np.where(there, degrees, 1)), 0)


def check_degrees(degrees: Array, what: str, whom: str = "any other") -> None:
    """Refuse a graph without edges; tell of rows that have none."""
    alone = np.flatnonzero(degrees <= LEAST)
    if len(alone) == len(degrees) > 1:
        raise ValueError(f"No row is like {whom}: {what}.")
    if len(alone) and len(degrees) > 1:
        warn(
            f"{len(alone)} of {len(degrees)} rows are not like {whom} (the first is row {alone[0]}): they are embedded at zero "
            f"and share a cluster; {what}.",
            UserWarning,
        )


def estimate_degrees(affinity: Affinity, count: int, seed: int) -> tuple[Array, float]:
    """Degrees from a sample of the columns, and how far off they are: the root mean square of their relative standard errors.

    The diagonal is zero, so that a row that is in the sample has one column fewer to learn from. Rows that are like none of
    the sample are given a small degree: with none, or next to none, they would outweigh all others. They are off by as much
    as they should be.
    """
    n = affinity.n
    if count >= n or affinity.is_stored:
        return affinity.degrees(), 0.0
    ids = np.sort(generator(seed, 1 << 41).choice(n, count, replace=False))
    seen = np.full(n, float(count))
    seen[ids] -= 1
    sums, squares = affinity.column_moments(ids)
    mean = sums / np.maximum(seen, 1)
    variance = np.maximum(squares / np.maximum(seen, 1) - mean**2, 0) * seen / np.maximum(seen - 1, 1)
    share = 1 - seen / (n - 1)  # of the columns that have not been seen: what has been is no guess
    there = sums > LEAST
    if not there.any():
        raise ValueError(f"No row is like any of the degree_samples={count} that degrees come from: raise it, or sigma.")
    errors = np.ones(n)
    errors[there] = np.sqrt(share * variance / np.maximum(seen, 1))[there] / mean[there]
    error = float(np.sqrt(np.mean(errors**2))) if count > 1 else np.inf  # one number has no spread
    if error > FAR_OFF:
        warn(f"Degrees from degree_samples={count} columns are off by a factor of {1 + error:.2g}: raise it.", UserWarning)
    return (n - 1) * np.maximum(mean, FLOOR * mean[there].mean()), error
