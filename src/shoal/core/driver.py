"""The loop that every method runs in: it times, records, tells the watchers and decides when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

State = TypeVar("State")

Watcher = Callable[[dict[str, Any]], bool | None]


class Limits(NamedTuple):
    """When to stop, whatever the method says."""

    max_iter: int
    deadline: float | None = None  # on the clock of `time.perf_counter`
    rows: int = 0  # that are to be labelled in the end

    def spent(self, last_step: float, batch: int = 0) -> bool:
        """Is there no time left for another step like the last, on a batch of so many rows (0: all), and the final labels?"""
        labels = last_step * max(self.rows / batch, 1) if batch else last_step
        return self.deadline is not None and time.perf_counter() + last_step + labels > self.deadline


class Outcome(NamedTuple):
    state: Any
    history: list[dict[str, Any]]  # for people; watchers may have rewritten it
    reason: str  # why it stopped: "converged", "max_iter", "time_budget" or "callback"
    info: Any  # what the last step learned


def drive(
    step: Callable[[State], tuple[State, Any]],
    state: State,
    done: Callable[[State, Any], bool],
    limits: Limits,
    watchers: Iterable[Watcher] = (),
) -> Outcome:
    """Step, once at least, until `done(state, info)`, a limit or a watcher that returns true. Each step leaves a record."""
    started = time.perf_counter()
    history: list[dict[str, Any]] = []
    info: Any = None
    last = 0.0
    while len(history) < limits.max_iter:
        if history and limits.spent(last, getattr(info, "batch", 0)):
            return Outcome(state, history, "time_budget", info)
        before = time.perf_counter()
        state, info = step(state)
        now = time.perf_counter()
        last = now - before
        history.append({"step": len(history) + 1, "seconds": now - started, **info._asdict()})
        asked = [watch(history[-1]) for watch in watchers]  # all of them are told
        if any(asked):
            return Outcome(state, history, "callback", info)
        if done(state, info):
            return Outcome(state, history, "converged", info)
    return Outcome(state, history, "max_iter", info)
