"""Run a solver from one or more initializations and keep the best result."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import partition
from .checkpoint_validation import is_valid_run, matches_template
from .context import FitContext
from .loop import Limits, RunResult, drive
from .solver import Solver


class RestartState(NamedTuple):
    """Progress of a fit, from which it can be resumed, without the rows."""

    start: int  # number of the current start
    run: RunResult | None  # progress of that start
    best: RunResult | None = None  # best of the starts before
    best_loss: float = np.inf  # of the starts before


class FitResult(NamedTuple):
    """Result of the best start."""

    context: FitContext
    run: RunResult
    loss: float  # quantity that starts are compared by, in the frame of the rows


def run(solver: Solver, context: FitContext) -> FitResult:
    """Run all starts one after the other: initialize, step until convergence or a limit, label the rows, keep the best."""
    n_starts = context.initialization.n_starts
    first, current, best, best_loss = _resume(solver, context, n_starts)
    limits = context.limits
    if limits.deadline is not None:
        limits = limits._replace(labelling=context.preparation_seconds + solver.labelling_seconds(context.initialization.k))
    context.reporter.open(solver.rows)
    stop_reason = ""
    for start in range(first, n_starts):
        deadline = limits.stage(reserve=limits.labelling)
        if current is None and (best is None or not limits.is_over()):
            centers = context.initialization.centers(solver.rows, start, deadline)
            current = RunResult(solver.init(centers, start), [], "", None)
        if best is not None and (current is None or deadline.skipped):  # no time for an initialization of the same quality
            stop_reason = "time_budget"
            break
        assert current is not None
        n_steps_before = len(current.history)
        state, current = [current.state], current._replace(state=None)  # states are large: none is held twice
        finished = _run_start(solver, state, current, RestartState(start, None, best, best_loss), limits, context)
        current = None
        if best is not None and finished.info is None:
            stop_reason = "time_budget"
            break
        context.skipped.extend(deadline.skipped)
        info = finished.info
        if len(finished.history) == n_steps_before:  # no step since: labels of a checkpoint are not trusted
            finished = finished._replace(info=None)
        finished, loss = solver.finalize(finished, limits, context.skipped)
        if finished.info is None:  # the next checkpoint is refused if the best run has steps but no info
            finished = finished._replace(info=info)
        if best is None or loss < best_loss:
            best, best_loss = finished, loss
        if finished.reason in ("callback", "time_budget"):
            stop_reason = finished.reason
            break
    assert best is not None
    return FitResult(context, best._replace(reason=stop_reason or best.reason), best_loss)


def _resume(solver: Solver, context: FitContext, n_starts: int) -> RestartState:
    """Return the progress that a checkpoint holds, validated; labels and energy of its best start are computed again."""
    saved = context.session.sections.get("starts")
    context.session.trust(saved is None or is_valid_progress(saved, solver, context.initialization.k, n_starts))
    progress = saved or RestartState(0, None)
    if progress.best is None:
        return progress
    best, loss = solver.evaluate(progress.best)
    return progress._replace(best=best, best_loss=loss)


def is_valid_progress(saved: Any, solver: Solver, k: int, n_starts: int) -> bool:
    """Return whether a fit of this solver could have saved this progress."""
    rows = solver.rows
    centers = np.ones((k, rows.d), rows.dtype)
    shape = len(rows), k
    templates = (partition.without_bounds(solver.init(centers, 0)), partition.initial_partition(rows, centers))
    return (
        isinstance(saved, RestartState)
        and matches_template((saved.start, saved.best_loss), (0, 0.0), *shape)
        and saved.start < n_starts
        and (saved.best is None) == (saved.best_loss == np.inf)
        and all(
            run is None or any(is_valid_run(run, template, *shape, solver.info_type) for template in templates)
            for run in (saved.run, saved.best)
        )
        and solver.is_valid_state(getattr(saved.run, "state", None))
    )


def _run_start(
    solver: Solver, state: list[Any], before: RunResult, progress: RestartState, limits: Limits, context: FitContext
) -> RunResult:
    """Run one start from the state in the list, which is emptied. Progress is saved after each step."""
    session, reporter = context.session, context.reporter

    def save(current: RunResult) -> None:
        session.save("starts", progress._replace(run=current._replace(state=partition.without_bounds(current.state))))

    def step(state: Any) -> tuple[Any, Any]:
        reporter.begin_step()
        return solver.step(state)

    report = partial(reporter.end_step, progress.start)
    result = drive(step, state.pop(), solver.converged, limits, [report, *context.environment.observers], save, before)
    session.discard("starts")
    return result
