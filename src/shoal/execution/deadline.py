"""Deadlines of stages that can be cut short.

There are two mechanisms. A stage that can return a result early, such as an initialization, gets a `Deadline`: it asks whether
time has expired and notes what it leaves out. A stage whose partial result is useless, such as a step, runs under
`data.cancellation.time_limit`, which raises `TimeUp`. Without a time budget nothing depends on the clock.
"""

from __future__ import annotations

from math import inf

from ..data.cancellation import now

LEEWAY = 0.25  # seconds by which a stage may exceed its budget, since abandoning it would cost too much quality


class Deadline:
    """Time at which a stage should end, on the clock of `now`, and notes on what it left out."""

    def __init__(self, end: float = inf) -> None:
        self.end = end
        self.skipped: list[str] = []

    def remaining(self) -> float:
        """Return the remaining seconds; infinity without a time budget."""
        return inf if self.end == inf else self.end - now()

    def expired(self, cost: float = 0.0) -> bool:
        """Return whether too little time remains for work that takes `cost` seconds."""
        return self.remaining() <= cost

    def skip(self, what: str) -> None:
        """Note what was left out, once, as text for the user."""
        if what not in self.skipped:
            self.skipped.append(what)


NO_DEADLINE = Deadline()


class Pace:
    """Progress of k tasks of equal cost, such as choosing k centroids one after the other."""

    def __init__(self, k: int, deadline: Deadline) -> None:
        self.k, self.deadline = k, deadline
        self.started = now()

    def is_late(self, j: int) -> bool:
        """Return whether the tasks from the j-th on would end late if they take as long as those before, on average."""
        if not j or self.deadline.end == inf:
            return False
        each = (now() - self.started) / j
        return self.deadline.expired(each * (self.k - j))
