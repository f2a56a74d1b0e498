"""Centres become the means of their rows."""

import numpy as np

from . import fast_kernel


@fast_kernel
def move_to_means(
    C,  # IN (k, d): the centres
    sums,  # IN (k, d) float64: of their rows
    weight_sums,  # IN (k) float64
    filled,  # IN (k) bool: a cluster without rows keeps its centre
    unit,  # IN are centres directions?
    out,  # OUT (k, d): the means, or their directions
    dots,  # OUT (k) float64: of centre and sum
    norms2,  # OUT (k) float64: of the centre
    moves2,  # OUT (k) float64: squared length of the move
):
    """In one pass, for sparse rows have so many columns that passes over the centres take longer than those over rows."""
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
            out[j] = C[j]
            continue
        move2 = 0.0
        for t in range(C.shape[1]):
            out[j, t] = sums[j, t] / divisor
            e = np.float64(out[j, t]) - np.float64(C[j, t])
            move2 += e * e
        moves2[j] = move2
