"""`Standardized`: fit another estimator to rows whose columns are scaled to mean 0 and variance 1."""

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
from .schema import Choice, Fitted, Names, OutputConfig, PreprocessingSpec, SizeOf, Spec, check_fitted_state, doubles


def scales_of(source: Source, weights: Array | None = None, n_threads: int | None = None) -> Array:
    """Return the mean and standard deviation of each column; means of 0 for sparse rows, whose zeros must remain zeros."""
    with on_threads(Rows.of(source, weights), n_threads) as rows:
        scales = column_scales(rows)
        scales[0] *= not rows.is_sparse
    preprocessing = getattr(source, "preprocessing", None)
    if preprocessing is not None:
        scales[1] = preprocessing.pooled_scales(scales[1])
    return scales


SMALLEST_SCALE = 5e-324  # smallest positive float64; columns are divided by the scale


class Standardized(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, MetaEstimatorMixin, BaseEstimator):
    """Scale columns to mean 0 and variance 1 before clustering, so that results do not depend on the units of columns.

    Rows are scaled block by block as they are read, so files may be larger than memory. Columns of sparse rows are divided by
    their standard deviation only, so that zeros remain zeros. `fit`, `predict`, `transform` and `score` take unscaled rows.

    Parameters
    ----------
    estimator : estimator
        Estimator of this package. A clone of it is fitted.

    Attributes
    ----------
    estimator_ : estimator
        The clone, fitted to the scaled rows. Its fitted attributes are available here too: `labels_`, `inertia_` (of the scaled
        rows), `history_` and all others.
    mean_, scale_ : arrays of shape (n_features,)
        Values subtracted from the columns, and values by which they are then divided (1 for constant columns).
    dtype_ : "float32" or "float64"
        Type of the scaled rows of the fit. New rows are scaled to it unless their type is wider.
    cluster_centers_ : array of shape (n_clusters, n_features)
        Centroids in the units of X, if the estimator has centroids in the space of the rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    KMeans : Exact k-means.
    sklearn.preprocessing.StandardScaler : Scale arrays in memory.

    Notes
    -----
    `fit` reads the rows once more than the estimator does, to compute means and variances. The features of a category (see
    `open_rows`) share one scale, with which their variances add up to 1, so that a category counts as much as one column.

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
            "preprocessing_": PreprocessingSpec("d"),
            "mean_": doubles("d"),
            "scale_": doubles("d", low=SMALLEST_SCALE),
            "dtype_": Choice(("float32", "float64")),
            "estimator_": Fitted(type(self.estimator), {"d": "d"}),
            "_sklearn_output_config": OutputConfig(),
        }

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, engine: Any = None) -> Self:
        """Compute the scales of the columns, then fit the estimator to the scaled rows. On error, the model remains unchanged.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows, as for the estimator.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            Weight of each row, also in the means and variances; for estimators that support weights.
        engine : dask.distributed.Client or None, default=None
            Client whose workers to use for this fit, as for the estimator.

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
            if hasattr(self.estimator, "_memory"):  # before arrays as long as the rows are allocated
                self.estimator._validate_params()
                check_fit(self.estimator, source, weights is not None)
            self.mean_, self.scale_ = scales_of(source, weights, getattr(self.estimator, "n_threads", None))
            scales = np.stack([self.mean_, self.scale_])
            dtype = scaled_dtype(source, scales)
            self.estimator_ = clone(self.estimator)._fit(scaled(source, scales, dtype), weights, environment)
            self.dtype_ = dtype.name
        return self

    def scaled(self, X: Any) -> FileSource:
        """Return the scaled rows of X, which `estimator_` accepts in place of X."""
        check_is_fitted(self, list(self._required_attributes))
        check_fitted_state(self, *self._required_attributes, "dtype_")
        source = check_rows(self, X, reset=False)
        fitted = vars(self).get("dtype_")  # not the dtype of the centroids, which may be wider
        if fitted is None:  # model of an earlier version
            fitted = working_dtype(getattr(self.estimator_, "cluster_centers_", np.empty(0, np.float32)).dtype)
        dtype = np.promote_types(working_dtype(source.dtype), fitted)  # never narrower than in the fit
        return scaled(source, np.stack([self.mean_, self.scale_]), dtype)

    @lazy_on_dask
    def predict(self, X: Any) -> Array:
        """Predict the cluster of each row.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Unscaled rows with the columns of the fit.

        Returns
        -------
        labels : int32 array of shape (n_samples,)
        """
        X = self.scaled(X)
        return np.asarray(self.estimator_.predict(X))

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit and return `labels_`. The arguments are those of `fit`."""
        return np.asarray(self.fit(X, sample_weight=sample_weight).labels_)

    @lazy_on_dask
    def transform(self, X: Any) -> Array:
        """Transform the scaled rows with the estimator: for most estimators, to distances from all centroids.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Unscaled rows with the columns of the fit.

        Returns
        -------
        out : array of shape (n_samples, n_clusters)
        """
        X = self.scaled(X)
        return np.asarray(self.estimator_.transform(X))

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit and return `transform` of the same rows. The arguments are those of `fit`."""
        return np.asarray(self.fit(X, sample_weight=sample_weight).transform(X))

    @available_if(lambda self: hasattr(self.estimator, "score"))
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the score of the scaled rows: for most estimators, their negative inertia.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Unscaled rows with the columns of the fit.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            Weight of each row; None for weight 1.

        Returns
        -------
        score : float
        """
        X = self.scaled(X)
        return float(self.estimator_.score(X, sample_weight=sample_weight))

    def __getattr__(self, name: str) -> Any:
        """Return a fitted attribute of the estimator."""
        fitted = vars(self).get("estimator_")
        missing = object()  # one lookup per level: two would take 2^levels for nested models
        found = missing if fitted is None or not name.endswith("_") or name.startswith("_") else getattr(fitted, name, missing)
        if found is missing:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name != "cluster_centers_":
            return found
        C = np.asarray(found)
        if C.dtype.kind != "f" or C.shape[1] != len(self.mean_):
            raise AttributeError(f"The centroids of {type(fitted).__name__} are not in the space of X: see estimator_.")
        return (C * self.scale_ + self.mean_).astype(C.dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.estimator_._n_features_out)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
