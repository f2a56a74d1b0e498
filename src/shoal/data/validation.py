"""Validation of user input. Messages name the argument, the value and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .source import Source
from .tables import column_names
from .types import EXACT_INTEGERS, Array, find_rounded_object, is_sparse, rounded_integer_message, warn


def check_unmasked(values: Any, name: str) -> None:
    """Raise for masked values: NumPy would use the data behind the mask."""
    if isinstance(values, list | tuple):
        rows = [i for i, row in enumerate(values) if isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row)]
        if rows:
            raise ValueError(f"{name} has a mask, first at row {rows[0]}: drop such rows or fill them in.")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        place = zip(("row", "column"), np.argwhere(np.ma.getmaskarray(values))[0], strict=False)
        where = ", ".join(f"{axis} {index}" for axis, index in place)
        raise ValueError(f"{name} has a mask, first at {where}: drop such rows or fill them in.")


def _warn_of_rounding(given: Any, X: Array) -> None:
    """Warn if an integer among objects was rounded; later checks only see the floats."""
    if not (np.abs(X) >= EXACT_INTEGERS).any():
        return
    values = np.asarray(given, object)
    place = find_rounded_object(values, X) if values.shape == X.shape else None
    if place is not None:
        row, column = place
        warn(rounded_integer_message("X", values[row, column], f"row {row}, column {column}"), UserWarning)


def check_names(names: Any) -> None:
    """Raise if column names have several levels or are not unique."""
    levels = getattr(names, "nlevels", 1)
    if levels > 1:
        raise ValueError(
            f"X has column names of {levels} levels, the first of them {names[0]!r}: make them one, for instance by "
            "X.columns = ['.'.join(map(str, name)) for name in X.columns]."
        )
    seen: dict[Any, int] = {}
    for place, name in enumerate(() if names is None else names):
        if seen.setdefault(name, place) != place:
            raise ValueError(f"Columns {seen[name]} and {place} of X are both named {name!r}: rename or drop one of them.")


def check_same_columns(C: Any, names: Any, name: str = "init") -> None:
    """Raise for centroids whose columns have the names of those of X in another order: columns match by position."""
    own = column_names(C)
    own, names = ([] if found is None else list(found) for found in (own, names))
    if own != names and len(own) == len(names) and set(own) == set(names):
        place = next(i for i, pair in enumerate(zip(own, names, strict=True)) if pair[0] != pair[1])
        raise ValueError(
            f"Column {place} of {name} is {own[place]!r}, and that of X is {names[place]!r}: use the same column order."
        )


def floats(values: Any, name: str) -> Array:
    """Return values as a float64 array, or raise a ValueError that says why they cannot be converted."""
    check_unmasked(values, name)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"its values are of type {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}.") from error


MAX_TOTAL_WEIGHT = 1e250  # sum of all weights: times a squared distance, it must not overflow float64
MIN_POSITIVE_WEIGHT = (
    1e-300  # smallest positive weight: times a coordinate, it must not be denormal, and its inverse must be finite
)


def check_weights(sample_weight: Any, n: int) -> Array | None:
    """Return validated weights as float64; None, which stands for equal weights, is returned as it is."""
    if sample_weight is None:
        return None
    weights = floats(sample_weight, "sample_weight")
    if weights.ndim == 0:
        weights = np.full(n, weights)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n,)}: give one weight per row.")
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        raise ValueError(
            f"sample_weight[{bad[0]}] is {weights[bad[0]]}: weights must be finite and not negative "
            "(Negative values in data passed to `sample_weight`); drop the row or give it weight 0."
        )
    if weights.max(initial=0) > MAX_TOTAL_WEIGHT / n:
        raise ValueError(
            f"sample_weight goes up to {weights.max():.3g}, whose sums are out of range: divide all weights by it."
        )
    light = np.flatnonzero((weights > 0) & (weights < MIN_POSITIVE_WEIGHT))
    if len(light):
        raise ValueError(
            f"sample_weight[{light[0]}] is {weights[light[0]]:.3g}, too little for float64 to add up: "
            "give the row weight 0, or multiply all weights by a power of ten."
        )
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one row must count.")
    return np.ascontiguousarray(weights)


def _check_shape(shape: tuple[int, ...], k: int | None, d: int, name: str) -> None:
    """Raise if centroids do not have k rows, or any number if k is None, of d columns."""
    if k is None:
        if len(shape) != 2 or shape[1] != d or not shape[0]:
            raise ValueError(f"{name} has shape {shape}: give a 2-D array, with one row of {d} numbers per centroid.")
    elif shape != (k, d):
        raise ValueError(f"{name} has shape {shape}, but n_clusters={k} centroids of {d} features need {(k, d)}.")


def check_centers(C: Any, k: int | None, d: int, name: str = "init") -> Array:
    """Return validated centroids given by the user: k of them, or any number if k is None."""
    if is_sparse(C) or isinstance(C, Source):
        _check_shape(C.shape, k, d, name)  # first, since the dense array may be far larger
    centers = floats(C.toarray() if is_sparse(C) else C, name)
    _check_shape(centers.shape, k, d, name)
    if not np.isfinite(centers).all():
        row, column = np.argwhere(~np.isfinite(centers))[0]
        raise ValueError(f"{name} holds {centers[row, column]} at row {row}, column {column}: centroids must be finite.")
    return centers
