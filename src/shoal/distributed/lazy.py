"""Lazy predictions for Dask collections: a Dask array with one chunk per chunk of X, computed on demand."""

from __future__ import annotations

import contextlib
import warnings
from copy import copy
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
from distributed import default_client
from sklearn.utils.validation import check_is_fitted

from ..data.types import Array
from .partitions import empty_rows


def map_method(model: Any, method: str, X: Any) -> Any:
    """Return model.method(X) as a Dask array with the chunks of X. Invalid arguments raise here, not when it is computed."""
    check_is_fitted(model)
    if len(X.shape) != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has shape {X.shape}, but {type(model).__name__} is expecting {model.n_features_in_} features as input: use the "
            "columns that the model was fitted on."
        )
    light_model, is_array = _strip_model(model), isinstance(X, da.Array)
    if not is_array:
        empty_rows(X._meta)  # raises for columns that are not numeric
    elif X.dtype.kind not in "biuf":
        raise TypeError(f"X holds values of type {X.dtype}: give real numbers.")
    with contextlib.suppress(ValueError):  # raised if there is no client: the model stays in this process
        default_client()
        cloudpickle.dumps(light_model)  # raises for models that cannot be sent to workers
    empty = _call_method(_sample_row(model, X), light_model, method, None)[:0]
    if not isinstance(empty, np.ndarray):
        raise TypeError(f"{method} of a Dask collection returns a Dask array: leave set_output at its default.")
    shared_model = dask.delayed(light_model)
    if is_array:
        X = X.rechunk({1: -1})
        options = {"dtype": empty.dtype, "meta": empty, "model": shared_model, "method": method, "empty": empty}
        if empty.ndim == 1:
            return X.map_blocks(_call_method, drop_axis=1, **options)
        return X.map_blocks(_call_method, chunks=(X.chunks[0], empty.shape[1:]), **options)
    call = dask.delayed(_call_method)
    parts = [call(part, shared_model, method, empty, [{"chunk-location": (i,)}]) for i, part in enumerate(X.to_delayed())]
    shape = (np.nan, *empty.shape[1:])
    return da.concatenate([da.from_delayed(part, shape, empty.dtype, empty) for part in parts], allow_unknown_chunksizes=True)


def _sample_row(model: Any, X: Any) -> Any:
    """Return one row of ones with the dtypes and the column names of X, to find the shape and the dtype of the result."""
    if isinstance(X, da.Array):
        return np.ones((1, model.n_features_in_), X.dtype)
    import pandas

    ones = np.ones((1, model.n_features_in_), np.float64)
    return pandas.DataFrame(ones, columns=X.columns).astype(X._meta.dtypes.to_dict())


def _call_method(rows: Any, model: Any, method: str, empty: Array | None, block_info: Any = None) -> Any:
    """Return model.method(rows) for one chunk. Dask fills in `block_info`; `empty` is None for the sample row."""
    if rows.shape[0] == 0 and empty is not None:
        return empty
    with warnings.catch_warnings():
        if empty is None:  # warnings about made-up values would mislead
            warnings.simplefilter("ignore")
        try:
            return getattr(model, method)(rows)
        except ValueError as error:
            raise ValueError(f"{error}{_describe_offset(block_info)}") from error


def _describe_offset(block_info: Any) -> str:
    """Return a sentence that relates row numbers within a chunk to those of X."""
    if not block_info:
        return ""
    start = block_info[0].get("array-location", [(np.nan,)])[0][0]
    if np.isnan(start):
        return f" Row numbers are relative to the start of chunk {block_info[0]['chunk-location'][0]} of X."
    return f" Row numbers are relative to row {start} of X, the start of a chunk." if start else ""


def _strip_model(model: Any) -> Any:
    """Return a copy of a model without what predictions do not need, which runs on one thread.

    Dask has a thread for each chunk.
    """
    light_model = copy(model)
    for unused in ("labels_", "history_"):
        vars(light_model).pop(unused, None)
    if hasattr(light_model, "callback"):
        light_model.callback = None
    if hasattr(light_model, "n_threads"):
        light_model.n_threads = 1
    for inner in ("estimator", "estimator_"):
        if inner in vars(light_model):
            setattr(light_model, inner, _strip_model(getattr(light_model, inner)))
    return light_model
