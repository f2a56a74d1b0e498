"""Check if a frame represents rows without rounding, and list the fallback frames for rows that it rounds.

`x * 2^exponent - shift` is exact for rows near the shift. For other rows it may lose the last digits, and distinct rows
may become equal. Rows are therefore compared in a frame that represents them exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..kernels.exact import inexact_dense, inexact_sparse
from .frame import Frame, times_power
from .rows import Rows
from .types import Array, is_sparse

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


class Rounding(NamedTuple):
    """Columns in which a frame rounds at least one row. Combine those of several blocks by `|`."""

    single: Array  # (d) bool: with rows in float32
    double: Array  # (d) bool: with rows in float64

    def of(self, dtype: np.dtype) -> Array:
        """Return the flags for rows of this dtype."""
        return self.single if dtype == SINGLE else self.double


def find_rounding(raw: Any, frame: Frame) -> Rounding:
    """Return the columns in which a frame rounds any of these raw rows.

    Shifting a zero that is not stored would make sparse rows dense, so a shifted column must be stored in every sparse row.
    """
    d = raw.shape[1]
    rounding, values = Rounding(*np.zeros((2, d), bool)), raw.data if is_sparse(raw) else raw
    shift = np.zeros(d) if frame.shift is None else frame.shift
    if frame.exponent:
        values = times_power(values.astype(DOUBLE), frame.exponent)
    if values.dtype not in (SINGLE, DOUBLE):
        values = values.astype(DOUBLE)
    if is_sparse(raw):
        stored = np.zeros(d, np.int64)
        inexact_sparse(values, raw.indices, shift, *rounding, stored)
        missing = (shift != 0) & (stored < raw.shape[0])
        return Rounding(rounding.single | missing, rounding.double | missing)
    inexact_dense(np.ascontiguousarray(values), shift, *rounding)
    return rounding


def holds(frame: Frame, raw: Any, dtype: np.dtype) -> bool:
    """Return True if a frame represents raw rows (or centroids) without rounding. Without shift and exponent it does."""
    if frame.unit or frame.bits or (frame.shift is None and not frame.exponent):
        return True
    return not find_rounding(raw, frame).of(dtype).any()


def moved(C: Any, frame: Frame, other: Frame, dtype: np.dtype) -> Any:
    """Convert centroids, dense or sparse, to another frame: to the same frame, or to one without a shift."""
    C = C.astype(dtype)
    if frame.shift is not None and other.shift is None:
        if is_sparse(C):
            C.data += frame.shift[C.indices]
        else:
            C += frame.shift
    return C


def fallbacks(rows: Rows) -> list[Rows]:
    """Return the rows in their own frame, in float64, and in float64 without a shift, which rounds nothing; no duplicates."""
    unshifted = rows.frame._replace(shift=None)
    variants = dict.fromkeys([(False, rows.dtype), (False, DOUBLE), (rows.frame.shift is not None, DOUBLE)])
    return [rows.with_frame(unshifted if drops_shift else rows.frame, dtype) for drops_shift, dtype in variants]
