"""`shoal --engine dask`: the same files, whoever works."""

import json
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import shoal
from shoal.distributed import scheduler as rounds
from shoal.distributed.cluster import client_of, close
from shoal.exceptions import ClusterLostError
from tests.cli.calling import refused, result, run

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


def test_workers_leave_the_same_files(capsys, rows, client):
    address = ("--engine", "dask", "--scheduler", client.scheduler.address)
    told = result(capsys, *FIT, "-o", "far", *address)
    plain = result(capsys, *FIT, "-o", "near")
    assert told["work"]["tasks"] > 0
    assert not plain["work"]
    assert told["energy"] == plain["energy"]
    far, near = (shoal.load(f"{folder}/model.npz") for folder in ("far", "near"))
    np.testing.assert_array_equal(far.cluster_centers_, near.cluster_centers_)
    np.testing.assert_array_equal(np.load("far/labels.npy"), np.load("near/labels.npy"))
    result(capsys, "predict", "far/model.npz", "rows", "-o", "labels.npy", "--quiet", *address)
    np.testing.assert_array_equal(np.load("labels.npy"), np.load("far/labels.npy"))


def test_a_lost_cluster_leaves_a_fit_to_go_on_with(capsys, client, monkeypatch):
    look, looks = rounds.Crew.look, []

    def lost(crew, now=False):
        looks.append(now)
        if len(looks) > 4:
            raise ClusterLostError("The scheduler is gone.")
        return look(crew, True)

    address = ("--engine", "dask", "--scheduler", client.scheduler.address)
    with monkeypatch.context() as broken:
        broken.setattr(rounds.Crew, "look", lost)
        code, _, err = run(capsys, *FIT, "-o", "out", *address)
    assert code == 4
    assert f"shoal resume out --engine dask --scheduler {client.scheduler.address}" in err
    assert json.loads(Path("out/run.json").read_text())["settings"]["engine"] == "dask"
    assert "whose address is not kept" in refused(capsys, 2, "resume", "out", "--quiet")
    told = result(capsys, "resume", "out", "--quiet", "--engine", "threads")
    assert told["energy"] == result(capsys, *FIT, "-o", "near")["energy"]
    assert not {"scheduler", "workers"} & set(json.loads(Path("out/run.json").read_text())["settings"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--workers", 2), "without --engine dask"),
        (("--engine", "dask"), "--scheduler ADDRESS or --workers COUNT"),
        (("--engine", "dask", "--workers", 2, "--method", "online"), "take MiniBatchKMeans"),
        (("--engine", "dask", "--workers", 2, "--scheduler", "tcp://127.0.0.1:1"), "not both"),
        (("--engine", "dask", "--scheduler", "nowhere:at:all"), "nobody answers there"),
        (("--engine", "dask", "--scheduler", "nowhere"), "missing port number"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, words, why):
    assert why in refused(capsys, 2, *FIT, "-o", "out", *words)
    assert not Path("out").exists()


def test_workers_of_this_machine_are_for_its_user_alone():
    pytest.importorskip("cryptography")
    with client_of(None, 1) as ours:
        address = ours.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises((OSError, TypeError, ValueError)):
            Client(address, timeout=2)


def test_what_dask_stumbles_over_in_the_end_is_not_told():
    """A worker that died before its cluster had heard of it is no reason to fail, once the work is done."""
    closed = []

    class Stumbling:
        def close(self):
            closed.append(self)
            raise KeyError("tcp://127.0.0.1:1")

    close(Stumbling())
    assert closed
