"""The bundled data set, used by the demo and in examples."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["load_pendigits"]


def load_pendigits() -> tuple[NDArray[Any], NDArray[Any]]:
    """Load the pen strokes of 10,992 handwritten digits.

    Returns
    -------
    X : ndarray of shape (10992, 16), dtype uint8
        Eight points along each pen stroke, as alternating x and y coordinates from 0 to 100.
    y : ndarray of shape (10992,), dtype uint8
        The digits, 0 to 9.

    Notes
    -----
    Training and test set are concatenated; values are unchanged. The data are licensed under CC BY 4.0.

    References
    ----------
    E. Alpaydin, F. Alimoglu (1996), Pen-Based Recognition of Handwritten Digits, UCI Machine Learning Repository,
    doi:10.24432/C5MG6K.

    Examples
    --------
    >>> from shoal.datasets import load_pendigits
    >>> X, y = load_pendigits()
    >>> X.shape, int(X.max()), y.shape, int(y.max())
    ((10992, 16), 100, (10992,), 9)
    """
    with files(__name__).joinpath("pendigits.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return arrays["X"], arrays["y"]
