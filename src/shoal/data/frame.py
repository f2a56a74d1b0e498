"""The coordinate frame in which rows are clustered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .types import Array


class Frame(NamedTuple):
    """The coordinates in which rows are clustered: x * 2^exponent - shift, or x / |x|, or bits.

    The shift moves data far from the origin close to it, where float32 is precise enough; the exponent prevents squares
    from overflowing. Both are chosen so that they round no row of the fit (see `statistics.measure`). Other rows that they
    would round are compared in another frame (see `exactness`). Sparse rows are shifted only in columns that every row stores.
    """

    shift: Array | None = None  # (d) float64
    exponent: int = 0
    unit: bool = False  # whether rows and centroids are scaled to unit length
    bits: bool = False  # whether rows and centroids are binary; their squared distance is the Hamming distance

    @classmethod
    def of(cls, metric: str) -> Frame:
        """Return the frame of a metric, before the rows have been measured."""
        return cls(unit=metric == "cosine", bits=metric == "hamming")

    @property
    def is_identity(self) -> bool:
        """Whether centroids have the same coordinates as in the input."""
        return self.shift is None and not self.exponent and not self.bits

    def into(self, X: Array, dtype: np.dtype) -> Array:
        """Convert rows or centroids to this frame."""
        if self.exponent:
            X = times_power(X.astype(np.float64), self.exponent)
        if self.shift is not None:
            X = X - self.shift.astype(dtype if X.dtype == dtype else np.float64)
        return np.ascontiguousarray(X, dtype)

    def out_of(self, C: Array, dtype: np.dtype) -> Array:
        """Convert centroids from this frame to the coordinates of the input."""
        if self.bits:
            return C > 0.5
        if self.is_identity:
            return np.array(C, dtype, order="C")
        X = C.astype(np.float64)
        if self.shift is not None:
            X += self.shift
        return np.ascontiguousarray(times_power(X, -self.exponent) if self.exponent else X, dtype)

    def distances_out_of(self, squares: Array) -> Array:
        """Convert squared distances in this frame to distances in the metric: 1 - cosine, Hamming or Euclidean."""
        if self.unit or self.bits:
            return squares / (2 if self.unit else 1)
        return times_power(np.sqrt(squares), -self.exponent)

    def energy_out_of(self, energy: float) -> float:
        """Convert the inertia in this frame to that in the metric: the sum of squared distances, or of 1 - cosine."""
        with np.errstate(over="ignore", under="ignore"):
            return energy / 2 if self.unit else float(np.ldexp(energy, -2 * self.exponent))


def times_power(X: Array, exponent: int) -> Array:
    """Return X * 2^exponent, multiplied in two steps since 2^exponent itself may be out of the range of float64."""
    half = exponent // 2
    return X * 2.0**half * 2.0 ** (exponent - half)
