"""`partial_fit`: what a stream of chunks leaves behind is what its rows would, however they are cut."""

import pickle
import threading

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from shoal import MiniBatchKMeans, OnlineKMeans
from tests import naive
from tests.strategies import blobs, cloud

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
METRICS = pytest.mark.parametrize("metric", ["euclidean", "cosine"])
X = np.abs(cloud(300, 4)) + 0.01


def take(model, chunks, weights=None):
    start = 0
    for chunk in chunks:
        stop = start + chunk.shape[0]
        model.partial_fit(chunk, sample_weight=None if weights is None else weights[start:stop])
        start = stop
    return model


def cut(rows, size):
    return [rows[a : a + size] for a in range(0, rows.shape[0], size)]


@pytest.fixture(params=[(MiniBatchKMeans, 10), (OnlineKMeans, 1)], ids=["batches", "rows"])
def kind(request):
    """Return an unfitted model and the number of rows per chunk."""
    cls, size = request.param
    return cls(5, init=X[:5], **({"batch_size": size} if size > 1 else {})), size


@LAYOUTS
@METRICS
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_oracle(kind, layout, metric, weighted):
    model, size = kind
    weights = np.random.default_rng(0).integers(0, 4, 300).astype(float) if weighted else None
    if weighted:
        weights[::50] = 1
    take(model.set_params(metric=metric), cut(layout(X), 50), weights)
    rows = naive.unit(X) if metric == "cosine" else X
    C, weight_sums, _ = naive.mini_batch(rows, rows[:5], cut(np.arange(300), size), weights, spherical=metric == "cosine")
    np.testing.assert_allclose(model.cluster_centers_, C, atol=1e-10)
    np.testing.assert_allclose(model._stream.weight_sums, weight_sums)
    assert model.n_iter_ == 6


@LAYOUTS
@METRICS
def test_the_result_does_not_depend_on_the_chunks(kind, layout, metric):
    model = kind[0].set_params(metric=metric)
    whole, *others = (take(clone(model), cut(layout(X), size)) for size in (300, 50, 10))
    for other in others:
        np.testing.assert_allclose(whole.cluster_centers_, other.cluster_centers_, atol=1e-12)
        np.testing.assert_array_equal(whole.predict(X), other.predict(X))


@LAYOUTS
def test_labels_and_energy_are_of_the_last_chunk(kind, layout):
    weights = np.arange(300.0) % 3
    model = take(kind[0], cut(layout(X), 100), weights)
    np.testing.assert_array_equal(model.labels_, model.predict(layout(X[200:])))
    assert model.inertia_ == pytest.approx(-model.score(X[200:], sample_weight=weights[200:]))


def test_the_first_chunk_initializes_the_centroids(kind):
    rows, y = blobs(600, 3, 5)
    model = take(kind[0].set_params(init="k-means++", random_state=0), cut(rows, 200))
    assert len({tuple(np.unique(y[model.predict(rows) == j])) for j in range(5)}) == 5


def test_fit_discards_earlier_chunks(kind):
    model = kind[0].set_params(random_state=0)
    fresh = clone(model).fit(X)
    again = take(model, cut(X + 5, 100)).fit(X)
    np.testing.assert_array_equal(fresh.cluster_centers_, again.cluster_centers_)
    assert (fresh.n_iter_, fresh.history_[0]["energy"]) == (again.n_iter_, again.history_[0]["energy"])


def test_partial_fit_continues_a_fit(kind):
    """Each centroid has the total weight of its rows."""
    model, size = kind
    weights = 1.0 + np.arange(300) % 3
    model.set_params(random_state=0).fit(X, sample_weight=weights)
    start, weight_sums = model.cluster_centers_, np.bincount(model.labels_, weights)
    model.partial_fit(X[:40] + 1)
    C, _, _ = naive.mini_batch(X[:40] + 1, start, cut(np.arange(40), size), weight_sums=weight_sums)
    np.testing.assert_allclose(model.cluster_centers_, C, atol=1e-10)


@pytest.mark.parametrize("bad", [np.full((9, 4), np.nan), np.ones((9, 3)), np.zeros((9, 4))], ids=["nan", "width", "zeros"])
@pytest.mark.parametrize("first", [True, False])
def test_a_refused_chunk_changes_nothing(kind, bad, first):
    model = kind[0].set_params(metric="cosine")
    if not first:
        model.partial_fit(X)
    before = vars(model).copy()
    with pytest.raises(ValueError, match=r"NaN|features|zeros"):
        model.partial_fit(bad)
    assert vars(model) == before


def test_only_the_first_chunk_needs_a_row_per_cluster(kind):
    model = kind[0]
    with pytest.raises(ValueError, match="n_samples=4 should be >= n_clusters=5"):
        model.partial_fit(X[:4])
    assert len(take(model, [X[:5], X[5:6]]).labels_) == 1


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_dense_and_sparse_chunks_can_alternate(kind, offset):
    """Dense rows may be clustered in shifted coordinates, in which sparse rows would become dense."""
    rows = X + offset
    model = kind[0].set_params(init=rows[:5])
    plain = take(clone(model), cut(rows, 100))
    for layouts in ([np.asarray, sparse.csr_array, np.asarray], [sparse.csr_array, np.asarray, sparse.csr_array]):
        mixed = take(clone(model), [layout(chunk) for layout, chunk in zip(layouts, cut(rows, 100), strict=True)])
        np.testing.assert_allclose(mixed.cluster_centers_, plain.cluster_centers_, rtol=1e-12)


