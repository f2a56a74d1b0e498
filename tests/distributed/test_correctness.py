"""Cases that distributed implementations often get wrong: weights, sparse rows, empty clusters, small integers."""

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


def test_weights_equal_repeated_rows(client):
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = fit(client, da.from_array(X, chunks=(200, 4)), weights.astype(float))
    repeated = fit(client, da.from_array(np.repeat(X, weights, axis=0), chunks=(200, 4)))
    np.testing.assert_array_equal(np.repeat(weighted.labels_, weights), repeated.labels_)
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-5)
    assert weighted.inertia_ == pytest.approx(repeated.inertia_, rel=1e-9)


def test_sparse_rows_equal_dense_rows(client):
    thin = np.where(np.abs(X) > 1, X, 0)
    dense = da.from_array(thin, chunks=(200, 4))
    rows = dense.map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=X.dtype))
    a, b = fit(client, rows), fit(client, dense)
    np.testing.assert_array_equal(a.labels_, b.labels_)
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, rtol=1e-5)


def test_no_cluster_stays_empty(client):
    far = np.concatenate([START[:1], START[1:] + 1e3])  # all rows are nearest to the first
    model = fit(client, da.from_array(X, chunks=(200, 4)), start=far)
    assert set(model.labels_) == set(range(K))
    assert model.inertia_ < 0.5 * ((X - X.mean(axis=0)) ** 2).sum()


def test_centroids_of_uint8_rows_are_not_truncated(client):
    small = np.interp(X, (X.min(), X.max()), (0, 255)).astype(np.uint8)
    model = fit(client, da.from_array(small, chunks=(200, 4)), start=small[:K])
    exact = fit(client, da.from_array(small.astype(np.float64), chunks=(200, 4)), start=small[:K].astype(np.float64))
    np.testing.assert_array_equal(model.labels_, exact.labels_)
    np.testing.assert_allclose(model.cluster_centers_, exact.cluster_centers_, rtol=1e-6)
    assert model.inertia_ == pytest.approx(exact.inertia_, rel=1e-6)


def test_a_standardized_model_of_dense_rows_predicts_sparse_ones(client, tmp_path):
    thin = np.where(np.abs(X) > 1, X, 0)
    model = shoal.Standardized(shoal.KMeans(K, random_state=0)).fit(thin)
    sparse.save_npz(tmp_path / "rows.npz", sparse.csr_array(thin))
    rows = da.from_array(thin, chunks=(200, 4)).map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=X.dtype))
    with shoal.Engine(client):
        np.testing.assert_array_equal(model.predict(shoal.open_rows(tmp_path / "rows.npz")), model.labels_)
        np.testing.assert_array_equal(model.predict(rows).compute(), model.labels_)
        assert model.score(shoal.open_rows(tmp_path / "rows.npz")) == pytest.approx(model.score(thin), rel=1e-12)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_precision_of_a_few_rows_near_the_origin(client, layout):
    """Workers use the frame and the dtype that the first pass chooses, so that no precision is lost."""
    rows = np.full((600, 2), 1e6, np.float32)
    rows[::30] = np.random.default_rng(0).normal(0, 0.01, (20, 2)) + np.repeat([[0, 0], [0.1, 0]], 10, axis=0)
    parts = da.from_array(rows, chunks=(200, 2)).map_blocks(layout, meta=layout(np.zeros((0, 2), np.float32)))
    start = rows[[1, 0, 570]]
    model, here = fit(client, parts, start=start), fit(None, layout(rows), start=start)
    np.testing.assert_array_equal(model.labels_, here.labels_)
    np.testing.assert_array_equal(model.cluster_centers_, here.cluster_centers_)
    assert model.inertia_ == pytest.approx(shoal.metrics.energy(rows, model.cluster_centers_), rel=1e-9)


def test_two_columns_of_one_name(client):
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    table = frames.from_pandas(pandas.DataFrame(X, columns=list("abca")), npartitions=2)
    with pytest.raises(ValueError, match="Columns 0 and 3 of X are both named 'a'"):
        fit(client, table)
