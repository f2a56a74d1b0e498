"""Batches of short tasks, which are submitted as one Dask task.

A Dask task costs driver, scheduler and worker about 10 ms together, whatever it computes. Tasks are batched only if the last
pass of the same kind has shown that they are short and that their answers are small.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from distributed import Future

from .tasks import pack, run_batch

BATCH_SECONDS = 0.1  # seconds of work in a batch: ten times the cost of a Dask task. 0 disables batching
MAX_BATCH_ANSWER_BYTES = 1 << 22  # answers of a batch; more take longer to transfer than a task costs
MAX_GATHER_BYTES = 1 << 26  # answers that are fetched in one request; limits the memory of the driver
MIN_BATCHES_PER_THREAD = 2  # so that a worker has a batch to start when it finishes one


class Task(NamedTuple):
    """The call fn(partition, spec, *args, dependencies) for one partition."""

    name: str  # for error messages
    fn: Callable[..., bytes]
    partition: Any
    args: tuple[Any, ...]
    dependencies: list[Future]


class TaskStats(NamedTuple):
    """Costs of the tasks in the last pass of a kind. The defaults, for an unknown kind, prevent batching."""

    seconds: float = float("inf")  # thread time of a task
    batch_seconds: float = 0.0  # median time from the submission of a batch to its answer
    answer_bytes: int = MAX_GATHER_BYTES  # size of the largest answer


def tasks_per_batch(stats: TaskStats, n_tasks: int, n_threads: int) -> int:
    """Return the number of tasks per batch, limited by their time, the size of their answers and the batches per thread."""
    by_time = BATCH_SECONDS / max(stats.seconds, 1e-6)
    by_size = MAX_BATCH_ANSWER_BYTES / max(stats.answer_bytes, 1)
    return max(1, int(min(by_time, by_size, n_tasks / (MIN_BATCHES_PER_THREAD * n_threads))))


def make_batches(locations: Sequence[Hashable], batch_size: int) -> list[list[int]]:
    """Group task indices of equal locations into batches of at most this size, ordered by the first task of each batch."""
    batches: list[list[int]] = []
    open_batches: dict[Hashable, list[int]] = {}
    for index, location in enumerate(locations):
        if location not in open_batches or len(open_batches[location]) == batch_size:
            open_batches[location] = []
            batches.append(open_batches[location])
        open_batches[location].append(index)
    return batches


def make_calls(batches: list[list[Task]], spec: Any) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    """Return the function to call on workers, and its arguments for each batch.

    If no batch has several tasks, the function of the tasks is called without the overhead of a batch.
    """
    fn = batches[0][0].fn
    if all(len(batch) == 1 for batch in batches):
        return fn, [(task.partition, spec, *task.args, task.dependencies) for (task,) in batches]
    packed = [pack([(task.partition, task.args) for task in batch]) for batch in batches]
    dependencies = [[task.dependencies for task in batch] for batch in batches]
    return run_batch, [(fn, own, spec, needed) for own, needed in zip(packed, dependencies, strict=True)]
