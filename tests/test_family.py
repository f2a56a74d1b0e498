"""All centroid estimators on difficult rows: extreme scales and offsets, every dtype, degenerate, weighted, on any thread."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import shoal
from shoal.data import cancellation
from shoal.fit.base import BaseCentroidClusterer
from tests import naive
from tests.strategies import blobs, cloud, problems

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

OPTIONS = {
    "CompressedKMeans": [{"refine": True}, {"refine": True, "learn": False}],
    "GradientKMeans": [{}, {"mode": "online"}],
    "HierarchicalKMeans": [{}, {"n_levels": 2}],
    "MiniBatchKMeans": [{"batch_size": 100}, {"batch_size": 1 << 20}],
    "NestedKMeans": [{"batch_size": 60}, {"batch_size": 60, "quality": 0.1}, {"batch_size": 60, "algorithm": "elkan"}],
    "OnlineKMeans": [{}, {"then": "batch"}],
    "VarianceReducedKMeans": [{"block_size": 50}],
}
FAMILY = [
    pytest.param(cls, options, id=" ".join([name, *map(str, options.values())]))
    for name, cls in ((name, getattr(shoal, name)) for name in shoal.__all__)
    if isinstance(cls, type)
    and issubclass(cls, BaseCentroidClusterer)
    and cls.metric != "hamming"
    and name != "SphericalMixture"
    for options in OPTIONS.get(name, [{}])
]
every = pytest.mark.parametrize(("cls", "options"), FAMILY)
layouts = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
X, Y = blobs(300, 4, 5)


def fit(cls, options, rows, weights=None, **more):
    parameters = {"n_clusters": 5, "n_init": 3, "random_state": 0, **options, **more}
    if cls is shoal.HierarchicalKMeans:  # its only start is the tree
        parameters = {name: value for name, value in parameters.items() if name not in ("init", "n_init")}
    return cls(**parameters).fit(rows, sample_weight=weights)


def assert_valid(model, rows, weights=None):
    """Check that labels equal predictions, the energy matches the centroids, and all attributes are finite."""
    assert np.isfinite(model.cluster_centers_).all()
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    plain = rows.toarray() if sparse.issparse(rows) else rows
    expected = naive.energy(plain, model.cluster_centers_, weights)
    assert model.inertia_ == pytest.approx(expected, rel=1e-6, abs=1e-11 * np.square(plain.astype(float)).sum())


@every
@layouts
@pytest.mark.parametrize("exponent", [-200, -150, -20, 0, 20, 150, 200])
def test_scales_of_float64(cls, options, layout, exponent):
    rows = X * 10.0**exponent
    model = fit(cls, options, layout(rows))
    assert np.isfinite(model.cluster_centers_).all()
    np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)
    assert adjusted_rand_score(Y, model.labels_) >= 0.99


@every
@layouts
@pytest.mark.parametrize("exponent", [-30, -18, 0, 18, 20])
def test_scales_of_float32(cls, options, layout, exponent):
    rows = (X * 10.0**exponent).astype(np.float32)
    model = fit(cls, options, layout(rows))
    assert_valid(model, layout(rows))
    assert adjusted_rand_score(Y, model.labels_) >= 0.99


@every
@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 1e4), (np.float32, 1e6), (np.float64, 1e6), (np.float64, 1e9)])
def test_offsets(cls, options, dtype, offset):
    rows = (10 * X + offset).astype(dtype)
    model = fit(cls, options, rows)
    assert_valid(model, rows)
    assert adjusted_rand_score(Y, model.labels_) >= 0.99


@every
@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "i4", "i8", "u1", ">f4", "bool"])
def test_dtypes(cls, options, dtype):
    rows = np.clip(np.round(3 * X + 40), 0, 120).astype(dtype)
    one, other = (fit(cls, options, r) for r in (rows, rows.astype(np.float64)))
    assert one.cluster_centers_.dtype.kind == "f"
    assert_valid(one, rows)
    assert one.inertia_ == pytest.approx(other.inertia_, rel=1e-4, abs=1e-6)


@every
@layouts
def test_results_do_not_depend_on_threads(cls, options, layout):
    rows = layout(cloud(9000, 5, dtype=np.float32))
    options = {**options, "block_size": 3000} if "block_size" in options else options
    models = [fit(cls, options, rows, n_clusters=12, n_threads=t, n_init=1, max_iter=20) for t in (1, 2, 4)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.cluster_centers_, models[0].cluster_centers_)
        np.testing.assert_array_equal(model.labels_, models[0].labels_)


@every
@given(problem=problems())
@settings(max_examples=25)
def test_random_problems(cls, options, problem):
    k = len(problem.start)
    model = fit(cls, options, problem.X, problem.weights, n_clusters=k, init=problem.start, n_init="auto")
    assert_valid(model, problem.X, problem.weights)


@every
@layouts
@pytest.mark.parametrize(
    "rows", [np.ones((20, 3)), np.zeros((20, 3)), np.repeat(np.eye(3), 7, axis=0)], ids=["one", "zero", "3"]
)
def test_few_distinct_rows(cls, options, layout, rows):
    model = fit(cls, options, layout(rows))
    assert_valid(model, layout(rows))
    assert model.inertia_ <= 1e-9


@every
def test_one_cluster_per_row(cls, options):
    rows = cloud(12, 3)
    model = fit(cls, options, rows, n_clusters=12)
    assert len(np.unique(model.labels_)) == 12
    assert model.inertia_ <= 1e-9


@every
def test_one_row_of_large_weight(cls, options):
    rows, weights = np.vstack([X, [[100.0, 0, 0, 0]]]), np.ones(301)
    weights[-1] = 1e12
    model = fit(cls, options, rows, weights, n_clusters=6)
    assert_valid(model, rows, weights)


@every
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_cosine_centroids_have_unit_length(cls, options, layout):
    rows = layout(X + 8)
    model = fit(cls, options, rows, metric="cosine")
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1)
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    U = (X + 8) / np.linalg.norm(X + 8, axis=1)[:, None]
    assert model.inertia_ == pytest.approx((1 - np.einsum("ij,ij->i", U, model.cluster_centers_[model.labels_])).sum())
    if cls is not shoal.CompressedKMeans:  # its steps use codes
        assert model.history_[-1]["energy"] < 10


@every
def test_memory_maps_and_tables(cls, options, tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, X.shape)
    rows[:] = X
    models = [fit(cls, options, r) for r in (X, rows, pandas.DataFrame(X))]
    for model in models[1:]:
        np.testing.assert_array_equal(model.cluster_centers_, models[0].cluster_centers_)


@every
@layouts
@pytest.mark.parametrize("tick", [0.02, 10.0])
def test_too_short_a_time_budget(cls, options, layout, tick, monkeypatch):
    """With a fast clock, all optional work is skipped; the model is still valid."""
    seconds = itertools.count(0.0, tick)
    monkeypatch.setattr(cancellation, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    rows = layout(np.abs(X).astype(np.float32))
    with pytest.warns(ConvergenceWarning, match=r"time_budget=1e-09 seconds are too short"):
        model = fit(cls, options, rows, n_clusters=40, time_budget=1e-9)
    assert model.stop_reason_ == "time_budget"
    assert model.n_iter_ == len(model.history_)
    assert_valid(model, rows)
    if isinstance(model, shoal.NestedKMeans):
        assert "time was up" in model.summary_


@every
def test_time_budget(cls, options):
    rows = cloud(20_000, 6, dtype=np.float32)
    model = fit(cls, options, rows, n_clusters=30, n_init=1, time_budget=1e-6)
    assert model.stop_reason_ in ("time_budget", "converged")
    assert_valid(model, rows)
