"""The interface between a spectral method and the fit loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..data.rows import Rows
from ..data.types import Array, warn
from ..fit.callbacks import report_step
from ..fit.checkpoint_validation import is_valid_run
from ..fit.context import FitContext
from ..fit.loop import Limits, RunResult
from .extension import EmbeddingMap

STEPS_TIME_FRACTION = 0.75  # of the time that is left when the steps begin; the rest is for k-means
MAX_CHANGE_FACTOR = 3  # change of the last step, in units of tol, above which a warning is issued


class SpectralInfo(NamedTuple):
    """Result of one step."""

    objective: float  # -1/2 Tr(W' L W)
    change: float  # root mean square of the sines of the angles between the subspaces before and after the step
    columns: int  # columns of the affinity matrix used
    flops: int  # operation count


class Embedding(NamedTuple):
    """Embedding of the rows of a fit."""

    vectors: Array  # (n, k) eigenvectors
    eigenvalues: Array  # (k,) in descending order
    map: EmbeddingMap


class SpectralSolver(ABC):
    """A spectral method, prepared for the rows of one fit.

    `state` holds all that the next step needs, so saving it is the checkpoint. `info` holds what one step has found; the loop
    adds it to the history. The state of a direct method is its result, and its only step is not interrupted by any limit.
    """

    is_direct: ClassVar[bool] = False
    max_iter: int = 1
    tol: float = 0.0
    needs_step: bool = True  # whether the initial state is no result

    def __init__(self, rows: Rows, k: int, sigma: float | None) -> None:
        self.rows, self.k, self.sigma = rows, k, sigma

    @abstractmethod
    def init(self) -> Any:
        """Return the state before the first step."""

    @abstractmethod
    def step(self, state: Any) -> tuple[Any, SpectralInfo]:
        """Return the state and the info after one step."""

    @abstractmethod
    def converged(self, state: Any, info: SpectralInfo) -> bool:
        """Return whether the steps have ended."""

    @abstractmethod
    def finalize(self, state: Any) -> Embedding:
        """Return the embedding, given the last state."""

    @abstractmethod
    def template(self) -> Any:
        """Return a state of the right types and shapes, with which states from checkpoints are compared."""

    def is_valid_state(self, state: Any) -> bool:
        """Return whether a state of the right types and shapes, read from a checkpoint, could be one of this method."""
        return True

    @property
    def overhead(self) -> Mapping[str, int]:
        """Columns and operations of `init` and `finalize`, which the first record of the history includes."""
        return MappingProxyType({})

    def limits(self, deadline: float | None) -> Limits:
        """Return the limits of the steps."""
        if self.is_direct:
            return Limits(1)
        return Limits(self.max_iter, deadline, needs_step=self.needs_step).part(STEPS_TIME_FRACTION)


class SpectralResult(NamedTuple):
    """Result of `run`."""

    context: FitContext
    solver: SpectralSolver
    run: RunResult
    embedding: Embedding


def run(solver: SpectralSolver, context: FitContext) -> SpectralResult:
    """Initialize, step until convergence or a limit, and compute the embedding. Progress is saved after each step."""
    outcome = context.session.drive(
        "eigenvectors",
        solver.step,
        solver.init,
        solver.converged,
        solver.limits(context.limits.deadline),
        [partial(_report, context, solver), *context.environment.observers],
        partial(_is_valid_run, solver),
    )
    if outcome.reason == "max_iter" and outcome.info.change > MAX_CHANGE_FACTOR * solver.tol > 0:
        warn(
            f"The subspace still changed by {outcome.info.change:.2g} in the last of max_iter={solver.max_iter} steps "
            f"(tol={solver.tol}), so that clusters may be wrong: raise max_iter, or use `ExactSpectral`.",
            ConvergenceWarning,
        )
    embedding = solver.finalize(outcome.state)
    return SpectralResult(context, solver, outcome._replace(state=None), embedding)


def _report(context: FitContext, solver: SpectralSolver, record: dict[str, Any], state: Any) -> bool:
    """Complete the record of a step and report it. Return whether the user asks to stop."""
    if record["step"] == 1:
        record.update({key: record[key] + extra for key, extra in solver.overhead.items()})
    return report_step(context.reporter.estimator, record)


def _is_valid_run(solver: SpectralSolver, saved: Any) -> bool:
    """Return whether a fit of this solver could have saved this progress."""
    return is_valid_run(saved, solver.template(), 0, solver.k, SpectralInfo) and solver.is_valid_state(saved.state)


def array_template(shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
    """Return an array for `SpectralSolver.template`, which takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def positive_eigenvalues(values: Array, threshold: float, consequence: str) -> Array:
    """Return a mask of the eigenvalues above the threshold. Warn if there are others."""
    there: Array = values > threshold
    if not there.all():
        warn(
            f"Only {there.sum()} of the n_clusters={len(there)} leading eigenvalues are positive: {consequence}; ask for fewer "
            "clusters.",
            ConvergenceWarning,
        )
    return there
