"""The update step of k-means: move each centroid to the mean of its rows."""

import numpy as np

from . import fast_kernel


@fast_kernel
def move_to_means(
    C,  # IN (k, d): old centroids
    sums,  # IN (k, d) float64: weighted sums of the rows of each cluster
    weight_sums,  # IN (k) float64
    filled,  # IN (k) bool: whether a cluster has rows; an empty one keeps its centroid
    unit,  # IN bool: normalize centroids to unit length (cosine metric)
    out,  # OUT (k, d): new centroids
    dots,  # OUT (k) float64: dot products of old centroids and sums
    norms2,  # OUT (k) float64: squared norms of the old centroids
    moves2,  # OUT (k) float64: squared distances between old and new centroids
):
    """Compute new centroids and the dot products that the energy needs, in one pass.

    Sparse rows may have so many columns that a pass over the centroids takes longer than one over the rows.
    """
    for j in range(C.shape[0]):
        dot = norm2 = square = 0.0
        for t in range(C.shape[1]):
            c = np.float64(C[j, t])
            dot += c * sums[j, t]
            norm2 += c * c
            square += sums[j, t] * sums[j, t]
        dots[j], norms2[j], moves2[j] = dot, norm2, 0.0
        divisor = np.sqrt(square) if unit else weight_sums[j]
        if not filled[j] or (unit and square == 0.0):
            for t in range(C.shape[1]):
                out[j, t] = C[j, t]
            continue
        move2 = 0.0
        for t in range(C.shape[1]):
            out[j, t] = sums[j, t] / divisor
            e = np.float64(out[j, t]) - np.float64(C[j, t])
            move2 += e * e
        moves2[j] = move2
