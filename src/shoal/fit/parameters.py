"""Constraints of parameters that several estimators have."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sklearn.utils._param_validation import Interval

MAX_THREADS = 1024  # largest n_threads, since every thread may hold a block of rows and has a stack


class Count(Interval):
    """Constraint for integers from 1 to `largest` (unbounded if None). Booleans are rejected."""

    def __init__(self, largest: int | None = None) -> None:
        super().__init__(Integral, 1, largest, closed="left" if largest is None else "both")

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and bool(super().is_satisfied_by(val))
