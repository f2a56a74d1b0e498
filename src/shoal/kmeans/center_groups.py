"""Groups of neighboring centroids, and distances between centroids."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..data.blocks import DenseBlock, slack_of
from ..data.cancellation import pieces
from ..data.types import Array
from ..kernels import DOWN, TINY

# Distances between centroids computed per piece. Several float64 arrays of this size are allocated (4 MB each).
MAX_DISTANCES_PER_PIECE = 1 << 19


def group_centers(C: Array, size: int) -> tuple[Array, Array]:
    """Divide the centroids into groups of `size` neighbors.

    Return the order of the centroids, group by group, and the start of each group in it. The centroids are bisected
    recursively along their widest direction, at a multiple of `size`, so that all groups but the last are full.
    """
    k = len(C)
    order = np.arange(k)

    def bisect(start: int, stop: int) -> None:
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
        bisect(start, middle)
        bisect(middle, stop)

    bisect(0, k)
    return order, np.append(np.arange(0, k, size), k)


def half_distances(C: Array, some: slice = slice(None)) -> Array:
    """Return half the distances of some centroids from all, rounded down; infinity for a centroid and itself."""
    norms2 = np.einsum("ij,ij->i", C, C, dtype=np.float64)
    squared = norms2[some, None] + norms2 - 2.0 * (C[some] @ C.T)
    squared -= 2 * slack_of(norms2[some, None] + norms2, C.dtype, C.shape[1])
    half: Array = np.maximum(np.sqrt(np.maximum(squared, 0)) / 2 * DOWN - TINY, 0)
    own = np.arange(len(C))[some]
    half[own - own[0], own] = np.inf
    return half


def _pieces(C: Array) -> Iterator[slice]:
    """Yield slices of centroids whose distances from all others are computed together."""
    return pieces(len(C), max(1, MAX_DISTANCES_PER_PIECE // len(C)))


def all_half_distances(C: Array) -> Array:
    """Return half the distances between all centroids, (k, k)."""
    half = np.empty((len(C), len(C)))
    for some in _pieces(C):
        half[some] = half_distances(C, some)
    return half


def gaps(C: Array) -> Array:
    """Return half the distance of each centroid to its nearest other centroid, rounded down, (k)."""
    block, centers = DenseBlock(C), DenseBlock.prepare(C)
    lowest = np.empty(len(C))
    for some in _pieces(C):
        scores = block.take(some).scores(centers, slice(None))
        scores[np.arange(len(scores)), np.arange(len(C))[some]] = np.inf
        lowest[some] = scores.min(axis=1)
    squared = lowest + centers.norms2 - 2 * slack_of(centers.norms2, C.dtype, C.shape[1])
    half: Array = np.maximum(np.sqrt(np.maximum(squared, 0)) / 2 * DOWN - TINY, 0)
    return half
