"""Shared types and helpers: warnings, dtypes, and detection of integers that float64 rounds."""

import sys
import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[Any]
EXACT_INTEGERS = 2**53  # float64 holds all integers up to here


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the first caller outside Shoal and scikit-learn."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("shoal", "sklearn"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def packages_of(obj: Any) -> list[str]:
    """Return the package names of the type of an object and of its base classes, without importing any package."""
    return [kind.__module__.partition(".")[0] for kind in type(obj).__mro__]


def read_only(X: Array) -> Array:
    """Return a read-only view. Numba compiles one version of a kernel for it, and another one for writeable arrays."""
    X = X.view()
    X.flags.writeable = False
    return X


def contiguous(ids: Array) -> Array:
    """Return indices as a contiguous array of int64, so that Numba compiles one version of a kernel only."""
    return np.ascontiguousarray(ids, np.int64)


def is_sparse(X: Any) -> bool:
    """Return True for SciPy sparse matrices. Unlike `issparse`, it does not narrow the type for type checkers."""
    return bool(sparse.issparse(X))


def sparse_dtype(dtype: np.dtype) -> np.dtype:
    """Return the native dtype in which sparse values are stored: SciPy does not support float16."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize == 2 else dtype.newbyteorder("=")


def sum_duplicates(X: Any) -> bool:
    """Sum duplicate entries of a CSR matrix in place; return whether a sum overflowed its integer type and wrapped around."""
    if X.dtype.kind not in "iu":
        X.sum_duplicates()
        return False
    exact = X.astype(np.float64)  # an overflow changes a sum by at least 2^bits, far more than float64 rounds it
    X.sum_duplicates()
    exact.sum_duplicates()
    return bool((np.abs(exact.data - X.data.astype(np.float64)) >= 2.0 ** (8 * X.dtype.itemsize - 1)).any())


def at_most_float64(values: Array) -> Array:
    """Convert long doubles to float64. Values out of range become infinite, which `check_finite` reports."""
    if values.dtype.kind != "f" or values.dtype.itemsize <= 8:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float64)


def find_rounded_integer(values: Array) -> Array | None:
    """Return the index of the first integer that float64 would round; None if there is none."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
        return None
    if values.max() <= EXACT_INTEGERS and values.min() >= -EXACT_INTEGERS:
        return None
    beyond = np.argwhere((values > EXACT_INTEGERS) | (values < -EXACT_INTEGERS))
    large = values[tuple(beyond.T)]
    one, digits = large.dtype.type(1), np.frexp(large.astype(np.float64))[1]
    rounded = np.flatnonzero(large & ((one << (digits - 53).astype(large.dtype)) - one))
    return beyond[rounded[0]] if len(rounded) else None


def find_rounded_object(values: Array, floats: Array) -> Array | None:
    """Return the index of the first integer among objects that differs from its float64 value; None if there is none."""
    for place in np.argwhere(np.abs(floats) >= EXACT_INTEGERS):
        value, found = values[tuple(place)], floats[tuple(place)]
        if isinstance(value, Integral) and np.isfinite(found) and int(found) != value:
            return np.asarray(place)
    return None


def rounded_integer_message(what: str, integer: Any, place: str) -> str:
    """Return the warning for an integer that float64 rounds."""
    return (
        f"{what} holds the integer {integer} at {place}, which float64 rounds: subtract an offset from that "
        "column, so that it stays within 2^53, or rows that differ may count as equal."
    )
