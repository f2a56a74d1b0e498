"""`partial_fit`: rows that come chunk by chunk and are gone again, for methods whose centres are running means."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from . import running
from .blocks import Centers
from .estimator import all_or_nothing, near_block, seed_of
from .fitting import CenterMover
from .moments import measure
from .partition import energy_block
from .rows import Rows
from .running import Means
from .types import Array


class Stream(NamedTuple):
    """All that is kept of the rows that have gone by."""

    means: Array  # (k, d) float64, as the user knows them
    masses: Array  # (k) float64: what they weigh


def _label_block(start: int, raw: Any, labels: Array, weights: Array, rows: Rows, centers: Centers) -> float:
    block, centers = near_block(start, raw, rows, centers)
    labels[:] = block.nearest(centers)
    return energy_block(block, weights, labels, centers)


class StreamMover(CenterMover):
    """Center movers that also take rows chunk by chunk."""

    _stream: Stream

    def _take_in(self, rows: Rows, means: Means) -> None:
        """Let a chunk of rows, in their order, move the means."""
        raise NotImplementedError

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take in one more chunk of rows. If that fails, the model stays what it was.

        The first chunk places the centres as `init` says; later ones, and those after a `fit`, move them on. One start,
        no `tol`, `time_budget` or `callback`; `history_` and `stop_reason_` stay those of the last `fit`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Real numbers, finite: at least `n_clusters` rows in the first chunk, one in later ones.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            How much each row counts; None for 1 each.

        Returns
        -------
        self
            `labels_` and `inertia_` are of this chunk, `n_iter_` counts one more.
        """
        self._validate_params()
        with all_or_nothing(self):
            if hasattr(self, "_stream"):
                rows, centers = self._rows(X, sample_weight)
                with rows:
                    self._next_chunk(rows, centers)
            else:
                rows, given = self._first_look(X, sample_weight)
                with rows:
                    rows.frame = self._frame = measure(rows).frame
                    means = running.begin(rows, self._start(rows, given, X, seed_of(self.random_state), 0))
                    self._finish_chunk(rows, means)
        return self

    def _next_chunk(self, rows: Rows, centers: Centers) -> None:
        kinds = {block.X.dtype for block, _ in rows.raw_shares(near_block, rows, centers)}
        rows.dtype = np.result_type(*kinds)  # float64 for rows far out of the range of those before
        means, masses = self._stream
        self._finish_chunk(rows, running.begin(rows, rows.frame.into(means, np.dtype(np.float64)), masses))

    def _finish_chunk(self, rows: Rows, means: Means) -> None:
        self._take_in(rows, means)
        self._stream = Stream(rows.frame.out_of(running.means_of(means), np.dtype(np.float64)), means.masses)
        self.cluster_centers_ = self._public(rows, means)
        self.labels_ = np.empty(len(rows), np.int32)
        centers = rows.prepare(rows.frame.into(self.cluster_centers_, rows.dtype))
        per_row = (self.labels_, rows.weights)
        self.inertia_ = rows.frame.energy_out_of(sum(rows.raw_shares(_label_block, rows, centers, per_row=per_row)))
        self.n_iter_ = getattr(self, "n_iter_", 0) + 1

    def _remember(self, rows: Rows) -> None:
        masses = np.bincount(self.labels_, rows.weights, len(self.cluster_centers_))
        self._stream = Stream(self.cluster_centers_.astype(np.float64), masses)
