"""`GradientKMeans`: equal to the oracle, batch and online."""

import numpy as np
import pytest
from scipy import sparse

from shoal import GradientKMeans, KMeans
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit.random_streams import generator
from shoal.fit.shuffle import keys_of, shuffled
from tests import naive
from tests.strategies import blobs, cloud, spread_rows

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
METRICS = pytest.mark.parametrize("metric", ["euclidean", "cosine"])
MODES = pytest.mark.parametrize("mode", ["batch", "online"])
SEED = 3


def fit(X, start, weights=None, **options):
    options = {"tol": 0, "random_state": SEED, "max_iter": 5, **options}
    return GradientKMeans(len(start), init=start, **options).fit(X, sample_weight=weights)


def orders(X, epochs):
    with on_threads(Rows.of(find_source(X))) as rows:
        keys = keys_of(rows)
        return [shuffled(rows, keys, generator(SEED, 0, t + 1)) for t in range(epochs)]


class TestOracle:
    @LAYOUTS
    @METRICS
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize(("mode", "rate"), [("batch", 0.01), ("batch", None), ("online", 0.05), ("online", 1.0)])
    def test_epoch_by_epoch(self, layout, metric, weighted, mode, rate):
        X = np.abs(cloud(200, 5)) + 0.01
        weights = np.random.default_rng(0).integers(0, 4, 200) if weighted else np.ones(200, int)
        cosine = metric == "cosine"
        rows = naive.unit(X) if cosine else X
        for epochs in (1, 5):
            model = fit(layout(X), X[:6], weights, metric=metric, mode=mode, learning_rate=rate, max_iter=epochs)
            eps = rate or 1 / np.bincount(naive.labels(rows, rows[:6]), weights).max()
            order = orders(X, epochs) if mode == "online" else None
            C = naive.gradient(rows, rows[:6], eps / np.arange(1, epochs + 1), order, weights, cosine)
            np.testing.assert_allclose(model.cluster_centers_, C, atol=1e-10)
            np.testing.assert_array_equal(model.labels_, naive.labels(rows, C))

    def test_a_rate_of_one_over_the_rows_gives_k_means(self):
        """With a learning rate of 1 / N_k (equation 6), a batch step is one of Lloyd's algorithm."""
        X = cloud(300, 4)
        one, other = fit(X, X[:1], learning_rate=1 / 300, max_iter=1), KMeans(1).fit(X)
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-12)

    @pytest.mark.parametrize("rate", [0.5, 0.999])
    def test_sparse_centroids_whose_scale_underflows(self, rate):
        """The common factor of a sparse centroid would underflow in float64 unless it is multiplied in."""
        X = np.random.default_rng(0).poisson(0.3, (2000, 8)) + np.eye(1, 8)
        dense, thin = (fit(rows, X[:2], mode="online", learning_rate=rate) for rows in (X, sparse.csr_array(X)))
        np.testing.assert_allclose(dense.cluster_centers_, thin.cluster_centers_, atol=1e-10)


class TestRelations:
    @pytest.mark.parametrize(("mode", "metric"), [("batch", "euclidean"), ("batch", "cosine"), ("online", "euclidean")])
    def test_weights_equal_repetitions(self, mode, metric):
        X, rng = cloud(150, 3), np.random.default_rng(0)
        weights, order = rng.integers(0, 4, 150), rng.permutation(150)
        one = fit(X[order], X[:9], weights[order], metric=metric, mode=mode)
        other = fit(X.repeat(weights, axis=0), X[:9], metric=metric, mode=mode)
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-12)

    @MODES
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_result_does_not_depend_on_threads(self, mode, dtype):
        X = blobs(20_000, 30, 9, spread=3, dtype=dtype)[0]
        one, *others = (fit(X, X[:9], n_threads=n, mode=mode, max_iter=2) for n in (1, 2, 4))
        for other in others:
            np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)

    @METRICS
    def test_energy_never_increases_with_the_default_rate(self, metric):
        X = np.concatenate([cloud(2000, 4), cloud(50, 4, seed=1) + 8])
        energies = [record["energy"] for record in fit(X, X[-6:], max_iter=50, metric=metric).history_]
        assert (np.diff(energies) <= 1e-12 * energies[0]).all()

    @MODES
    def test_is_close_to_k_means_on_blobs(self, mode):
        X, y = blobs(2000, 4, 5)
        model = fit(X, spread_rows(X, y), mode=mode, max_iter=50)
        assert model.inertia_ < 1.01 * KMeans(5, init=spread_rows(X, y)).fit(X).inertia_

    @MODES
    def test_no_cluster_stays_empty(self, mode):
        X, y = blobs(500, 3, 5)
        model = fit(X, np.vstack([spread_rows(X, y), [[1e4] * 3]]), mode=mode)
        assert len(np.unique(model.labels_)) == 6

    def test_stops_when_the_shift_is_at_most_tol(self):
        X = cloud(1000, 3)
        model = fit(X, X[:6], tol=1e-4, max_iter=500)
        assert model.stop_reason_ == "converged"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "sgd"}, "'mode' parameter"),
        ({"learning_rate": 0}, "'learning_rate' parameter"),
        ({"learning_rate": 1.5, "mode": "online"}, r"learning_rate=1\.5 .* at most 1"),
        ({"learning_rate": 1e9, "n_clusters": 1}, r"learning_rate=1000000000\.0 .* diverge .* for instance 0\.02"),
    ],
)
def test_invalid_parameters_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        GradientKMeans(**options).fit(cloud(50, 3))


@pytest.mark.parametrize("scale", [1e-6, 1e-3])
def test_the_scale_of_weights_does_not_matter(scale):
    """Weights that add up to about one still move centroids."""
    X, y = blobs(600, 3, 3)
    start = spread_rows(X, y) + 1
    ones, shares = (
        GradientKMeans(3, init=start, mode="online", random_state=0).fit(X, sample_weight=np.full(600, w)) for w in (1, scale)
    )
    assert shares.inertia_ / scale == pytest.approx(ones.inertia_, rel=1e-6)


def test_filling_an_empty_cluster_moves_no_other_centroid():
    X = np.concatenate([cloud(50, 2), cloud(50, 2, 1) + 20])
    start = np.array([[3.0, 3], [15, 15], [1e3, 1e3]])
    model = GradientKMeans(3, init=start, learning_rate=1e-9, max_iter=1).fit(X)
    np.testing.assert_allclose(model.cluster_centers_[:2], start[:2], atol=1e-4)
    assert len(np.unique(model.labels_)) == 3
