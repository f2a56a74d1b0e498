"""Kernels on scores and bounds that know nothing of the rows' layout."""

import numpy as np

from . import DOWN, TINY, kernel


@kernel
def two_best(
    S,  # IN (m, k): scores, rows down
    labels,  # OUT (m) int32: the first of equals
    best,  # OUT (m)
    second,  # OUT (m)
):
    for i in range(S.shape[0]):
        low = np.inf
        high = np.inf
        where = 0
        for j in range(S.shape[1]):
            v = S[i, j]
            if v < low:
                high = low
                low = v
                where = j
            elif v < high:
                high = v
        labels[i] = where
        best[i] = low
        second[i] = high


@kernel
def take_nearer(
    hits,  # IN (h) which line of `bounds` each candidate belongs to
    places,  # IN (h) which column of it
    distances,  # IN (h) float64: squared
    rows,  # IN (m) the block's row behind each line
    ids,  # IN (c) the centre behind each column, as a place in `order`
    order,  # IN (k) the centre's own number
    group_of,  # IN (k) each centre's group
    column_of,  # IN (k) each centre's column in `bounds`, -1 if it has none
    labels,  # ADD (n) int32: places
    best,  # ADD (n) float64
    bounds,  # ADD (m, c): squared lower bounds
    lower,  # ADD (n, g) float32
):
    """Let each candidate win its row if it is nearer; what loses becomes a bound."""
    for h in range(hits.shape[0]):
        line, place = hits[h], places[h]
        r = rows[line]
        candidate = ids[place]
        bounds[line, place] = distances[h]
        if distances[h] < best[r] or (distances[h] == best[r] and order[candidate] < order[labels[r]]):
            loser = labels[r]
            if column_of[loser] >= 0:
                bounds[line, column_of[loser]] = best[r]
            else:
                lower[r, group_of[loser]] = min(np.float64(lower[r, group_of[loser]]), max(np.sqrt(best[r]) * DOWN - TINY, 0.0))
            labels[r] = candidate
            best[r] = distances[h]
            bounds[line, place] = np.inf
