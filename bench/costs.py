"""Dask overhead in CPU seconds: per task, per byte sent and per byte received. Input of the model in `scale`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

from .dask_workers import clouds, held, workers
from .measure import Lab, busy
from .results import Entry
from .suites import entry_of

PLAN_SIZE = (768, 100_000)  # columns and clusters of the plan
STEPS = 20
PRODUCTS_PER_TASK = 4  # products of two matrices of 512 rows


def spent(client: Any) -> Any:
    """Return the CPU seconds of this process (driver and scheduler) and of the workers."""
    return np.array([time.process_time(), sum(client.run(time.process_time).values())])


def multiply(_: Any, order: Any) -> int:
    """Run matrix products only. Without competing arithmetic, the measured overhead would be too low."""
    A = np.full((512, 512), 1 / 512, np.float32)
    for _ in range(PRODUCTS_PER_TASK):
        A = A @ A
    return 0


def receive(block: Any, values: Any, order: Any) -> int:
    return multiply(block, order)


def make_share(block: Any, order: Any, clusters: int, columns: int) -> Any:
    """Return a share of `clusters` clusters."""
    from shoal.data.blocks import SumDeltas
    from shoal.fit.partition import StepStats

    multiply(block, order)
    ids = np.arange(clusters)
    return StepStats(SumDeltas(ids, np.ones((clusters, columns)), *np.ones((2, clusters)), ids, 0), 0, 0)


def costs(lab: Lab) -> Iterator[Entry]:
    """Driver and worker CPU time per task and per MB, GFLOP/s per core, and the fraction of reassigned rows."""
    import shoal

    rows: list[Entry] = []
    with workers(2 if lab.quick else 4) as client, shoal.Engine(client):
        rows += _rounds(lab, client, 8 if lab.quick else 64)
    _flops(16, 100)  # compile or load the kernels
    d, k = (16, 100) if lab.quick else PLAN_SIZE
    rows.append({"cost": "arithmetic", "value": _flops(d, k) / 1e9, "unit": f"GFLOP/s of a core, {d} columns, {k:,} clusters"})
    rows.append(
        {
            "cost": "memory given back",
            "value": _time_with_memory_release(lab),
            "unit": "times the workers' time in steps of Lloyd's",
        }
    )
    rows += [
        {"cost": f"moving {n}", "value": share, "unit": "share of the rows"} for n, share in _reassigned_fractions(lab).items()
    ]
    measure = (
        "Medians of rounds of tasks that do some arithmetic, get 0.5 MB or answer 4 MB, on 4 workers; CPU time, the driver's "
        "with the scheduler's, and without what threads take for the same arithmetic. Moving: rows that change cluster "
        "in a step of Lloyd's from rows at random, 1,000 rows a cluster. Memory given back: without `tasks._keep_memory`."
    )
    yield entry_of(lab, "costs", measure, rows, [])


def _rounds(lab: Lab, client: Any, count: int) -> list[Entry]:
    from shoal.data.rows import Rows
    from shoal.data.sources import find_source
    from shoal.distributed import task_batching
    from shoal.distributed.scheduler import MAX_INLINE_SPEC_BYTES
    from shoal.execution.engine import UNSPECIFIED, resolve_source
    from shoal.execution.threads import Threads, default_threads

    X = clouds(count << 16, 1, 2)
    rows, near = (
        Rows.of(resolve_source(held(client, X, count), UNSPECIFIED)),
        Rows.of(find_source(X)),
    )  # one block per partition
    executor = Threads(default_threads())
    values = np.random.default_rng(0).normal(size=len(rows))
    order = np.zeros(MAX_INLINE_SPEC_BYTES // 8 + 1)  # sent from worker to worker, as centroids are
    shape = (10, 10) if lab.quick else (1000, 512)
    totals = [np.zeros(shape), *np.zeros((2, shape[0])), np.zeros(shape[0], np.int64)]

    def alone() -> None:
        for _ in near.map_blocks(multiply, order):
            pass

    def empty() -> None:
        for _ in rows.map_blocks(multiply, order):
            pass

    def down() -> None:
        for _ in rows.map_blocks(receive, order, per_row=(values,)):
            pass

    def up() -> None:
        for share in rows.map_blocks(make_share, order, *shape):
            share.moves.add_to(*totals)

    rows, near = rows.with_executor(executor), near.with_executor(executor)
    with executor, patch.object(task_batching, "BATCH_SECONDS", 0.0):  # no batching of tasks
        took = {kind: _cpu_seconds(lab, client, kind) for kind in (alone, empty, down, up)}
    sizes = {down: values.nbytes / 1e6, up: count * shape[0] * (8 * shape[1] + 32) / 1e6}
    task, of_worker = (took[empty] - [0, took[alone][0]]) / count * 1e3
    more = {kind: (took[kind] - took[empty]) * 1e3 for kind in (down, up)}
    packing = (more[down][1] + more[up][1]) / (sizes[down] + sizes[up])
    lab.say(f"  a task {task:.2f} and {of_worker:.2f} ms, a MB down {more[down] / sizes[down]}, up {more[up] / sizes[up]} ms")
    return [
        {"cost": "task", "value": task, "unit": "ms of the driver a task"},
        {"cost": "work", "value": of_worker, "unit": "ms of a worker a task"},
        {"cost": "down", "value": more[down][0] / sizes[down], "unit": "ms of the driver a MB to workers"},
        {"cost": "up", "value": more[up][0] / sizes[up], "unit": "ms of the driver a MB from workers, added up"},
        {"cost": "packing", "value": packing, "unit": "ms of a worker a MB, either way"},
    ]


def _cpu_seconds(lab: Lab, client: Any, work: Callable[[], None]) -> Any:
    """Return the CPU seconds of driver and workers for `work`."""
    work()
    times = []
    for _ in range(lab.repeats):
        lab.others.append(busy())
        before = spent(client)
        work()
        times.append(spent(client) - before)
    return np.median(times, axis=0)


def _flops(d: int, k: int) -> float:
    """Return floating-point operations of the matrix product per CPU second of a whole block, one block per core."""
    from shoal.data.rows import Rows, rows_in_a_block
    from shoal.data.sources import find_source
    from shoal.execution.threads import default_threads, on_threads
    from shoal.fit.partition import label_block

    n = rows_in_a_block(d, False) * default_threads()
    rng = np.random.default_rng(0)
    X, C = (rng.standard_normal((m, d), np.float32) for m in (n, k))
    with on_threads(Rows.of(find_source(X))) as rows:
        labels, centers = np.full(n, -1, np.int32), rows.prepare(C)
        started = time.process_time()
        for _ in rows.map_blocks(label_block, centers, True, per_row=(labels, labels.copy(), rows.weights)):
            pass
        return 2 * n * k * d / (time.process_time() - started)


def _time_with_memory_release(lab: Lab) -> float:
    """Return the worker time of steps with Dask's immediate release of freed memory, relative to Shoal's setting."""
    import shoal

    n, d, k = (4_000, 16, 8) if lab.quick else (320_000, 128, 500)
    X, took = clouds(n, d, k), []
    for before in (_release_memory, int):
        with workers(2) as client, shoal.Engine(client):
            client.run(before)
            rows = held(client, X, 8)
            for steps in (1, 6):
                started = spent(client)[1]
                shoal.KMeans(k, init=X[:k], algorithm="lloyd", max_iter=steps, tol=0).fit(rows)
            took.append(spent(client)[1] - started)
    return float(took[0] / took[1])


def _release_memory() -> None:
    from shoal.distributed import tasks

    tasks._keep_memory = int  # any function without effect


def _reassigned_fractions(lab: Lab) -> dict[int, float]:
    """Return the fraction of rows that change their cluster, by step."""
    import shoal

    k = 10 if lab.quick else 200
    X = clouds(1000 * k, 32, 2 * k, apart=0.4)
    model = shoal.KMeans(k, init="random", algorithm="lloyd", random_state=0, max_iter=STEPS, tol=0).fit(X)
    return {step["step"]: step["reassigned"] / len(X) for step in model.history_ if step["step"] in (2, 5, 10, STEPS)}
