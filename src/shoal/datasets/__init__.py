"""The data set that ships with Shoal, for the demo and for first steps."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["load_pendigits"]


def load_pendigits() -> tuple[NDArray[Any], NDArray[Any]]:
    """Pen strokes of 10,992 handwritten digits, and the digits.

    X is (10992, 16) uint8: eight points along the stroke, x and y in turn, from 0 to 100. y is (10992,) uint8: 0 to 9.

    "Pen-Based Recognition of Handwritten Digits" by E. Alpaydin and F. Alimoglu, UCI Machine Learning Repository,
    doi:10.24432/C5MG6K, licensed under CC BY 4.0. Training and test part in one; values unchanged, stored as uint8.

    >>> X, y = load_pendigits()
    >>> X.shape, int(X.max()), y.shape, int(y.max())
    ((10992, 16), 100, (10992,), 9)
    """
    with files(__name__).joinpath("pendigits.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return arrays["X"], arrays["y"]
