"""The loop that every method runs in: it times, records, tells the watchers and decides when to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple, TypeVar

from ..data.cancellation import TimeUp, now, time_limit
from ..execution.deadline import LEEWAY, Deadline

State = TypeVar("State")

Watcher = Callable[[dict[str, Any], Any], bool | None]  # record and state after a step -> whether to stop


class Limits(NamedTuple):
    """When to stop, whatever the method says."""

    max_iter: int
    deadline: float | None = None  # on the clock of `deadline.now`
    rows: int = 0  # that are to be labelled in the end
    labelling: float = 0.0  # estimated seconds of that, if nothing is known of the rows; 0 if there is no estimate
    needs_step: bool = False  # whether there is no result without a first step, however long that takes

    def spent(self, last_step: float, batch: int = 0) -> bool:
        """Is there no time left for another step like the last, on a batch of so many rows (0: all), and the final labels?"""
        labels = last_step
        if batch and self.labelling:
            labels += self.labelling * max(1 - batch / self.rows, 0)
        elif batch:
            labels *= max(self.rows / batch, 1)
        return self.deadline is not None and now() + last_step + labels > self.deadline

    def step_end(self, last_step: float) -> float:
        """When to give up a step that begins now, after one of this length (0: the first): to leave time for the labels."""
        if self.deadline is None or (self.needs_step and not last_step):
            return inf
        return max(self.deadline - self.labelling, now() + LEEWAY + 2 * last_step)

    def stage(self, reserve: float = 0.0, share: float = 0.5) -> Deadline:
        """Deadline of a stage that gets a share of the time that is left, less a reserve in seconds for what follows."""
        if self.deadline is None:
            return Deadline()
        return Deadline(now() + max(share * (self.deadline - reserve - now()), LEEWAY))

    def part(self, share: float = 0.5) -> Limits:
        """The same for a stage that gets a share of the time that is left."""
        return self if self.deadline is None else self._replace(deadline=self.stage(share=share).end)

    def is_over(self) -> bool:
        """Whether only the final labels are left to find."""
        return self.deadline is not None and now() > self.deadline - self.labelling


REASONS = ("", "converged", "max_iter", "time_budget", "callback")  # why a run stopped; "": it goes on


class RunResult(NamedTuple):
    state: Any
    history: list[dict[str, Any]]  # for people; watchers may have rewritten it
    reason: str  # why it stopped: "converged", "max_iter", "time_budget" or "callback"
    info: Any  # what the last step learned; None if it was given up, which leaves the centres of the state alone valid


def drive(
    step: Callable[[State], tuple[State, Any]],
    state: State,
    done: Callable[[State, Any], bool],
    limits: Limits,
    watchers: Iterable[Watcher] = (),
    keep: Callable[[RunResult], None] | None = None,
    before: RunResult | None = None,
) -> RunResult:
    """Step until `done(state, info)`, a limit or a watcher that returns true. Each step leaves a record.

    There is one step at least, unless it takes so long that it is given up (see `Limits.step_end`). After each step that is
    not the last, `keep` is told how far it has come; `before` is where to go on from.
    """
    history: list[dict[str, Any]] = [] if before is None else list(before.history)
    info: Any = None if before is None else before.info
    started = now() - (history[-1].get("seconds", 0.0) if history else 0.0)
    last = 0.0
    while len(history) < limits.max_iter:
        if history and limits.spent(last, getattr(info, "batch", 0)):
            return RunResult(state, history, "time_budget", info)
        begun = now()
        try:
            with time_limit(limits.step_end(last)):
                state, info = step(state)
        except TimeUp:
            if limits.deadline is None:  # it was a limit of whoever called
                raise
            return RunResult(state, history, "time_budget", None)
        ended = now()
        last = ended - begun
        history.append({"step": len(history) + 1, "seconds": ended - started, **info._asdict()})
        asked = [watch(history[-1], state) for watch in watchers]  # every watcher is called
        if any(asked):
            return RunResult(state, history, "callback", info)
        if done(state, info):
            return RunResult(state, history, "converged", info)
        if keep is not None:
            keep(RunResult(state, history, "", info))
    return RunResult(state, history, "max_iter", info)
