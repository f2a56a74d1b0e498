"""First pass over the rows: check that they are finite, compute column moments, and choose the frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..kernels import dense as dense_kernels
from ..kernels import sparse as sparse_kernels
from .exactness import DOUBLE, Rounding, find_rounding
from .frame import Frame, times_power
from .rows import Rows
from .types import Array, find_rounded_integer, is_sparse, read_only, rounded_integer_message

# Distance of a column from the origin, in standard deviations, up to which float32 scores without a shift are precise
# enough; beyond it, too many rows would need exact distances.
MAX_UNSHIFTED_DEVIATIONS = 16
MIN_VARIANCE_RATIO = 1e-8  # variance / mean^2 below which E[x^2] - E[x]^2 has lost too many digits


class Moments(NamedTuple):
    """Weighted variance of the rows, and the frame and dtype chosen for them."""

    variance: float  # mean over the columns, in the frame
    frame: Frame
    dtype: np.dtype  # dtype in which the frame rounds no row


class _Share(NamedTuple):
    """Column moments of a block, see `kernels.dense.column_moments`."""

    sums: Array
    squares: Array
    largest: Array


def check_finite(start: int, raw: Any, name: str = "X") -> None:
    """Raise for the first row that holds NaN or infinity."""
    values = raw.data if is_sparse(raw) else raw
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind not in "fc" or np.isfinite(values.sum()) or np.isfinite(values).all():
            return
    place = np.argwhere(~np.isfinite(values))[0]
    row, column = _row_and_column(raw, place)
    kind = "NaN" if np.isnan(values[tuple(place)]) else "infinity"
    how = "fill them in, for instance with sklearn.impute.SimpleImputer" if kind == "NaN" else "put finite numbers there"
    raise ValueError(
        f"Input {name} contains {kind} at row {start + row}, column {column}: drop such rows or {how} "
        f"({name} must hold neither NaN nor infinity)."
    )


def _row_and_column(raw: Any, place: Array) -> tuple[int, int]:
    """Return the row and the column of an entry of a block's values."""
    if is_sparse(raw):
        return int(np.searchsorted(raw.indptr, place[0], "right")) - 1, int(raw.indices[place[0]])
    return int(place[0]), int(place[1])


def note_integers(start: int, raw: Any, rows: Rows) -> None:
    """Warn once, for the first integer that float64, in which rows are compared, would round."""
    if rows.frame.bits or rows.notices:
        return
    values = raw.data if is_sparse(raw) else raw
    place = find_rounded_integer(values)
    if place is not None:
        row, column = _row_and_column(raw, place)
        rows.notice(rounded_integer_message("X", values[tuple(place)], f"row {start + row}, column {column}"))


def check_values(start: int, raw: Any, unit: bool) -> None:
    """Raise for the first row that is not finite or, where rows are scaled to unit length, has no direction."""
    check_finite(start, raw)
    if not unit:
        return
    norms = np.asarray(abs(raw).max(axis=1).todense() if is_sparse(raw) else abs(raw).max(axis=1)).ravel()
    if not norms.all():
        row = start + int(np.argmin(norms != 0))
        raise ValueError(f"Row {row} of X is all zeros and has no direction: drop such rows or use metric='euclidean'.")


def _moments_block(start: int, raw: Any, weights: Array, rows: Rows, origin: Array, scale: float) -> _Share:
    """Check the values of a block and return its moments."""
    check_values(start, raw, rows.frame.unit)
    if rows.frame.unit:
        raw = rows.convert(raw).X
    d = raw.shape[1]
    share = _Share(np.zeros(d), np.zeros(d), np.zeros(d))
    if is_sparse(raw):
        sparse_kernels.column_moments(raw.data, raw.indices, raw.indptr, weights, origin, scale, *share)
        if origin.any():
            _add_zeros(raw, weights, origin * scale, share)
    else:
        dtype = raw.dtype if raw.dtype in (np.float32, np.float64) else np.float64
        dense_kernels.column_moments(read_only(np.ascontiguousarray(raw, dtype)), weights, origin, scale, *share)
    return share


def _add_zeros(raw: Any, weights: Array, origin: Array, share: _Share) -> None:
    """Add the moments of the zeros that sparse rows do not store."""
    d, m = len(origin), raw.shape[0]
    stored = np.bincount(raw.indices, np.repeat(weights, np.diff(raw.indptr)), d)
    some = np.flatnonzero((np.bincount(raw.indices, minlength=d) < m) & (origin != 0))
    absent, here = weights.sum() - stored[some], origin[some]
    with np.errstate(over="ignore"):  # the caller then repeats the pass with a scale that does not overflow
        share.sums[some] -= absent * here
        share.squares[some] += absent * here**2
    share.largest[some] = np.maximum(share.largest[some], np.abs(here))


