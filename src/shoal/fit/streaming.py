"""`partial_fit` for methods whose centroids are running means of the rows."""

from __future__ import annotations

import os
from abc import abstractmethod
from threading import Lock, RLock
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..data.blocks import Centers
from ..data.exactness import fallbacks
from ..data.rows import Rows
from ..data.statistics import enter_frame
from ..data.types import Array, warn
from ..execution.threads import on_threads
from . import streaming_means as running
from .base import BaseCentroidClusterer
from .centroid_model import UNIT_TOLERANCE, near_block, near_rows, restore_on_error
from .finalize import published_centers
from .partition import energy_block, weight_sums_of
from .random_streams import resolve_seed
from .schema import Parts, Spec, check_fitted_state, doubles, floats
from .streaming_means import Means

LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # one lock per model, held during `partial_fit`
LOCKS_GUARD = Lock()


def lock_of(model: Any) -> Any:
    """Return the lock that serializes `partial_fit` of a model. Models are copied and pickled, so they do not hold it."""
    with LOCKS_GUARD:
        return LOCKS.setdefault(model, RLock())


def _forget_locks() -> None:
    """Drop all locks in a forked child: threads that held them do not exist there."""
    global LOCKS_GUARD
    LOCKS_GUARD = Lock()
    LOCKS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


class StreamState(NamedTuple):
    """State of the running means between two chunks."""

    centers: Array  # (k, d) float64, in the units of X
    weight_sums: Array  # (k) float64: sum of the weights of the rows so far
    lengths: Array  # (k) float64: lengths of the means if the centroids are directions; else 1
    published: Array  # (k, d): `cluster_centers_` after the last chunk, to detect changes by the user


def _label_block(start: int, raw: Any, labels: Array, weights: Array, rows: Rows, centers: Centers) -> float:
    """Write the labels of a block of new rows and return its weighted energy."""
    block, centers = near_block(start, raw, rows, centers)
    labels[:] = block.nearest(centers)
    return energy_block(block, weights, labels, centers)


def _fallback_block(start: int, raw: Any, rows: Rows) -> int:
    """Return the index of the first fallback frame that represents a block exactly."""
    return near_rows(start, raw, fallbacks(rows))[0]


class BaseStreamingClusterer(BaseCentroidClusterer):
    """Base class of estimators with `partial_fit`."""

    _stream: StreamState

    @abstractmethod
    def _take_in(self, rows: Rows, means: Means) -> None:
        """Update the means with a chunk of rows, in their order."""

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Update the centroids with one more chunk of rows. On error, the model remains unchanged.

        The first chunk initializes the centroids by `init`; later chunks, and chunks after a `fit`, update them. A centroid
        without rows does not move. There is one start, and `tol`, `time_budget` and `callback` are ignored; `history_` and
        `stop_reason_` remain those of the last `fit`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Finite real numbers: at least `n_clusters` rows in the first chunk, at least one in later chunks.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            Weight of each row; None for weight 1.

        Returns
        -------
        self
            `labels_` and `inertia_` are those of this chunk; `n_iter_` increases by one.
        """
        self._validate_params()
        with lock_of(self), restore_on_error(self):
            if hasattr(self, "_stream"):
                self._check_stream()
                rows, _ = self._rows(X, sample_weight)
                with on_threads(rows, self.n_threads) as rows:
                    self._next_chunk(rows)
            else:
                rows, given = self._validate_input(X, sample_weight)
                with on_threads(rows, self.n_threads) as rows:
                    rows, _ = enter_frame(rows)
                    self._frame = rows.frame
                    starts = self._initialization(X, given, resolve_seed(self.random_state))
                    means = running.initial_means(rows, starts.centers(rows, 0))
                    self._finish_chunk(rows, means)
                    found = int(np.count_nonzero(means.weight_sums))
                    if given is None and found < self.n_clusters:
                        warn(self._explain_empty_clusters(found, rows), ConvergenceWarning)
        return self

    def _check_stream(self) -> None:
        """Raise if parameters or attributes were changed since the last chunk."""
        k = check_fitted_state(self, "n_features_in_", "_stream")["k"]
        found = {"n_clusters": self.n_clusters, "the number of cluster_centers_": len(np.atleast_1d(self.cluster_centers_))}
        for name, value in found.items():
            if value != k:
                raise ValueError(f"{name} is {value}, but was {k} for the chunks before: set it back, or fit again.")

    def _fitted_schema(self) -> dict[str, Spec]:
        lengths = doubles("k", low=0, high=1 + UNIT_TOLERANCE)
        parts = {
            "centers": doubles("k", "d"),
            "weight_sums": doubles("k", low=0),
            "lengths": lengths,
            "published": floats("k", "d"),
        }
        return {**super()._fitted_schema(), "_stream": Parts(StreamState, parts)}

    def _next_chunk(self, rows: Rows) -> None:
        """Update the centroids with a chunk that is not the first."""
        # rows far outside the range of earlier chunks need float64, or no shift
        rows = fallbacks(rows)[max(rows.map_raw_blocks(_fallback_block, rows))]
        C, weight_sums, lengths, published = self._stream
        if not np.array_equal(self.cluster_centers_, published):  # changed by the user
            C, lengths = self._checked_centers(), np.ones(len(C))
        self._finish_chunk(rows, running.initial_means(rows, rows.frame.into(C, np.dtype(np.float64)), weight_sums, lengths))

    def _finish_chunk(self, rows: Rows, means: Means) -> None:
        """Update the means with a chunk and set the fitted attributes."""
        self._take_in(rows, means)
        self.cluster_centers_ = published_centers(rows, means.centers)
        if not np.isfinite(self.cluster_centers_).all():
            raise ValueError(
                "The centroids are not finite, but the rows of X were: X was changed during partial_fit; call it again."
            )
        exact = rows.frame.out_of(means.centers, np.dtype(np.float64))
        self._stream = StreamState(exact, means.weight_sums, means.lengths, self.cluster_centers_.copy())
        self.labels_ = np.empty(len(rows), np.int32)
        centers = rows.prepare(rows.frame.into(self.cluster_centers_, rows.dtype))
        per_row = (self.labels_, rows.weights)
        self.inertia_ = rows.frame.energy_out_of(sum(rows.map_raw_blocks(_label_block, rows, centers, per_row=per_row)))
        self.n_iter_ = getattr(self, "n_iter_", 0) + 1
        self._record_parameters()

    def _remember(self, rows: Rows) -> None:
        """Store the running means, so that `partial_fit` continues after a fit."""
        C = self.cluster_centers_
        weight_sums, lengths = weight_sums_of(self.labels_, rows.weights, len(C)), np.ones(len(C))
        if rows.frame.unit:
            sums = running.assign_and_sum(rows, rows.frame.into(C, rows.dtype), self.labels_.copy()).sums
            lengths = np.linalg.norm(sums, axis=1) / np.where(weight_sums > 0, weight_sums, 1)
        self._stream = StreamState(C.astype(np.float64), weight_sums, lengths, C.copy())
