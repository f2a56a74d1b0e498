"""From rows to clusters by way of an embedding: what all spectral estimators share.

A method finds, for each row, its entries in a few eigenvectors; k-means on them gives the clusters. New rows are embedded
by Nystroem's extension: an eigenvector's entry for a row is the mean of its entries for the rows that are like it, over
the eigenvalue.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..data.cancellation import now
from ..data.frame import Frame
from ..data.pca import of_unit_length
from ..data.rows import Rows
from ..data.sources import DenseSource
from ..data.statistics import check_values
from ..data.types import Array, warn
from ..execution.deadline import LEEWAY
from ..execution.engine import lazy_on_dask, resolve_source
from ..execution.memory import Workload
from ..execution.memory_limit import plan_fit
from ..execution.threads import Threads, on_threads
from ..fit import schema
from ..fit.callbacks import report_step
from ..fit.centroid_model import restore_on_error
from ..fit.checkpoint import CheckpointSession, open_session
from ..fit.checkpoint_validation import is_valid_run
from ..fit.environment import FitEnvironment
from ..fit.input import check_rows
from ..fit.loop import REASONS, Limits, RunResult
from ..fit.parameters import MAX_THREADS, Count
from ..fit.random_streams import resolve_seed
from ..fit.schema import OneOf, Parts, Spec, check_fitted_state, check_unchanged_parameters, floats, matches
from ..fit.shuffle import keys_of
from ..kmeans.kmeans import KMeans
from .affinity import SAMPLE
from .affinity_factory import GIVEN, KERNEL, NEIGHBOR_ROWS, Reach
from .laplacian import inverse_root
from .tiles import COLUMN_NUMBERS, FEW, SIDE

OF_SOME = (  # parameters, their defaults, and the affinities that they are for
    ("sigma", None, ("rbf", "rbf-norm")),
    ("n_neighbors", None, ("knn", "self-tuning")),
    ("neighbors", "exact", ("knn",)),
)
NOISE = 1e-6  # an eigenvalue of a positive matrix that is nothing but rounding
STEPS_SHARE = 0.75  # of the time that is left when the steps begin; the rest is for k-means
STILL = 3  # times tol: a change that is told of where steps have come to an end


class SpectralInfo(NamedTuple):
    """What one step learned."""

    objective: float
    change: float
    columns: int
    flops: int


class Map(NamedTuple):
    """From a row's affinities a to its entries: a P / sqrt(a q)."""

    reach: Reach
    P: Array  # (b, k)
    q: Array  # (b)

    def embed(self, new: Rows) -> tuple[Array, Array]:
        """Entries of new rows, and which of them are like any row at all."""
        out = self.reach.against(new, np.column_stack([self.P, self.q]))
        s = inverse_root(out[:, -1])
        return out[:, :-1] * s[:, None], s > 0


class Extension(NamedTuple):
    """How rows are embedded: those of the fit are recognised, new ones are mapped."""

    map: Any  # with embed(rows) -> (entries, which are like any row)
    frame: Frame
    keys: Array  # of the rows of the fit, in order; none of precomputed affinities
    places: Array  # where these rows are


class EmbeddingResult(NamedTuple):
    """What a method found."""

    vectors: Array  # (n, k)
    values: Array  # (k), the largest first
    rows: Rows  # in the frame in which they were compared
    map: Any
    outcome: RunResult


