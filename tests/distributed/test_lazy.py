"""Predictions for Dask collections are lazy Dask arrays."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import shoal
from tests.strategies import blobs

X, _ = blobs(500, 5, 4)
pytestmark = pytest.mark.xdist_group("dask")
CHUNKS = (200, 0, 120, 180)
MODELS = {
    "kmeans": shoal.KMeans(4, random_state=0),
    "cosine": shoal.KMeans(4, metric="cosine", random_state=0),
    "mixture": shoal.SphericalMixture(4, random_state=0),
    "standardized": shoal.Standardized(shoal.KMeans(4, random_state=0)),
    "compressed": shoal.CompressedKMeans(4, n_bits=16, random_state=0),
    "nystrom": shoal.NystromSpectral(4, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_chunks_give_the_results_of_all_rows(name):
    model, rows = MODELS[name].fit(X), da.from_array(X, chunks=(CHUNKS, 3))
    labels, distances = model.predict(rows), model.transform(rows)
    assert isinstance(labels, da.Array)
    assert labels.chunks == (CHUNKS,)
    assert labels.dtype == np.int32
    assert distances.chunks == (CHUNKS, (4,))
    np.testing.assert_array_equal(labels.compute(scheduler="sync"), model.predict(X))
    expected = model.transform(X)
    assert distances.dtype == expected.dtype
    np.testing.assert_array_equal(distances.compute(scheduler="sync"), expected)


def test_predict_of_a_dataframe():
    table = pd.DataFrame(X, columns=list("abcde"))
    model = MODELS["kmeans"].fit(table)
    labels = model.predict(dd.from_pandas(table, npartitions=3))
    np.testing.assert_array_equal(labels.compute(scheduler="sync"), model.labels_)


def test_names_and_dtypes_of_a_dataframe():
    table = pd.DataFrame(X.astype(np.float32), columns=list("abcde"))
    model = shoal.KMeans(4, random_state=0).fit(table)
    distances = model.transform(dd.from_pandas(table, npartitions=3))
    assert distances.dtype == distances.compute(scheduler="sync").dtype == np.float32
    with pytest.raises(ValueError, match="feature names"):
        model.predict(dd.from_pandas(table.rename(columns={"a": "z"}), npartitions=3))


def test_the_model_is_not_modified():
    model = shoal.KMeans(4, random_state=0, n_threads=2).fit(X)
    model.predict(da.from_array(X))
    assert model.n_threads == 2
    assert len(model.labels_) == len(X)


def test_invalid_input_is_refused_before_computing():
    with pytest.raises(NotFittedError):
        shoal.KMeans(4).predict(da.from_array(X))
    with pytest.raises(ValueError, match="expecting 5 features"):
        MODELS["kmeans"].fit(X).predict(da.from_array(X[:, :3]))
    with pytest.raises(TypeError, match="complex128: give real numbers"):
        MODELS["kmeans"].fit(X).predict(da.from_array(X.astype(complex)))
    with pytest.raises(ValueError, match="Column 'a' of X holds values of type"):
        MODELS["kmeans"].fit(X).predict(dd.from_pandas(pd.DataFrame(X, columns=list("abcde")).astype({"a": object})))
    with pytest.raises(TypeError, match="leave set_output at its default"):
        shoal.KMeans(4).set_output(transform="pandas").fit(X).transform(da.from_array(X))


def test_rows_that_are_not_finite_are_named():
    """Row numbers are relative to a chunk; the message names its first row, or its number."""
    model, bad = MODELS["kmeans"].fit(X), X.copy()
    bad[333, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN at row 133, column 2.* relative to row 200 of X"):
        model.predict(da.from_array(bad, chunks=(200, 5))).compute(scheduler="sync")
    table = dd.from_pandas(pd.DataFrame(bad, columns=list("abcde")), npartitions=2)
    with pytest.warns(UserWarning, match="feature names"), pytest.raises(ValueError, match=r"row 83, .* start of chunk 1 of X"):
        model.predict(table).compute(scheduler="sync")


def test_models_that_cannot_be_pickled_are_refused(client):
    rows = da.from_array(X, chunks=(250, 5))
    with shoal.Engine(client):
        model = shoal.MiniBatchSpectral(4, random_state=0, max_iter=2, sigma=5.0).fit(rows)
    with client.as_current(), pytest.raises(TypeError, match="so it cannot be pickled: use NystromSpectral"):
        model.predict(rows)
