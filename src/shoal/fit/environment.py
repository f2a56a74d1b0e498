"""Settings of a fit that are not parameters of its estimator."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..data.cancellation import now
from ..execution.engine import UNSPECIFIED, resolve_engine
from ..execution.memory_limit import MEMORY_LIMIT, MemoryPlan
from .checkpoint import CHECKPOINT_STORE, CheckpointStore
from .loop import Observer


class FitEnvironment(NamedTuple):
    """Settings of a fit from the surrounding `with` blocks or, for a fit inside another fit, from the outer fit.

    Estimators resolve it once, at the top of `fit`, and hand it down. `model._fit(X, sample_weight, environment)` fits a model
    in a given environment.
    """

    started: float  # time from which the time budget counts
    engine: Any = UNSPECIFIED  # client whose workers read the rows; None for threads
    memory_limit: float | None = None  # bytes of the process
    outer_plan: MemoryPlan | None = None  # memory plan of the outer fit, which covers this one
    checkpoint: CheckpointStore | None = None  # where the progress of the fit is saved
    observers: tuple[Observer, ...] = ()  # called with the record and the state after every step

    @classmethod
    def current(cls, engine: Any, X: Any) -> FitEnvironment:
        """Return the settings of the surrounding `with` blocks. `engine` is the argument of `fit` to X."""
        return cls(now(), resolve_engine(engine, X), MEMORY_LIMIT.get(), None, CHECKPOINT_STORE.get())

    def inner(self, plan: MemoryPlan, checkpoint: CheckpointStore | None) -> FitEnvironment:
        """Return the environment of a fit inside this one, which has the given memory plan."""
        return FitEnvironment(now(), self.engine, self.memory_limit, plan, checkpoint)
