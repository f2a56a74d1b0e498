"""`OnlineKMeans`: equal to the oracle for the same order of rows."""

import numpy as np
import pytest
from scipy import sparse

from shoal import KMeans, OnlineKMeans
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit import streaming_means
from shoal.fit.random_streams import generator
from shoal.fit.shuffle import keys_of, shuffled
from tests import naive
from tests.strategies import blobs, cloud, spread_rows

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
METRICS = pytest.mark.parametrize("metric", ["euclidean", "cosine"])
SEED = 3


def fit(X, start, weights=None, **options):
    options = {"tol": 0, "random_state": SEED, "max_iter": 3, **options}
    return OnlineKMeans(len(start), init=start, **options).fit(X, sample_weight=weights)


def orders(X, epochs, weights=None):
    """Return the order of the rows in each epoch."""
    weights = None if weights is None else np.asarray(weights, float)
    with on_threads(Rows.of(find_source(X), weights)) as rows:
        keys = keys_of(rows)
        return [shuffled(rows, keys, generator(SEED, 0, t + 1)) for t in range(epochs)]


class TestOracle:
    @LAYOUTS
    @METRICS
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("d", [1, 2, 6, 50])
    def test_epoch_by_epoch(self, layout, metric, weighted, d):
        X = np.abs(cloud(300, d)) + (np.arange(300) % 3 == 0)[:, None] + 0.01
        weights = np.random.default_rng(0).integers(0, 4, 300) if weighted else None
        cosine = metric == "cosine" and d > 1
        rows = naive.unit(X) if cosine else X
        start = X[[0, 1, 2, 50, 51, 52, 53]]
        for epochs in (1, 3):
            model = fit(layout(X), start, weights, max_iter=epochs, metric="cosine" if cosine else "euclidean")
            batches = [[i] for i in np.concatenate(orders(X, epochs, weights))]
            C, _, energies = naive.mini_batch(rows, naive.unit(start) if cosine else start, batches, weights, spherical=cosine)
            np.testing.assert_allclose(model.cluster_centers_, C, atol=1e-10)
            np.testing.assert_array_equal(model.labels_, naive.labels(rows, C))
            expected = np.sum(np.reshape(energies, (epochs, -1)), axis=1) / (2 if cosine else 1)
            np.testing.assert_allclose([record["energy"] for record in model.history_], expected, rtol=1e-9)

    @METRICS
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("stretches", [(1, 1), (7, 7), (300, 300)])
    def test_result_does_not_depend_on_rows_scored_at_once(self, monkeypatch, metric, dtype, stretches):
        X = (blobs(800, 20, 9, spread=3)[0]).astype(dtype)
        usual = fit(X, X[:30], metric=metric)
        monkeypatch.setattr(streaming_means, "ROWS_SCORED_AT_ONCE", stretches)
        monkeypatch.setattr(streaming_means, "ROWS_READ_AT_ONCE", 333)
        other = fit(X, X[:30], metric=metric)
        np.testing.assert_array_equal(usual.labels_, other.labels_)
        np.testing.assert_array_equal(usual.cluster_centers_, other.cluster_centers_)

    @LAYOUTS
    def test_ties_go_to_the_first_centroid(self, layout):
        X = np.array([[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]])
        model = OnlineKMeans(2, init=X[:2]).partial_fit(layout(X[[2, 2]]))
        np.testing.assert_allclose(model.cluster_centers_, [[1.0, 1.0], [2.0, 1.0]])

    @LAYOUTS
    def test_a_row_opposite_to_its_centroid_does_not_move_it(self, layout):
        """The mean of two opposite directions has no direction."""
        X = np.array([[0.6, 0.8], [-0.6, -0.8], [0.0, 1.0]])
        model = OnlineKMeans(1, init=X[:1], metric="cosine").partial_fit(layout(X[:2]))
        np.testing.assert_allclose(model.cluster_centers_, X[:1], atol=1e-12)