def _compared_block(start: int, raw: Any, weights: Array, rows: Rows, origin: Array, scale: float) -> _Share:
    """Return the moments of a block of rows to be clustered; warn if their integers are rounded."""
    note_integers(start, raw, rows)
    return _moments_block(start, raw, weights, rows, origin, scale)


def _sum_moments(rows: Rows, origin: Array, scale: float, block: Callable[..., _Share] = _compared_block) -> _Share:
    """Sum the moments of all blocks."""
    total = _Share(*np.zeros((3, rows.d)))
    for share in rows.map_raw_blocks(block, rows, origin, scale, per_row=(rows.weights,)):
        total.sums[:] += share.sums
        total.squares[:] += share.squares
        np.maximum(total.largest, share.largest, out=total.largest)
    return total


def column_means(rows: Rows) -> Array:
    """Return the weighted column means, summed relative to the first row of positive weight.

    So the mean of equal numbers is exactly that number.
    """
    start = int(np.argmax(rows.weights > 0))
    first = rows.source.read(start, start + 1)
    check_finite(start, first)
    origin = np.zeros(rows.d) if rows.is_sparse else np.array(first, np.float64)[0]
    means: Array = origin + _sum_moments(rows, origin, 1.0, _moments_block).sums / rows.weights.sum()
    if not np.isfinite(means).all():
        raise ValueError("X spreads wider than float64 can hold: divide it by a power of ten first.")
    return means


class _ScaledMoments(NamedTuple):
    """Column moments of (x - origin) * 2^exponent."""

    origin: Array
    exponent: int
    total: _Share


def _moments_from(rows: Rows, origin: Array) -> _ScaledMoments:
    """Return the moments relative to an origin: one pass over the rows, two if their scale is extreme."""
    total = _sum_moments(rows, origin, 1.0)
    width = float(total.largest.max())
    if not np.isfinite(width):
        raise ValueError("X spreads wider than float64 can hold: divide it by a power of ten first.")
    if width == 0 or 2.0**-300 < width < 2.0**300:
        return _ScaledMoments(origin, 0, total)
    exponent = -int(np.clip(np.frexp(width)[1], -1000, 1000))
    return _ScaledMoments(origin, exponent, _sum_moments(rows, origin, 2.0**exponent))


def _cancelling(rows: Rows, measured: _ScaledMoments) -> Array:
    """Return (d) flags of columns so far from the origin that their variance suffers from cancellation."""
    mass = rows.weights.sum()
    flat: Array = measured.total.squares < (1 + MIN_VARIANCE_RATIO) * mass * (measured.total.sums / mass) ** 2
    return flat


def _stable_moments(rows: Rows) -> _ScaledMoments:
    """Return the moments relative to the first row (sparse rows: zero), or to a closer origin if that one is an outlier."""
    start = int(np.argmax(rows.weights > 0))
    block = rows.source.read(start, start + 1)
    check_values(start, block, rows.frame.unit)
    first = np.array(block.toarray() if rows.is_sparse else block, np.float64)[0]
    measured = _moments_from(rows, np.zeros(rows.d) if rows.is_sparse else first)
    flat = _cancelling(rows, measured)
    if rows.is_sparse and flat.any():  # such columns have hardly any zeros
        measured = _moments_from(rows, np.where(flat, first, 0.0))
        flat &= _cancelling(rows, measured)
    if flat.any():  # the first row is an outlier
        mean = times_power(measured.total.sums / rows.weights.sum(), -measured.exponent)
        measured = _moments_from(rows, measured.origin + (np.where(flat, mean, 0.0) if rows.is_sparse else mean))
    return measured


def column_scales(rows: Rows) -> Array:
    """Return mean and standard deviation of each column, (2, d); the deviation of constant columns is set to 1."""
    origin, exponent, total = _stable_moments(rows)
    mean = total.sums / rows.weights.sum()
    deviation = np.sqrt(np.maximum(total.squares / rows.weights.sum() - mean**2, 0))
    lost = (deviation < 2.0**-500) & (total.largest > 0) & (total.largest < 2.0**-500)
    if lost.any():
        raise ValueError(
            f"Column {int(np.argmax(lost))} of X spreads so much less than others that float64 cannot hold its variance: "
            "multiply it by a power of ten first."
        )
    deviation = times_power(deviation, -exponent)
    return np.stack([origin + times_power(mean, -exponent), np.where(deviation > 0, deviation, 1.0)])


