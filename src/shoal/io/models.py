"""`save` and `load`: a fitted model in one file, without a pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..core.estimator import warn
from .archive import read, write
from .errors import Rejected
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
    if not isinstance(model, BaseEstimator) and not hasattr(model, "_fields"):
        raise TypeError(f"model is a {type(model).__name__}: give an estimator of Shoal's, or a code.")
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
    if not isinstance(model, BaseEstimator) and not hasattr(model, "_fields"):
        raise Rejected(f"{path}: holds no model: name a file that shoal.save wrote.")
    for part in (model, *(getattr(model, name, None) for name in ("estimator_", "kmeans_"))):
        if isinstance(part, BaseEstimator):
            _check(part, path)
    return model


def _check(model: Any, path: Any) -> None:
    """A file may be whole, and hold a model that no fit has made."""
    try:
        model._validate_params()
    except ValueError as error:
        raise Rejected(f"{path}: holds a parameter that can't be ({error}): fit the model anew.") from error
    C = getattr(model, "cluster_centers_", None)
    if C is not None and not (isinstance(C, np.ndarray) and C.ndim == 2 and C.size and np.isfinite(C).all()):
        raise Rejected(f"{path}: holds centres that are none: fit the model anew.")
