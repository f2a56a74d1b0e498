"""Random initial centroids: k distinct rows, drawn with probability proportional to their weights.

References
----------
E. W. Forgy (1965), Cluster analysis of multivariate data: efficiency versus interpretability of classifications, Biometrics
21(3), pp. 768-769.

Differs from the paper: rows of equal values are drawn at most once, as long as there are other rows. A sample is used if there
are many rows (see `sample`).
"""

from __future__ import annotations

import numpy as np

from ...data.rows import Rows
from ...data.types import Array
from ...execution.deadline import NO_DEADLINE, Deadline, Pace
from ...fit.random_streams import draw, draw_at_once
from .sample import draw_sample


def random_rows(rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = NO_DEADLINE) -> Array:
    """Draw k rows by weight, without repeating rows of equal values as long as there are others."""
    ids, _, mass, keys = draw_sample(rows, k, rng)
    chosen, pace = np.empty(k, np.int64), Pace(k, deadline)
    for j in range(k):
        if pace.is_late(j):  # from the same distribution
            chosen[j:] = draw_at_once(rng, mass, k - j, keys)
            break
        chosen[j] = draw(rng, mass, 1)[0]
        low, high = (int(np.searchsorted(keys, keys[chosen[j]], side)) for side in ("left", "right"))
        mass[low:high] = 0
    return rows.take(ids[chosen])
