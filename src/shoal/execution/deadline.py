"""Deadlines: work that is late ends early, and work that nobody waits for any more ends at once.

Two mechanisms. A `Deadline` is handed to work that can be cut short and still give a result (a seeding): it asks whether
time is over, and notes what it leaves out. `time_limit` is for work that is of no use unless it is finished (a step): it
raises `TimeUp`. Block functions run in threads and know nothing of either; their loops go over `pieces`, between which a
thread finds out that its result is no longer wanted. Without a time budget nothing here depends on the clock.
"""

from __future__ import annotations

from math import inf

from ..data.cancellation import now

LEEWAY = 0.25  # seconds by which a stage may exceed its budget: giving it up would cost more quality than that is worth


class Deadline:
    """When a stage should be done, on the clock of `now`; and what it has left out to be done by then."""

    def __init__(self, end: float = inf) -> None:
        self.end = end
        self.skipped: list[str] = []

    def remaining(self) -> float:
        """Seconds; infinite without a time budget."""
        return inf if self.end == inf else self.end - now()

    def expired(self, cost: float = 0.0) -> bool:
        """Whether there is no time for something of this cost in seconds."""
        return self.remaining() <= cost

    def skip(self, what: str) -> None:
        """Note what was left out, once, in words for the user."""
        if what not in self.skipped:
            self.skipped.append(what)


NO_DEADLINE = Deadline()


class Pace:
    """Whether k things that are done one after the other (centres that are chosen) will be done in time."""

    def __init__(self, k: int, deadline: Deadline) -> None:
        self.k, self.deadline = k, deadline
        self.begun = now()

    def is_late(self, j: int) -> bool:
        """Whether those from j on will be late if they take as long as the ones before, on average."""
        if not j or self.deadline.end == inf:
            return False
        each = (now() - self.begun) / j
        return self.deadline.expired(each * (self.k - j))
