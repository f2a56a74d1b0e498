"""Which centres lie near each other, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..data.blocks import rounding
from ..data.cancellation import pieces
from ..data.types import Array
from ..kernels import DOWN, TINY

AT_ONCE = 1 << 19  # distances between centres that are computed together


def group_centers(C: Array, size: int) -> tuple[Array, Array]:
    """Divide the centres into groups of `size` neighbours: (their order group by group, where each group starts).

    Halved again and again across their widest direction, so that all groups but the last are full.
    """
    k = len(C)
    order = np.arange(k)

    def halve(start: int, stop: int) -> None:
        groups = -(-(stop - start) // size)
        if groups <= 1:
            return
        ids = order[start:stop]
        X = C[ids].astype(np.float64)
        X -= X.mean(axis=0)
        direction = X[np.argmax((X * X).sum(axis=1))]
        for _ in range(3):
            direction = X.T @ (X @ direction)
            direction /= np.linalg.norm(direction) or 1.0
        order[start:stop] = ids[np.argsort(X @ direction, kind="stable")]
        middle = start + groups // 2 * size
        halve(start, middle)
        halve(middle, stop)

    halve(0, k)
    return order, np.append(np.arange(0, k, size), k)


def half_distances(C: Array, some: slice = slice(None)) -> Array:
    """Half the distances of some centres from all; infinite from themselves. Rounded down, never above the truth."""
    norms2 = np.einsum("ij,ij->i", C, C, dtype=np.float64)
    squared = norms2[some, None] + norms2 - 2.0 * (C[some] @ C.T)
    squared -= 2 * rounding(C.dtype, C.shape[1]) * (norms2[some, None] + norms2)
    half: Array = np.maximum(np.sqrt(np.maximum(squared, 0)) / 2 * DOWN - TINY, 0)
    own = np.arange(len(C))[some]
    half[own - own[0], own] = np.inf
    return half


def _pieces(C: Array) -> Iterator[slice]:
    """Centres whose distances from all are computed together: several arrays of so many numbers are needed for that."""
    return pieces(len(C), max(1, AT_ONCE // len(C)))


def all_half_distances(C: Array) -> Array:
    """(k, k) half the distances between all centres."""
    half = np.empty((len(C), len(C)))
    for some in _pieces(C):
        half[some] = half_distances(C, some)
    return half


def gaps(C: Array) -> Array:
    """Half of each centre's distance to the nearest other one."""
    return np.concatenate([half_distances(C, some).min(axis=1) for some in _pieces(C)])
