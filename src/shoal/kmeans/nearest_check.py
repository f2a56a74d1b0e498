"""Share of rows that are not with their nearest centroid, and the energy that this costs: estimated from a sample of rows.

References
----------
E. B. Wilson (1927), Probable inference, the law of succession, and statistical inference, doi:10.1080/01621459.1927.10502953.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..data.blocks import Block, Centers
from ..data.rows import Rows
from ..data.types import Array
from ..fit.random_streams import draw

CHECKED_ROWS = (1000, 20_000)  # fewest and most
CHECKED_MULTIPLICATIONS = 1 << 31  # multiplications by which more than the fewest rows are compared
Z = 1.959964  # quantile of the normal distribution for an interval of 95%


class NearestCheck(NamedTuple):
    """Shares with intervals of 95%, as (share, low, high)."""

    rows: int  # rows that were compared with all centroids
    off: tuple[float, float, float]  # share of the rows, by weight, that are not with their nearest centroid
    excess: tuple[float, float, float]  # share of the energy that would be saved if they were


EXACT = NearestCheck(0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def _distances_block(block: Block, labels: Array, own: Array, near: Array, centers: Centers) -> None:
    """Write the squared distances of rows to their own and to their nearest centroids."""
    every = np.arange(len(block))
    own[:] = block.pair_distances(every, labels, centers)
    near[:] = block.pair_distances(every, block.nearest(centers), centers)


def n_checked(n: int, k: int, d: int) -> int:
    """Return the number of rows to check."""
    low, high = CHECKED_ROWS
    return min(n, max(low, min(high, CHECKED_MULTIPLICATIONS // (k * d))))


def check_nearest(rows: Rows, C: Array, labels: Array, energy: float, rng: np.random.Generator) -> NearestCheck:
    """Compare random rows with all centroids."""
    some = np.flatnonzero(rows.weights > 0) if rows.has_weights else None
    n = len(rows) if some is None else len(some)
    m = n_checked(n, *C.shape)
    if some is None:
        ids = np.sort(rng.choice(n, m, replace=False))
        weights = np.ones(m)
    elif m == n:
        ids, weights = some, rows.weights[some]
    else:
        ids, weights = np.sort(some[draw(rng, rows.weights[some], m)]), np.ones(m)
    own, near = np.empty(m), np.empty(m)
    rows.subset(ids, len(C)).for_each(_distances_block, rows.prepare(C), per_row=(labels[ids], own, near))
    weights = weights / weights.sum()
    lost = np.where(near < own, own - near, 0.0)
    share, excess = float(weights @ (lost > 0)), float(weights @ lost)
    if m == n:
        total = float(weights @ own)
        saved = excess / total if total > 0 else 0.0
        return NearestCheck(m, (share,) * 3, (saved,) * 3)
    correction = 1.0 if rows.has_weights else math.sqrt((n - m) / (n - 1))  # rows drawn without replacement
    low, high = wilson(share, m / correction**2)
    mean = energy / float(rows.weights.sum())
    error = Z * correction * float(lost.std()) / math.sqrt(m)
    most = excess + error if share else high * mean
    scaled = [value / mean if mean > 0 else 0.0 for value in (excess, max(excess - error, 0.0), most)]
    return NearestCheck(m, (share, low, high), (scaled[0], scaled[1], scaled[2]))


def wilson(share: float, m: float) -> tuple[float, float]:
    """Return the interval of 95% for a share that was seen among m rows."""
    middle = (share + Z * Z / (2 * m)) / (1 + Z * Z / m)
    half = Z / (1 + Z * Z / m) * math.sqrt(share * (1 - share) / m + Z * Z / (4 * m * m))
    return max(middle - half, 0.0), min(middle + half, 1.0)
