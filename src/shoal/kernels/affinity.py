"""Kernels that turn scores of rows against rows into affinities or lists of neighbours."""

import math

import numpy as np

from . import fast_kernel, kernel

TWO, HIGH, LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)  # 1 / ln 2; ln 2 in parts
C2, C3, C4 = np.float32(0.5), np.float32(0.16666665459), np.float32(0.041665795894)
C5, C6, C7 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
ONE, HALF, LEAST, NONE = np.float32(1), np.float32(0.5), np.float32(-87.3), np.float32(0)


@fast_kernel
def _exp32(x):
    """Of a number not above zero: 2^n times a polynomial, to 1e-6, and zero where float32 has no normal numbers left.

    The library's exp is called for one number at a time; this is four times as fast, because loops of it vectorise.
    """
    y = max(x, LEAST)
    n = np.int32(y * TWO - HALF)
    r = y - np.float32(n) * HIGH - np.float32(n) * LOW
    p = ((((C7 * r + C6) * r + C5) * r + C4) * r + C3) * r + C2
    power = np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)
    return (p * r * r + r + ONE) * (power if x > LEAST else NONE)


@fast_kernel
def fall_off(
    S,  # IN (m, c): |y|^2 - 2 x.y; OUT: affinities
    norms2,  # IN (m): |x|^2
    u,  # IN (m): one over the rows' scales
    v,  # IN (c): one over the columns' scales
    root,  # bool: by the distance, not by its square
):
    """exp(-|x - y|^2 u v), or exp(-|x - y| u v)."""
    zero = S.dtype.type(0)
    for i in range(S.shape[0]):
        for j in range(S.shape[1]):
            far = max(S[i, j] + norms2[i], zero)
            if root:
                far = math.sqrt(far)
            if S.itemsize == 4:
                S[i, j] = _exp32(np.float32(-far * u[i] * v[j]))
            else:
                S[i, j] = math.exp(-far * u[i] * v[j])


@kernel
def keep_nearest(
    S,  # IN (m, c): scores, the lower the nearer
    ids,  # IN (c) int64: the rows behind the columns
    own,  # IN (m) int64: a row's own number, which is no neighbour of it; -1 for none
    best,  # ADD (m, q): the lowest scores so far, in order
    who,  # ADD (m, q) int64: and whose they are
):
    last = best.shape[1] - 1
    for i in range(S.shape[0]):
        for j in range(S.shape[1]):
            if S[i, j] < best[i, last] and ids[j] != own[i]:
                at = last
                while at > 0 and best[i, at - 1] > S[i, j]:
                    best[i, at] = best[i, at - 1]
                    who[i, at] = who[i, at - 1]
                    at -= 1
                best[i, at] = S[i, j]
                who[i, at] = ids[j]
