"""Fits on a cluster that uses TLS."""

import dask.array as da
import numpy as np
import pytest

import shoal
from tests.strategies import blobs

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks")]


def test_fit_on_a_tls_cluster():
    pytest.importorskip("cryptography")  # for temporary certificates
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
    distributed_model, local_model = models
    assert distributed_model.history_[0]["tasks"] > 0
    np.testing.assert_array_equal(distributed_model.labels_, local_model.labels_)
    np.testing.assert_array_equal(distributed_model.cluster_centers_, local_model.cluster_centers_)
