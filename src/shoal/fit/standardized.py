"""`Standardized`: another estimator, on rows whose columns all have mean 0 and variance 1."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    MetaEstimatorMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..data.rows import Rows, working_dtype
from ..data.scaling import scaled, scaled_dtype
from ..data.source import FileSource, Source
from ..data.statistics import column_scales
from ..data.types import Array
from ..data.validation import check_weights
from ..execution.engine import lazy_on_dask, resolve_source
from ..execution.memory import check_fit
from ..execution.threads import on_threads
from .centroid_model import restore_on_error
from .environment import FitEnvironment
from .input import check_rows
from .schema import Choice, Fitted, Names, OutputConfig, SizeOf, Spec, check_fitted_state, doubles


def scales_of(source: Source, weights: Array | None = None, n_threads: int | None = None) -> Array:
    """Mean and standard deviation of each column. Zeros of sparse rows must stay zeros, so that their means are left alone."""
    with on_threads(Rows.of(source, weights), n_threads) as rows:
        scales = column_scales(rows)
        scales[0] *= not rows.is_sparse
        return scales


TINY = 5e-324  # the least positive float64: what columns are divided by is above zero


class Standardized(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, MetaEstimatorMixin, BaseEstimator):
    """Cluster rows whose columns are brought to mean 0 and variance 1 first, so that no unit counts for more than another.

    Rows are scaled block by block as they are read, so that files may be larger than memory. In a fit to sparse rows,
    zeros stay zeros: columns are only divided. `fit`, `predict`, `transform` and `score` take rows as they are.

    Parameters
    ----------
    estimator : estimator
        One of Shoal's. It is cloned, and the clone is fitted.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to the scaled rows. What it has learned can be had here too: `labels_`, `inertia_` (of the scaled rows),
        `history_` and all else that ends in an underscore.
    mean_, scale_ : arrays of shape (n_features,)
        What is subtracted from the columns, and what they are divided by then (1 for constant ones).
    dtype_ : "float32" or "float64"
        What the scaled rows were given as; new rows are, too, unless theirs is wider.
    cluster_centers_ : array of shape (n_clusters, n_features)
        In the units of X, where the estimator has centres among the rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import KMeans, Standardized
    >>> X = np.array([[1.0, 9000], [1.1, 1000], [5.0, 9000], [5.1, 1000]]) * [1000, 1]
    >>> Standardized(KMeans(n_clusters=2, init=[[-1, 0], [1, 0]])).fit(X).cluster_centers_
    array([[1050., 5000.],
           [5050., 5000.]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"estimator": [HasMethods(["fit", "predict", "transform"])]}

    _required_attributes: ClassVar[tuple[str, ...]] = ("n_features_in_", "mean_", "scale_", "estimator_")

    def _fitted_schema(self) -> dict[str, Spec]:
        return {
            "n_features_in_": SizeOf("d"),
            "feature_names_in_": Names("d"),
            "mean_": doubles("d"),
            "scale_": doubles("d", low=TINY),
            "dtype_": Choice(("float32", "float64")),
            "estimator_": Fitted(type(self.estimator), {"d": "d"}),
            "_sklearn_output_config": OutputConfig(),
        }

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, engine: Any = None) -> Self:
        """Measure the columns, then fit the estimator to the scaled rows. If that fails, the model stays what it was.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            As for the estimator.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            How much each row counts, for the means and deviations too; for estimators that know weights.
        engine : dask.distributed.Client or None, default=None
            Whose workers to use for this fit, as for the estimator.

        Returns
        -------
        self
        """
        self._fit(X, sample_weight, FitEnvironment.current(engine, X))
        return self

    def _fit(self, X: Any, sample_weight: Any, environment: FitEnvironment) -> Self:
        """Fit the estimator to the scaled rows in the given environment."""
        self._validate_params()
        with restore_on_error(self):
            source = check_rows(self, resolve_source(X, environment.engine), reset=True)
            weights = check_weights(sample_weight, source.shape[0])
            if hasattr(self.estimator, "_memory"):  # before several numbers for each column are held
                self.estimator._validate_params()
                check_fit(self.estimator, source, weights is not None)
            self.mean_, self.scale_ = scales_of(source, weights, getattr(self.estimator, "n_threads", None))
            scales = np.stack([self.mean_, self.scale_])
            dtype = scaled_dtype(source, scales)
            self.estimator_ = clone(self.estimator)._fit(scaled(source, scales, dtype), weights, environment)
            self.dtype_ = dtype.name
        return self

    def scaled(self, X: Any) -> FileSource:
        """Rows as the estimator gets to see them: what it takes in their place."""
        check_is_fitted(self, list(self._required_attributes))
        check_fitted_state(self, *self._required_attributes, "dtype_")
        source = check_rows(self, X, reset=False)
        fitted = vars(self).get("dtype_")  # not that of the centres, which may be finer than the rows
        if fitted is None:  # a model of an earlier version
            fitted = working_dtype(getattr(self.estimator_, "cluster_centers_", np.empty(0, np.float32)).dtype)
        dtype = np.promote_types(working_dtype(source.dtype), fitted)  # rows of a fit in float64 stay so
        return scaled(source, np.stack([self.mean_, self.scale_]), dtype)

    @lazy_on_dask
    def predict(self, X: Any) -> Array:
        """The cluster of each row.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit, as they are.

        Returns
        -------
        labels : int32 array of shape (n_samples,)
        """
        X = self.scaled(X)
        return np.asarray(self.estimator_.predict(X))

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit, then give `labels_`. The arguments are those of `fit`."""
        return np.asarray(self.fit(X, sample_weight=sample_weight).labels_)

    @lazy_on_dask
    def transform(self, X: Any) -> Array:
        """What the estimator makes of the scaled rows: for most, distances from all centres.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit, as they are.

        Returns
        -------
        out : array of shape (n_samples, n_clusters)
        """
        X = self.scaled(X)
        return np.asarray(self.estimator_.transform(X))

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit, then `transform` the same rows. The arguments are those of `fit`."""
        return np.asarray(self.fit(X, sample_weight=sample_weight).transform(X))

    @available_if(lambda self: hasattr(self.estimator, "score"))
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The estimator's score of the scaled rows: for most, minus their energy.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit, as they are.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            How much each row counts; None for 1 each.

        Returns
        -------
        score : float
        """
        X = self.scaled(X)
        return float(self.estimator_.score(X, sample_weight=sample_weight))

    def __getattr__(self, name: str) -> Any:
        """What the estimator has learned."""
        fitted = vars(self).get("estimator_")
        missing = object()  # asked for once: to look twice at each level would take 2^levels if they are nested
        found = missing if fitted is None or not name.endswith("_") or name.startswith("_") else getattr(fitted, name, missing)
        if found is missing:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name != "cluster_centers_":
            return found
        C = np.asarray(found)
        if C.dtype.kind != "f" or C.shape[1] != len(self.mean_):
            raise AttributeError(f"The centres of {type(fitted).__name__} have no place among the rows: see estimator_.")
        return (C * self.scale_ + self.mean_).astype(C.dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.estimator_._n_features_out)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
