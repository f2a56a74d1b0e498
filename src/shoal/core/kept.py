"""Is what a file tells of a fit something that a fit could have left? Kernels trust what they get, so it is asked first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .driver import Outcome
from .types import Array


def is_like(found: Any, fresh: Any, n: int, k: int) -> bool:
    """Is it of the make of a fresh state, for n rows and k clusters: types, shapes, finite numbers, labels of clusters?"""
    if isinstance(fresh, np.ndarray):
        return isinstance(found, np.ndarray) and _is_like_array(found, fresh, n, k)
    if isinstance(fresh, tuple):
        if type(found) is not type(fresh):
            return False
        if not fresh:  # what steps have told, of which there were none
            return all(map(_is_told, found))
        return len(found) == len(fresh) and all(is_like(a, b, n, k) for a, b in zip(found, fresh, strict=True))
    if isinstance(fresh, float):
        return isinstance(found, float | int) and not math.isnan(found)
    return type(found) is type(fresh) and (not isinstance(found, int) or found >= 0)


def is_outcome(found: Any, fresh: Any, n: int, k: int) -> bool:
    """Is it a run, or what there is of it, whose state is like a fresh one?"""
    return (
        isinstance(found, Outcome)
        and is_like(found.state, fresh, n, k)
        and isinstance(found.reason, str)
        and (found.info is None or _is_told(found.info))
        and isinstance(found.history, list)
        and all(isinstance(record, dict) and all(map(_is_told, record.values())) for record in found.history)
    )


def _is_told(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, tuple) and all(isinstance(v, int | float) for v in value))


def _is_like_array(found: Array, fresh: Array, n: int, k: int) -> bool:
    floats = [a.dtype in (np.float32, np.float64) for a in (found, fresh)]  # centres may become float64 as they move
    if (found.dtype != fresh.dtype and not all(floats)) or (found.ndim, found.shape[1:]) != (fresh.ndim, fresh.shape[1:]):
        return False
    is_labels = fresh.dtype == np.int32
    if len(found) != len(fresh) and not (is_labels and _has_grown(len(fresh), len(found), n)):
        return False
    if fresh.dtype.kind == "f":
        return bool(np.isfinite(found).all())
    low, high = (-1, k - 1) if is_labels else (0, math.inf)
    return not found.size or bool(low <= found.min() and found.max() <= high)


def _has_grown(first: int, now: int, n: int) -> bool:
    """By doubling, or to all rows."""
    times, rest = divmod(now, first) if first else (0, 1)
    return now == n or (now < n and rest == 0 and times > 0 and times & (times - 1) == 0)
