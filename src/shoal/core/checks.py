"""What users hand over is checked here, once. A message names the argument, the value and the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from .sources import Source, find_source
from .types import Array, is_sparse


def check_rows(estimator: Any, X: Any, *, reset: bool) -> Source:
    """A source of the rows of X. Values are looked at later, block by block."""
    if not _plain(X):
        X = check_array(X, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, input_name="X")
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    source = find_source(X)
    if source.dtype.kind not in "biuf":
        return check_rows(estimator, np.asarray(source.read(0, source.shape[0]), dtype=np.float64), reset=reset)
    return source


def _plain(X: Any) -> bool:
    """Two-dimensional, not empty and of real numbers: nothing that scikit-learn's check would have to mend or refuse."""
    shape = getattr(X, "shape", None)
    if shape is None or len(shape) != 2 or 0 in shape:
        return False
    if isinstance(X, np.ndarray) or is_sparse(X):
        return X.dtype.kind in "biuf" and X.dtype.itemsize <= 8
    return True  # a table: its columns are looked at by the source


def check_weights(sample_weight: Any, n: int) -> Array | None:
    """Weights as float64; None stands for ones."""
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must hold one number a row: {error}.") from error
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
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one row must count.")
    return np.ascontiguousarray(weights)


def check_centers(C: Any, k: int, d: int, name: str = "init") -> Array:
    """Starting centres as the user gave them."""
    if is_sparse(C):
        C = C.toarray()
    try:
        centers = np.asarray(C, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}.") from error
    if centers.shape != (k, d):
        raise ValueError(f"{name} has shape {centers.shape}, but n_clusters={k} centres of {d} features need {(k, d)}.")
    if not np.isfinite(centers).all():
        row, column = np.argwhere(~np.isfinite(centers))[0]
        raise ValueError(f"{name} holds {centers[row, column]} at row {row}, column {column}: centres must be finite.")
    return centers
