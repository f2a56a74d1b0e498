"""Tasks that travel together. Each costs driver, scheduler and worker some 10 ms, whatever it is for: short ones share that.

Only what was seen to be short, with small answers, is put together: what a round asks for is compared with those before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from distributed import Future

LONG = 0.1  # seconds of work that are worth a journey
SMALL = 1 << 22  # bytes of answers that are not
GULP = 1 << 26  # bytes of answers that are fetched together
EACH = 2  # loads that a thread should get, so that one is there when another is done


class Task(NamedTuple):
    """fn(piece, order, rest..., near) for one partition."""

    name: str  # for people
    fn: Callable[..., bytes]
    piece: Any
    rest: tuple[Any, ...]
    near: list[Future]


class Sent:
    """Some tasks, by number, that one future answers, and those of them that wait for it."""

    def __init__(self, numbers: Sequence[int], future: Future, at: float) -> None:
        self.numbers, self.future, self.at = numbers, future, at
        self.waiting = set(numbers)

    def drop(self, number: int) -> None:
        """A task needs it no more."""
        self.waiting.discard(number)
        if not self.waiting:
            self.future.release()

    def age(self) -> float:
        """Seconds since it was sent, of each task."""
        return (time.monotonic() - self.at) / len(self.numbers)


class Habit(NamedTuple):
    """What tasks of a kind were like when they were last seen."""

    seconds: float = float("inf")  # of a thread, for a task
    late: float = 0.0  # until a load was answered
    size: int = GULP  # bytes of an answer, at most


def most_of(habit: Habit, count: int, threads: int) -> int:
    """How many of so many tasks should travel together."""
    return max(1, int(min(LONG / max(habit.seconds, 1e-6), SMALL / max(habit.size, 1), count / (EACH * threads))))


def divided(homes: Sequence[Hashable], most: int) -> list[list[int]]:
    """Numbers of tasks, at most so many together, and only if their rows are in the same place; sorted by the first of each."""
    found: list[list[int]] = []
    last: dict[Hashable, list[int]] = {}
    for number, home in enumerate(homes):
        if home not in last or len(last[home]) == most:
            last[home] = []
            found.append(last[home])
        last[home].append(number)
    return found