def measure(rows: Rows) -> Moments:
    """Compute the moments and choose a frame: one pass, more if location or scale is extreme, none for bits."""
    if rows.frame.bits:
        return Moments(0.0, rows.frame, rows.dtype)
    if rows.frame.unit:
        total = _sum_moments(rows, np.zeros(rows.d), 1.0)
        mass = float(rows.weights.sum())
        mean = total.sums / mass
        return Moments(float(np.maximum(total.squares / mass - mean**2, 0).mean()), rows.frame, rows.dtype)
    return _choose_frame(rows, _stable_moments(rows))


def enter_frame(rows: Rows) -> tuple[Rows, Moments]:
    """Measure the rows; return them in the frame and the dtype that suit them."""
    moments = measure(rows)
    return rows.with_frame(moments.frame, moments.dtype), moments


def _choose_frame(rows: Rows, measured: _ScaledMoments) -> Moments:
    """Choose a shift for rows more than three standard deviations from the origin, and a scale if squares would overflow.

    Only columns far from the origin are shifted, by a number of few digits, so that x - shift is exact for rows near it. If
    it rounds any row, the column is not shifted, provided that float32 scores are precise enough there; otherwise all
    rows are compared in float64.
    """
    mass = rows.weights.sum()
    mean = measured.total.sums / mass
    variance = np.maximum(measured.total.squares / mass - mean**2, 0)
    center, spread = measured.origin * 2.0**measured.exponent + mean, np.sqrt(variance)
    shift, dtype = _desired_shift(rows, measured, center, spread), rows.dtype
    frame = _frame_of(measured, shift, dtype)
    while frame.shift is not None or frame.exponent:
        rounding = _find_rounding(rows, frame)
        if (rounding.of(dtype) & ((shift == 0) | (np.abs(center) > MAX_UNSHIFTED_DEVIATIONS * spread))).any():
            dtype = DOUBLE
        shift = np.where(rounding.of(dtype), 0.0, shift)
        before, frame = frame.exponent, _frame_of(measured, shift, dtype)
        if frame.exponent == before:  # a new exponent may round small numbers, so check again
            break
    return Moments(float(times_power(variance, 2 * (frame.exponent - measured.exponent)).mean()), frame, dtype)


def _desired_shift(rows: Rows, measured: _ScaledMoments, center: Array, spread: Array) -> Array:
    """Return the desired shift (d) in units of 2^-exponent, representable in the dtype; zero where none is needed."""
    unit = abs(center).max() or 1.0  # prevents overflow of the squares
    if np.linalg.norm(center / unit) <= 3 * np.linalg.norm(spread / unit):
        return np.zeros(rows.d)
    grid = 2.0 ** np.floor(np.log2(np.where(spread > 0, spread, 1.0)))
    shift = np.where(spread > 0, np.round(center / grid) * grid, measured.origin * 2.0**measured.exponent)
    shift[np.abs(center) <= 3 * spread] = 0
    digits, place = np.frexp(shift)
    return np.ldexp(digits.astype(rows.dtype).astype(np.float64), place)


def _frame_of(measured: _ScaledMoments, shift: Array, dtype: np.dtype) -> Frame:
    """Return a frame with this shift, and an exponent if coordinates would be too large or too small to be squared."""
    width = float((np.abs(measured.origin * 2.0**measured.exponent - shift) + measured.total.largest).max())
    room = 2.0**20 if dtype == np.float32 else 2.0**60  # bounds are float32 even then
    with np.errstate(over="ignore", under="ignore"):
        far_off = width > 0 and not 1 / room < np.ldexp(width, -measured.exponent) < room
    more = -int(np.frexp(width)[1]) if far_off else -measured.exponent
    return Frame(times_power(shift, more) if shift.any() else None, measured.exponent + more)


def _rounding_block(start: int, raw: Any, frame: Frame) -> Rounding:
    """Adapt `find_rounding` to the signature of block functions."""
    return find_rounding(raw, frame)


def _find_rounding(rows: Rows, frame: Frame) -> Rounding:
    """Return the columns in which the frame rounds any row, including rows of weight zero."""
    total = Rounding(*np.zeros((2, rows.d), bool))
    for share in rows.map_raw_blocks(_rounding_block, frame):
        for flags, more in zip(total, share, strict=True):
            flags |= more
    return total
