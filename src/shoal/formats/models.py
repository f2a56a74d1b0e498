"""`save` and `load`: a fitted model in one file, without a pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from ..binary.codes import LINEAR_CODE, LinearCode
from ..data.types import warn
from ..exceptions import InvalidModelError
from ..fit.schema import check_fitted_state, check_unchanged_parameters
from .archive import read, write
from .values import Reader, Writer


def save(model: Any, path: Any) -> None:
    """Write a model of Shoal's to a file, from which `load` gets it back, to the last bit.

    The file is an npz file with a manifest and a SHA-256 of everything in it, never a pickle. It takes the place of one that
    is there already only when all of it is on the disk.

    Parameters
    ----------
    model : estimator or code
        Fitted or not: its parameters and all that it has learned, names of features included. Functions (`callback`, a
        callable `init`) and random generators are left out, with a warning: the loaded model has the default instead.
    path : str or path
        `.npz` is a good ending.

    Examples
    --------
    >>> import tempfile, numpy as np, shoal
    >>> X = np.array([[1.0, 2], [1, 4], [10, 2], [10, 4]])
    >>> model = shoal.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shoal.save(model, f"{folder}/model.npz")
    ...     bool((shoal.load(f"{folder}/model.npz").predict(X) == model.labels_).all())
    True
    """
    if not is_model(model):
        raise TypeError(f"model is a {type(model).__name__}: give an estimator of Shoal's, or a code.")
    check_model(model)
    writer = Writer()
    content = writer.encode(model, "model")
    if writer.dropped:
        left = ", ".join(sorted(set(writer.dropped)))
        warn(f"{left} can't be saved: the loaded model has the default instead; set it again if you need it.", UserWarning)
    write(Path(path), "model", content, writer.arrays)


def load(path: Any) -> Any:
    """The model that `save` wrote to a file. Nothing in it is run, whoever wrote it.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    model : estimator or code

    Raises
    ------
    Rejected
        A ValueError: the file is not one that `save` wrote, was cut or changed, or comes from a newer Shoal.
    """
    content, arrays = read(Path(path), "model")
    model = Reader(arrays, str(path)).decode(content)
    if not is_model(model):
        raise InvalidModelError(f"{path}: holds no model: name a file that shoal.save wrote.")
    try:
        check_model(model)
    except ValueError as error:  # the file is intact, but no fit produced what it holds
        raise InvalidModelError(f"{path}: holds a model that no fit produced: {error}") from error
    return model


def is_model(value: Any) -> bool:
    return isinstance(value, LinearCode) or (isinstance(value, BaseEstimator) and hasattr(value, "_fitted_schema"))


def check_model(model: Any) -> None:
    """Raise ValueError for parameters and attributes that do not fit together."""
    if isinstance(model, LinearCode):
        LINEAR_CODE.check(model, "code", {})
        return
    parts = (model, *(getattr(model, name, None) for name in ("estimator", "estimator_", "kmeans_")))
    for part in parts:
        if isinstance(part, BaseEstimator):
            part._validate_params()
            check_fitted_state(part)
            check_unchanged_parameters(part)
