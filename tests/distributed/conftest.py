"""One cluster of two worker processes for all tests of this folder: it takes seconds to start."""

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
def all_there(client, cluster):
    """Whoever died in the test before is back. A cluster gives up on who is away for 15 s, until it is told to scale."""
    begun = time.monotonic()
    while len(client.nthreads()) < 2:
        assert time.monotonic() - begun < 120
        cluster.scale(2)
        time.sleep(0.5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Workers cut rows as they are told to, so that it is enough to say so here."""
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))
    monkeypatch.setattr(rows_module, "PARTITION", 3)
