"""Workers die, freeze, join and leave: the result is the same, or an error names the remedy."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from distributed import Client, get_worker

import shoal
from shoal.distributed import failures, lateness, workers
from shoal.distributed.scheduler import MAX_IN_FLIGHT, OrderedScheduler
from shoal.distributed.task_batching import Task
from shoal.distributed.workers import WorkerPool
from shoal.exceptions import ClusterLostError
from tests.strategies import blobs

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks", "all_workers")]
X, _ = blobs(1500, 6, 8)
ROWS = da.from_array(X, chunks=(250, 6))


def fit(rows=ROWS, at_step=None, action=lambda: None, client=None, max_iter=5):
    """Fit a model and call `action` after a step."""

    def callback(record):
        if record["step"] == at_step:
            action()

    model = shoal.KMeans(8, init="random", n_init=1, random_state=3, tol=0, max_iter=max_iter, callback=callback)
    with shoal.Engine(client):
        return model.fit(rows)


def assert_same(a, b):
    np.testing.assert_array_equal(a.labels_, b.labels_)
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    assert (a.inertia_, a.n_iter_) == (b.inertia_, b.n_iter_)


def pid_of_a_worker(client):
    return next(iter(client.run(os.getpid).values()))


def test_a_worker_is_killed(client):
    model = fit(at_step=2, action=lambda: os.kill(pid_of_a_worker(client), signal.SIGKILL), client=client)
    assert_same(model, fit())


def test_a_worker_freezes(client, monkeypatch):
    monkeypatch.setattr(lateness, "MIN_LATE_SECONDS", 1.0)
    pid = pid_of_a_worker(client)
    try:
        model = fit(at_step=2, action=lambda: os.kill(pid, signal.SIGSTOP), client=client)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert_same(model, fit())
    assert sum(step["lost"] for step in model.history_) > 1


def test_workers_come_and_go(client, cluster):
    model = fit(at_step=1, action=lambda: cluster.scale(3), client=client)
    assert_same(model, fit())
    model = fit(at_step=1, action=lambda: cluster.scale(1), client=client)
    assert_same(model, fit())
    cluster.scale(2)


def kill_worker_in_chunk_3(block, block_info=None):
    if block_info[0]["chunk-location"][0] == 3 and _is_worker():
        os._exit(1)
    return block


def _is_worker():
    try:
        return get_worker() is not None
    except ValueError:
        return False


def test_a_partition_that_kills_workers_is_named(client, cluster, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    monkeypatch.setattr(failures, "MAX_WORKER_DEATHS", 2)  # restarting a worker takes seconds
    with pytest.raises(ClusterLostError, match=r"Partition 3 \(rows 750 to 999\): 2 workers died while processing it"):
        fit(da.zeros((1500, 6), chunks=(250, 6)).map_blocks(kill_worker_in_chunk_3, dtype=float), client=client)


def start(*words):
    return subprocess.Popen([sys.executable, "-m", "dask", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def fragile():
    """A client of a scheduler in a process of its own, which a test can kill, and that process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    options = ["--no-dashboard"]
    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], *options)
    worker = start("worker", address, "--host", "127.0.0.1", "--no-nanny", "--nthreads", "1", *options)
    client = Client(address, set_as_default=False, timeout=60)
    yield client, scheduler
    for process in (scheduler, worker):
        process.kill()
        process.wait(30)
    client.close(timeout=1)


@pytest.mark.filterwarnings("ignore")
def test_a_fit_resumes_elsewhere_after_its_scheduler_is_lost(fragile, client, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "UNREACHABLE_SECONDS", 1.0)
    fragile_client, scheduler = fragile
    killed_at = []

    def kill_scheduler():
        scheduler.kill()
        killed_at.append(time.monotonic())

    path = tmp_path / "checkpoint.npz"
    with (
        pytest.raises(ClusterLostError, match=f"(?s)scheduler at tcp.* is lost.*{path} holds the state"),
        shoal.Checkpoint(path, every=0),
    ):
        fit(at_step=3, action=kill_scheduler, client=fragile_client)
    assert time.monotonic() - killed_at[0] < workers.UNREACHABLE_SECONDS + 8  # about 3 s on an idle machine
    with shoal.Checkpoint(path, every=0):
        model = fit(client=client)
    assert_same(model, fit())


class SilentClient:
    """A client that seems connected, but whose scheduler never answers."""

    status = "running"

    def __init__(self, address):
        self.scheduler = SimpleNamespace(address=address, identity=None)

    def sync(self, *_, **__):
        raise TimeoutError


def test_an_unreachable_scheduler_is_given_up_before_a_busy_one():
    """The machine of a busy scheduler still accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        pool = WorkerPool(SilentClient(address))
        pool.contacted_at -= workers.UNREACHABLE_SECONDS
        assert pool.refresh(force=True) == set()
    with pytest.raises(ClusterLostError, match=f"scheduler at {address} is lost: start"):
        pool.refresh(force=True)
    pool = WorkerPool(SilentClient("inproc://here"))
    pool.contacted_at -= workers.UNREACHABLE_SECONDS
    assert pool.refresh(force=True) == set()
    pool.contacted_at -= workers.STALLED_SECONDS
    with pytest.raises(ClusterLostError, match="is lost"):
        pool.refresh(force=True)


def test_suspects_are_named_when_no_worker_is_left(monkeypatch):
    """The last workers died during a partition: it is named, although it could not be run alone."""
    monkeypatch.setattr(WorkerPool, "refresh", lambda *_: (_ for _ in ()).throw(ClusterLostError("No worker has come.")))
    scheduler = OrderedScheduler(WorkerPool(None), lambda i: Task(f"Partition {i}", None, None, (), []), [[]] * 5, b"")
    scheduler.failures.suspects, scheduler.failures.deaths = [3], {3: 4}
    with pytest.raises(ClusterLostError, match=r"^Partition 3: 4 workers died while processing it; No worker has come\.$"):
        scheduler._refresh()


def test_a_lost_fit_without_checkpoint_is_reported(client, monkeypatch):
    monkeypatch.setattr(WorkerPool, "refresh", lambda *_: (_ for _ in ()).throw(ClusterLostError("gone.")))
    with pytest.raises(ClusterLostError, match="The progress of the fit was not saved"):
        fit(client=client)


def n_in_flight(scheduler):
    return len({id(submission) for attempts in scheduler.in_flight.attempts.values() for submission in attempts})


def test_number_of_tasks_in_flight_is_limited(client, monkeypatch):
    n_spare = []  # that the pool has capacity for: its number of threads may change
    submit = OrderedScheduler._submit

    def submit_and_count(self, *args):
        submit(self, *args)
        n_spare.append(MAX_IN_FLIGHT * self.pool.n_threads - n_in_flight(self))

    monkeypatch.setattr(OrderedScheduler, "_submit", submit_and_count)
    fit(da.from_array(X, chunks=(100, 6)), client=client, max_iter=1)
    assert min(n_spare) >= 0
