"""From the call of `fit` to a fitted model, for all methods that move centres: parameters, starts, the end of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.cancellation import TimeUp, now, time_limit
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.statistics import Moments, enter_frame
from ..data.types import Array, warn
from ..data.validation import check_centers, check_same_columns, check_weights
from ..execution.deadline import NO_DEADLINE, Deadline, budget_start
from ..execution.engine import engine_context
from ..execution.memory import Workload, plan_wider, planned
from ..execution.threads import Threads
from ..execution.time_estimate import labelling_seconds
from . import partition
from .callbacks import CallbackHooks, report_step, with_callbacks
from .centroid_model import NEAR, BaseCentroidModel, restore_on_error
from .checkpoint import CheckpointSession, open_session
from .checkpoint_validation import is_valid_run, matches_template
from .initializers import Initializers
from .loop import Limits, RunResult, drive
from .parameters import ATTRIBUTES, MAX_THREADS, PARAMETERS, Count, share_docs
from .partition import Assign, Partition
from .random_streams import generator, resolve_seed
from .restarts import RestartState
from .solver import Solver

TOO_SHORT = (
    "time_budget={:g} seconds are too short for this many rows and clusters, so that the result may be worse than it could be "
    "(allow more time, or ask for fewer clusters or another init)"
)

IN_SQUARES = {"energy", "shift", "newest"}  # what a step may tell that has the unit of a squared distance


class BaseCentroidClusterer(BaseCentroidModel, ABC):
    """Estimators that start from centres and move them. A subclass names its method and its own parameters."""

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
    _center_arrays: ClassVar[tuple[float, float]] = (3, 5)  # as large as the centres: of float64, and of the rows' dtype
    _dense_shares: ClassVar[bool] = False  # whether what a block adds to the sums has all columns even if rows are sparse

    n_clusters: int
    init: Any
    n_init: int | str
    max_iter: int
    tol: float
    time_budget: float | None
    random_state: Any
    callback: Callable[[dict[str, Any]], bool | None] | None
    verbose: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        share_docs(cls, PARAMETERS, ATTRIBUTES)

    @abstractmethod
    def _make_solver(self, rows: Rows, moments: Moments, seed: int) -> Solver:
        """Return the solver, prepared for these rows."""

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, engine: Any = None) -> Self:
        """Cluster the rows of X. If that fails, the model stays what it was.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Real numbers, finite: a NumPy array or memory map, a SciPy sparse matrix, a table of pandas, polars or pyarrow.
            float16, float32 and integers of 8 or 16 bits are clustered in float32, which holds them, unless rows lie so far
            apart that it would round some of them; all else in float64. Sums are float64 either way.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            How much each row counts, as if it were there so many times; None for 1 each. A row of weight 0 gets a label
            and has no say.
        engine : dask.distributed.Client or None, default=None
            Whose workers to use for this fit (see `Engine`); None for those of the current client, if X is a dask
            collection, else threads of this process.

        Returns
        -------
        self
        """
        started = budget_start()
        self._validate_params()
        limits = Limits(self.max_iter, None if self.time_budget is None else started + self.time_budget)
        with engine_context(engine, X), restore_on_error(self):
            rows, given = self._validate_input(X, sample_weight)
            weights = rows.weights if rows.has_weights else None
            seed = resolve_seed(self.random_state)
            with (
                planned(self, rows) as n_threads,
                Threads(n_threads) as executor,
                open_session(self, rows.source, weights, seed) as session,
            ):
                rows = rows.with_executor(executor)
                skipped = self._fit_rows(rows, given, X, limits._replace(rows=len(rows)), session)
                found = int(np.count_nonzero(partition.sizes(self.labels_, self.n_clusters, rows.weights)))
                if skipped:
                    warn(f"{TOO_SHORT.format(self.time_budget)}: {'; '.join(skipped)}.", ConvergenceWarning)
                elif found < self.n_clusters:
                    warn(self._why_few(found, rows), ConvergenceWarning)
        return self

    def _memory(self, load: Workload) -> dict[str, float]:
        """Bytes that a fit holds for all rows, beside centres and blocks."""
        random = callable(self.init) or (isinstance(self.init, str) and self.init == "random")
        several = random or self.n_init not in ("auto", 1)  # starts, of which the best one is kept
        best = self.n_clusters * load.d * (8.0 + load.wide) * several  # its centres and sums
        return {"labels": (12.0 if several else 8.0) * load.n, "best start": best}

    def _init_memory(self, load: Workload) -> float:
        """Return the bytes that choosing the initial centroids takes."""
        return self._initializers.memory(load, self.n_clusters, self.init)

    def _fits_before(self) -> Sequence[Any]:
        """Estimators that are fitted to the same rows first, within the plan of this one."""
        return ()

    def _validate_input(self, X: Any, sample_weight: Any) -> tuple[Rows, Array | None]:
        """Checked rows, before their values are looked at, and the centres that `init` gives."""
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

    def _fit_rows(self, rows: Rows, given: Array | None, X: Any, limits: Limits, session: CheckpointSession) -> list[str]:
        """The fit to opened rows, from where `init` says if it gives centres. Returns what the time was too short for."""
        begun = now()
        rows, moments = enter_frame(rows)
        plan_wider(self, rows)
        first_pass = now() - begun
        session.agree("the variance of X", moments.variance)
        seed = session.seed
        solver = self._make_solver(rows, moments, seed)
        hooks = CallbackHooks(self, X, lambda state: {"cluster_centers_": self._public(rows, state), "_frame": rows.frame})
        trials = session.pages.get("starts")
        starts = self._starts(given)
        session.trust(trials is None or self._could_have_left(trials, rows, solver, starts))
        first, run, best, least = trials or RestartState(0, None)
        del trials  # states are large where there are many columns: none is held for longer than it is needed
        if best is not None:  # what a file says of labels and energy is not published
            best, least = self._evaluate(rows, best, solver.assign)
        cut, skipped = "", list[str]()
        if limits.deadline is not None:
            limits = limits._replace(labelling=first_pass + self._ending_seconds(rows))

        def keep(sofar: RunResult) -> None:
            session.keep(
                "starts", RestartState(attempt, sofar._replace(state=partition.without_bounds(sofar.state)), best, least)
            )

        for attempt in range(first, starts):
            deadline = limits.stage(reserve=limits.labelling)
            if run is None and not (best is not None and limits.is_over()):
                start = self._start(rows, given, X, seed, attempt, deadline)
                run = RunResult(solver.init(start, attempt), [], "", None)
            if best is not None and (run is None or deadline.skipped):  # there is no time for as good a start
                cut = "time_budget"
                break
            assert run is not None
            resumed_at = len(run.history)
            latest, run = [run.state], run._replace(state=None)
            outcome = self._run(rows, run, latest, solver, limits, hooks, attempt, keep)
            run = None
            latest.clear()
            session.release("starts")
            if best is not None and outcome.info is None:
                cut = "time_budget"
                break
            skipped += deadline.skipped
            if len(outcome.history) == resumed_at:  # no step since: labels of a checkpoint are not trusted
                outcome = outcome._replace(info=None)
            outcome, loss = self._finalize(rows, outcome, solver.assign, limits, skipped)
            if best is None or loss < least:
                best, least = outcome, loss
            if outcome.reason in ("callback", "time_budget"):
                cut = outcome.reason
                break
        assert best is not None
        self._set_fitted_attributes(rows, best._replace(reason=cut or best.reason), least)
        hooks.close()
        return skipped

    def _ending_seconds(self, rows: Rows) -> float:
        """Estimated seconds of what follows the last step, without reading the rows."""
        return labelling_seconds(rows, self.n_clusters)

    def _could_have_left(self, trials: Any, rows: Rows, solver: Solver, starts: int) -> bool:
        C = np.ones((self.n_clusters, rows.d), rows.dtype)
        shape = len(rows), self.n_clusters
        states = (
            partition.without_bounds(solver.init(C, 0)),
            partition.initial_partition(rows, C),
        )  # which some come to in the end
        return (
            isinstance(trials, RestartState)
            and matches_template((trials.start, trials.least), (0, 0.0), *shape)
            and trials.start < starts
            and (trials.best is None) == (trials.least == np.inf)
            and all(
                run is None or any(is_valid_run(run, state, *shape, solver.info_type) for state in states)
                for run in (trials.run, trials.best)
            )
        )

    def _starts(self, given: Array | None) -> int:
        if given is not None:
            if self.n_init not in ("auto", 1):
                why = f"init gives the centres, so there is one start, not n_init={self.n_init}: leave n_init at 'auto'."
                warn(why, RuntimeWarning)
            return 1
        if self.n_init == "auto":
            return 10 if self.init == "random" or callable(self.init) else 1
        return int(self.n_init)

    def _start(
        self, rows: Rows, given: Array | None, X: Any, seed: int, attempt: int, deadline: Deadline = NO_DEADLINE
    ) -> Array:
        """Starting centres in the rows' frame."""
        k = self.n_clusters
        if given is None and not callable(self.init):
            C: Any = self._initializers.methods[self.init](rows, k, generator(seed, attempt), deadline)
        else:
            if given is None:
                state = np.random.RandomState(generator(seed, attempt).integers(2**31))
                given = check_centers(self.init(X, k, random_state=state), k, rows.d, "what init returned")
            C = self._given(rows, given)
        return np.ascontiguousarray(C, rows.dtype)

    def _given(self, rows: Rows, C: Array) -> Array:
        """Centres that the user has given, in the rows' frame."""
        if rows.frame.unit and not C.any(axis=1).all():
            raise ValueError(f"init row {int(np.argmin(C.any(axis=1)))} is all zeros: cosine needs a direction.")
        with np.errstate(over="ignore"):
            X: Any = rows.convert(C).X
        far = np.abs(X).max(axis=1)
        if far.max() > NEAR[rows.dtype]:
            raise ValueError(
                f"init row {int(far.argmax())} lies so far from the rows of X that {rows.dtype} can't hold its squared "
                "distances: give centres nearer to them."
            )
        return X  # type: ignore[no-any-return]

    def _run(
        self,
        rows: Rows,
        run: RunResult,
        latest: list[Any],
        solver: Solver,
        limits: Limits,
        hooks: CallbackHooks,
        start: int,
        keep: Callable[[RunResult], None],
    ) -> RunResult:
        """One start, step by step, from the state in `latest`, of which there is always one."""

        def step(before: Any) -> tuple[Any, Any]:
            hooks.begin()
            latest[0], info = solver.step(before)
            return latest[0], info

        def tell(record: dict[str, Any]) -> bool:
            record["start"] = start
            for key in IN_SQUARES & record.keys():
                record[key] = rows.frame.energy_out_of(record[key])
            if rows.frame.unit:  # the energy is half of the squares; moves are not
                record["shift"] *= 2
            record.update(rows.source.traffic())
            asked = report_step(self, record)
            return hooks.end(latest[0]) or asked

        return drive(step, latest[0], solver.converged, limits, [tell], keep, run)

    def _finalize(
        self, rows: Rows, outcome: RunResult, assign: Assign, limits: Limits, skipped: list[str]
    ) -> tuple[RunResult, float]:
        """Label the rows by the centres as they will be published, and leave no cluster empty that could have a row.

        Returns their energy too, by distances, in the rows' frame: what starts are compared by. What the time was too short
        for is added to `skipped`.
        """
        state, labelled_by = getattr(outcome.state, "partition", outcome.state), None
        energy: float | None = None
        if outcome.info is None and not outcome.history:
            skipped.append("no step over the rows was completed")
        if outcome.info is None or not isinstance(state, Partition) or len(state.labels) < len(rows):
            state = partition.initial_partition(rows, state.centers)
        elif outcome.info.reassigned == outcome.info.shift == 0 and (state.labels >= 0).all():  # none joined since
            labelled_by = state.centers
        means = isinstance(outcome.state, Partition)  # of their rows, its centres are
        if means and outcome.reason == "converged" and 0 < state.moved < len(rows):  # their sums have rounded more
            state, _ = partition.advance(rows, state._replace(moved=len(rows)), partition.keep_labels)
        state = self._as_published(rows, state)
        if labelled_by is None or not np.array_equal(state.centers, labelled_by):
            state, energy = partition.label_and_cost(rows, state, assign)
            for _ in range(10):
                empty = partition.sizes(state.labels, self.n_clusters, rows.weights) == 0
                if not empty.any():
                    break
                labels = state.labels.copy()
                try:
                    with time_limit(limits.step_end(0.0)):
                        again, info = partition.advance(rows, state._replace(moved=len(rows)), assign)
                except TimeUp:
                    state = state._replace(labels=labels)
                    skipped.append(f"{np.count_nonzero(empty):,} clusters stayed empty")
                    break
                if info.reassigned == 0:
                    break
                again = again._replace(centers=np.where(empty[:, None], again.centers, state.centers))  # the others stay
                state, energy = partition.label_and_cost(rows, self._as_published(rows, again), assign)
        energy = partition.energy(rows, state) if energy is None else energy
        return outcome._replace(state=state._replace(bounds=None)), energy  # bounds would leave no room for another start's

    def _evaluate(self, rows: Rows, outcome: RunResult, assign: Assign) -> tuple[RunResult, float]:
        """Labels and energy of a start that was settled before."""
        state, energy = partition.label_and_cost(rows, outcome.state, assign)
        energy = partition.energy(rows, state) if energy is None else energy
        return outcome._replace(state=state._replace(bounds=None)), energy

    def _public(self, rows: Rows, state: Any) -> Array:
        """Centres as the user gets to see them: numbers that the frame holds without rounding them again."""
        public = rows.frame.out_of(state.centers, rows.dtype)
        return public if rows.frame.shift is None else rows.frame.out_of(rows.frame.into(public, rows.dtype), rows.dtype)

    def _as_published(self, rows: Rows, state: Partition) -> Partition:
        """With centres rounded as the user will see them."""
        return state._replace(centers=rows.frame.into(self._public(rows, state), rows.dtype))

    def _remember(self, rows: Rows) -> None:
        """Keep what more a subclass will need of the rows of the fit, once it is done."""

    def _set_fitted_attributes(self, rows: Rows, outcome: RunResult, energy: float) -> None:
        self._frame = rows.frame
        self.inertia_ = rows.frame.energy_out_of(energy)
        self.cluster_centers_ = self._public(rows, outcome.state)
        if not np.isfinite(self.cluster_centers_).all():
            raise ValueError("The centres are not finite, though the rows of X were: X was changed during the fit; fit again.")
        self.labels_ = outcome.state.labels
        self.history_ = outcome.history
        self.stop_reason_ = outcome.reason
        self.n_iter_ = len(outcome.history)
        self._record_parameters()
        self._remember(rows)

    def _why_few(self, found: int, rows: Rows) -> str:
        """What to tell the user where clusters have stayed empty."""
        rows_of = "rows of positive weight" if rows.has_weights else "rows"
        return (
            f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}): "
            f"X has too few distinct {rows_of}{self._or_else()}; n_clusters={found} would do."
        )

    def _or_else(self) -> str:
        """What else may keep clusters empty."""
        return ""
