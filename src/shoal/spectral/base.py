"""The common part of all spectral estimators: parameters, `fit`, fitted attributes, `predict` and `transform`.

A method computes an embedding of the rows: their entries in a few eigenvectors. K-means on the embedding gives the clusters.
New rows are embedded by an extension of the eigenvectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from ..data.cancellation import now
from ..data.pca import of_unit_length
from ..data.rows import Rows
from ..data.sources import DenseSource
from ..data.statistics import check_values, enter_frame
from ..data.types import Array, warn
from ..execution.deadline import LEEWAY
from ..execution.engine import lazy_on_dask
from ..execution.memory import Workload
from ..execution.threads import on_threads
from ..fit import schema
from ..fit.context import FitContext, open_fit
from ..fit.environment import FitEnvironment
from ..fit.input import check_rows
from ..fit.loop import REASONS
from ..fit.parameters import MAX_THREADS, Count
from ..fit.schema import Spec, check_fitted_state, check_unchanged_parameters, floats, matches
from ..fit.shuffle import keys_of
from ..kmeans.kmeans import KMeans
from .affinity import SIGMA_SAMPLE_ROWS
from .extension import Extension, extension_spec, nystrom_map_spec
from .solver import SpectralResult, SpectralSolver, run
from .tiles import MAX_BLOCK_ROWS, MAX_COLUMN_VALUES, MIN_BLOCK_ROWS

AFFINITY_PARAMETERS = (  # name, default, and the affinities that use the parameter
    ("sigma", None, ("rbf",)),
    ("n_neighbors", None, ("knn", "self-tuning")),
    ("neighbors", "exact", ("knn",)),
)


class BaseSpectralClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC):
    """Base class of estimators that cluster an embedding of the rows."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Count()],
        "normalize": ["boolean"],
        "n_init": [Count()],
        "random_state": ["random_state", np.random.Generator],
        "n_threads": [Count(MAX_THREADS), None],
        "callback": [callable, None],
        "verbose": ["verbose"],
    }

    n_clusters: int
    normalize: bool
    n_init: int
    random_state: Any
    n_threads: int | None
    callback: Callable[[dict[str, Any]], bool | None] | None
    verbose: int
    max_iter: int | None = None  # direct methods have neither of these two parameters
    time_budget: float | None = None
    labels_: Array
    embedding_: Array
    eigenvalues_: Array
    kmeans_: KMeans
    sigma_: float | None
    history_: list[dict[str, Any]]
    n_iter_: int
    stop_reason_: str
    extension_: Extension
    n_features_in_: int
    _fit_parameters: dict[str, Any]
    _model_parameters: ClassVar[tuple[str, ...]] = ("normalize",)
    _required_attributes: ClassVar[tuple[str, ...]] = ("n_features_in_", "embedding_", "extension_", "kmeans_")
    _center_arrays: ClassVar[tuple[float, float]] = (0, 0)
    _dense_shares: ClassVar[bool] = False

    @abstractmethod
    def _make_solver(self, context: FitContext) -> SpectralSolver:
        """Return the solver of the method for the rows of the context."""

    def fit(self, X: Any, y: Any = None, *, engine: Any = None) -> Self:
        """Cluster the rows of X. If that fails, the model is left unchanged.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Real numbers, finite, as for `KMeans`. Rows are read in blocks, so that a memory map may be larger than memory.
        y : ignored
            Present for API consistency.
        engine : dask.distributed.Client or None, default=None
            Client whose workers run the fit, as for `KMeans.fit`.

        Returns
        -------
        self
            The fitted estimator.
        """
        return self._fit(X, None, FitEnvironment.current(engine, X))

    def _fit(self, X: Any, sample_weight: Any, environment: FitEnvironment) -> Self:
        """Cluster the rows of X in the given environment: the body of `fit`, also of fits inside other fits."""
        with open_fit(self, X, sample_weight, environment) as context:
            context = self._prepare(context)
            solver = self._make_solver(context)
            result = run(solver, context)
            self._set_fitted_attributes(result)
        return self

    def _validate_input(self, X: Any, sample_weight: Any) -> tuple[Rows, None]:
        """Return validated rows, before their values are read."""
        if sample_weight is not None:
            raise TypeError(f"{type(self).__name__} does not support sample_weight.")
        source = check_rows(self, X, reset=True)
        if source.shape[0] < self.n_clusters:
            message = f"n_samples={source.shape[0]} should be >= n_clusters={self.n_clusters}: ask for fewer clusters."
            raise ValueError(message)
        return Rows.of(source), None

    def _initialization(self, X: Any, given: None, seed: int) -> None:
        """Return None: there are no initial centroids."""

    def _prepare(self, context: FitContext) -> FitContext:
        """Return the context with the rows in the frame in which they are compared. This reads all rows once."""
        return context if self._is_pairwise() else replace(context, rows=enter_frame(context.rows)[0])

    def _validate_params(self) -> None:
        super()._validate_params()
        affinity = getattr(self, "affinity", "")
        for name, default, users in AFFINITY_PARAMETERS:
            value = getattr(self, name, default)
            if affinity and value != default and affinity not in users:
                raise ValueError(
                    f"{name}={value!r} has no effect for affinity='{affinity}', only for {' and '.join(users)}: leave it at "
                    f"{default!r}."
                )

    @property
    def _not_distributable_because(self) -> str:
        """Reason why a fit cannot run on distributed rows; empty if it can."""
        affinity, store = getattr(self, "affinity", "rbf"), getattr(self, "store", False)
        if affinity == "rbf" and not store:
            return ""
        return f"affinity='{affinity}'{', stored,' * bool(store)} compares all rows with all others: use affinity='rbf'"

    def _init_memory(self, load: Workload) -> float:
        """Return the bytes that the initialization takes beyond the eigenvectors."""
        return 0.0

    def _fits_before(self) -> Sequence[Any]:
        """Return the estimators that are fitted to the same rows first, within the memory plan of this one."""
        return ()

    def _memory(self, load: Workload) -> dict[str, float]:
        """Return the bytes that a fit holds for all rows, and for those that they are compared with at a time."""
        n, sample = load.n, min(load.n, SIGMA_SAMPLE_ROWS)
        compared = 3.0 * load.itemsize * load.d * self._n_compared_rows(load)
        sampled = 64.0 * sample**2 + sample * load.numbers * (load.raw_itemsize + load.itemsize + 8.0)
        return {
            "eigenvectors": n * self.n_clusters * (16.0 + 3 * load.itemsize),
            "keys and labels": 64.0 * n,
            "rows to compare with": max(compared, sampled),
        }

    def _n_compared_rows(self, load: Workload) -> int:
        """Return the number of dense rows that all others are compared with at a time."""
        return min(load.n, MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, MAX_COLUMN_VALUES // load.d))

    def _set_fitted_attributes(self, result: SpectralResult) -> None:
        context, rows, deadline = result.context, result.context.rows, result.context.limits.deadline
        W = result.embedding.vectors
        keys, indices = np.empty((2, 0), np.int64)
        if not self._is_pairwise():
            keys, indices, groups = np.unique(keys_of(rows), return_index=True, return_inverse=True)
            if len(keys) < len(rows):  # equal rows have equal entries in every eigenvector: differences are errors
                counts = np.bincount(groups)
                means = [np.bincount(groups, column) / counts for column in W.T]
                W = np.stack(means, axis=1).astype(W.dtype)[groups]
        self.embedding_ = W
        self.eigenvalues_ = result.embedding.eigenvalues
        self.sigma_ = result.solver.sigma
        self.history_ = result.run.history
        self.stop_reason_ = result.run.reason
        self.n_iter_ = len(self.history_)
        self.extension_ = Extension(result.embedding.map, rows.frame, keys, indices)
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=context.seed, n_threads=self.n_threads)
        if deadline is not None:
            kmeans.time_budget = max(deadline - now(), LEEWAY)
        points = self._points(W)
        is_valid = partial(is_valid_clustering, unfitted=kmeans, points=points)
        fit = partial(kmeans._fit, points, None, context.inner("clusters"))
        self.kmeans_ = context.session.once("clusters", fit, is_valid)
        self.labels_ = self.kmeans_.labels_
        self._fit_parameters = {name: getattr(self, name) for name in self._model_parameters}
        if not np.isfinite(W).all():
            raise ValueError("The embedding is not finite, though the rows of X were: X was changed during the fit; fit again.")

    def _points(self, W: Array) -> Array:
        """Return the points that k-means clusters, given an embedding."""
        return of_unit_length(W) if self.normalize else W

    @lazy_on_dask
    def transform(self, X: Any) -> Array:
        """Embed rows: by `embedding_` if they are rows of the fit, by an extension of the eigenvectors otherwise.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the features of the fit. For a precomputed affinity, their affinities to the rows of the fit.

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_clusters)
            Entries of the rows in the eigenvectors. Rows without affinity to any row of the fit are zero.
        """
        return self._transform(X)

    def _transform(self, X: Any) -> Array:
        check_is_fitted(self, list(self._required_attributes))
        self._validate_params()
        check_fitted_state(self, *self._required_attributes, "_fit_parameters")
        check_unchanged_parameters(self)
        source = check_rows(self, X, reset=False)
        extension = self.extension_
        with on_threads(Rows.of(source, frame=extension.frame), self.n_threads) as rows:
            rows.for_each_raw(check_values, False)
            out = np.zeros((len(rows), self.embedding_.shape[1]), self.embedding_.dtype)
            new = np.arange(len(rows))
            if len(extension.keys):
                keys = keys_of(rows)
                at = np.searchsorted(extension.keys, keys).clip(max=len(extension.keys) - 1)
                new = np.flatnonzero(extension.keys[at] != keys)
                out[:] = self.embedding_[extension.indices[at]]
            if rows.is_sparse and extension.frame.shift is not None:  # zeros do not stay zero
                rows = rows.sibling(DenseSource(source), frame=extension.frame)
            if len(new):
                new_rows = rows if len(new) == len(rows) else rows.subset(new, len(extension.keys))
                out[new], connected = extension.map.embed(new_rows)
                self._warn_about_isolated_rows(new[~connected])
        return out

    def _warn_about_isolated_rows(self, isolated: Array) -> None:
        """Warn about new rows without affinity to any row of the fit."""
        if len(isolated):
            warn(
                f"{len(isolated)} rows of X have no affinity to any row of the fit (the first is row {isolated[0]}): they are "
                "embedded at zero.",
                UserWarning,
            )

    @lazy_on_dask
    def predict(self, X: Any) -> Array:
        """Return the cluster of each row: the cluster of its embedding.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows as for `transform`.

        Returns
        -------
        labels : ndarray of shape (n_samples,), dtype int32
            Cluster of each row.
        """
        W = self._transform(X)
        labels: Array = self.kmeans_.predict(self._points(W))
        return labels

    def _is_pairwise(self) -> bool:
        return getattr(self, "affinity", "") == "precomputed"

    def _fitted_schema(self) -> dict[str, Spec]:
        """Return the specs of the attributes that a fit sets, in the order in which they are checked.

        Sizes: "e" eigenvectors, "b" rows that new ones are compared with, "u" distinct rows of the fit.
        """
        return {
            "n_features_in_": schema.SizeOf("d"),
            "feature_names_in_": schema.Names("d"),
            "preprocessing_": schema.PreprocessingSpec("d"),
            "_fit_parameters": schema.ParameterValues(self._model_parameters),
            "embedding_": floats("n", "e"),
            "eigenvalues_": schema.doubles("e"),
            "extension_": extension_spec(self._map_spec()),
            "kmeans_": schema.Fitted(KMeans, {"n": "n", "d": "e", "k": "k"}),
            "labels_": schema.labels("n", "k"),
            "sigma_": schema.optional(schema.Number(0)),
            "degree_error_": schema.Number(0),
            "n_iter_": schema.count(),
            "history_": schema.History(),
            "stop_reason_": schema.Choice(REASONS),
            "_sklearn_output_config": schema.OutputConfig(),
        }

    def _map_spec(self) -> Spec:
        """Return the spec of the map that embeds new rows."""
        return nystrom_map_spec()

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self._is_pairwise()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def is_valid_clustering(saved: Any, unfitted: KMeans, points: Array) -> bool:
    """Return whether a model from a checkpoint is a possible result of fitting `unfitted` to these points."""
    n, d = points.shape
    symbols = {"n": n, "d": d, "k": unfitted.n_clusters}
    if not matches(schema.Fitted(KMeans, {"n": "n", "d": "d", "k": "k"}), saved, symbols):
        return False
    parameters = clone(saved).set_params(time_budget=unfitted.time_budget).get_params()
    if repr(parameters) != repr(unfitted.get_params()) or not {"cluster_centers_", "labels_"} <= set(vars(saved)):
        return False
    return bool(np.array_equal(saved.predict(points), saved.labels_))