def test_centroids_become_float64_with_the_first_float64_chunk(kind):
    model = take(kind[0], cut(X.astype(np.float32), 100))
    assert model.cluster_centers_.dtype == np.float32
    assert model.partial_fit(X).cluster_centers_.dtype == np.float64


def test_float32_chunks_keep_float64_means(kind):
    """A centroid that is rounded to float32 after every chunk would stop moving."""
    rows = np.tile(np.float32([[0.1], [0.3]]), (500, 1))
    model = kind[0].set_params(n_clusters=1, init=[[0.2]])
    model.partial_fit(rows, sample_weight=np.full(1000, 1e9))
    before = model._stream.centers.copy()
    for _ in range(100):
        model.partial_fit(rows[1:2] + np.float32(1))
    assert 0 < model._stream.centers - before < 1e-9
    assert model._stream.centers == pytest.approx((1e12 * before + 100 * (rows[1] + np.float32(1))) / (1e12 + 100), rel=1e-13)


@pytest.mark.parametrize("scale", [1e25, 1e300])
def test_rows_far_outside_the_range_of_the_first_chunk(kind, scale):
    model = kind[0].partial_fit(X.astype(np.float32))
    if scale < 1e38:
        model.partial_fit((X * scale).astype(np.float32))
        assert np.isfinite(model.cluster_centers_).all()
        assert model.cluster_centers_.max() > scale / 1e3
    else:
        with pytest.raises(ValueError, match="lies so far from the rows of the fit"):
            model.partial_fit(X * scale)


def test_a_pickled_model_can_continue(kind):
    model = take(kind[0], cut(X, 100))
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.partial_fit(X).cluster_centers_, model.partial_fit(X).cluster_centers_)


def test_the_result_does_not_depend_on_the_threads(kind):
    rows = blobs(20_000, 30, 5, spread=3, dtype=np.float32)[0]
    model = kind[0].set_params(init=rows[:5])
    one, *others = (take(clone(model).set_params(n_threads=n), cut(rows, 10_000)) for n in (1, 2, 4))
    for other in others:
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
        np.testing.assert_array_equal(one.labels_, other.labels_)


class TestDirections:
    def test_centroids_of_a_fit_have_the_weight_of_their_rows(self):
        """The mean of scattered directions is short, so few new rows turn it."""
        rng = np.random.default_rng(0)
        A, B = (np.column_stack([np.cos(t), np.sin(t)]) for t in (rng.uniform(-1.4, 1.4, 500), rng.uniform(0.8, 1.2, 500)))
        model = OnlineKMeans(1, metric="cosine", init=A[:1]).fit(A).partial_fit(B)
        both = np.concatenate([A, B]).sum(axis=0)
        np.testing.assert_allclose(model.cluster_centers_[0], both / np.linalg.norm(both), atol=1e-6)

    @pytest.mark.parametrize("cls", [OnlineKMeans, MiniBatchKMeans])
    def test_a_mean_without_a_direction_has_no_weight(self, cls):
        model = cls(1, metric="cosine", init=[[1.0, 0.0]]).partial_fit([[1.0, 0.0], [-1.0, 0.0]]).partial_fit([[0.0, 1.0]])
        np.testing.assert_allclose(model.cluster_centers_, [[0, 1]], atol=1e-7)


@pytest.mark.parametrize(("name", "value"), [("n_clusters", 5), ("metric", "cosine")])
def test_parameters_cannot_change_between_chunks(name, value):
    model = MiniBatchKMeans(3, random_state=0).partial_fit(X)
    before = model.cluster_centers_.copy()
    with pytest.raises(ValueError, match=rf"{name}(={value!r}| is {value},).* was"):
        model.set_params(**{name: value}).partial_fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, before)


def test_centroids_set_by_the_user_are_updated():
    model = MiniBatchKMeans(3, random_state=0).fit(X)
    model.cluster_centers_ = model.cluster_centers_ + 100
    assert model.partial_fit(X[:1] + 100).cluster_centers_.min() > 50


def test_too_few_distinct_rows_in_the_first_chunk_cause_a_warning():
    with pytest.warns(ConvergenceWarning, match="use n_clusters=1 or fewer"):
        OnlineKMeans(3).partial_fit(np.zeros((50, 2)))


@pytest.mark.parametrize("cls", [MiniBatchKMeans, OnlineKMeans])
def test_chunks_from_several_threads_are_all_used(cls):
    model, together, failed = cls(3, random_state=0).partial_fit(X), threading.Barrier(4, timeout=30), []

    def add():
        together.wait()
        try:
            take(model, cut(X, 10))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert model._stream.weight_sums.sum() == 5 * len(X)
    assert model.n_iter_ == 1 + 4 * 30
