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
    """Raised in work whose time limit has passed or whose result is no longer needed."""


class Cancellation:
    """Cancellation token shared by the threads of one pass: they stop at a given time, or once `is_set` is true."""

    def __init__(self, until: float = inf) -> None:
        self.until = until
        self.is_set = False

    def check(self) -> None:
        """Raise `TimeUp` if the work is cancelled or its time limit has passed."""
        if self.is_set or (self.until != inf and now() > self.until):
            raise TimeUp


class _Current(threading.local):
    """Cancellation token of the current thread."""

    cancellation = Cancellation()  # the default is never cancelled


_current = _Current()


def check_cancelled() -> None:
    """Raise `TimeUp` if the work of the current thread is cancelled."""
    _current.cancellation.check()


def pieces(n: int, size: int) -> Iterator[slice]:
    """Yield slices of `size` rows that cover n rows; raise `TimeUp` between them if the work is cancelled."""
    for start in range(0, n, size):
        check_cancelled()
        yield slice(start, min(start + size, n))


def inherited() -> Cancellation:
    """Return a new cancellation token for threads started by this one, with the same time limit."""
    return Cancellation(_current.cancellation.until)


@contextlib.contextmanager
def under(cancellation: Cancellation) -> Iterator[None]:
    """Use a cancellation token for the work of the current thread."""
    previous, _current.cancellation = _current.cancellation, cancellation
    try:
        yield
    finally:
        _current.cancellation = previous


@contextlib.contextmanager
def time_limit(until: float) -> Iterator[None]:
    """Limit the work of this thread, and of the threads it starts, to a point in time; later work raises `TimeUp`."""
    with under(Cancellation(min(until, _current.cancellation.until))):
        yield
