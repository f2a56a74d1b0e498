"""Nested batches of rows in random order, and the criterion by which a batch doubles.

References
----------
J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS.
"""

from __future__ import annotations

import numpy as np

from ..data.rows import Rows
from ..data.types import Array
from ..fit.partition import Partition
from ..fit.shuffle import Order

MAX_COPIED_SHARE = 0.25  # largest batch but the first and that of all rows; copying more takes longer than it saves, and memory


class GrowingBatches:
    """Batches that consist of the first rows of one random order. The batch of all rows keeps the order of X."""

    def __init__(self, rows: Rows, k: int, rng: np.random.Generator) -> None:
        self.rows, self.k, self.weight_sum = rows, k, float(rows.weights.sum())
        # rows of weight zero are in the batch of all rows only
        self.weighted_rows = np.flatnonzero(rows.weights > 0) if rows.has_weights else None
        self.n = len(rows) if self.weighted_rows is None else len(self.weighted_rows)
        self.order = Order(self.n, rng)
        self._batch: Rows | None = None  # the last batch, if it is not all rows

    def size(self, wanted: int) -> int:
        """Return the number of rows of a batch: `wanted`, or all rows if at most that many have a positive weight."""
        return wanted if wanted < self.n else len(self.rows)

    def size_after(self, size: int) -> int:
        """Return the number of rows of the next batch: twice as many, or all rows if a batch would copy too many of them."""
        return 2 * size if 2 * size <= MAX_COPIED_SHARE * self.n else len(self.rows)

    def ids(self, size: int) -> Array:
        """Return the row indices of a batch, in its order."""
        first = self.order.first(size)
        return first if self.weighted_rows is None else self.weighted_rows[first]

    def batch(self, size: int) -> Rows:
        """Return the batch of this size. Its rows are copied, unless it is all rows."""
        if size == len(self.rows):
            self._batch = None
            return self.rows
        if self._batch is None or len(self._batch) != size:
            self._batch = None  # free its memory before the next one is made
            self._batch = self.rows.materialize(self.ids(size), self.k)
        return self._batch


def noise_ratios(state: Partition) -> Array:
    """Return sigma_C(j) / p(j), the standard error of each centroid relative to its last movement; infinite if it did not move.

    sse(j) comes from the cluster sums, because some algorithms do not compute the distance of every row in every step.
    """
    votes = state.weight_sums * (state.counts - 1)
    known = (state.moves2 > 0) & (votes > 0)
    out = np.full(len(votes), np.inf)
    out[known] = np.sqrt(np.maximum(state.costs[known], 0) / votes[known] / state.moves2[known])
    return out


def expand(state: Partition, size: int, places: Array) -> Partition:
    """Return the state for a batch of `size` rows. Its present rows move to `places`; the new rows have no label."""
    labels = np.full(size, -1, np.int32)
    labels[places] = state.labels
    bounds = None if state.bounds is None else state.bounds.expand(size, places)
    return state._replace(labels=labels, bounds=bounds, n_reassigned=state.n_reassigned + size - len(places))
