"""Kernels on scores and bounds, for both dense and sparse rows."""

import numpy as np

from . import DOWN, TINY, kernel


@kernel
def take_nearer(
    hits,  # IN (h): row of `bounds` of each candidate pair
    columns,  # IN (h): column of `bounds` of each candidate pair
    distances,  # IN (h) float64: exact squared distance of each candidate pair
    rows,  # IN (m): row of the block for each row of `bounds`
    ids,  # IN (c): centroid of each column of `bounds`, in sorted order
    order,  # IN (k): original number of each centroid in sorted order
    group_of,  # IN (k): group of each centroid
    column_of,  # IN (k): column of each centroid in `bounds`; -1 if it has none
    labels,  # ADD (n) int32: nearest centroid so far, in sorted order
    best,  # ADD (n) float64: its exact squared distance
    bounds,  # ADD (m, c): squared lower bounds; infinity for the row's own centroid
    lower,  # ADD (n, g) float32: lower bounds of the distances to the centroids of a group, other than the row's own
):
    """Assign each row to a candidate if that is nearer; record the distance of the rejected centroid as its lower bound.

    Of equally near centroids, the one with the lowest original number is chosen.
    """
    for h in range(hits.shape[0]):
        line, column = hits[h], columns[h]
        r = rows[line]
        candidate = ids[column]
        bounds[line, column] = distances[h]
        if distances[h] < best[r] or (distances[h] == best[r] and order[candidate] < order[labels[r]]):
            old = labels[r]
            if column_of[old] >= 0:
                bounds[line, column_of[old]] = best[r]
            else:
                lower[r, group_of[old]] = min(np.float64(lower[r, group_of[old]]), max(np.sqrt(best[r]) * DOWN - TINY, 0.0))
            labels[r] = candidate
            best[r] = distances[h]
            bounds[line, column] = np.inf
