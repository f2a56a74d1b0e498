"""Validate the rows that a user passes to an estimator."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from ..data.source import FileSource, Source, file_column_names
from ..data.sources import find_source
from ..data.tables import column_names, find_table
from ..data.types import is_sparse
from ..data.validation import _warn_of_rounding, check_names, check_unmasked
from ..execution.engine import ENGINE, check_distributable, resolve_source


def check_rows(estimator: Any, X: Any, *, reset: bool) -> Source:
    """Return a source of the rows of X, validated for an estimator unless it is None. Values are checked later, by block."""
    X = resolve_source(X, ENGINE.get())  # a fit has already resolved X with its own engine
    check_unmasked(X, "X")
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a LazyFrame, which has no rows yet: call .collect() first.")
    if not _is_plain(X):
        given = X
        try:
            X = check_array(X, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, input_name="X")
        except OverflowError as error:
            raise ValueError(f"X must be a table of real numbers: {error}") from error
        except (TypeError, ValueError) as error:
            raise type(error)(f"X must be a table of real numbers: {error}") from error
        if not is_sparse(X) and X.dtype == np.float64:
            _warn_of_rounding(given, X)
    if 0 in X.shape:
        what = "sample" if X.shape[0] == 0 else "feature"
        shape = tuple(X.shape)
        raise ValueError(f"X is empty: Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required.")
    if estimator is not None:
        _check_features(estimator, X, reset)
    source = find_source(X)
    if source.is_distributed:
        check_distributable(estimator)
    if source.dtype.kind not in "biuf":
        raise ValueError(f"X holds values of type {source.dtype}: give real numbers, one column a feature.")
    return source


def _check_features(estimator: Any, X: Any, reset: bool) -> None:
    """Check feature names as scikit-learn does, also those of the columns of a file."""
    names = file_column_names(X)
    check_names(column_names(X) if names is None else names)
    if reset:
        vars(estimator).pop("preprocessing_", None)
        if getattr(X, "preprocessing", None) is not None:
            estimator.preprocessing_ = X.preprocessing
    if names is None or reset or not hasattr(estimator, "feature_names_in_"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if names is not None and reset:
            estimator.feature_names_in_ = np.array(names, object)
    elif names != list(estimator.feature_names_in_):
        pairs = zip_longest(names, estimator.feature_names_in_)
        place, (here, there) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        raise ValueError(f"Column {place} of X is {here!r} and was {there!r} in the fit: the feature names should match.")


def _is_plain(X: Any) -> bool:
    """Return whether X is two-dimensional and numeric, so that scikit-learn's check would neither convert nor reject it."""
    if isinstance(X, np.ndarray) or is_sparse(X):
        return X.ndim == 2 and X.dtype.kind in "biuf"
    return isinstance(X, FileSource) or find_table(X) is not None  # the source checks the columns of a table
