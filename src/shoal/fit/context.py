"""Resources of a fit: validated rows, threads or workers, limits, memory plan, checkpoints and random seed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..data.cancellation import now
from ..data.rows import Rows
from ..data.statistics import Moments, enter_frame
from ..execution.engine import resolve_source
from ..execution.memory_limit import MemoryPlan, plan_dtype, plan_fit
from ..execution.threads import Threads
from .callbacks import StepReporter
from .centroid_model import restore_on_error
from .checkpoint import CheckpointSession, open_session
from .environment import FitEnvironment
from .initializers import Initialization
from .loop import Limits
from .random_streams import resolve_seed


@dataclass(frozen=True)
class FitContext:
    """Resources and settings of a fit, besides the parameters of its method."""

    X: Any  # as passed by the user, for a callable `init` and for callbacks
    input_rows: Rows  # validated rows of X
    rows: Rows  # rows that the solver works on
    moments: Moments | None  # mean and variance of `rows`; None before they are prepared
    initialization: Initialization
    limits: Limits
    environment: FitEnvironment
    memory: MemoryPlan  # threads, and memory for optional data
    session: CheckpointSession
    reporter: StepReporter
    preparation_seconds: float = 0.0  # time of the first pass over the rows
    skipped: list[str] = field(default_factory=list)  # stages that the time budget was too short for, as text for the user

    @property
    def variance(self) -> float:
        """Mean variance of the columns, to which tolerances are relative."""
        assert self.moments is not None
        return self.moments.variance

    @property
    def seed(self) -> int:
        """Seed of all random streams of the fit."""
        return self.session.seed

    def inner(self, stage: str) -> FitEnvironment:
        """Return the environment of a fit inside this one whose result `session.once` saves under the name of the stage."""
        return self.environment.inner(self.memory, self.session.nested_store(stage))

    def prepared(self, model: Any) -> FitContext:
        """Return the context with the rows in the frame in which distances are computed. This reads all rows once."""
        started = now()
        rows, moments = enter_frame(self.rows)
        memory = plan_dtype(self.memory, model, rows)
        rows.limit_threads(memory.n_threads)
        rows = rows.with_copy_limit(memory.spare(math.inf))
        seconds = now() - started
        self.session.check_equal("the variance of X", moments.variance)
        return replace(self, rows=rows, moments=moments, memory=memory, preparation_seconds=seconds)


@contextlib.contextmanager
def open_fit(model: Any, X: Any, sample_weight: Any, environment: FitEnvironment) -> Iterator[FitContext]:
    """Validate the input of a fit and provide the resources that it uses. If the fit fails, the model is restored."""
    model._validate_params()
    deadline = None if model.time_budget is None else environment.started + model.time_budget
    with restore_on_error(model):
        rows, given = model._validate_input(resolve_source(X, environment.engine), sample_weight)
        weights = rows.weights if rows.has_weights else None
        seed = resolve_seed(model.random_state)
        memory = plan_fit(model, rows, environment.memory_limit, environment.outer_plan)
        with (
            Threads(memory.n_threads) as executor,
            open_session(model, rows.source, weights, seed, environment.checkpoint) as session,
        ):
            rows = rows.with_executor(executor).with_copy_limit(memory.spare(math.inf))
            limits = Limits(model.max_iter, deadline, rows=len(rows))
            initialization = model._initialization(X, given, session.seed)
            reporter = StepReporter(model, X)
            yield FitContext(X, rows, rows, None, initialization, limits, environment, memory, session, reporter)
