"""Choice of a number of clusters from a curve of energies."""

from __future__ import annotations

from typing import Any

import numpy as np

# Ratio of the slopes before and after a knee, on logarithmic axes. Rows without clusters have a ratio of about 1; the
# tests need a margin for the noise of real curves.
MIN_SLOPE_RATIO = 2.5
MIN_RANGE_AFTER_KNEE = 1.3  # ratio of the last number of clusters to that at the knee
MIN_SLOPE = 1e-3  # slopes after a knee are at least this, so that the ratio is finite
MIN_RELATIVE_ENERGY = 1e-12  # energies are at least this fraction of the largest one, so that their logarithms are finite


def knee(k: Any, energy: Any) -> int | None:
    """Find the knee (elbow) of a curve of energies over the number of clusters.

    Parameters
    ----------
    k : array-like of int of shape (n_points,)
        Numbers of clusters, in increasing order.
    energy : array-like of float of shape (n_points,)
        Energy (inertia) for each number of clusters.

    Returns
    -------
    knee : int or None
        Number of clusters at the knee; None if the curve has no clear knee.

    Notes
    -----
    For rows without clusters the energy falls like a power of k [1]_: a straight line on logarithmic axes. A knee is a point
    before which the curve, on these axes, falls at least 2.5 times as steeply as after it. The slope before is the smaller
    one of those from the two preceding points, and the slope after the largest one to any later point, so that a single
    outlier makes no knee. The last k must be at least 1.3 times that of the knee, so that the end of the curve makes none.

    References
    ----------
    .. [1] P. Zador (1982), Asymptotic quantization error of continuous signals, doi:10.1109/TIT.1982.1056490.

    Examples
    --------
    >>> from shoal.metrics import knee
    >>> knee([1, 2, 3, 4, 5, 6], [100, 60, 10, 9, 8.2, 7.6])
    3
    >>> knee([1, 2, 4, 8, 16], [100, 50, 25, 12.5, 6.25]) is None
    True
    """
    counts, energies = np.asarray(k, np.float64), np.asarray(energy, np.float64)
    if counts.ndim != 1 or counts.shape != energies.shape or not (np.diff(counts) > 0).all() or (counts < 1).any():
        raise ValueError("k must be increasing numbers of clusters, 1 or greater, with one energy for each.")
    if not np.isfinite(energies).all() or (energies < 0).any():
        raise ValueError("energy must be finite and not negative: leave out points whose energy is not known.")
    x, y = np.log(counts), np.log(np.maximum(energies, max(energies.max(initial=0), 1e-300) * MIN_RELATIVE_ENERGY))
    best, found = MIN_SLOPE_RATIO, None
    for i in range(1, int(np.searchsorted(x, x.max(initial=0) - np.log(MIN_RANGE_AFTER_KNEE), "right"))):
        preceding = slice(max(i - 2, 0), i)
        before = ((y[preceding] - y[i]) / (x[i] - x[preceding])).min()
        after = max(((y[i] - y[i + 1 :]) / (x[i + 1 :] - x[i])).max(), MIN_SLOPE)
        if before / after >= best:
            best, found = before / after, int(counts[i])
    return found
