"""Validate the state of a fit that was read from a file, before it reaches kernels, which do not check their input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..data.types import Array
from .loop import REASONS, RunResult

MAX_COUNT = 2**53  # no count of steps, rows or distances is larger


def matches_template(found: Any, fresh: Any, n: int, k: int, info: type | None = None) -> bool:
    """Return whether a value has the types and shapes of an initial state, finite numbers and labels below k."""
    if isinstance(fresh, np.ndarray):
        return isinstance(found, np.ndarray) and _is_like_array(found, fresh, n, k)
    if isinstance(fresh, tuple):
        if type(found) is not type(fresh):
            return False
        if not fresh:  # infos of earlier steps, of which an initial state has none
            return all(_is_number(item) or _is_info(item, info) for item in found)
        return len(found) == len(fresh) and all(matches_template(a, b, n, k, info) for a, b in zip(found, fresh, strict=True))
    if isinstance(fresh, float):
        return _is_number(found) and not math.isnan(found)
    return type(found) is type(fresh) and (not isinstance(found, int) or 0 <= found <= MAX_COUNT)


def is_valid_run(found: Any, fresh: Any, n: int, k: int, info: type) -> bool:
    """Return whether a value is a `RunResult` whose state matches an initial one and whose steps return `info`."""
    return (
        isinstance(found, RunResult)
        and matches_template(found.state, fresh, n, k, info)
        and found.reason in REASONS
        and (_is_info(found.info, info) or (found.info is None and not found.history))
        and isinstance(found.history, list)
        and all(_is_record(record, info) for record in found.history)
    )


def _is_number(value: Any) -> bool:
    """Return whether a value is a Python number."""
    return isinstance(value, int | float)


def _is_info(value: Any, info: type | None) -> bool:
    """Return whether a value is an info of the given type."""
    return info is not None and type(value) is info and all(map(_is_number, value))  # type: ignore[call-overload]


def _is_record(record: Any, info: Any) -> bool:
    """Return whether a value is a record of a step with all fields of its info."""
    needed = {"step", "seconds", *info._fields}
    return isinstance(record, dict) and needed <= set(record) and all(map(_is_number, record.values()))


def _is_like_array(found: Array, fresh: Array, n: int, k: int) -> bool:
    """Return whether an array could have developed from an initial one: int32 arrays are labels and may have grown."""
    floats = [a.dtype in (np.float32, np.float64) for a in (found, fresh)]  # centroids may become float64 when they move
    if (found.dtype != fresh.dtype and not all(floats)) or (found.ndim, found.shape[1:]) != (fresh.ndim, fresh.shape[1:]):
        return False
    if not found.dtype.isnative:
        return False
    is_labels = fresh.dtype == np.int32
    if len(found) != len(fresh) and not (is_labels and _has_grown(len(fresh), len(found), n)):
        return False
    if fresh.dtype.kind == "f":
        return bool(np.isfinite(found).all())
    low, high = (fresh.min(initial=0), k - 1) if is_labels else (0, math.inf)  # -1 only if an initial state has it
    return not found.size or bool(low <= found.min() and found.max() <= high)


def _has_grown(first: int, now: int, n: int) -> bool:
    """Return whether a batch of size `first` can have grown to size `now`: by doubling, or to all n rows."""
    times, rest = divmod(now, first) if first else (0, 1)
    return now == n or (now < n and rest == 0 and times > 0 and times & (times - 1) == 0)
