"""Where other libraries on dask go wrong: weights, sparse rows, empty clusters, small integers."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import shoal
from tests.strategies import blobs

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks")]
K = 5
X = blobs(600, 4, K)[0].astype(np.float32)
START = X[:K]


def fit(client, rows, weights=None, start=START):
    with shoal.Engine(client):
        return shoal.KMeans(len(start), init=start, algorithm="lloyd", max_iter=4).fit(rows, sample_weight=weights)


def test_weights_are_repeated_rows(client):
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = fit(client, da.from_array(X, chunks=(200, 4)), weights.astype(float))
    repeated = fit(client, da.from_array(np.repeat(X, weights, axis=0), chunks=(200, 4)))
    np.testing.assert_array_equal(np.repeat(weighted.labels_, weights), repeated.labels_)
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-5)
    assert weighted.inertia_ == pytest.approx(repeated.inertia_, rel=1e-9)


def test_sparse_rows_are_dense_rows(client):
    thin = np.where(np.abs(X) > 1, X, 0)
    dense = da.from_array(thin, chunks=(200, 4))
    rows = dense.map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=X.dtype))
    a, b = fit(client, rows), fit(client, dense)
    np.testing.assert_array_equal(a.labels_, b.labels_)
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, rtol=1e-5)


def test_no_cluster_stays_empty(client):
    far = np.concatenate([START[:1], START[1:] + 1e3])  # all rows are nearest to the first
    found = fit(client, da.from_array(X, chunks=(200, 4)), start=far)
    assert set(found.labels_) == set(range(K))
    assert found.inertia_ < 0.5 * ((X - X.mean(axis=0)) ** 2).sum()


def test_centres_of_bytes_are_not_cut_to_bytes(client):
    small = np.interp(X, (X.min(), X.max()), (0, 255)).astype(np.uint8)
    found = fit(client, da.from_array(small, chunks=(200, 4)), start=small[:K])
    wide = fit(client, da.from_array(small.astype(np.float64), chunks=(200, 4)), start=small[:K].astype(np.float64))
    np.testing.assert_array_equal(found.labels_, wide.labels_)
    np.testing.assert_allclose(found.cluster_centers_, wide.cluster_centers_, rtol=1e-6)
    assert found.inertia_ == pytest.approx(wide.inertia_, rel=1e-6)
