"""Fits on the workers of a Dask cluster are bitwise identical to fits on threads."""

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import shoal
from shoal.kmeans.init import kmeans_plus_plus, sample
from tests.strategies import blobs

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks")]
X, _ = blobs(2000, 6, 8)
X = X.astype(np.float32)
CHUNKS = (300, 300, 0, 80, 20, 700, 600)  # one is empty, some are smaller than a block, some larger than a partition
WEIGHTS = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)

FITS = {
    "lloyd": lambda: shoal.KMeans(8, algorithm="lloyd", random_state=0, max_iter=3),
    "k-means||": lambda: shoal.KMeans(8, init="k-means||", random_state=0, max_iter=2),
    "starts": lambda: shoal.KMeans(8, init="random", n_init=2, random_state=0, max_iter=2),
    "cosine": lambda: shoal.KMeans(8, metric="cosine", random_state=0, max_iter=3),
    "given": lambda: shoal.KMeans(8, init=np.full((8, 6), 1e3, np.float32), max_iter=3),  # most clusters are empty
    "nested": lambda: shoal.NestedKMeans(8, random_state=0, batch_size=1000, max_iter=3),
    "hierarchical": lambda: shoal.HierarchicalKMeans(20, n_levels=2, n_neighbors=6, random_state=0, max_iter=3),
    "minibatch": lambda: shoal.MiniBatchKMeans(8, random_state=0, max_iter=5),
    "vrkm": lambda: shoal.VarianceReducedKMeans(8, random_state=0, max_iter=2),
    "gradient": lambda: shoal.GradientKMeans(8, random_state=0, max_iter=2),
    "mixture": lambda: shoal.SphericalMixture(8, random_state=0, max_iter=2),
    "binary": lambda: shoal.BinaryKMeans(8, random_state=0),
    "compressed": lambda: shoal.CompressedKMeans(8, random_state=0, n_bits=32, refine=True),
    "standardized": lambda: shoal.Standardized(shoal.KMeans(8, random_state=0, max_iter=3)),
    "nystrom": lambda: shoal.NystromSpectral(8, random_state=0, n_samples=50),
    "landmarks": lambda: shoal.LandmarkSpectral(8, random_state=0, n_landmarks=20),
    "spectral": lambda: shoal.MiniBatchSpectral(8, random_state=0, max_iter=2, sigma=5.0, tol=0, degree_samples=500),
}


def collection(rows=X):
    return da.from_array(rows, chunks=(CHUNKS, rows.shape[1]))


def fit(model, rows, client, weights=None):
    with shoal.Engine(client), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows) if weights is None else model.fit(rows, sample_weight=weights)


def assert_same(a, b):
    np.testing.assert_array_equal(a.labels_, b.labels_)
    for name in ("cluster_centers_", "embedding_", "inertia_", "n_iter_", "stop_reason_"):
        if hasattr(a, name):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("name", FITS)
def test_workers_give_the_results_of_threads(name, client):
    assert_same(fit(FITS[name](), collection(), client), fit(FITS[name](), collection(), None))


def test_chunks_of_whole_partitions_give_the_results_of_an_array(client):
    rows = da.from_array(X, chunks=(300, 6))
    assert_same(fit(FITS["lloyd"](), rows, client), FITS["lloyd"]().fit(X))


def test_initialization_on_a_sample(client, monkeypatch):
    monkeypatch.setattr(sample, "MIN_SAMPLE_ROWS", 400)
    monkeypatch.setattr(sample, "MANY_SAMPLE_ROWS", 400)
    monkeypatch.setattr(sample, "MAX_WORK_FOR_LARGER_SAMPLE", 1)
    monkeypatch.setattr(kmeans_plus_plus, "MIN_SAMPLE_ROWS_PER_CENTER", 50)
    model = fit(FITS["lloyd"](), collection(), client, 1 + WEIGHTS)
    assert_same(model, fit(FITS["lloyd"](), collection(), None, 1 + WEIGHTS))
    assert model.history_[0]["energy"] < 1.1 * model.inertia_


def test_sample_weights(client):
    model = fit(FITS["lloyd"](), collection(), client, WEIGHTS)
    assert_same(model, fit(FITS["lloyd"](), collection(), None, WEIGHTS))
    assert model.inertia_ != pytest.approx(FITS["lloyd"]().fit(X).inertia_)


def test_sparse_rows(client):
    thin = np.where(X > 3, X, 0)
    rows = da.from_array(thin, chunks=(CHUNKS, 6)).map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=X.dtype))
    model = FITS["lloyd"]()
    assert_same(fit(model, rows, client), fit(FITS["lloyd"](), rows, None))
    np.testing.assert_array_equal(model.predict(sparse.csr_array(thin)), model.labels_)


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.float16])
def test_dtypes(client, dtype):
    rows = (X * 4).astype(dtype)
    model = fit(FITS["lloyd"](), collection(rows), client)
    assert model.cluster_centers_.dtype == FITS["lloyd"]().fit(rows).cluster_centers_.dtype
    assert_same(model, fit(FITS["lloyd"](), collection(rows), None))


