"""The scikit-learn face of a family of methods: validation, labels, distances, score and callbacks, once for all."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .blocks import Block, Centers
from .checks import check_rows, check_weights
from .moments import check_values
from .partition import energy_block
from .rows import Frame, Rows, times_power
from .types import Array

try:  # scikit-learn 1.9 and later
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        return method


WRAPPED = int(hasattr(CallbackSupportMixin, "set_callbacks"))  # frames that `with_callbacks` puts around fit


def seed_of(random_state: Any) -> int:
    """One integer for all random numbers of a fit."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


class Hooks:
    """Tells scikit-learn's callbacks about steps; does nothing where there are none."""

    def __init__(self, estimator: Any, X: Any, snapshot: Callable[[Any], dict[str, Any]]) -> None:
        self.estimator, self.X, self.snapshot = estimator, X, snapshot
        self.root: Any = None
        self.task: Any = None
        if getattr(estimator, "_skl_callbacks", None):
            self.root = estimator._init_callback_context(max_subtasks=None)
            self.root.call_on_fit_task_begin(estimator=estimator, X=X)

    def begin(self) -> None:
        if self.root is not None:
            self.task = self.root.subcontext(task_name="step")
            self.task.call_on_fit_task_begin(estimator=self.estimator, X=self.X)

    def end(self, state: Any) -> bool:
        return self.task is not None and bool(
            self.task.call_on_fit_task_end(
                estimator=self.estimator, X=self.X, reconstruction_attributes=lambda: self.snapshot(state)
            )
        )

    def close(self) -> None:
        if self.root is not None:
            self.root.call_on_fit_task_end(estimator=self.estimator, X=self.X)


def _nearest_energy_block(block: Block, weights: Array, centers: Centers) -> float:
    return energy_block(block, weights, block.nearest(centers), centers)


def _transform_block(block: Block, out: Array, centers: Centers, unit: bool) -> None:
    """Distances to all centres."""
    k = len(centers.C)
    step = max(1, (1 << 18) // k)
    for a in range(0, len(block), step):
        rows = np.arange(a, min(a + step, len(block)))
        far = block.pair_distances(np.repeat(rows, k), np.tile(np.arange(k), len(rows)), centers).reshape(-1, k)
        out[rows] = far / 2 if unit else np.sqrt(far)


def _label_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers) -> None:
    check_values(start, raw, rows.frame.unit)
    out[:] = rows.convert(raw).nearest(centers)


class CentersEstimator(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC
):
    """Estimators whose model is `cluster_centers_`. A subclass fits; all else is here."""

    cluster_centers_: Array
    labels_: Array
    inertia_: float
    _frame: Frame
    n_threads: int | None

    def _rows(self, X: Any, sample_weight: Any = None) -> tuple[Rows, Centers]:
        """New rows in the frame of the fit, with the centres."""
        check_is_fitted(self, "cluster_centers_")
        source = check_rows(self, X, reset=False)
        rows = Rows(source, check_weights(sample_weight, source.shape[0]), self._frame, self.n_threads)
        rows.dtype = np.promote_types(rows.dtype, self.cluster_centers_.dtype)
        if rows.is_sparse and self._frame.shift is not None:  # zeros would not stay zeros: float64 instead of a shift
            rows.frame, rows.dtype = self._frame._replace(shift=None), np.dtype(np.float64)
        return rows, rows.prepare(rows.frame.into(self.cluster_centers_, rows.dtype))

    def predict(self, X: Any) -> Array:
        """The nearest centre of each row, the first of equals."""
        rows, centers = self._rows(X)
        labels = np.empty(len(rows), np.int32)
        with rows:
            for _ in rows.raw_shares(_label_block, rows, centers, per_row=(labels,)):
                pass
        return labels

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit, then give `labels_`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def transform(self, X: Any) -> Array:
        """Distance of each row from every centre (1 - cosine where the metric is cosine)."""
        rows, centers = self._rows(X)
        out = np.empty((len(rows), len(centers.C)), rows.dtype)
        with rows:
            for _ in rows.raw_shares(check_values, self._frame.unit):
                pass
            for _ in rows.shares(_transform_block, centers, self._frame.unit, per_row=(out,)):
                pass
        with np.errstate(over="ignore", under="ignore"):
            return times_power(out, -self._frame.exponent)

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit, then the distances of the same rows."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the energy of these rows."""
        rows, centers = self._rows(X, sample_weight)
        with rows:
            for _ in rows.raw_shares(check_values, self._frame.unit):
                pass
            return -self._frame.energy_out_of(sum(rows.shares(_nearest_energy_block, centers, per_row=(rows.weights,))))

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @abstractmethod
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X."""


__all__ = ["WRAPPED", "CentersEstimator", "Hooks", "seed_of", "with_callbacks"]
