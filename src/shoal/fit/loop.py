"""The loop that runs the steps of every method: it times them, records them, calls observers and decides when to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple, TypeVar

from ..data.cancellation import TimeUp, now, time_limit
from ..execution.deadline import LEEWAY, Deadline

State = TypeVar("State")

Observer = Callable[[dict[str, Any], Any], bool | None]  # (record, state) after a step -> whether to stop


class Limits(NamedTuple):
    """Limits of a run, besides the convergence of its method."""

    max_iter: int
    deadline: float | None = None  # on the clock of `cancellation.now`
    rows: int = 0  # number of rows to label after the last step
    labelling: float = 0.0  # estimated seconds of labelling all rows without bounds; 0 if there is no estimate
    needs_step: bool = False  # whether the first step is never abandoned, since there is no result without it

    def spent(self, last_step: float, batch: int = 0) -> bool:
        """Return whether too little time remains for another step on `batch` rows (0: all) and the final labels."""
        labels = last_step
        if batch and self.labelling:
            labels += self.labelling * max(1 - batch / self.rows, 0)
        elif batch:
            labels *= max(self.rows / batch, 1)
        return self.deadline is not None and now() + last_step + labels > self.deadline

    def step_end(self, last_step: float) -> float:
        """Return when to abandon a step that starts now, to leave time for the labels; `last_step` is 0 for the first."""
        if self.deadline is None or (self.needs_step and not last_step):
            return inf
        return max(self.deadline - self.labelling, now() + LEEWAY + 2 * last_step)

    def stage(self, reserve: float = 0.0, share: float = 0.5) -> Deadline:
        """Return the deadline of a stage that gets a share of the remaining time, less `reserve` seconds for what follows."""
        if self.deadline is None:
            return Deadline()
        return Deadline(now() + max(share * (self.deadline - reserve - now()), LEEWAY))

    def part(self, share: float = 0.5) -> Limits:
        """Return the limits of a stage that gets a share of the remaining time."""
        return self if self.deadline is None else self._replace(deadline=self.stage(share=share).end)

    def is_over(self) -> bool:
        """Return whether the remaining time is needed for the final labels."""
        return self.deadline is not None and now() > self.deadline - self.labelling


REASONS = ("", "converged", "max_iter", "time_budget", "callback")  # why a run stopped; "" if it has not


class RunResult(NamedTuple):
    """Progress or result of a run."""

    state: Any
    history: list[dict[str, Any]]  # one record per step, as modified by observers
    reason: str  # one of `REASONS`
    info: Any  # of the last step; None if it was abandoned, in which case only `state.centers` is valid


def drive(
    step: Callable[[State], tuple[State, Any]],
    state: State,
    done: Callable[[State, Any], bool],
    limits: Limits,
    observers: Iterable[Observer] = (),
    save: Callable[[RunResult], None] | None = None,
    before: RunResult | None = None,
) -> RunResult:
    """Run steps until `done(state, info)`, a limit, or an observer that returns true. Each step adds a record to the history.

    There is at least one step, unless it takes so long that it is abandoned (see `Limits.step_end`). `save` is called with the
    progress after each step but the last; `before` is the progress to resume from.
    """
    history: list[dict[str, Any]] = [] if before is None else list(before.history)
    info: Any = None if before is None else before.info
    started = now() - (history[-1].get("seconds", 0.0) if history else 0.0)
    last_step = 0.0  # seconds
    while len(history) < limits.max_iter:
        if history and limits.spent(last_step, getattr(info, "batch", 0)):
            return RunResult(state, history, "time_budget", info)
        step_start = now()
        try:
            with time_limit(limits.step_end(last_step)):
                state, info = step(state)
        except TimeUp:
            if limits.deadline is None:  # the caller set the limit
                raise
            return RunResult(state, history, "time_budget", None)
        ended = now()
        last_step = ended - step_start
        history.append({"step": len(history) + 1, "seconds": ended - started, **info._asdict()})
        asked = [observe(history[-1], state) for observe in observers]  # every one is called
        if any(asked):
            return RunResult(state, history, "callback", info)
        if done(state, info):
            return RunResult(state, history, "converged", info)
        if save is not None:
            save(RunResult(state, history, "", info))
    return RunResult(state, history, "max_iter", info)
