"""Where the centres start.

D. Arthur, S. Vassilvitskii (2007), k-means++: the advantages of careful seeding, SODA.
B. Bahmani et al. (2012), Scalable k-means++, doi:10.14778/2180912.2180915 (k-means||).
O. Bachem et al. (2016), Fast and provably good seedings for k-means, NIPS (AFK-MC2).

Differs from the papers: k-means++ is greedy (each centre is the best of a few drawn ones, as in scikit-learn) and works
on a sample of `SAMPLE_PER_CENTER` rows a centre where there are more (N. Duffield et al. 2007, Priority sampling,
doi:10.1145/1314690.1314696: uniform, where weights are equal). Rows are drawn by their exact distances;
which of the drawn ones is best is judged by `LEADING` coordinates, which also rule out most rows before a distance is
computed. What k-means++ chose is mended by swaps (see `local_search`) and, where exact steps follow, by steps on the sample
(P. S. Bradley, U. M. Fayyad 1998, Refining initial points for k-means clustering, ICML). Sparse rows are judged by short dense
sketches. k-means|| makes five rounds, as published, and fewer where they hardly lower the energy any more.

Every seeding takes a `Deadline`. One that would be late first considers one candidate per centre instead of several, then
draws all centres that are still missing at once, by what is known so far, and leaves out swaps, steps and rounds. What is left
out is noted in `Deadline.skipped`. Without a deadline nothing depends on the clock.
"""

from __future__ import annotations

import math
from typing import Any

from ...data import pca
from ...execution.memory import Workload
from ...fit.initializers import Initializers
from .afk_mc2 import chains
from .kmeans_parallel import parallel
from .kmeans_plus_plus import LEADING, plus_plus, settled
from .random import random_rows
from .sample import SKETCH, sample_size

PARALLEL_BYTES = 44.0  # k-means||: bytes a row: index, distance, nearest candidate, and three numbers while some are drawn
PARALLEL_ROWS = 26.0  # k-means||: dense rows for each centroid: all candidates twice, and the last ones prepared


def init_memory(load: Workload, k: int, init: Any) -> float:
    """Return the bytes that choosing k initial centroids takes."""
    parallel_bytes = PARALLEL_BYTES * load.n + PARALLEL_ROWS * k * load.d * load.wide
    return _sample_memory(load, k) + (parallel_bytes if isinstance(init, str) and init == "k-means||" else 0.0)


def _sample_memory(load: Workload, k: int) -> float:
    """Return the bytes of the sample: as it is read and in order, with the coordinates by which it is judged."""
    width = min(load.d, SKETCH) if load.row else load.d
    numbers = width * max(load.wide if load.row else load.itemsize + load.wide, 2 * load.wide)
    heads = load.wide * (2 * min(width, LEADING) + 2 + math.log(k))
    dense_rows, count = load.row * (load.d <= SKETCH), min(load.n, sample_size(load.d, k))
    found = pca.memory(count, width, LEADING - 1, load.wide) if width > LEADING else 0.0
    return count * (numbers + heads + dense_rows + 128.0) + found


INITIALIZERS = Initializers(
    {"k-means++": plus_plus, "k-means||": parallel, "afk-mc2": chains, "random": random_rows}, init_memory
)
SETTLED = Initializers(
    {**INITIALIZERS.methods, "k-means++": settled}, init_memory
)  # for methods whose next step reads all rows
