"""Base class of all k-means estimators: parameters, `fit` and fitted attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.frame import Frame
from ..data.rows import Rows
from ..data.types import Array, warn
from ..data.validation import check_centers, check_same_columns, check_weights
from ..execution.memory import Workload
from . import partition
from .callbacks import with_callbacks
from .centroid_model import MAX_COORDINATE, BaseCentroidModel
from .context import FitContext, open_fit
from .environment import FitEnvironment
from .finalize import published_centers
from .initializers import Initialization, Initializers, InitParameters
from .parameters import MAX_THREADS, Count
from .restarts import FitResult, run
from .solver import Solver

TIME_BUDGET_TOO_SHORT = (
    "time_budget={:g} seconds are too short for this many rows and clusters, so that the result may be worse than it could be "
    "(allow more time, or ask for fewer clusters or another init)"
)


class BaseCentroidClusterer(BaseCentroidModel, ABC):
    """Base class of estimators that move initial centroids. A subclass adds its parameters and its solver."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Count()],
        "init": [StrOptions({"k-means++", "k-means||", "afk-mc2", "random"}), callable, "array-like", "sparse matrix"],
        "n_init": [StrOptions({"auto"}), Count()],
        "max_iter": [Count()],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="right"), None],
        "metric": [StrOptions({"euclidean", "cosine"})],
        "random_state": ["random_state", np.random.Generator],
        "n_threads": [Count(MAX_THREADS), None],
        "callback": [callable, None],
        "verbose": ["verbose"],
    }

    _initializers: ClassVar[Initializers]
    _center_arrays: ClassVar[tuple[float, float]] = (3, 5)  # centroid-sized arrays: in float64, in the dtype of the rows
    _dense_shares: ClassVar[bool] = False  # whether block sums have all columns even if rows are sparse

    n_clusters: int
    init: Any
    n_init: int | str
    max_iter: int
    tol: float
    time_budget: float | None
    random_state: Any
    callback: Callable[[dict[str, Any]], bool | None] | None
    verbose: int

    @abstractmethod
    def _make_solver(self, context: FitContext) -> Solver:
        """Return the solver of the method for the rows of the context."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, engine: Any = None) -> Self:
        """Cluster the rows of X. On error, the model remains unchanged.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Finite real numbers: a NumPy array or memory map, a SciPy sparse matrix, a pandas, polars or pyarrow table, a dask
            collection, or rows of a file (`open_rows`). float16, float32 and integers of 8 or 16 bits are clustered in float32,
            unless their range is so large that it would round some of them; all others in float64. Sums are always float64.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            Weight of each row, equivalent to repeating the row; None for weight 1. A row of weight 0 gets a label, but does
            not influence the centroids.
        engine : dask.distributed.Client or None, default=None
            Client whose workers to use for this fit (see `Engine`). None for the workers of the current client if X is a dask
            collection, and for threads otherwise.

        Returns
        -------
        self
        """
        self._fit(X, sample_weight, FitEnvironment.current(engine, X))
        return self

    @with_callbacks
    def _fit(self, X: Any, sample_weight: Any, environment: FitEnvironment) -> Self:
        """Cluster the rows of X in the given environment: the body of `fit`, also of fits inside other fits."""
        with open_fit(self, X, sample_weight, environment) as context:
            context = self._prepare(context)
            solver = self._make_solver(context)
            result = run(solver, context)
            self._set_fitted_attributes(result)
            self._warn_about_quality(context)
            context.reporter.close()
        return self

    def _prepare(self, context: FitContext) -> FitContext:
        """Return the context with the rows that the solver works on."""
        return context.prepared(self)

    def _warn_about_quality(self, context: FitContext) -> None:
        """Warn if the time budget was too short for a good result, or if clusters are empty."""
        rows = context.input_rows
        found = int(np.count_nonzero(partition.sizes(self.labels_, self.n_clusters, rows.weights)))
        if context.skipped:
            warn(f"{TIME_BUDGET_TOO_SHORT.format(self.time_budget)}: {'; '.join(context.skipped)}.", ConvergenceWarning)
        elif found < self.n_clusters:
            warn(self._explain_empty_clusters(found, rows), ConvergenceWarning)

    def _memory(self, load: Workload) -> dict[str, float]:
        """Return the bytes that a fit holds for all rows, in addition to centroids and blocks, by purpose."""
        random = callable(self.init) or (isinstance(self.init, str) and self.init == "random")
        several = random or self.n_init not in ("auto", 1)  # starts, the best of which is held during the next
        best = self.n_clusters * load.d * (8.0 + load.itemsize) * several  # centroids and sums of the best start
        return {"labels": (12.0 if several else 8.0) * load.n, "best start": best}

    def _init_memory(self, load: Workload) -> float:
        """Return the bytes that choosing the initial centroids takes."""
        return self._initializers.memory(load, self.n_clusters, self.init)

    def _fits_before(self) -> Sequence[Any]:
        """Return estimators that are fitted to the same rows first, under the memory plan of this one."""
        return ()

    def _validate_input(self, X: Any, sample_weight: Any) -> tuple[Rows, Array | None]:
        """Return the rows, whose values are checked later, and the centroids if `init` is an array."""
        source = self._source(X, reset=True)
        n, d = source.shape
        weights = check_weights(sample_weight, n)
        if n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}: ask for fewer clusters.")
        given = None
        if not isinstance(self.init, str) and not callable(self.init):
            check_same_columns(self.init, getattr(self, "feature_names_in_", None))
            given = check_centers(self.init, self.n_clusters, d)
        return Rows.of(source, weights, Frame.of(self.metric)), given

    def _initialization(self, X: Any, given: Array | None, seed: int) -> Initialization:
        """Return the starts that the parameters ask for."""
        methods = self._initializers.methods
        return InitParameters(self.n_clusters, self.init, self.n_init, methods, self._given_in_frame, X, given, seed)

    def _given_in_frame(self, rows: Rows, C: Array) -> Array:
        """Return centroids that the user has passed in the frame of the rows."""
        if rows.frame.unit and not C.any(axis=1).all():
            raise ValueError(f"init row {int(np.argmin(C.any(axis=1)))} is all zeros: cosine needs a direction.")
        with np.errstate(over="ignore"):
            X: Any = rows.convert(C).X
        far = np.abs(X).max(axis=1)
        if far.max() > MAX_COORDINATE[rows.dtype]:
            raise ValueError(
                f"init row {int(far.argmax())} lies so far from the rows of X that {rows.dtype} can't hold its squared "
                "distances: give centroids nearer to them."
            )
        return X  # type: ignore[no-any-return]

    def _remember(self, rows: Rows) -> None:
        """Store what else a subclass needs of the rows after the fit."""

    def _set_fitted_attributes(self, result: FitResult) -> None:
        """Set the fitted attributes from the best start."""
        rows, outcome = result.context.rows, result.run
        self._frame = rows.frame
        self.inertia_ = rows.frame.energy_out_of(self._energy(result))
        self.cluster_centers_ = published_centers(rows, outcome.state.centers)
        if not np.isfinite(self.cluster_centers_).all():
            raise ValueError("The centroids are not finite, but the rows of X were: X was changed during the fit; fit again.")
        self.labels_ = outcome.state.labels
        self.history_ = outcome.history
        self.stop_reason_ = outcome.reason
        self.n_iter_ = len(outcome.history)
        self._record_parameters()
        self._remember(rows)

    def _energy(self, result: FitResult) -> float:
        """Return the k-means energy of a result in the frame of the rows."""
        return result.loss

    def _explain_empty_clusters(self, found: int, rows: Rows) -> str:
        """Return the warning for a fit that leaves clusters empty."""
        rows_of = "rows of positive weight" if rows.has_weights else "rows"
        return (
            f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}): "
            f"X has too few distinct {rows_of}{self._other_cause_of_empty_clusters()}; use n_clusters={found} or fewer."
        )

    def _other_cause_of_empty_clusters(self) -> str:
        """Return what else may leave clusters empty, as the end of a sentence."""
        return ""
