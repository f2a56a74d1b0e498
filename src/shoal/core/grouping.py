"""Which centres lie near each other, and how far apart they are."""

from __future__ import annotations

import numpy as np

from .blocks import DenseBlock, rounding
from .types import Array


def group_centers(C: Array, count: int, sweeps: int = 5) -> tuple[Array, Array]:
    """Divide the centres into `count` groups of neighbours: (their order group by group, where each group starts).

    A few sweeps of k-means on the centres themselves, from evenly spaced ones; groups may be uneven but not empty.
    """
    k = len(C)
    if count <= 1:
        return np.arange(k), np.array([0, k])
    heads = C[np.linspace(0, k - 1, count).astype(int)].copy()
    block = DenseBlock(np.ascontiguousarray(C))
    labels = np.zeros(k, np.int32)
    for _ in range(sweeps):
        labels = block.nearest(DenseBlock.prepare(heads))
        sizes = np.bincount(labels, minlength=count)
        sums = np.zeros(heads.shape)
        np.add.at(sums, labels, C)
        heads = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], heads).astype(C.dtype)
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    return order, np.append(starts, k)


def half_distances(C: Array, some: slice = slice(None)) -> Array:
    """Half the distances of some centres from all; infinite from themselves. Rounded down, never above the truth."""
    norms2 = np.einsum("ij,ij->i", C, C, dtype=np.float64)
    squared = norms2[some, None] + norms2 - 2.0 * (C[some] @ C.T)
    squared -= rounding(C.dtype, C.shape[1]) * 4 * norms2.max()
    half = np.sqrt(np.maximum(squared, 0)) / 2 * (1 - 2.0**-22)
    own = np.arange(len(C))[some]
    half[own - own[0], own] = np.inf
    return half


def gaps(C: Array) -> Array:
    """Half of each centre's distance to the nearest other one."""
    step = max(1, (1 << 21) // len(C))
    return np.concatenate([half_distances(C, slice(a, a + step)).min(axis=1) for a in range(0, len(C), step)])
