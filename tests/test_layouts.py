"""A model fitted to rows of one dtype, layout or container gives the same results for these rows in any other."""

import numpy as np
import pytest
from scipy import sparse

import shoal
from tests.strategies import spread_rows
from tests.test_contract import ESTIMATORS, make_estimator
from tests.test_inputs import strided, wide_indices

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:X has feature names, but"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names"),
]


def small_rows(high):
    """Return rows of small integers in three groups, which are exact in every dtype, as are their sums."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.arange(150) % 3)
    places = np.array([[9, 0, 0, 5], [0, 9, 0, 5], [0, 0, 9, 5]]).repeat(2, axis=1)
    X = (places[group] * rng.random((150, 8)) > 2.0) * rng.integers(1, high + 1, (150, 8))
    X[:, 0] += X.sum(axis=1) == 0  # no zero rows, for the cosine metric
    return X.astype(np.int8), group


ROWS, GROUP = small_rows(9)
BITS, _ = small_rows(1)
FAR = (ROWS + 100).astype(np.int8)  # rows that are shifted before distances are computed


def to_table(package, convert):
    def make(X, folder):
        return convert(pytest.importorskip(package), X)

    return make


def memory_map(X, folder):
    path = folder / "map.npy"
    np.save(path, X.astype(np.float32))
    return np.load(path, mmap_mode="r")


def npy_file(X, folder):
    np.save(folder / "rows.npy", X.astype(np.float64))
    return shoal.open_rows(folder / "rows.npy")


def npz_file(X, folder):
    sparse.save_npz(folder / "rows.npz", sparse.csr_array(X.astype(np.float64)))
    return shoal.open_rows(folder / "rows.npz")


def of_type(dtype, layout=np.ascontiguousarray):
    return lambda X, folder: layout(X.astype(dtype))


LAYOUTS = {
    "float64": of_type("f8"),
    "csr": of_type("f8", sparse.csr_array),
    "uint8": of_type("u1"),
    "float16": of_type("f2"),
    "float32 Fortran": of_type("f4", np.asfortranarray),
    "int8 strided": of_type("i1", strided),
    "int64": of_type("i8"),
    "big-endian": of_type(">f8"),
    "memory map": memory_map,
    "csc float32": of_type("f4", sparse.csc_array),
    "coo int64": of_type("i8", sparse.coo_array),
    "csr of int64 indices": of_type("f8", wide_indices(sparse.csr_array)),
    "pandas": to_table("pandas", lambda pd, X: pd.DataFrame(X.astype(np.float32))),
    "polars": to_table("polars", lambda pl, X: pl.DataFrame({f"c{j}": X[:, j].astype(np.int32) for j in range(X.shape[1])})),
    "arrow": to_table("pyarrow", lambda pa, X: pa.table({f"c{j}": X[:, j].astype(np.float64) for j in range(X.shape[1])})),
    "npy file": npy_file,
    "npz file": npz_file,
}
WRAPPED = [shoal.MiniBatchKMeans, shoal.SphericalMixture, shoal.BinaryKMeans, shoal.NystromSpectral]
MODELS = {cls.__name__: lambda cls=cls: make_estimator(cls, n_clusters=3, random_state=0) for cls in ESTIMATORS}
MODELS |= {f"Standardized {cls.__name__}": lambda cls=cls: shoal.Standardized(cls(3, random_state=0)) for cls in WRAPPED}
MODELS["cosine"] = lambda: shoal.KMeans(3, metric="cosine", init=spread_rows(ROWS, GROUP))


def results_of(model, X):
    """Return all results of a fitted model for some rows."""
    said = {"predict": model.predict(X), "transform": model.transform(X)}
    return said | ({"score": model.score(X)} if hasattr(model, "score") else {})


def assert_same_answers(name, fitted_to, predicted_on, folder, rows=ROWS):
    model = MODELS[name]().fit(LAYOUTS[fitted_to](rows, folder))
    usual = results_of(model, rows.astype(np.float64))
    np.testing.assert_array_equal(usual["predict"], model.labels_)
    for layout in predicted_on:
        for method, values in results_of(model, LAYOUTS[layout](rows, folder)).items():
            place = f"{name} fitted to {fitted_to}: {method} of {layout}"
            if method == "predict":
                np.testing.assert_array_equal(values, usual[method], place)
            else:
                np.testing.assert_allclose(values, usual[method], rtol=1e-5, atol=1e-6, err_msg=place)


@pytest.mark.parametrize("name", MODELS)
def test_fitted_to_some_layouts(name, tmp_path):
    """Fit to dense, sparse and small integer rows; predict on about half of the layouts each."""
    names = list(LAYOUTS)
    assert_same_answers(name, "float64", names[1::2], tmp_path)
    assert_same_answers(name, "csr", names[0::4], tmp_path)
    assert_same_answers(name, "uint8", names[1::4], tmp_path)


@pytest.mark.parametrize("fitted_to", ["float32 Fortran", "csr"])
@pytest.mark.parametrize("name", ["KMeans", "MiniBatchKMeans", "Standardized", "SphericalMixture", "NystromSpectral"])
def test_rows_far_from_the_origin(name, fitted_to, tmp_path):
    assert_same_answers(name, fitted_to, list(LAYOUTS)[::2], tmp_path, FAR)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [ROWS, FAR], ids=["near", "far"])
@pytest.mark.parametrize("fitted_to", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_fitted_to_every_layout(name, fitted_to, rows, tmp_path):
    assert_same_answers(name, fitted_to, LAYOUTS, tmp_path, rows)


@pytest.mark.parametrize("name", ["KMeans", "Standardized", "BinaryKMeans", "SphericalMixture"])
def test_bool(name):
    model, X = MODELS[name]().fit(BITS > 0), sparse.csr_array(BITS)
    np.testing.assert_array_equal(model.predict(BITS.astype(np.float32)), model.labels_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict(X > 0), model.labels_)
