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

from typing import Protocol

import numpy as np

from ...data.rows import Rows
from ...data.types import Array
from ...execution.deadline import Deadline
from .afk_mc2 import chains
from .kmeans_parallel import parallel
from .kmeans_plus_plus import plus_plus, settled
from .random import random_rows


class Seeding(Protocol):
    """Chooses k starting centres, in time."""

    def __call__(self, rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = ..., /) -> Array: ...


Seedings = dict[str, Seeding]

SEEDINGS: Seedings = {
    "k-means++": plus_plus,
    "k-means||": parallel,
    "afk-mc2": chains,
    "random": random_rows,
}

SETTLED: Seedings = {**SEEDINGS, "k-means++": settled}  # for methods whose next step looks at all rows
