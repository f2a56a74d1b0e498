"""A cluster of two worker processes, shared by all tests of this folder because it takes seconds to start."""

import time

import pytest

from shoal.data import rows as rows_module

distributed = pytest.importorskip("distributed")

import dask  # noqa: E402
from distributed.utils import get_mp_context  # noqa: E402

from shoal.distributed.cluster import close  # noqa: E402

START_METHOD = "distributed.worker.multiprocessing-method"
PRELOADED = ["distributed.nanny", "dask.array", "dask.dataframe", "shoal.distributed.dask", "shoal.kmeans.kmeans"]


@pytest.fixture(scope="session")
def cluster():
    """The workers are forks of a process that has imported their code: tests that kill workers wait for new ones."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    with dask.config.set({START_METHOD: "forkserver"}):
        get_mp_context().set_forkserver_preload(PRELOADED)
        cluster = distributed.LocalCluster(processes=True, **options)
        yield cluster
        close(cluster)


@pytest.fixture(scope="session")
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def all_workers(client, cluster):
    """Wait until there are two workers again: an earlier test may have killed some, or added one that is still being retired.

    Dask restarts no worker after 15 s unless the cluster is scaled.
    """
    started = time.monotonic()
    while len(client.nthreads()) != 2:
        assert time.monotonic() - started < 120
        cluster.scale(2)
        time.sleep(0.5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Use small blocks. The driver decides on block sizes, so patching it is enough."""
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))
    monkeypatch.setattr(rows_module, "BLOCKS_PER_PARTITION", 3)
