"""Initial centroids: k-means++, k-means||, AFK-MC2 and random rows, each in its own file.

All methods but k-means|| work on a sample if there are many rows (see `sample`). Rows are drawn by exact distances; which of
several candidates is best is estimated from some of the rows. AFK-MC2 replaces wide sparse rows by short dense sketches.

Every method takes a `Deadline`. If it would be late, it first considers one candidate per centroid instead of several, then
draws all remaining centroids at once from the present probabilities, and omits swaps, steps and rounds. What is omitted is
noted in `Deadline.skipped`. Without a deadline nothing depends on the clock.
"""

from __future__ import annotations

import math
from typing import Any

from ...execution.memory import Workload
from ...fit.initializers import Initializers
from ...kernels import tiles
from .afk_mc2 import chains
from .kmeans_parallel import parallel
from .kmeans_plus_plus import plus_plus, plus_plus_refined, trial_size
from .random import random_rows
from .sample import SKETCH_COLUMNS, sample_size

# Memory of k-means||: bytes per row (index, distance, nearest candidate, three numbers while rows are drawn), and dense rows
# per centroid (all candidates twice, and the last ones prepared for scoring).
PARALLEL_BYTES_PER_ROW, PARALLEL_ROWS_PER_CENTER = 44.0, 26.0


def init_memory(load: Workload, k: int, init: Any) -> float:
    """Return the bytes that choosing k initial centroids takes."""
    parallel_bytes = PARALLEL_BYTES_PER_ROW * load.n + PARALLEL_ROWS_PER_CENTER * k * load.d * load.itemsize
    return _sample_memory(load, k, init) + (parallel_bytes if isinstance(init, str) and init == "k-means||" else 0.0)


def _sample_memory(load: Workload, k: int, init: Any) -> float:
    """Return the bytes of the sample, as it is read and sorted, and of distances to candidates."""
    width = min(load.d, SKETCH_COLUMNS) if load.row else load.d
    numbers: float = width * max(load.itemsize if load.row else load.raw_itemsize + load.itemsize, 2 * load.itemsize)
    if load.d > width:  # sparse rows are sorted, and sketched by AFK-MC2 only
        numbers = 2 * load.row + numbers * (isinstance(init, str) and init == "afk-mc2")
    dense_rows, count = load.row * (load.d <= SKETCH_COLUMNS), min(load.n, sample_size(load.d, k))
    n_lanes, trial = tiles.PACK_BYTES // load.itemsize, min(count, trial_size(width, k))
    candidates = n_lanes * (2 + math.log(k)) * trial * load.itemsize + trial * (width * load.itemsize + 32.0)
    swaps = 16.0 * n_lanes * count
    return 8.0 * load.n * (count < load.n) + count * (numbers + dense_rows + 128.0) + max(candidates, swaps)


INITIALIZERS = Initializers(
    {"k-means++": plus_plus, "k-means||": parallel, "afk-mc2": chains, "random": random_rows}, init_memory
)
REFINING_INITIALIZERS = Initializers(
    {**INITIALIZERS.methods, "k-means++": plus_plus_refined}, init_memory
)  # for methods whose first step reads all rows
