"""Large arrays that are used again, because memory that is new to a process is slow.

The operating system clears each page before it hands it out. For centroids of wide rows, that takes longer than a step.
"""

from __future__ import annotations

import sys

import numpy as np

from .types import Array

MAX_ARRAYS = 3  # centroids before and after a step, and those that an algorithm or a report still refers to


class ArrayPool:
    """Arrays that are handed out again once nothing else refers to them, or to a view of them."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []

    def empty_like(self, example: Array) -> Array:
        """Return a C-contiguous array of this shape and type with arbitrary values."""
        self._arrays = [a for a in self._arrays if a.shape == example.shape and a.dtype == example.dtype]
        for i in range(len(self._arrays)):
            if self._references(i) == UNUSED:
                return self._arrays[i]
        self._arrays = [*self._arrays[-MAX_ARRAYS + 1 :], np.empty(example.shape, example.dtype)]
        return self._arrays[-1]

    def _references(self, i: int) -> int:
        return sys.getrefcount(self._arrays[i])


def _references_if_unused() -> int:
    """Return how many references to an unused array are counted, which depends on the version of Python."""
    pool = ArrayPool()
    pool.empty_like(np.empty(0))
    return pool._references(0)


UNUSED = _references_if_unused()
