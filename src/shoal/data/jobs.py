"""A pass over the rows: its blocks, its block function, and how the shares of blocks add up."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from .source import Source
from .types import Array


class Span(NamedTuple):
    """The rows of a partition, and how many of them make a block."""

    start: int
    stop: int
    step: int

    def blocks(self) -> list[slice]:
        return [slice(a, min(a + self.step, self.stop)) for a in range(self.start, self.stop, self.step)]


class Job(NamedTuple):
    """fn(start, raw rows, slices of per-row arrays..., args...) for every block of a source."""

    source: Source
    spans: list[Span]
    fn: Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def kind(self) -> str:
        """What is done to blocks, whatever the function is wrapped in: its cost is known from the last time."""
        parts = (self.fn.func, *self.fn.args) if isinstance(self.fn, partial) else (self.fn,)
        return " ".join(f"{part.__module__}.{getattr(part, '__qualname__', '')}" for part in parts if callable(part))


class Executor(Protocol):
    """Runs the blocks of a job; `execution.threads.Threads` is the one of this process."""

    @property
    def n_threads(self) -> int:
        """Number of blocks that are worked on at the same time."""

    def resize(self, n_threads: int) -> None:
        """Continue with another number of threads."""

    def run(self, job: Job, per_row: tuple[Array, ...]) -> Generator[Any]:
        """Yield the shares of a job in row order, one a block or, where they add up, one a partition."""


def folded(shares: Iterable[Any]) -> Iterator[Any]:
    """The shares of a partition's blocks: added up, block after block, where they have a `plus`; else one by one.

    Every engine adds up in these two levels, blocks to partitions and partitions to the whole, and so to the same bits: what
    workers send is as large as the centres, a partition, not a block.
    """
    total = None
    for share in shares:
        if not hasattr(share, "plus"):
            yield share
        else:
            total = share if total is None else total.plus(share)
    if total is not None:
        yield total
