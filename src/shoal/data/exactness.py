"""Whether a frame holds rows without rounding them, and which frames to fall back on where it does not.

`x * 2^exponent - shift` is exact for rows near the shift. For others it may lose their last digits, and with them all that
tells such rows apart. Rows are therefore compared in a frame that holds them exactly.
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
    """Columns in which a frame rounds at least one row. Adds up by `|`."""

    single: Array  # (d) bool: in float32
    double: Array  # (d) bool: in float64

    def of(self, dtype: np.dtype) -> Array:
        return self.single if dtype == SINGLE else self.double


def find_rounding(raw: Any, frame: Frame) -> Rounding:
    """Columns of some raw rows that a frame rounds. Shifted columns of sparse rows must be stored in every row."""
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
    """Does a frame hold raw rows (or centres) without rounding? Rows that it neither moves nor scales fit as they are."""
    if frame.unit or frame.bits or (frame.shift is None and not frame.exponent):
        return True
    return not find_rounding(raw, frame).of(dtype).any()


def moved(C: Any, frame: Frame, other: Frame, dtype: np.dtype) -> Any:
    """Centres of a frame that holds them exactly in one that is the same or has no shift; sparse ones too."""
    C = C.astype(dtype)
    if frame.shift is not None and other.shift is None:
        if is_sparse(C):
            C.data += frame.shift[C.indices]
        else:
            C += frame.shift
    return C


def fallbacks(rows: Rows) -> list[Rows]:
    """The same rows in their own frame, in float64, and in float64 without a shift, which rounds nothing."""
    plain = rows.frame._replace(shift=None)
    ways = dict.fromkeys([(False, rows.dtype), (False, DOUBLE), (rows.frame.shift is not None, DOUBLE)])
    return [rows.with_frame(plain if unshifted else rows.frame, dtype) for unshifted, dtype in ways]
