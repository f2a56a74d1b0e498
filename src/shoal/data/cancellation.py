"""Cooperative cancellation: loops over blocks stop when time is up or their result is no longer needed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from math import inf


def now() -> float:
    """Seconds on the clock that all deadlines refer to."""
    return time.perf_counter()


class TimeUp(Exception):
    """The time for this work is over, or nobody waits for its result any more."""


class Cancellation:
    """Shared by the threads that work on the same blocks: they stop at a time, or when the result is not wanted any more."""

    def __init__(self, until: float = inf) -> None:
        self.until = until
        self.is_set = False

    def check(self) -> None:
        if self.is_set or (self.until != inf and now() > self.until):
            raise TimeUp


class _Current(threading.local):
    cancellation = Cancellation()  # of this thread; nobody cancels the default one


_current = _Current()


def check_cancelled() -> None:
    """Raise `TimeUp` if the work of this thread is no longer wanted."""
    _current.cancellation.check()


def pieces(n: int, size: int) -> Iterator[slice]:
    """Slices of n rows, of `size` rows each; in between, work that is no longer wanted ends."""
    for start in range(0, n, size):
        check_cancelled()
        yield slice(start, min(start + size, n))


def inherited() -> Cancellation:
    """A cancellation of its own for a group of threads that works for this one: limits on its time hold there, too."""
    return Cancellation(_current.cancellation.until)


@contextlib.contextmanager
def under(cancellation: Cancellation) -> Iterator[None]:
    """Let this thread's work be cancelled by it."""
    before, _current.cancellation = _current.cancellation, cancellation
    try:
        yield
    finally:
        _current.cancellation = before


@contextlib.contextmanager
def time_limit(until: float) -> Iterator[None]:
    """Raise `TimeUp` in this thread's work on rows, and in the threads that it starts for that, once the time has come."""
    with under(Cancellation(min(until, _current.cancellation.until))):
        yield
