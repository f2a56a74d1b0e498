"""One cluster of two worker processes for all tests of this folder: it takes seconds to start."""

import pytest

from shoal.core import rows as rows_module

distributed = pytest.importorskip("distributed")

from shoal.scaleout.cluster import close  # noqa: E402


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
def all_there(client):
    """Whoever died in the test before is back."""
    client.wait_for_workers(2, timeout=120)


@pytest.fixture
def small_blocks(monkeypatch):
    """Workers cut rows as they are told to, so that it is enough to say so here."""
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))
    monkeypatch.setattr(rows_module, "PARTITION", 3)
