"""Of dask collections, labels and distances are dask arrays that nobody has computed yet."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import shoal
from tests.strategies import blobs

X, _ = blobs(500, 5, 4)
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
def test_chunks_get_what_all_rows_would(name):
    model, rows = MODELS[name].fit(X), da.from_array(X, chunks=(CHUNKS, 3))
    labels, far = model.predict(rows), model.transform(rows)
    assert isinstance(labels, da.Array)
    assert labels.chunks == (CHUNKS,)
    assert labels.dtype == np.int32
    assert far.chunks == (CHUNKS, (4,))
    np.testing.assert_array_equal(labels.compute(scheduler="sync"), model.predict(X))
    expected = model.transform(X)
    assert far.dtype == expected.dtype
    np.testing.assert_array_equal(far.compute(scheduler="sync"), expected)


def test_of_a_dataframe():
    table = pd.DataFrame(X, columns=list("abcde"))
    model = MODELS["kmeans"].fit(table)
    labels = model.predict(dd.from_pandas(table, npartitions=3))
    np.testing.assert_array_equal(labels.compute(scheduler="sync"), model.labels_)


def test_names_and_types_of_a_dataframe():
    table = pd.DataFrame(X.astype(np.float32), columns=list("abcde"))
    model = shoal.KMeans(4, random_state=0).fit(table)
    far = model.transform(dd.from_pandas(table, npartitions=3))
    assert far.dtype == far.compute(scheduler="sync").dtype == np.float32
    with pytest.raises(ValueError, match="feature names"):
        model.predict(dd.from_pandas(table.rename(columns={"a": "z"}), npartitions=3))


def test_the_model_stays_what_it_is():
    model = shoal.KMeans(4, random_state=0, n_threads=2).fit(X)
    model.predict(da.from_array(X))
    assert model.n_threads == 2
    assert len(model.labels_) == len(X)


def test_mistakes_are_told_at_once():
    with pytest.raises(NotFittedError):
        shoal.KMeans(4).predict(da.from_array(X))
    with pytest.raises(ValueError, match="expecting 5 features"):
        MODELS["kmeans"].fit(X).predict(da.from_array(X[:, :3]))
