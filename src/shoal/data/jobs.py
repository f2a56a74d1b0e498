"""Description of a pass over the rows: its blocks, its block function, and how partial results are summed.

The result of a block function for one block is called a share.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from .source import Source
from .types import Array


class Span(NamedTuple):
    """Rows of a partition, and the number of rows per block."""

    start: int
    stop: int
    step: int

    def blocks(self) -> list[slice]:
        """Return the blocks of the partition."""
        return [slice(a, min(a + self.step, self.stop)) for a in range(self.start, self.stop, self.step)]


class Job(NamedTuple):
    """A pass that calls fn(start, raw rows, slices of per-row arrays..., args...) on every block of a source."""

    source: Source
    spans: list[Span]
    fn: Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def kind(self) -> str:
        """Qualified name of the block function, partial wrappers included; measured costs are stored under it."""
        parts = (self.fn.func, *self.fn.args) if isinstance(self.fn, partial) else (self.fn,)
        return " ".join(f"{part.__module__}.{getattr(part, '__qualname__', '')}" for part in parts if callable(part))


class Executor(Protocol):
    """Runs the blocks of a job. `execution.threads.Threads` runs them on threads of this process."""

    @property
    def n_threads(self) -> int:
        """Number of blocks processed at the same time."""

    def resize(self, n_threads: int) -> None:
        """Change the number of threads."""

    def run(self, job: Job, per_row: tuple[Array, ...]) -> Generator[Any]:
        """Yield the shares of a job in row order: one per block or, if they have a `plus` method, one per partition."""


def folded(shares: Iterable[Any]) -> Iterator[Any]:
    """Yield the sum of the shares of a partition's blocks if shares have a `plus` method; otherwise each share.

    Every executor sums in the same two levels, blocks within a partition and then partitions, so results are bitwise
    identical. Distributed workers send one share per partition, since a share may be as large as the centroids.
    """
    total = None
    for share in shares:
        if not hasattr(share, "plus"):
            yield share
        else:
            total = share if total is None else total.plus(share)
    if total is not None:
        yield total
