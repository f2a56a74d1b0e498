"""The first pass over the rows: are they finite, where do they lie, how wide do they spread. It fixes the frame."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..kernels import dense as dense_kernels
from ..kernels import sparse as sparse_kernels
from .rows import Frame, Rows, times_power
from .types import Array, is_sparse

FEW_DIGITS = 1e-8  # a variance this small beside the squared mean is not to be had from their difference


class Moments(NamedTuple):
    """Of the rows, weighted, in the frame."""

    variance: float  # mean over the columns
    frame: Frame


class _Share(NamedTuple):
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
    if is_sparse(raw):
        row, column = int(np.searchsorted(raw.indptr, place[0], "right")) - 1, int(raw.indices[place[0]])
    else:
        row, column = int(place[0]), int(place[1])
    kind = "NaN" if np.isnan(values[tuple(place)]) else "infinity"
    how = "fill them in, for instance with sklearn.impute.SimpleImputer" if kind == "NaN" else "put finite numbers there"
    raise ValueError(
        f"Input {name} contains {kind} at row {start + row}, column {column}: drop such rows or {how} "
        f"({name} must hold neither NaN nor infinity)."
    )


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
    check_values(start, raw, rows.frame.unit)
    if rows.frame.unit:
        raw = rows.convert(raw).X
    d = raw.shape[1]
    share = _Share(np.zeros(d), np.zeros(d), np.zeros(d))
    if is_sparse(raw):
        sparse_kernels.column_moments(raw.data, raw.indices, raw.indptr, weights, scale, *share)
    else:
        dtype = raw.dtype if raw.dtype in (np.float32, np.float64) else np.float64
        dense_kernels.column_moments(np.ascontiguousarray(raw, dtype), weights, origin, scale, *share)
    return share


def _sum_moments(rows: Rows, origin: Array, scale: float) -> _Share:
    total = _Share(*np.zeros((3, rows.d)))
    for share in rows.raw_shares(_moments_block, rows, origin, scale, per_row=(rows.weights,)):
        total.sums[:] += share.sums
        total.squares[:] += share.squares
        np.maximum(total.largest, share.largest, out=total.largest)
    return total


def column_means(rows: Rows) -> Array:
    """Seen from the first row that counts, so that the mean of equal numbers is that number."""
    start = int(np.argmax(rows.weights > 0))
    first = rows.source.read(start, start + 1)
    check_finite(start, first)
    origin = np.zeros(rows.d) if rows.is_sparse else np.asarray(first, np.float64)[0]
    means: Array = origin + _sum_moments(rows, origin, 1.0).sums / rows.weights.sum()
    if not np.isfinite(means).all():
        raise ValueError("X spreads wider than float64 can hold: divide it by a power of ten first.")
    return means


class _Seen(NamedTuple):
    """Moments of (x - origin) 2^exponent."""

    origin: Array
    exponent: int
    total: _Share


def _look(rows: Rows) -> _Seen:
    """One pass over the rows; two where their scale is extreme, or where the first of them lies far from all others."""
    start = int(np.argmax(rows.weights > 0))
    first = rows.source.read(start, start + 1)
    check_values(start, first, rows.frame.unit)
    origin = np.zeros(rows.d) if rows.is_sparse else np.asarray(first, np.float64)[0]
    exponent, total = 0, _sum_moments(rows, origin, 1.0)
    width = float(total.largest.max())
    if not np.isfinite(width):
        raise ValueError("X spreads wider than float64 can hold: divide it by a power of ten first.")
    if width > 0 and not 2.0**-300 < width < 2.0**300:
        exponent = -int(np.clip(np.frexp(width)[1], -1000, 1000))
        total = _sum_moments(rows, origin, 2.0**exponent)
    mean = total.sums / rows.weights.sum()
    if not rows.is_sparse and (total.squares < (1 + FEW_DIGITS) * rows.weights.sum() * mean**2).any():
        origin = origin + times_power(mean, -exponent)  # the first row was an outlier: seen from there, spreads cancel
        total = _sum_moments(rows, origin, 2.0**exponent)
    return _Seen(origin, exponent, total)


def column_scales(rows: Rows) -> Array:
    """(2, d): mean and standard deviation of each column; 1 for the latter where all rows are the same."""
    origin, exponent, total = _look(rows)
    mean = total.sums / rows.weights.sum()
    deviation = np.sqrt(np.maximum(total.squares / rows.weights.sum() - mean**2, 0))
    lost = (deviation < 2.0**-500) & (total.largest > 0) & (total.largest < 2.0**-500)
    if lost.any():
        raise ValueError(
            f"Column {int(np.argmax(lost))} of X spreads so much less than others that float64 can't hold its variance: "
            "multiply it by a power of ten first."
        )
    deviation = times_power(deviation, -exponent)
    return np.stack([origin + times_power(mean, -exponent), np.where(deviation > 0, deviation, 1.0)])


def measure(rows: Rows) -> Moments:
    """One pass over the rows (two where their scale is extreme). Bits lie where they lie."""
    if rows.frame.bits:
        return Moments(0.0, rows.frame)
    if rows.frame.unit:
        total = _sum_moments(rows, np.zeros(rows.d), 1.0)
        mass = float(rows.weights.sum())
        mean = total.sums / mass
        return Moments(float(np.maximum(total.squares / mass - mean**2, 0).mean()), rows.frame)
    return _choose_frame(rows, *_look(rows))


def _choose_frame(rows: Rows, origin: Array, exponent: int, total: _Share) -> Moments:
    """Shift where the rows lie more than three spreads from the origin; scale where squares would leave the dtype.

    Only columns far from the origin are shifted, and by a number of few digits, so that x - shift is exact for what lies
    near: float32 and float64 see the same rows.
    """
    mass = rows.weights.sum()
    mean = total.sums / mass
    variance = np.maximum(total.squares / mass - mean**2, 0)
    scaled_origin = origin * 2.0**exponent
    center = scaled_origin + mean
    spread = np.sqrt(variance)
    shift: Array | None = None
    unit = abs(center).max() or 1.0  # so that no square leaves the range
    if not rows.is_sparse and np.linalg.norm(center / unit) > 3 * np.linalg.norm(spread / unit):
        grid = 2.0 ** np.floor(np.log2(np.where(spread > 0, spread, 1.0)))
        shift = np.where(spread > 0, np.round(center / grid) * grid, scaled_origin)
        shift[np.abs(center) <= 3 * spread] = 0
        digits, place = np.frexp(shift)
        shift = np.ldexp(digits.astype(rows.dtype).astype(np.float64), place)
    offset = scaled_origin if shift is None else scaled_origin - shift
    width = float((np.abs(offset) + total.largest).max())
    room = 2.0**20 if rows.dtype == np.float32 else 2.0**60  # bounds are float32 even then
    if width > 0 and not 1 / room < math.ldexp(width, -exponent) < room:
        more = -int(np.frexp(width)[1])
    else:
        more = -exponent
    frame = Frame(None if shift is None else times_power(shift, more), exponent + more)
    return Moments(float(times_power(variance, 2 * more).mean()), frame)
