"""What a model says of rows that are still to come: a dask array, chunk by chunk, computed whenever somebody asks for it."""

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
from .partitions import no_rows


def later(model: Any, name: str, X: Any) -> Any:
    """model.name(X), as a dask array with the chunks of X."""
    check_is_fitted(model)
    if len(X.shape) != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has shape {X.shape}, but {type(model).__name__} is expecting {model.n_features_in_} features as input: give "
            "the columns of the fit."
        )
    light, array = _light(model), isinstance(X, da.Array)
    if not array:
        no_rows(X._meta)
    elif X.dtype.kind not in "biuf":
        raise TypeError(f"X holds values of type {X.dtype}: give real numbers.")
    with contextlib.suppress(ValueError):  # of who has no client, and sends the model nowhere
        default_client()
        cloudpickle.dumps(light)  # some models can't be sent, and say so
    one: Any = np.ones((1, model.n_features_in_), X.dtype if array else np.float64)
    if not array:
        import pandas

        one = pandas.DataFrame(one, columns=X.columns).astype(X._meta.dtypes.to_dict())  # its names are looked at, too
    none, shared = _said(one, light, name, None)[:0], dask.delayed(light)
    if not isinstance(none, np.ndarray):
        raise TypeError(f"{name} of a dask collection is a dask array: leave set_output at its default.")
    if array:
        X = X.rechunk({1: -1})
        said = {"dtype": none.dtype, "meta": none, "model": shared, "method": name, "none": none}
        if none.ndim == 1:
            return X.map_blocks(_said, drop_axis=1, **said)
        return X.map_blocks(_said, chunks=(X.chunks[0], none.shape[1:]), **said)
    parts = [dask.delayed(_said)(part, shared, name, none, [{"chunk-location": (i,)}]) for i, part in enumerate(X.to_delayed())]
    shape = (np.nan, *none.shape[1:])
    return da.concatenate([da.from_delayed(part, shape, none.dtype, none) for part in parts], allow_unknown_chunksizes=True)


def _said(rows: Any, model: Any, method: str, none: Array | None, block_info: Any = None) -> Any:
    """Of one chunk, by one thread; workers have others for other chunks. Dask fills in `block_info`."""
    if rows.shape[0] == 0 and none is not None:
        return none
    with warnings.catch_warnings():
        if none is None:  # made-up rows, for the shape of the answer
            warnings.simplefilter("ignore")
        try:
            return getattr(model, method)(rows)
        except ValueError as error:
            raise ValueError(f"{error}{_where(block_info)}") from error


def _where(block_info: Any) -> str:
    """From where the rows of a chunk are counted."""
    if not block_info:
        return ""
    start = block_info[0].get("array-location", [(np.nan,)])[0][0]
    if np.isnan(start):
        return f" Its rows are counted within chunk {block_info[0]['chunk-location'][0]} of X."
    return f" Its rows are counted from row {start} of X on, where a chunk begins." if start else ""


def _light(model: Any) -> Any:
    """The same model without what new rows have no use for."""
    light = copy(model)
    for unused in ("labels_", "history_"):
        vars(light).pop(unused, None)
    if hasattr(light, "callback"):
        light.callback = None
    if hasattr(light, "n_threads"):
        light.n_threads = 1
    for inner in ("estimator", "estimator_"):
        if inner in vars(light):
            setattr(light, inner, _light(getattr(light, inner)))
    return light
