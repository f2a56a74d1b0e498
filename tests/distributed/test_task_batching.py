"""Short tasks are submitted in batches: answers come in order, and a failure is attributed to the task that caused it."""

import os
import signal
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import futures_of, wait

import shoal
from shoal.distributed import failures, lateness, task_batching, tasks
from shoal.distributed import scheduler as scheduler_module
from shoal.distributed.in_flight import Submission
from shoal.distributed.scheduler import MAX_IN_FLIGHT, OrderedScheduler
from shoal.distributed.task_batching import Task, TaskStats, make_batches, tasks_per_batch
from shoal.distributed.workers import WorkerPool
from shoal.exceptions import ClusterLostError
from tests.strategies import blobs

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("all_workers")]
SHORT = TaskStats(seconds=1e-3, answer_bytes=10)


def test_unknown_tasks_are_not_batched():
    assert tasks_per_batch(TaskStats(), 1000, 2) == 1


def test_long_tasks_and_large_answers_are_not_batched():
    assert tasks_per_batch(SHORT._replace(seconds=1.0), 1000, 2) == 1
    assert tasks_per_batch(SHORT._replace(answer_bytes=task_batching.MAX_BATCH_ANSWER_BYTES), 1000, 2) == 1


def test_every_thread_gets_batches():
    assert tasks_per_batch(SHORT, 1000, 2) == 100  # a tenth of a second
    assert tasks_per_batch(SHORT, 100, 2) == 25
    assert tasks_per_batch(SHORT, 3, 2) == 1


def test_tasks_of_a_batch_share_a_location():
    assert make_batches("aabab", 2) == [[0, 1], [2, 4], [3]]
    assert make_batches("aaaaa", 2) == [[0, 1], [2, 3], [4]]
    assert make_batches(range(3), 2) == [[0], [1], [2]]
    assert make_batches("", 2) == []


def echo(partition, spec, dependencies):
    return spec + bytes([partition])


def fail_at_3_and_7(partition, spec, dependencies):
    if partition in (3, 7):
        raise ValueError(f"task {partition} failed")
    return echo(partition, spec, dependencies)


def kill_worker_at_3(partition, spec, dependencies):
    if partition == 3:
        os._exit(1)
    return echo(partition, spec, dependencies)


def slow_once(partition, spec, dependencies):
    """Echo the partition; the first task that runs waits until the file `done` exists."""
    folder = Path(spec.decode())
    with open(folder / "started", "ab") as file:
        first = file.tell() == 0
        file.write(b".")
    for _ in range(600 if first else 0):
        if (folder / "done").exists():
            break
        time.sleep(0.1)
    return bytes([partition])


def make_scheduler(client, fn, spec=b"x", n_tasks=12):
    """Return a scheduler of short tasks, with three or more in a batch unless there are few."""
    pool = WorkerPool(client)
    scheduler = OrderedScheduler(pool, lambda i: Task(f"Partition {i}", fn, i, (), []), [[]] * n_tasks, spec, "kind")
    scheduler.stats = SHORT
    return scheduler


def test_answers_come_in_order(client):
    scheduler = make_scheduler(client, echo)
    assert list(scheduler.results()) == [b"x" + bytes([i]) for i in range(12)]
    assert scheduler.pool.n_tasks <= 4
    stats = scheduler.pool.task_stats["kind", 1]
    assert 0 < stats.seconds < 5
    assert stats.answer_bytes == 2


def test_the_first_error_is_raised(client):
    answers = []
    with pytest.raises(ValueError, match="task 3 failed"):
        answers.extend(make_scheduler(client, fail_at_3_and_7).results())
    assert answers == [b"x" + bytes([i]) for i in range(3)]