class TestRelations:
    @LAYOUTS
    @METRICS
    @pytest.mark.parametrize("then", [None, "batch"])
    def test_weights_equal_repetitions_in_any_order(self, layout, metric, then):
        X, rng = cloud(150, 3), np.random.default_rng(0)
        weights, order = rng.integers(0, 4, 150), rng.permutation(150)
        repeated = X.repeat(weights, axis=0)
        one = fit(layout(X[order]), X[:9], weights[order], metric=metric, then=then, max_iter=20)
        other = fit(layout(repeated), X[:9], metric=metric, then=then, max_iter=20)
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-12)
        np.testing.assert_array_equal(one.predict(X), other.predict(X))
        assert one.inertia_ == pytest.approx(other.inertia_)

    @METRICS
    def test_sparse_equals_dense(self, metric):
        X = np.random.default_rng(1).poisson(0.4, (300, 30)) * np.random.default_rng(2).random((300, 30))
        X[:, 0] += 0.1
        dense, thin = (fit(rows, X[:8], metric=metric) for rows in (X, sparse.csr_array(X)))
        np.testing.assert_array_equal(dense.labels_, thin.labels_)
        np.testing.assert_allclose(dense.cluster_centers_, thin.cluster_centers_, atol=1e-12)

    @LAYOUTS
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_result_does_not_depend_on_threads(self, layout, dtype):
        X = blobs(20_000, 30, 9, spread=3, dtype=dtype)[0]
        one, *others = (fit(layout(X), X[:9], n_threads=n, max_iter=1) for n in (1, 2, 4))
        for other in others:
            np.testing.assert_array_equal(one.labels_, other.labels_)
            np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)

    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_float32_is_close_to_float64(self, offset):
        X = (blobs(2000, 5, 6)[0] + offset).astype(np.float32)
        one, other = (fit(X.astype(dtype), X[:6]) for dtype in (np.float32, np.float64))
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-5)

    def test_no_cluster_stays_empty(self):
        X, y = blobs(500, 3, 5)
        model = fit(X, np.vstack([spread_rows(X, y), [[1e4] * 3]]))
        assert len(np.unique(model.labels_)) == 6


class TestEpochs:
    def test_the_first_is_better_than_a_batch_step_on_redundant_rows(self):
        """Bottou and Bengio find that the curves cross in the second epoch."""
        X, _ = blobs(5000, 5, 10, spread=4)
        energies = []
        for seed in range(5):
            start = X[np.random.default_rng(seed).choice(5000, 10, replace=False)]
            models = fit(X, start, max_iter=1), KMeans(10, init=start, max_iter=1).fit(X)
            energies.append([model.inertia_ for model in models])
        online, batch = np.mean(energies, axis=0)
        assert online < batch

    def test_reassigned_rows_are_counted(self):
        X, y = blobs(300, 3, 5)
        model = fit(X, spread_rows(X, y))
        assert [record["reassigned"] for record in model.history_] == [300, 0, 0]
        assert all((record["rows"], record["distances"]) == (300, 1500) for record in model.history_)

    def test_stop_when_the_shift_is_at_most_tol(self):
        X = cloud(1000, 3)
        model = fit(X, X[:6], tol=1e-4, max_iter=500)
        assert model.stop_reason_ == "converged"
        assert model.history_[-1]["shift"] <= 1e-4 * X.var(axis=0).mean() < model.history_[-2]["shift"]

    def test_have_different_orders(self):
        one, other = orders(cloud(100, 3), 2)
        assert sorted(one) == sorted(other) == list(range(100))
        assert (one != other).sum() > 80


class TestThenBatch:
    @LAYOUTS
    @METRICS
    def test_equals_k_means_after_one_epoch(self, layout, metric):
        X = np.abs(cloud(600, 5))
        epoch = fit(layout(X), X[:9], max_iter=1, metric=metric)
        model = fit(layout(X), X[:9], then="batch", max_iter=300, metric=metric)
        exact = KMeans(9, init=epoch.cluster_centers_, tol=0, metric=metric).fit(layout(X))
        assert model.stop_reason_ == "converged"
        assert model.n_iter_ == exact.n_iter_ + 1
        np.testing.assert_array_equal(model.labels_, exact.labels_)
        np.testing.assert_allclose(model.cluster_centers_, exact.cluster_centers_, atol=1e-12)

    def test_takes_an_exact_step_even_if_the_epoch_moves_nothing(self):
        X = np.repeat([[0.0], [5.0]], 20, axis=0)
        model = fit(X, np.array([[0.0], [5.0]]), then="batch", tol=1.0, max_iter=300)
        assert (model.n_iter_, model.stop_reason_, model.inertia_) == (2, "converged", 0.0)

    def test_may_end_after_the_epoch(self):
        X = cloud(300, 4)
        one, other = fit(X, X[:5], then="batch", max_iter=1), fit(X, X[:5], max_iter=1)
        np.testing.assert_array_equal(one.labels_, other.labels_)
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)


def test_invalid_parameters_are_rejected():
    with pytest.raises(ValueError, match="'then' parameter"):
        OnlineKMeans(3, then="lloyd").fit(cloud(50, 3))
