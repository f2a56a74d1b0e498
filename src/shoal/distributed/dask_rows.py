"""A source of rows whose partitions are processed by the workers of a Dask client, or by threads where there is no client."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
from distributed import Client, Future

from ..data.jobs import Job
from ..data.source import DistributedSource, FileSource, Source
from ..data.sources import find_source
from ..data.types import Array
from ..execution.threads import Threads
from . import tasks
from .partitions import stack_chunks
from .scheduler import OrderedScheduler
from .task_batching import Task
from .workers import WorkerPool


class DaskRows(DistributedSource):
    """Rows in partitions, processed by the workers of a client, or by threads of this process if the client is None.

    Parameters
    ----------
    partitions : list of Partition
        Descriptions of the partitions, in row order.
    dependencies : list of list of Future
        Values that workers hold already and that each partition is computed from.
    cuts : list of int
        First row of each partition, and the number of rows.
    empty : array
        Zero rows of the type and the width of all rows.
    client : dask.distributed.Client or None
        Client whose workers process the partitions.
    """

    def __init__(
        self, partitions: list[Any], dependencies: list[list[Future]], cuts: list[int], empty: Any, client: Client | None
    ) -> None:
        # Packed for workers, because Dask would search the partitions for tasks of its own.
        self.partition_args = partitions if client is None else [tasks.pack(partition) for partition in partitions]
        self.dependencies, self.cuts = dependencies, cuts
        self.shape, self.dtype = (cuts[-1], int(empty.shape[1])), empty.dtype
        self._empty = empty
        self._transform: tasks.Transform | None = None
        self._pool = None if client is None else WorkerPool(client)
        self._file: FileSource | None = None

    def with_transform(self, transform: tasks.Transform, dtype: np.dtype) -> DaskRows:
        other = DaskRows.__new__(DaskRows)
        vars(other).update(vars(self))
        other._transform, other.dtype, other._empty = transform, dtype, transform(None, self._empty).astype(dtype)
        return other

    def __getstate__(self) -> Any:
        raise TypeError(
            "The model compares new rows with all rows of its fit, which are on Dask workers, so it cannot be pickled: use "
            "NystromSpectral or LandmarkSpectral, which store a sample of the rows."
        )

    def traffic(self) -> dict[str, float]:
        return {} if self._pool is None else self._pool.traffic()

    def fingerprint(self) -> str | None:
        return None if self._file is None else self._file.fingerprint()

    def run(self, job: Job, per_row: tuple[Array, ...], threads: Threads) -> Generator[Any]:
        """Yield the shares of a job in row order, and write to the per-row arrays what the block function has written."""
        spans = [(i, span) for i, span in enumerate(job.spans) if span.start < span.stop]

        def make_task(n: int) -> Task:
            i, span = spans[n]
            return self.make_task(i, tasks.run_partition, span, tasks.pack(tasks.PerRowSlices.from_arrays(per_row, span)))

        indices = [i for i, _ in spans]
        with closing(self.run_tasks(make_task, indices, self._pack_spec(job.fn, job.args), job.kind, threads)) as answers:
            for n, answer in enumerate(answers):
                shares, changed_slices = tasks.unpack(answer)
                for which, values in changed_slices.items():
                    per_row[which][spans[n][1].start : spans[n][1].stop] = values
                yield from shares

    def read(self, start: int, stop: int) -> Any:
        ranges = [(i, max(a, start), min(b, stop)) for i, (a, b) in enumerate(pairwise(self.cuts)) if a < stop and start < b]
        ranges = [(i, a, b) for i, a, b in ranges if a < b]
        if not ranges:
            return self._empty

        def make_task(n: int) -> Task:
            i, a, b = ranges[n]
            return self.make_task(i, tasks.read_rows, slice(a, b))

        answers = self.run_tasks(make_task, [i for i, _, _ in ranges], self._pack_spec(), "read")
        return stack_chunks([tasks.unpack(answer) for answer in answers])

    def take(self, rows: Array) -> Any:
        rows = np.asarray(rows, np.int64)
        if not len(rows):
            return self._empty
        if self._file is not None and self._file.fingerprint() is None:  # single rows can be read, so the driver does it
            return tasks.PassSpec(None, (), self._transform, self.dtype).apply_transform(None, self._file.take(rows))
        partition = np.searchsorted(self.cuts, rows, "right") - 1
        order = np.argsort(partition, kind="stable")
        used, group_starts = np.unique(partition[order], return_index=True)
        groups = np.split(rows[order], group_starts[1:])

        def make_task(n: int) -> Task:
            return self.make_task(int(used[n]), tasks.take_rows, groups[n])

        answers = self.run_tasks(make_task, list(map(int, used)), self._pack_spec(), "take")
        blocks = [tasks.unpack(answer) for answer in answers]
        inverse = np.empty(len(rows), np.int64)
        inverse[order] = np.arange(len(rows))
        return stack_chunks(blocks)[inverse]

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        return find_source(self.take(rows))

    def _pack_spec(self, fn: Any = None, args: tuple[Any, ...] = ()) -> bytes:
        return tasks.pack(tasks.PassSpec(fn, args, self._transform, self.dtype))

    def make_task(self, i: int, fn: Callable[..., bytes], *args: Any) -> Task:
        """Return the task that calls a function of `tasks` for the i-th partition."""
        a, b = self.cuts[i], self.cuts[i + 1]
        return Task(f"Partition {i} (rows {a:,} to {b - 1:,})", fn, self.partition_args[i], args, self.dependencies[i])

    def run_tasks(
        self, make_task: Callable[[int], Task], indices: list[int], spec: bytes, kind: str, threads: Threads | None = None
    ) -> Generator[bytes]:
        """Yield the answers of make_task(n) for the n-th of these partitions, in order.

        Passes of the same kind are expected to cost about the same; see `TaskStats`.
        """

        def run_here(n: int, _: Any = None) -> bytes:
            task = make_task(n)
            return task.fn(task.partition, spec, *task.args, task.dependencies)

        if self._pool is not None:
            dependencies = [self.dependencies[i] for i in indices]
            yield from OrderedScheduler(self._pool, make_task, dependencies, spec, kind).results()
        elif threads is None:
            yield from map(run_here, range(len(indices)))
        else:
            yield from threads.map(lambda _: None, run_here, list(range(len(indices))), False)