def test_the_task_that_kills_workers_is_named(client, cluster, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    monkeypatch.setattr(failures, "MAX_WORKER_DEATHS", 2)
    with pytest.raises(ClusterLostError, match=r"^Partition 3: 2 workers died while processing it"):
        list(make_scheduler(client, kill_worker_at_3).results())


def test_late_tasks_are_submitted_again(client, monkeypatch, tmp_path):
    monkeypatch.setattr(lateness, "MIN_LATE_SECONDS", 0.2)
    scheduler = make_scheduler(client, slow_once, str(tmp_path).encode())
    assert list(scheduler.results()) == [bytes([i]) for i in range(12)]
    (tmp_path / "done").touch()
    assert scheduler.pool.lost_seconds > lateness.MIN_LATE_SECONDS


def test_lost_time_is_divided_among_the_tasks_of_a_batch(monkeypatch):
    submission = Submission([1, 3, 4], None, submitted_at=2.0)
    monkeypatch.setattr(time, "monotonic", lambda: 8.0)
    assert sum(submission.seconds_per_task() for _ in submission.indices) == 6.0


def sleep_and_echo(partition, spec, dependencies):
    time.sleep(0.25)
    return echo(partition, spec, dependencies)


def set_time_limit_of_batches(seconds):
    tasks.MAX_BATCH_SECONDS = seconds


@pytest.fixture
def short_time_limit(client):
    """Reduce the time limit of a batch on the workers, where it is applied."""
    client.run(set_time_limit_of_batches, 0.2)
    yield
    client.run(set_time_limit_of_batches, tasks.MAX_BATCH_SECONDS)


@pytest.mark.usefixtures("short_time_limit")
def test_tasks_beyond_the_time_limit_of_a_batch_are_submitted_again(client):
    scheduler = make_scheduler(client, sleep_and_echo, n_tasks=8)  # two tasks in a batch
    assert list(scheduler.results()) == [b"x" + bytes([i]) for i in range(8)]
    assert scheduler.pool.n_tasks == 8


def test_number_of_batches_in_flight_is_limited(client, monkeypatch):
    """Locations are unknown, so that every batch has one task."""
    monkeypatch.setattr(WorkerPool, "locate_dependencies", lambda self, dependencies: range(len(dependencies)))
    scheduler, counts = make_scheduler(client, echo, n_tasks=100), []
    submit = scheduler._submit
    monkeypatch.setattr(scheduler, "_submit", lambda *args: (submit(*args), counts.append(len(scheduler.in_flight.attempts))))
    assert len(list(scheduler.results())) == 100
    assert max(counts) <= 2 * MAX_IN_FLIGHT


def sum_rows(partition, spec, dependencies):
    return bytes([int(dependencies[0].sum())])


def test_lost_dependencies_are_computed_again(client):
    """A worker dies with answers that have not been fetched, and with the rows that it persisted."""
    X = client.persist(da.ones((240, 4), chunks=(10, 4)))
    dependencies = [[future] for future in futures_of(X, client)]
    with client.as_current():
        wait(X)
    pool = WorkerPool(client)
    make_task = lambda i: Task(f"Partition {i}", sum_rows, None, (), dependencies[i])  # noqa: E731
    scheduler = OrderedScheduler(pool, make_task, dependencies, b"", "kind")
    scheduler.stats, scheduler.buffer.answer_bytes = SHORT, 1 << 23  # answers are fetched one by one
    answers = []
    for answer in scheduler.results():
        if not answers:
            time.sleep(1.0)
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            time.sleep(1.0)
        answers.append(answer)
    assert answers == [bytes([40])] * 24


def test_a_worker_freezes_before_its_answers_are_fetched(client, monkeypatch):
    """The answers of the other worker are fetched, and those of the frozen one are computed again."""
    monkeypatch.setattr(lateness, "MIN_LATE_SECONDS", 0.25)
    monkeypatch.setattr(scheduler_module, "REFRESH_SECONDS", 0.25)  # the first timeout of a fetch
    scheduler = make_scheduler(client, echo, n_tasks=24)
    pid, gather, n_requested = next(iter(client.run(os.getpid).values())), scheduler.pool.gather, []

    def freeze_and_gather(futures, timeout):
        if not n_requested:
            os.kill(pid, signal.SIGSTOP)
        n_requested.append(len(futures))
        return gather(futures, timeout)

    monkeypatch.setattr(scheduler.pool, "gather", freeze_and_gather)
    try:
        assert list(scheduler.results()) == [b"x" + bytes([i]) for i in range(24)]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_locations_of_dependencies(client):
    X = client.persist(da.zeros((400, 3), chunks=(100, 3)))
    with client.as_current():
        wait(X)
    dependencies = [[future] for future in futures_of(X, client)]
    pool = WorkerPool(client)
    locations = pool.locate_dependencies([*dependencies, []])
    assert locations == [client.who_has(futures)[futures[0].key][:1] for futures in dependencies] + [()]
    assert pool.locations.keys() == {futures[0].key for futures in dependencies}  # cached until the next refresh
    pool.refresh(force=True)
    assert not pool.locations


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("persisted", [False, True])
def test_batches_do_not_change_a_fit(client, monkeypatch, persisted):
    X, _ = blobs(3600, 6, 8)
    rows = da.from_array(X, chunks=(300, 6))
    expected = shoal.KMeans(8, init="k-means||", random_state=0, max_iter=6, tol=0).fit(rows)
    monkeypatch.setattr(task_batching, "BATCH_SECONDS", 100.0)
    with shoal.Engine(client):
        model = shoal.KMeans(8, init="k-means||", random_state=0, max_iter=6, tol=0).fit(
            client.persist(rows) if persisted else rows
        )
    np.testing.assert_array_equal(expected.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(expected.labels_, model.labels_)
    assert model.history_[0]["tasks"] > 12 > 6 >= max(step["tasks"] for step in model.history_[1:])
