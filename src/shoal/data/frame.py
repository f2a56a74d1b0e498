"""The coordinates in which rows are clustered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .types import Array


class Frame(NamedTuple):
    """The coordinates in which rows are clustered: x * 2^exponent - shift, or x / |x|, or bits.

    A shift brings data far from the origin near to it, where float32 has digits left; the exponent keeps squares from
    overflowing. Both are chosen so that neither rounds a row of the fit (see `moments.measure`); what they would round
    among other rows is compared in another frame (see `exactness`). Sparse rows are shifted in columns that all of them store.
    """

    shift: Array | None = None  # (d) float64
    exponent: int = 0
    unit: bool = False
    bits: bool = False  # of rows and centres; they differ in as many as their squared distance says

    @classmethod
    def of(cls, metric: str) -> Frame:
        """Before the rows have been seen."""
        return cls(unit=metric == "cosine", bits=metric == "hamming")

    def into(self, X: Array, dtype: np.dtype) -> Array:
        """Rows or centres in this frame."""
        if self.exponent:
            X = times_power(X.astype(np.float64), self.exponent)
        if self.shift is not None:
            X = X - self.shift.astype(dtype if X.dtype == dtype else np.float64)
        return np.ascontiguousarray(X, dtype)

    def out_of(self, C: Array, dtype: np.dtype) -> Array:
        """Centres as the user knows them."""
        if self.bits:
            return C > 0.5
        X = C.astype(np.float64)
        if self.shift is not None:
            X += self.shift
        return np.ascontiguousarray(times_power(X, -self.exponent) if self.exponent else X, dtype)

    def distances_out_of(self, squares: Array) -> Array:
        """Distances as the user knows them: 1 - cosine in a frame of unit vectors, bits in one of bits."""
        if self.unit or self.bits:
            return squares / (2 if self.unit else 1)
        return times_power(np.sqrt(squares), -self.exponent)

    def energy_out_of(self, energy: float) -> float:
        """Energy as the user knows it: of squared distances, or of 1 - cosine."""
        with np.errstate(over="ignore", under="ignore"):
            return energy / 2 if self.unit else float(np.ldexp(energy, -2 * self.exponent))


def times_power(X: Array, exponent: int) -> Array:
    """X * 2^exponent in two halves: 2^exponent itself may not be a float64."""
    half = exponent // 2
    return X * 2.0**half * 2.0 ** (exponent - half)
