"""Base class of fitted models with centroids: validation, labels, distances and score."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..data.blocks import Block, Centers
from ..data.exactness import fallbacks, holds, moved
from ..data.frame import Frame
from ..data.rows import Rows, working_dtype
from ..data.source import Source
from ..data.statistics import check_values, note_integers
from ..data.types import Array
from ..data.validation import check_unmasked, check_weights, floats
from ..execution.engine import lazy_on_dask
from ..execution.threads import on_threads
from . import schema
from .callbacks import CallbackSupportMixin
from .input import check_rows
from .loop import REASONS
from .partition import energy_block
from .schema import Spec, check_fitted_state, check_unchanged_parameters

PRIVATE_ATTRIBUTES = ("_frame", "_stream", "_fit_parameters")  # fitted attributes that do not end in an underscore


def _fitted(model: Any) -> dict[str, Any]:
    """Return the fitted attributes of a model."""
    return {name: value for name, value in vars(model).items() if name.endswith("_") or name in PRIVATE_ATTRIBUTES}


@contextlib.contextmanager
def restore_on_error(model: Any) -> Iterator[None]:
    """Restore the fitted attributes of a model if the block raises."""
    before = _fitted(model)
    try:
        yield
    except BaseException:
        for name in _fitted(model):
            delattr(model, name)
        vars(model).update(before)
        raise


UNIT_TOLERANCE = 1e-3  # largest difference of the length of a unit vector from 1

# Largest coordinate whose squared distances do not overflow when they are summed.
MAX_COORDINATE = {np.dtype(np.float32): 2.0**40, np.dtype(np.float64): 2.0**480}


def near_rows(start: int, raw: Any, ways: list[Rows]) -> tuple[int, Block]:
    """Return the index of the first of several frames that represents new rows exactly, and the rows as a block in it."""
    check_values(start, raw, ways[0].frame.unit)
    note_integers(start, raw, ways[0])
    for i, way in enumerate(ways):
        if i == len(ways) - 1 or holds(way.frame, raw, way.dtype):
            with np.errstate(over="ignore", invalid="ignore"):
                block = way.convert(raw)
            if block.reach() <= MAX_COORDINATE[way.dtype]:
                return i, block
    sizes: Any = abs(block.X)
    row = start + int(sizes.max(axis=1).argmax())
    raise ValueError(
        f"Row {row} of X lies so far from the rows of the fit that float64 can't hold its squared distances: "
        "drop it, or fit on rows of its size."
    )


def near_block(
    start: int, raw: Any, rows: Rows, centers: Centers, prepare: Callable[[Rows, Any], Centers] = Rows.prepare
) -> tuple[Block, Centers]:
    """Return new rows as a block in a frame that represents them exactly, and the centroids in the same frame."""
    ways = fallbacks(rows)
    i, block = near_rows(start, raw, ways)
    return block, prepare(ways[i], moved(centers.C, rows.frame, ways[i].frame, ways[i].dtype)) if i else centers


def rows_near_centers(rows: Rows, C: Array) -> tuple[Rows, Array]:
    """Return rows in the first of several frames that represents centroids exactly, and the centroids in that frame."""
    for way in fallbacks(rows):
        with np.errstate(over="ignore"):
            centers = way.frame.into(C, way.dtype)
        far = np.abs(centers).max(axis=1)
        if holds(way.frame, C, way.dtype) and far.max() <= MAX_COORDINATE[way.dtype]:
            break
    if far.max() > MAX_COORDINATE[way.dtype]:
        raise ValueError(
            f"cluster_centers_ row {int(far.argmax())} lies so far from the rows of the fit that float64 can't hold its "
            "squared distances: set it back, or fit again."
        )
    return way, centers


def new_rows_energy_block(start: int, raw: Any, weights: Array, rows: Rows, centers: Centers) -> float:
    """Return the weighted energy of a block of new rows."""
    block, centers = near_block(start, raw, rows, centers)
    return energy_block(block, weights, block.nearest(centers), centers)


def _distances_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers) -> None:
    """Write the distances of a block of new rows to all centroids, in the units of X."""
    block, centers = near_block(start, raw, rows, centers)
    k, frame = len(centers.C), rows.frame
    step = max(1, (1 << 18) // k)
    for a in range(0, len(block), step):
        some = np.arange(a, min(a + step, len(block)))
        far = block.pair_distances(np.repeat(some, k), np.tile(np.arange(k), len(some)), centers).reshape(-1, k)
        with np.errstate(over="ignore", under="ignore"):
            out[some] = frame.distances_out_of(far)


def nearest_distances_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers) -> None:
    """Write the distances of a block of new rows to their nearest centroids, in the units of X and rounded as `transform`."""
    block, centers = near_block(start, raw, rows, centers)
    squares = block.pair_distances(np.arange(len(block)), block.nearest(centers), centers)
    with np.errstate(over="ignore", under="ignore"):
        out[:] = rows.frame.distances_out_of(squares).astype(rows.dtype)


def _label_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers) -> None:
    """Write the labels of a block of new rows."""
    block, centers = near_block(start, raw, rows, centers)
    out[:] = block.nearest(centers)


class BaseCentroidModel(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC
):
    """Base class of estimators whose model is `cluster_centers_`: everything except `fit`."""

    cluster_centers_: Array
    labels_: Array
    inertia_: float
    metric: str = "euclidean"
    n_threads: int | None
    _frame: Frame
    _fit_parameters: dict[str, Any]  # values of `_model_parameters` in the fit
    _model_parameters: ClassVar[tuple[str, ...]] = ("metric",)  # parameters on which predictions depend
    _prediction_attributes: ClassVar[tuple[str, ...]] = ("n_features_in_", "_frame", "_fit_parameters")
    _required_attributes: ClassVar[tuple[str, ...]] = ()  # a model has all of them or none

    def _fitted_schema(self) -> dict[str, Spec]:
        """Specs of the attributes that a fit sets, in the order in which they are checked."""
        return {
            "n_features_in_": schema.SizeOf("d"),
            "feature_names_in_": schema.Names("d"),
            "_frame": schema.frame(),
            "_fit_parameters": schema.ParameterValues(self._model_parameters),
            "cluster_centers_": schema.floats("k", "d"),
            "labels_": schema.labels("n", "k"),
            "inertia_": schema.Number(finite=False),
            "n_iter_": schema.count(),
            "history_": schema.History(),
            "stop_reason_": schema.Choice(REASONS),
            "_sklearn_output_config": schema.OutputConfig(),
        }

    def _record_parameters(self) -> None:
        """Store the parameters on which predictions depend, to detect later changes."""
        self._fit_parameters = {name: getattr(self, name) for name in self._model_parameters}

    def _checked_centers(self) -> Array:
        """`cluster_centers_`, which users may set, as an array that the fit could have produced."""
        self._validate_params()
        sizes = check_fitted_state(self, *self._prediction_attributes)
        check_unchanged_parameters(self)
        check_unmasked(self.cluster_centers_, "cluster_centers_")
        C = np.asarray(self.cluster_centers_)
        if self._centers_frame.bits and C.dtype.kind in "biuf":
            C = C > 0.5
        elif C.dtype not in (np.float32, np.float64):
            C = floats(C, "cluster_centers_")
        self._fitted_schema()["cluster_centers_"].check(C, "cluster_centers_", sizes)
        if self._centers_frame.unit and (off := np.abs(np.linalg.norm(C, axis=1) - 1)).max() > UNIT_TOLERANCE:
            raise ValueError(f"cluster_centers_ row {int(off.argmax())} is not of unit length, as metric='cosine' needs it.")
        return C

    @property
    def _centers_frame(self) -> Frame:
        """Frame of the fit, or the default frame for centroids that were set without a fit."""
        found = vars(self).get("_frame")
        return found if isinstance(found, Frame) else Frame.of(self._metric_of_centers)

    def _source(self, X: Any, *, reset: bool) -> Source:
        """Return a source of the validated rows of X."""
        return check_rows(self, X, reset=reset)

    @property
    def _metric_of_centers(self) -> str:
        """Metric in which rows are nearest to `cluster_centers_`."""
        return self.metric

    def _rows(self, X: Any, sample_weight: Any = None) -> tuple[Rows, Centers]:
        """Return new rows in the frame of the fit, and the centroids."""
        check_is_fitted(self, ["cluster_centers_", *self._required_attributes])
        C, frame = self._checked_centers(), self._centers_frame
        source = self._source(X, reset=False)
        if C.shape[1] != source.shape[1]:
            raise ValueError(f"cluster_centers_ has shape {C.shape}, but X has {source.shape[1]} features: they must agree.")
        rows = Rows.of(source, check_weights(sample_weight, source.shape[0]), frame)
        rows = rows.with_dtype(np.promote_types(rows.dtype, working_dtype(C.dtype)))
        rows, centers = rows_near_centers(rows, C)
        return rows, rows.prepare(centers)

    @lazy_on_dask
    def predict(self, X: Any) -> Array:
        """Predict the nearest centroid of each row; the first one if several are equally near.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows to label, with the columns of the fit.

        Returns
        -------
        labels : int32 array of shape (n_samples,)
            For a dask array or dataframe, a lazy dask array.
        """
        rows, centers = self._rows(X)
        labels = np.empty(len(rows), np.int32)
        with on_threads(rows, self.n_threads) as rows:
            rows.for_each_raw(_label_block, rows, centers, per_row=(labels,))
        return labels

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit and return `labels_`. The arguments are those of `fit`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    @lazy_on_dask
    def transform(self, X: Any) -> Array:
        """Compute the distance of each row to every centroid (1 - cosine if the metric is cosine).

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit.

        Returns
        -------
        distances : array of shape (n_samples, n_clusters)
            float32 if both these rows and those of the fit are clustered in float32, else float64.
        """
        rows, centers = self._rows(X)
        out = np.empty((len(rows), len(centers.C)), rows.dtype)
        with on_threads(rows, self.n_threads) as rows:
            rows.for_each_raw(_distances_block, rows, centers, per_row=(out,))
        return out

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit and return `transform` of the same rows. The arguments are those of `fit`."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the negative inertia of rows; higher is better.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            Weight of each row; None for weight 1.

        Returns
        -------
        score : float
            Negative weighted sum of squared distances to the nearest centroids.
        """
        rows, centers = self._rows(X, sample_weight)
        with on_threads(rows, self.n_threads) as rows:
            shares = rows.map_raw_blocks(new_rows_energy_block, rows, centers, per_row=(rows.weights,))
            return -rows.frame.energy_out_of(sum(shares))

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @abstractmethod
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, engine: Any = None) -> Self:
        """Cluster the rows of X."""