def zeros(shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
    """An example of an array, which takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def is_clustering(found: Any, asked: KMeans, points: Array) -> bool:
    """Whether a model from a checkpoint is what a fit of another one to these points could have left."""
    n, d = points.shape
    if not matches(schema.Fitted(KMeans, {"n": "n", "d": "d", "k": "k"}), found, {"n": n, "d": d, "k": asked.n_clusters}):
        return False
    given = clone(found).set_params(time_budget=asked.time_budget).get_params()
    if repr(given) != repr(asked.get_params()) or not {"cluster_centers_", "labels_"} <= set(vars(found)):
        return False
    return bool(np.array_equal(found.predict(points), found.labels_))


def tell_of_flat(values: Array, least: float, so: str) -> Array:
    """Which eigenvalues are above what may be noise; the user is told of the others."""
    there: Array = values > least
    if not there.all():
        warn(
            f"Only {there.sum()} of the n_clusters={len(there)} leading eigenvalues are positive: {so}; ask for fewer "
            "clusters.",
            ConvergenceWarning,
        )
    return there


class BaseSpectralClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC):
    """Estimators that cluster an embedding of the rows. A subclass embeds."""

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
    labels_: Array
    embedding_: Array
    _fit_parameters: dict[str, Any]
    _model_parameters: ClassVar[tuple[str, ...]] = ("normalize",)
    _required_attributes: ClassVar[tuple[str, ...]] = ("n_features_in_", "embedding_", "extension_", "kmeans_")

    def _fitted_schema(self) -> dict[str, Spec]:
        """Specs of the attributes that a fit sets, in the order in which they are checked.

        Sizes: "e" eigenvectors, "b" rows that new ones are compared with, "u" distinct rows of the fit.
        """
        keys = schema.ArraySpec(("u",), ("uint64", "int64"), increasing=True, may_be_empty=True)
        places = schema.ArraySpec(("u",), ("int64",), 0, "n", may_be_empty=True)
        extension = {"map": self._map_spec(), "frame": schema.frame(), "keys": keys, "places": places}
        return {
            "n_features_in_": schema.SizeOf("d"),
            "feature_names_in_": schema.Names("d"),
            "_fit_parameters": schema.ParameterValues(self._model_parameters),
            "embedding_": floats("n", "e"),
            "eigenvalues_": schema.doubles("e"),
            "extension_": Parts(Extension, extension),
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
        """What embeds new rows."""
        entries = {"P": floats("b", "e"), "q": floats("b")}
        computed = [Parts(Map, {"reach": reach, **entries}) for reach in (KERNEL, NEIGHBOR_ROWS)]
        return OneOf((Parts(Map, {"reach": GIVEN, "P": floats("d", "e"), "q": floats("d")}), *computed))

    def _validate_params(self) -> None:
        super()._validate_params()
        affinity = getattr(self, "affinity", "")
        for name, rest, users in OF_SOME:
            value = getattr(self, name, rest)
            if affinity and value != rest and affinity not in users:
                raise ValueError(
                    f"{name}={value!r} is for {' and '.join(users)}, but affinity='{affinity}' makes no use of it: leave it at "
                    f"{rest!r}."
                )

    @property
    def _not_distributable_because(self) -> str:
        """Why workers elsewhere can't do it; nothing, if they can."""
        affinity, store = getattr(self, "affinity", "rbf"), getattr(self, "store", False)
        if affinity in ("rbf", "rbf-norm") and not store:
            return ""
        return f"affinity='{affinity}'{', stored,' * bool(store)} compares all rows with all others: take affinity='rbf'"

    @abstractmethod
    def _embed(self, rows: Rows, X: Any, session: CheckpointSession, deadline: float | None) -> EmbeddingResult:
        """Eigenvectors of the rows of X, and how to embed others."""

    def fit(self, X: Any, y: Any = None, *, engine: Any = None) -> Self:
        """Cluster the rows of X. If that fails, the model stays what it was.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Real numbers, finite, as for `KMeans`. Rows are read in blocks, so that a memory map may be larger than memory.
        y : ignored
        engine : dask.distributed.Client or None, default=None
            Whose workers to use for this fit, as for `KMeans.fit`.

        Returns
        -------
        self
        """
        self._fit(X, None, FitEnvironment.current(engine, X))
        return self

    def _fit(self, X: Any, sample_weight: Any, environment: FitEnvironment) -> Self:
        """Cluster the rows of X in the given environment."""
        if sample_weight is not None:
            raise TypeError(f"{type(self).__name__} takes no sample_weight.")
        budget = getattr(self, "time_budget", None)
        deadline = None if budget is None else environment.started + budget
        self._validate_params()
        with restore_on_error(self):
            source = check_rows(self, resolve_source(X, environment.engine), reset=True)
            n, k = source.shape[0], self.n_clusters
            if n < k:
                raise ValueError(f"n_samples={n} should be >= n_clusters={k}: ask for fewer clusters.")
            seed = resolve_seed(self.random_state)
            rows = Rows.of(source)
            plan = plan_fit(self, rows, environment.memory_limit, environment.outer_plan)
            with (
                Threads(plan.n_threads) as executor,
                open_session(self, source, None, seed, environment.checkpoint) as session,
            ):
                session.inner = lambda stage: environment.inner(plan, session.nested_store(stage))
                rows = rows.with_executor(executor).with_copy_limit(plan.spare(math.inf))
                found = self._embed(rows, X, session, deadline)
                self._set_fitted_attributes(found.rows, found, session, deadline)
        return self

    _center_arrays: ClassVar[tuple[float, float]] = (0, 0)
    _dense_shares: ClassVar[bool] = False

    def _init_memory(self, load: Workload) -> float:
        """Return the bytes of the start; the eigenvectors take more."""
        return 0.0

    def _fits_before(self) -> Sequence[Any]:
        """Estimators that are fitted to the same rows first, within the plan of this one."""
        return ()

    def _memory(self, load: Workload) -> dict[str, float]:
        """Bytes that a fit holds for all rows and for those that they are compared with at a time."""
        n, sample = load.n, min(load.n, SAMPLE)
        compared = 3.0 * load.wide * load.d * self._compared_with(load)
        return {
            "eigenvectors": n * self.n_clusters * (16.0 + 3 * load.wide),
            "keys and labels": 64.0 * n,
            "rows to compare with": max(compared, 64.0 * sample**2 + sample * load.numbers * (load.itemsize + load.wide + 8.0)),
        }

    def _compared_with(self, load: Workload) -> int:
        """How many dense rows all others are compared with at a time."""
        return min(load.n, SIDE, max(FEW, COLUMN_NUMBERS // load.d))

    def _set_fitted_attributes(
        self, rows: Rows, found: EmbeddingResult, session: CheckpointSession, deadline: float | None
    ) -> None:
        W = found.vectors
        keys, places = np.empty((2, 0), np.int64)
        if not self._is_pairwise():
            keys, places, groups = np.unique(keys_of(rows), return_index=True, return_inverse=True)
            if len(keys) < len(rows):  # equal rows have equal entries in every eigenvector: whatever differs is error
                counts = np.bincount(groups)
                sums = [np.bincount(groups, column) / counts for column in W.T]
                W = np.stack(sums, axis=1).astype(W.dtype)[groups]
        self.embedding_ = W
        self.eigenvalues_ = found.values
        self.history_ = found.outcome.history
        self.stop_reason_ = found.outcome.reason
        self.n_iter_ = len(self.history_)
        self.extension_ = Extension(found.map, rows.frame, keys, places)
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=session.seed, n_threads=self.n_threads)
        if deadline is not None:
            kmeans.time_budget = max(deadline - now(), LEEWAY)
        points = self._points(W)
        assert session.inner is not None
        inner = partial(kmeans._fit, points, None, session.inner("clusters"))
        self.kmeans_ = session.once("clusters", inner, lambda kept: is_clustering(kept, kmeans, points))
        self.labels_ = self.kmeans_.labels_
        self._fit_parameters = {name: getattr(self, name) for name in self._model_parameters}
        if not np.isfinite(W).all():
            raise ValueError("The embedding is not finite, though the rows of X were: X was changed during the fit; fit again.")

    def _points(self, W: Array) -> Array:
        """What k-means gets to see."""
        return of_unit_length(W) if self.normalize else W

    def _drive(
        self,
        session: CheckpointSession,
        step: Callable[[Any], tuple[Any, SpectralInfo]],
        begin: Callable[[], Any],
        done: Callable[[Any, SpectralInfo], bool],
        limits: Limits,
        sibling: Mapping[str, int] = MappingProxyType({}),
        *,
        like: Any,
    ) -> RunResult:
        """`beside`: what the way to the first step and from the last one takes, which the first record is to hold too.

        `like`: an example of a state, by which one from a checkpoint is judged.
        """

        def tell(record: dict[str, Any], _: Any) -> bool:
            if record["step"] == 1:
                record.update({key: record[key] + more for key, more in sibling.items()})
            return report_step(self, record)

        def is_sound(kept: Any) -> bool:
            return is_valid_run(kept, like, 0, self.n_clusters, SpectralInfo)

        outcome = session.drive("eigenvectors", step, begin, done, limits.part(STEPS_SHARE), [tell], is_sound)
        tol = getattr(self, "tol", 0)
        if outcome.reason == "max_iter" and outcome.info.change > STILL * tol > 0:
            warn(
                f"The subspace still changed by {outcome.info.change:.2g} in the last of max_iter={limits.max_iter} steps "
                f"(tol={tol}): clusters may be wrong; raise max_iter, or take `ExactSpectral`.",
                ConvergenceWarning,
            )
        return outcome

    def _at_once(self, session: CheckpointSession, step: Callable[[], tuple[Any, SpectralInfo]], like: Any) -> RunResult:
        """A method of one step."""
        return self._drive(session, lambda _: step(), lambda: None, lambda state, info: True, Limits(1), like=like)

    @lazy_on_dask
    def transform(self, X: Any) -> Array:
        """The rows' entries in the eigenvectors: those of `embedding_` for rows of the fit, else by Nystroem's extension.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit; for a precomputed affinity, their affinities to the rows of the fit.

        Returns
        -------
        embedding : array of shape (n_samples, n_clusters)
        """
        return self._entries(X)

    def _entries(self, X: Any) -> Array:
        check_is_fitted(self, list(self._required_attributes))
        self._validate_params()
        check_fitted_state(self, *self._required_attributes, "_fit_parameters")
        check_unchanged_parameters(self)
        source = check_rows(self, X, reset=False)
        known = self.extension_
        with on_threads(Rows.of(source, frame=known.frame), self.n_threads) as rows:
            rows.for_each_raw(check_values, False)
            out = np.zeros((len(rows), self.embedding_.shape[1]), self.embedding_.dtype)
            new = np.arange(len(rows))
            if len(known.keys):
                keys = keys_of(rows)
                at = np.searchsorted(known.keys, keys).clip(max=len(known.keys) - 1)
                new = np.flatnonzero(known.keys[at] != keys)
                out[:] = self.embedding_[known.places[at]]
            if rows.is_sparse and known.frame.shift is not None:  # zeros don't stay zeros
                rows = rows.sibling(DenseSource(source), frame=known.frame)
            if len(new):
                out[new], like = known.map.embed(rows if len(new) == len(rows) else rows.subset(new, len(known.keys)))
                self._tell_of_strangers(new[~like])
        return out

    def _tell_of_strangers(self, alone: Array) -> None:
        if len(alone):
            warn(
                f"{len(alone)} rows of X are like no row of the fit (the first is row {alone[0]}): they are embedded at zero.",
                UserWarning,
            )

    @lazy_on_dask
    def predict(self, X: Any) -> Array:
        """The cluster of each row: that of its embedding.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            As for `transform`.

        Returns
        -------
        labels : int32 array of shape (n_samples,)
        """
        W = self._entries(X)
        labels: Array = self.kmeans_.predict(self._points(W))
        return labels

    def _is_pairwise(self) -> bool:
        return getattr(self, "affinity", "") == "precomputed"

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self._is_pairwise()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
