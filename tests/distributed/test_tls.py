"""Fits on a cluster that uses TLS."""

import dask
import dask.array as da
import numpy as np
import pytest

import shoal
from tests.strategies import blobs

distributed = pytest.importorskip("distributed")

from shoal.distributed.cluster import client_of  # noqa: E402
from tests.distributed.conftest import START_METHOD  # noqa: E402

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks")]


def test_fit_on_a_local_cluster_that_requires_its_certificate():
    pytest.importorskip("cryptography")  # for temporary certificates
    rows = da.from_array(blobs(600, 4, 5)[0], chunks=(200, 4))
    models = []
    with dask.config.set({START_METHOD: "spawn"}), client_of(None, 1) as client:  # as outside of these tests
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises((OSError, TypeError, ValueError)):
            distributed.Client(address, timeout=2)
        for engine in (client, None):
            with shoal.Engine(engine):
                models.append(shoal.KMeans(5, random_state=0, max_iter=3).fit(rows))
    distributed_model, local_model = models
    assert distributed_model.history_[0]["tasks"] > 0
    np.testing.assert_array_equal(distributed_model.labels_, local_model.labels_)
    np.testing.assert_array_equal(distributed_model.cluster_centers_, local_model.cluster_centers_)
