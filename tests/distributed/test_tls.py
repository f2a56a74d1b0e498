"""A client that speaks TLS works as any other."""

import dask.array as da
import numpy as np
import pytest

import shoal
from tests.strategies import blobs

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks")]


def test_a_client_that_speaks_tls():
    pytest.importorskip("cryptography")  # for certificates of a moment
    security = distributed.Security.temporary()
    options = {"n_workers": 1, "threads_per_worker": 1, "host": "tls://127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    rows = da.from_array(blobs(600, 4, 5)[0], chunks=(200, 4))
    models = []
    with (
        distributed.LocalCluster(security=security, **options) as cluster,
        distributed.Client(cluster, security=security, set_as_default=False) as client,
    ):
        assert client.scheduler.address.startswith("tls://127.0.0.1")
        for engine in (client, None):
            with shoal.Engine(engine):
                models.append(shoal.KMeans(5, random_state=0, max_iter=3).fit(rows))
    far, here = models
    assert far.history_[0]["tasks"] > 0
    np.testing.assert_array_equal(far.labels_, here.labels_)
    np.testing.assert_array_equal(far.cluster_centers_, here.cluster_centers_)
