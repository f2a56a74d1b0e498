"""Workers die, freeze, come and go: the result is the same, or an error says what to do."""

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
from shoal.distributed import scheduler as rounds
from shoal.distributed import workers as crew
from shoal.exceptions import ClusterLostError
from tests.strategies import blobs

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks", "all_there")]
X, _ = blobs(1500, 6, 8)
ROWS = da.from_array(X, chunks=(250, 6))


def fit(rows=ROWS, at_step=None, do=lambda: None, client=None, max_iter=5):
    """A fit during which something happens after a step."""

    def tell(record):
        if record["step"] == at_step:
            do()

    model = shoal.KMeans(8, init="random", n_init=1, random_state=3, tol=0, max_iter=max_iter, callback=tell)
    with shoal.Engine(client):
        return model.fit(rows)


def assert_same(a, b):
    np.testing.assert_array_equal(a.labels_, b.labels_)
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    assert (a.inertia_, a.n_iter_) == (b.inertia_, b.n_iter_)


def a_worker(client):
    return next(iter(client.run(os.getpid).values()))


def test_a_worker_is_killed(client):
    found = fit(at_step=2, do=lambda: os.kill(a_worker(client), signal.SIGKILL), client=client)
    assert_same(found, fit())


def test_a_worker_freezes(client, monkeypatch):
    monkeypatch.setattr(rounds, "PATIENCE", 1.0)
    pid = a_worker(client)
    try:
        found = fit(at_step=2, do=lambda: os.kill(pid, signal.SIGSTOP), client=client)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert_same(found, fit())
    assert sum(step["lost"] for step in found.history_) > 1


def test_workers_come_and_go(client, cluster):
    found = fit(at_step=1, do=lambda: cluster.scale(3), client=client)
    assert_same(found, fit())
    found = fit(at_step=1, do=lambda: cluster.scale(1), client=client)
    assert_same(found, fit())
    cluster.scale(2)


def deadly(block, block_info=None):
    if block_info[0]["chunk-location"][0] == 3 and _is_worker():
        os._exit(1)
    return block


def _is_worker():
    try:
        return get_worker() is not None
    except ValueError:
        return False


def test_a_partition_that_kills_is_named(client, cluster, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    monkeypatch.setattr(rounds, "KILLS", 2)  # it takes a while until a worker is back
    with pytest.raises(ClusterLostError, match=r"Partition 3 \(rows 750 to 999\): 2 workers died over it"):
        fit(da.zeros((1500, 6), chunks=(250, 6)).map_blocks(deadly, dtype=float), client=client)


def start(*words):
    return subprocess.Popen([sys.executable, "-m", "dask", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def fragile():
    """A scheduler that can be killed, and its one worker."""
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
        process.wait()
    client.close(timeout=1)


@pytest.mark.filterwarnings("ignore")
def test_the_scheduler_is_lost_and_the_fit_goes_on_elsewhere(fragile, client, tmp_path):
    mortal, scheduler = fragile
    died = []

    def die():
        scheduler.kill()
        died.append(time.monotonic())

    kept = tmp_path / "kept.npz"
    with (
        pytest.raises(ClusterLostError, match=f"(?s)scheduler at tcp.* is gone.*{kept} holds the state"),
        shoal.Checkpoint(kept, every=0),
    ):
        fit(at_step=3, do=die, client=mortal)
    assert time.monotonic() - died[0] < 2 * crew.SILENCE  # on a busy machine; on others, 10 s
    with shoal.Checkpoint(kept, every=0):
        found = fit(client=client)
    assert_same(found, fit())


class Silent:
    """A client whose scheduler never says a word, though nobody has hung up."""

    status = "running"

    def __init__(self, address):
        self.scheduler = SimpleNamespace(address=address, identity=None)

    def sync(self, *_, **__):
        raise TimeoutError


def test_a_scheduler_that_was_cut_off_is_not_waited_for():
    """One that is busy is, for longer: its machine still takes calls."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"tcp://127.0.0.1:{door.getsockname()[1]}"
        silent = crew.Crew(Silent(address))
        silent.heard -= crew.SILENCE
        assert silent.look(now=True) == set()
    with pytest.raises(ClusterLostError, match=f"scheduler at {address} is gone: start"):
        silent.look(now=True)
    silent = crew.Crew(Silent("inproc://here"))
    silent.heard -= crew.SILENCE
    assert silent.look(now=True) == set()
    silent.heard -= crew.STALL
    with pytest.raises(ClusterLostError, match="is gone"):
        silent.look(now=True)


def test_whom_nobody_is_left_to_work_for(monkeypatch):
    """The last workers died over a partition: it is named, though there is nobody to try it alone with."""
    monkeypatch.setattr(rounds.Crew, "look", lambda *_: (_ for _ in ()).throw(ClusterLostError("No worker has come.")))
    work = rounds.Round(rounds.Crew(None), lambda i: rounds.Task(f"Partition {i}", None, None, (), []), [[]] * 5, b"")
    work.suspects, work.deaths = [3], {3: 4}
    with pytest.raises(ClusterLostError, match=r"^Partition 3: 4 workers died over it; No worker has come\.$"):
        work._look()


def test_what_was_not_kept_is_told(client, monkeypatch):
    monkeypatch.setattr(rounds.Crew, "look", lambda *_: (_ for _ in ()).throw(ClusterLostError("gone.")))
    with pytest.raises(ClusterLostError, match="Nothing of the fit was kept"):
        fit(client=client)


def _under_way(work):
    return len({id(sent) for tries in work.tries.values() for sent in tries})


def test_no_more_is_under_way_than_keeps_workers_busy(client, monkeypatch):
    most = []
    send = rounds.Round._send
    monkeypatch.setattr(rounds.Round, "_send", lambda self, *a: (send(self, *a), most.append(_under_way(self))))
    fit(da.from_array(X, chunks=(100, 6)), client=client, max_iter=1)
    assert max(most) <= rounds.AHEAD * 2
