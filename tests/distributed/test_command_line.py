"""`shoal --engine dask` writes the same files as threads do."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import shoal
from shoal.distributed.cluster import close
from shoal.distributed.workers import WorkerPool
from shoal.exceptions import ClusterLostError
from tests.cli.invoke import refused, result, run

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("rows", "small_blocks")]
FIT = ("fit", "rows", "-k", 3, "--quiet", "--method", "lloyd")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(900, 4)).astype(np.float32)
    X[:, 0] += 50 * (np.arange(900) % 3)
    Path("rows").mkdir()
    for i in range(3):
        np.save(f"rows/{i}.npy", X[300 * i : 300 * (i + 1)])
    return X


def test_workers_write_the_same_files(capsys, rows, client):
    address = ("--engine", "dask", "--scheduler", client.scheduler.address)
    summary = result(capsys, *FIT, "-o", "workers", *address)
    plain = result(capsys, *FIT, "-o", "threads")
    assert summary["work"]["tasks"] > 0
    assert not plain["work"]
    assert summary["energy"] == plain["energy"]
    on_workers, on_threads = (shoal.load(f"{folder}/model.npz") for folder in ("workers", "threads"))
    np.testing.assert_array_equal(on_workers.cluster_centers_, on_threads.cluster_centers_)
    np.testing.assert_array_equal(np.load("workers/labels.npy"), np.load("threads/labels.npy"))
    result(capsys, "predict", "workers/model.npz", "rows", "-o", "labels.npy", "--quiet", *address)
    np.testing.assert_array_equal(np.load("labels.npy"), np.load("workers/labels.npy"))


def test_a_fit_on_a_lost_cluster_can_be_resumed(capsys, client, monkeypatch):
    refresh, calls = WorkerPool.refresh, []

    def lose_cluster(pool, force=False):
        calls.append(force)
        if len(calls) > 4:
            raise ClusterLostError("The scheduler is gone.")
        return refresh(pool, True)

    address = ("--engine", "dask", "--scheduler", client.scheduler.address)
    with monkeypatch.context() as broken:
        broken.setattr(WorkerPool, "refresh", lose_cluster)
        code, _, err = run(capsys, *FIT, "-o", "out", *address)
    assert code == 4
    assert f"shoal resume out --engine dask --scheduler {client.scheduler.address}" in err
    assert json.loads(Path("out/run.json").read_text())["settings"]["engine"] == "dask"
    assert "whose address is not stored" in refused(capsys, 2, "resume", "out", "--quiet")
    summary = result(capsys, "resume", "out", "--quiet", "--engine", "threads")
    assert summary["energy"] == result(capsys, *FIT, "-o", "threads")["energy"]
    assert not {"scheduler", "workers"} & set(json.loads(Path("out/run.json").read_text())["settings"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", 2), "without --engine dask"),
        (("--engine", "dask"), "--scheduler ADDRESS or --workers COUNT"),
        (("--engine", "dask", "--workers", 2, "--method", "online"), "use MiniBatchKMeans"),
        (("--engine", "dask", "--workers", 2, "--scheduler", "tcp://127.0.0.1:1"), "not both"),
        (("--engine", "dask", "--scheduler", "nowhere:at:all"), "no Dask scheduler answers"),
        (("--engine", "dask", "--scheduler", "nowhere"), "missing port number"),
    ],
)
def test_invalid_combinations_of_options_are_refused(capsys, options, message):
    assert message in refused(capsys, 2, *FIT, "-o", "out", *options)
    assert not Path("out").exists()


def test_errors_of_dask_on_closing_are_ignored():
    """Dask raises KeyError for workers that died before they were registered."""
    closed = []

    class FailingCluster:
        def close(self, timeout):
            closed.append(self)
            raise KeyError("tcp://127.0.0.1:1")

    close(FailingCluster())
    assert closed


def test_workers_of_a_cluster_that_does_not_close_are_killed():
    """Dask waits without a limit for a worker that hangs while it starts."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as process:

        class HangingCluster:
            _created = (SimpleNamespace(pid=process.pid), SimpleNamespace(pid=None))

            def close(self, timeout):
                raise TimeoutError

        close(HangingCluster())
        assert process.wait(10) == -signal.SIGKILL
