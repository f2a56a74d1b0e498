"""A cluster of two worker processes, shared by all tests of this folder because it takes seconds to start."""

import time

import pytest

from shoal.data import rows as rows_module

distributed = pytest.importorskip("distributed")

from shoal.distributed.cluster import close  # noqa: E402


@pytest.fixture(scope="session")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
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
