"""Kernels that turn scores between rows into affinities or into lists of nearest neighbors."""

import math

import numpy as np

from . import fast_kernel, kernel

# Constants of the float32 exponential function: exp(y) = 2^n exp(r), where n = round(y / ln 2) and r = y - n ln 2.
LOG2_E = np.float32(1.4426950408889634)  # 1 / ln 2
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # ln 2 in two parts, so that n ln 2 loses no digits
# exp(r) is approximately 1 + r + r^2 (C2 + C3 r + ... + C7 r^5)
C2, C3, C4 = np.float32(0.5), np.float32(0.16666665459), np.float32(0.041665795894)
C5, C6, C7 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
MIN_EXPONENT = np.float32(-87.3)  # exp of smaller numbers is subnormal in float32, and n would overflow the exponent bits
ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)  # float32, because a Python number would turn sums into float64


@fast_kernel
def _exp32(x):
    """Return exp(x) for float32 x <= 0, with a relative error of 1e-6; 0 where the result would be subnormal.

    Loops over `math.exp` are not vectorized. Loops over this function are, and take a quarter of the time.
    """
    y = max(x, MIN_EXPONENT)
    n = np.int32(y * LOG2_E - HALF)
    r = y - np.float32(n) * LN2_HIGH - np.float32(n) * LN2_LOW
    p = ((((C7 * r + C6) * r + C5) * r + C4) * r + C3) * r + C2
    power = np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)  # 2^n
    return (p * r * r + r + ONE) * (power if x > MIN_EXPONENT else ZERO)


@fast_kernel
def fall_off(
    S,  # ADD (m, c): scores |y|^2 - 2 x.y, replaced by affinities
    norms2,  # IN (m): |x|^2
    u,  # IN (m): inverse scales of the rows
    v,  # IN (c): inverse scales of the columns
):
    """Replace scores by affinities exp(-|x - y|^2 u v)."""
    zero = S.dtype.type(0)
    for i in range(S.shape[0]):
        for j in range(S.shape[1]):
            distance2 = max(S[i, j] + norms2[i], zero)
            if S.itemsize == 4:
                S[i, j] = _exp32(np.float32(-distance2 * u[i] * v[j]))
            else:
                S[i, j] = math.exp(-distance2 * u[i] * v[j])


@kernel
def keep_nearest(
    S,  # IN (m, c): scores; lower is nearer
    ids,  # IN (c) int64: row number of each column
    own,  # IN (m) int64: row number of each row, which is not its own neighbor; -1 if it is not among the columns
    best,  # ADD (m, q): the q lowest scores so far, in ascending order
    neighbors,  # ADD (m, q) int64: row numbers of `best`
):
    """Merge scores into each row's sorted list of nearest neighbors, by insertion; the earlier of equal scores comes first."""
    last = best.shape[1] - 1
    for i in range(S.shape[0]):
        for j in range(S.shape[1]):
            if S[i, j] < best[i, last] and ids[j] != own[i]:
                at = last
                while at > 0 and best[i, at - 1] > S[i, j]:
                    best[i, at] = best[i, at - 1]
                    neighbors[i, at] = neighbors[i, at - 1]
                    at -= 1
                best[i, at] = S[i, j]
                neighbors[i, at] = ids[j]
