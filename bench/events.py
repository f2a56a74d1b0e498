"""Discrete-event simulation: a clock and shared resources."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count

Then = Callable[[], None]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, int, Then]] = []
        self.number = count()

    def at(self, when: float, then: Then) -> None:
        heappush(self.events, (when, next(self.number), then))

    def run(self, over: Callable[[], bool]) -> None:
        while not over():
            self.now, _, then = heappop(self.events)
            then()


class Shared:
    """Cores or a link, shared equally between jobs; a job uses at most one unit."""

    def __init__(self, clock: Clock, servers: float = 1.0) -> None:
        self.clock, self.servers = clock, servers
        self.jobs: list[tuple[float, int, Then]] = []  # heap by the work per job at which each is done
        self.number = count()
        self.worked = self.seen = 0.0  # work done per job since the beginning, and the time of the last update
        self.version = 0

    def start(self, work: float, then: Then) -> None:
        self._pass()
        heappush(self.jobs, (self.worked + work, next(self.number), then))
        self._expect()

    def _rate(self) -> float:
        return min(1.0, self.servers / max(len(self.jobs), 1))

    def _pass(self) -> None:
        self.worked += (self.clock.now - self.seen) * self._rate()
        self.seen = self.clock.now

    def _expect(self) -> None:
        self.version += 1
        if self.jobs:
            left = max(self.jobs[0][0] - self.worked, 0.0) / self._rate()
            self.clock.at(self.clock.now + left, partial(self._end, self.version))

    def _end(self, version: int) -> None:
        if version == self.version:  # jobs have not changed since it was scheduled
            self._pass()
            then = heappop(self.jobs)[2]
            self._expect()
            then()
