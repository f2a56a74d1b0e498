"""Save a model to one file and load it again, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from ..binary.linear_code import LINEAR_CODE, LinearCode
from ..data.types import warn
from ..exceptions import InvalidModelError
from ..fit.schema import check_fitted_state, check_unchanged_parameters
from .archive import read, write
from .values import Reader, Writer


def save(model: Any, path: Any) -> None:
    """Save a Shoal model to a file. `load` restores it bit for bit.

    The file is an npz archive with a manifest and a SHA-256 digest of its content; pickle is not used. An existing file is
    replaced atomically, once the new one is completely on disk.

    Parameters
    ----------
    model : estimator or code
        Estimator, fitted or not, or binary code. Its parameters and fitted attributes are saved, including feature names.
        Callables (`callback`, a callable `init`) and random generators cannot be saved: a warning names them, and the loaded
        model has the default values instead.
    path : str or path
        File to write. The recommended extension is `.npz`.

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
        raise TypeError(f"model is a {type(model).__name__}: give an estimator or a binary code of Shoal.")
    check_model(model)
    writer = Writer()
    content = writer.encode(model, "model")
    if writer.dropped:
        left = ", ".join(sorted(set(writer.dropped)))
        warn(
            f"{left} cannot be saved: the loaded model has the default value instead; set it again after loading.", UserWarning
        )
    write(Path(path), "model", content, writer.arrays)


def load(path: Any) -> Any:
    """Load a model that `save` wrote.

    No code from the file is executed.

    Parameters
    ----------
    path : str or path
        File to read.

    Returns
    -------
    model : estimator or code
        The saved model.

    Raises
    ------
    InvalidModelError
        If `save` did not write the file, if it was truncated or changed, or if another version of the format wrote it.
    """
    content, arrays = read(Path(path), "model")
    model = Reader(arrays, str(path)).decode(content)
    if not is_model(model):
        raise InvalidModelError(f"{path}: holds no model: use a file that shoal.save wrote.")
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