def test_dataframes_keep_their_names(client):
    table = pd.DataFrame(X, columns=list("abcdef"))
    rows = dd.from_pandas(table, npartitions=5)
    model = fit(FITS["lloyd"](), rows, client)
    assert list(model.feature_names_in_) == list("abcdef")
    assert_same(model, fit(FITS["lloyd"](), rows, None))


def test_chunks_of_unknown_length_are_counted(client):
    rows = collection()[da.from_array(X[:, 0] > -1e9, chunks=(CHUNKS,))]
    assert np.isnan(rows.shape[0])
    assert_same(fit(FITS["lloyd"](), rows, client), fit(FITS["lloyd"](), collection(), None))


def test_persisted_collections(client):
    persisted = client.persist(collection())
    assert_same(fit(FITS["lloyd"](), persisted, client), fit(FITS["lloyd"](), collection(), None))
    assert_same(fit(FITS["lloyd"](), persisted * 2, client), fit(FITS["lloyd"](), collection() * 2, None))


@pytest.mark.parametrize("kind", ["npy", "parquet", "zarr"])
def test_folders_of_files(client, tmp_path, kind):
    for i, (a, b) in enumerate(((0, 450), (450, 1100), (1100, 2000))):
        if kind == "npy":
            np.save(tmp_path / f"{i}.npy", X[a:b])
        elif kind == "parquet":
            pd.DataFrame(X[a:b], columns=list("abcdef")).to_parquet(tmp_path / f"{i}.parquet")
        else:
            zarr = pytest.importorskip("zarr")
            zarr.save_array(str(tmp_path / f"{i}.zarr"), X[a:b])
    rows = shoal.open_rows(tmp_path)
    model = fit(FITS["lloyd"](), rows, client)
    assert model.history_[0]["tasks"] > 0
    assert_same(model, FITS["lloyd"]().fit(X))


def test_current_client_is_used(client):
    with client.as_current():
        model = FITS["lloyd"]().fit(collection())
    assert model.history_[0]["tasks"] > 0


@pytest.mark.parametrize("name", ["lloyd", "standardized", "nystrom"])
def test_a_client_for_one_fit(name, client):
    assert_same(FITS[name]().fit(collection(), engine=client), fit(FITS[name](), collection(), None))
    with pytest.raises(TypeError, match="engine='here' is no dask"):
        FITS[name]().fit(collection(), engine="here")
    with pytest.raises(TypeError, match="X is a ndarray of this process: give a dask array"):
        FITS[name]().fit(X, engine=client)


def test_history_reports_traffic(client):
    steps = fit(FITS["lloyd"](), collection(), client).history_
    assert all(step["tasks"] >= 4 and step["bytes"] > 4 * len(X) and step["lost"] >= 0 for step in steps)
    assert "tasks" not in FITS["lloyd"]().fit(X).history_[0]
    for name in ("spectral", "nystrom", "compressed"):
        first = fit(FITS[name](), collection(), client).history_[0]
        assert min(first["tasks"], first["bytes"]) > 0


def test_several_small_batches_are_fetched_at_a_time(client):
    first, *others = fit(shoal.MiniBatchKMeans(8, batch_size=100, max_iter=4), collection(), client).history_
    assert first["tasks"] > 0
    assert not any(step["tasks"] for step in others)


def test_rows_that_are_not_finite_are_named(client):
    bad = X.copy()
    bad[1234, 2] = np.nan
    with pytest.raises(ValueError, match="row 1234, column 2"):
        fit(FITS["lloyd"](), collection(bad), client)


@pytest.mark.parametrize(
    "model",
    [
        shoal.OnlineKMeans(3),
        shoal.GradientKMeans(3, mode="online"),
        shoal.ExactSpectral(3),
        shoal.PowerSpectral(3),
        shoal.MiniBatchSpectral(3, affinity="knn"),
        shoal.NystromSpectral(3, affinity="self-tuning"),
    ],
    ids=str,
)
def test_methods_for_one_machine_are_refused(model, client):
    with pytest.raises(TypeError, match="works on one machine"):
        fit(model, collection(), client)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (da.ones(5), "two-dimensional"),
        (da.ones((5, 0), chunks=5), "empty"),
        (dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1), "a Dask Series"),
    ],
)
def test_other_collections_are_refused(client, rows, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fit(FITS["lloyd"](), rows, client)


def test_only_clients_are_engines():
    with pytest.raises(TypeError, match="is no dask"):
        shoal.Engine("tcp://127.0.0.1:8786")
