"""What users hand over is checked here, once. A message names the argument, the value and the way out."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from .engine import bring, check_far
from .sources import FarSource, FileSource, Source, find_source
from .tables import column_names, find_table
from .types import EXACT_INTEGERS, Array, find_rounded_object, is_sparse, rounded_integer_message, warn


def check_rows(estimator: Any, X: Any, *, reset: bool) -> Source:
    """A source of the rows of X, checked against an estimator if there is one. Values are looked at block by block."""
    X = bring(X)
    check_unmasked(X, "X")
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a LazyFrame, which has no rows yet: call .collect() first.")
    if not _plain(X):
        given = X
        try:
            X = check_array(X, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, input_name="X")
        except OverflowError as error:
            raise ValueError(f"X must be a table of real numbers: {error}") from error
        except (TypeError, ValueError) as error:
            raise type(error)(f"X must be a table of real numbers: {error}") from error
        if not is_sparse(X) and X.dtype == np.float64:
            _warn_of_rounding(given, X)
    if isinstance(X, FarSource):
        check_far(estimator)
    if 0 in X.shape:
        what = "sample" if X.shape[0] == 0 else "feature"
        shape = tuple(X.shape)
        raise ValueError(f"X is empty: Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required.")
    if estimator is not None:
        _check_features(estimator, X, reset)
    source = find_source(X)
    if source.dtype.kind not in "biuf":
        raise ValueError(f"X holds values of type {source.dtype}: give real numbers, one column a feature.")
    return source


def check_unmasked(values: Any, name: str) -> None:
    """Raise for values that a mask hides: NumPy would use what is behind it."""
    if isinstance(values, list | tuple):
        rows = [i for i, row in enumerate(values) if isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row)]
        if rows:
            raise ValueError(f"{name} has a mask, first at row {rows[0]}: drop such rows or fill them in.")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        place = zip(("row", "column"), np.argwhere(np.ma.getmaskarray(values))[0], strict=False)
        where = ", ".join(f"{axis} {index}" for axis, index in place)
        raise ValueError(f"{name} has a mask, first at {where}: drop such rows or fill them in.")


def _warn_of_rounding(given: Any, X: Array) -> None:
    """Integers among objects became floats before anybody else could tell what they were."""
    if not (np.abs(X) >= EXACT_INTEGERS).any():
        return
    values = np.asarray(given, object)
    place = find_rounded_object(values, X) if values.shape == X.shape else None
    if place is not None:
        row, column = place
        warn(rounded_integer_message("X", values[row, column], f"row {row}, column {column}"), UserWarning)


def _check_features(estimator: Any, X: Any, reset: bool) -> None:
    """As scikit-learn does; but it does not know the names of a file's columns."""
    names = X.feature_names if isinstance(X, FileSource) else None
    check_names(column_names(X) if names is None else names)
    if names is None or reset or not hasattr(estimator, "feature_names_in_"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if names is not None and reset:
            estimator.feature_names_in_ = np.array(names, object)
    elif names != list(estimator.feature_names_in_):
        pairs = zip_longest(names, estimator.feature_names_in_)
        place, (here, there) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        raise ValueError(f"Column {place} of X is {here!r} and was {there!r} in the fit: the feature names should match.")


def check_names(names: Any) -> None:
    """Each column has one name, and no other column has it."""
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
    """Raise for centres whose columns have the names of those of X, but not their order: numbers are told apart by place."""
    own = column_names(C)
    own, names = ([] if found is None else list(found) for found in (own, names))
    if own != names and len(own) == len(names) and set(own) == set(names):
        place = next(i for i, pair in enumerate(zip(own, names, strict=True)) if pair[0] != pair[1])
        raise ValueError(
            f"Column {place} of {name} is {own[place]!r}, and that of X is {names[place]!r}: put the columns into one order."
        )


def floats(values: Any, name: str) -> Array:
    """An array of float64, or one sentence about why not."""
    check_unmasked(values, name)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"its values are of type {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}.") from error


def _plain(X: Any) -> bool:
    """Two-dimensional and of real numbers: nothing that scikit-learn's check would have to mend or refuse."""
    if isinstance(X, np.ndarray) or is_sparse(X):
        return X.ndim == 2 and X.dtype.kind in "biuf"
    return isinstance(X, FileSource) or find_table(X) is not None  # its columns are looked at by the source


HEAVIEST = 1e250  # of all rows together: times a squared distance, still a float64
LIGHTEST = 1e-300  # of a row: times a coordinate, still not a denormal number; and it has an inverse


def check_weights(sample_weight: Any, n: int) -> Array | None:
    """Weights as float64; None stands for ones."""
    if sample_weight is None:
        return None
    weights = floats(sample_weight, "sample_weight")
    if weights.ndim == 0:
        weights = np.full(n, weights)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n,)}: give one weight a row.")
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        raise ValueError(
            f"sample_weight[{bad[0]}] is {weights[bad[0]]}: weights must be finite and not negative "
            "(Negative values in data passed to `sample_weight`); drop the row or give it weight 0."
        )
    if weights.max(initial=0) > HEAVIEST / n:
        raise ValueError(
            f"sample_weight goes up to {weights.max():.3g}, whose sums are out of range: divide all weights by it."
        )
    light = np.flatnonzero((weights > 0) & (weights < LIGHTEST))
    if len(light):
        raise ValueError(
            f"sample_weight[{light[0]}] is {weights[light[0]]:.3g}, too little for float64 to add up: "
            "give the row weight 0, or multiply all weights by a power of ten."
        )
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one row must count.")
    return np.ascontiguousarray(weights)


def check_centers(C: Any, k: int | None, d: int, name: str = "init") -> Array:
    """Centres as the user gave them: k of them, or any number for None."""
    centers = floats(C.toarray() if is_sparse(C) else C, name)
    if k is None:
        if centers.ndim != 2 or centers.shape[1] != d or not len(centers):
            raise ValueError(f"{name} has shape {centers.shape}: give a 2-D array, one row of {d} numbers for each centre.")
    elif centers.shape != (k, d):
        raise ValueError(f"{name} has shape {centers.shape}, but n_clusters={k} centres of {d} features need {(k, d)}.")
    if not np.isfinite(centers).all():
        row, column = np.argwhere(~np.isfinite(centers))[0]
        raise ValueError(f"{name} holds {centers[row, column]} at row {row}, column {column}: centres must be finite.")
    return centers
