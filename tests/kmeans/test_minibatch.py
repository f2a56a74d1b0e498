"""`MiniBatchKMeans`: equal to the oracle for the same batches."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from shoal import KMeans, MiniBatchKMeans
from shoal.data.frame import Frame
from shoal.kmeans import minibatch
from tests import naive
from tests.strategies import blobs, cloud, first_rows, spread_rows

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
SEED = 3


def fit(X, start, weights=None, **options):
    options = {"tol": 0, "max_no_improvement": None, "random_state": SEED, "max_iter": 20, **options}
    return MiniBatchKMeans(len(start), init=start, **options).fit(X, sample_weight=weights)


def batches(n, size, steps, weights=None):
    """Return the rows of each step."""
    heavy = np.arange(n) if weights is None else np.flatnonzero(weights)
    if size >= len(heavy):
        return [np.arange(n)] * steps
    return [heavy[minibatch.draw(len(heavy), size, SEED, 0, t + 1)] for t in range(steps)]


def thin(n, d, seed=0):
    """Return rows with many zeros, but no row of zeros only."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.3, (n, d)) * rng.random((n, d))
    X[:, 0] += 0.1
    return X


class TestOracle:
    @LAYOUTS
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("size", [1, 10, 64, 1000])
    @pytest.mark.parametrize("make", [cloud, thin])
    def test_step_by_step(self, layout, metric, weighted, size, make):
        X = make(300, 6)
        weights = np.random.default_rng(0).integers(0, 4, 300) if weighted else None
        rows = naive.unit(X) if metric == "cosine" else X
        for steps in (1, 2, 20):
            model = fit(layout(X), X[:7], weights, batch_size=size, max_iter=steps, metric=metric)
            drawn = batches(300, size, steps, weights)
            C, _, energies = naive.mini_batch(rows, rows[:7], drawn, weights, spherical=metric == "cosine")
            np.testing.assert_allclose(model.cluster_centers_, C, atol=1e-10)
            np.testing.assert_array_equal(model.labels_, naive.labels(rows, C))
            w = np.ones(300) if weights is None else weights
            scale = [w.sum() / w[batch].sum() / (2 if metric == "cosine" else 1) for batch in drawn]
            found = [record["energy"] for record in model.history_]
            np.testing.assert_allclose(found, np.multiply(energies, scale), rtol=1e-8, atol=1e-12)
            assert (model.n_iter_, model.stop_reason_) == (steps, "max_iter")

    @LAYOUTS
    def test_shift_is_the_movement_of_the_centroids(self, layout):
        X = thin(300, 9)
        model = fit(layout(X), X[:5], batch_size=30)
        path = [naive.mini_batch(X, X[:5], batches(300, 30, steps))[0] for steps in range(21)]
        shifts = [((new - old) ** 2).sum() for old, new in pairwise(path)]
        np.testing.assert_allclose([record["shift"] for record in model.history_], shifts, rtol=1e-6, atol=1e-13)

    @LAYOUTS
    @pytest.mark.parametrize("radius", [0.5, 2.0, 100.0])
    def test_in_the_l1_ball(self, layout, radius):
        X = thin(300, 12)
        model = fit(layout(X), X[:5], batch_size=30, l1_radius=radius)
        C, _, _ = naive.mini_batch(X, X[:5], batches(300, 30, 20), radius=radius)
        np.testing.assert_allclose(model.cluster_centers_, C, atol=1e-10)
        assert (np.abs(model.cluster_centers_).sum(axis=1) <= radius + 1e-9).all()
        np.testing.assert_array_equal(model.cluster_centers_ == 0, C == 0)


class TestBatches:
    def test_are_rows_without_repetition(self):
        ids = minibatch.draw(50, 20, 0, 0, 1)
        assert (np.diff(ids) > 0).all()
        assert set(ids) < set(range(50))

    def test_differ_by_seed_start_and_number(self):
        names = [(0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 1)]
        assert len({tuple(minibatch.draw(1000, 20, *name)) for name in names}) == len(names)

    def test_all_rows_are_drawn_equally_often(self):
        count = np.bincount(np.concatenate([minibatch.draw(40, 10, 0, 0, t) for t in range(1, 4001)]), minlength=40)
        assert np.abs(count - 1000).max() < 5 * np.sqrt(750)

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_split_into_pieces_do_not_depend_on_threads(self, monkeypatch, layout, metric):
        X = thin(2000, 20)
        whole = fit(layout(X), X[:9], batch_size=500, metric=metric)
        monkeypatch.setattr("shoal.data.rows.SUBSET_BLOCK_MULTIPLICATIONS", 1)
        one, *others = (fit(layout(X), X[:9], batch_size=500, metric=metric, n_threads=n) for n in (1, 2, 4))
        for other in others:
            np.testing.assert_array_equal(one.labels_, other.labels_)
            np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
            assert [r["energy"] for r in one.history_] == [r["energy"] for r in other.history_]
        np.testing.assert_allclose(one.cluster_centers_, whole.cluster_centers_, atol=1e-12)


class TestRelations:
    def test_the_first_step_with_all_rows_equals_lloyd(self):
        X = cloud(300, 4)
        one, other = fit(X, X[:6], max_iter=1), KMeans(6, init=X[:6], max_iter=1).fit(X)
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-12)

    @pytest.mark.parametrize("size", [30, 1000])
    def test_a_common_weight_scales_the_energy_only(self, size):
        X = cloud(200, 3)
        plain, heavy = (fit(X, X[:6], w, batch_size=size) for w in (np.ones(200), np.full(200, 1e6)))
        np.testing.assert_allclose(plain.cluster_centers_, heavy.cluster_centers_, atol=1e-12)
        assert heavy.inertia_ == pytest.approx(1e6 * plain.inertia_)

    @LAYOUTS
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_weights_equal_repetitions_if_the_batch_is_all_rows(self, layout, metric):
        X, weights = thin(100, 5), np.random.default_rng(0).integers(0, 4, 100)
        weighted = fit(layout(X), X[:6], weights, metric=metric)
        repeated = fit(layout(X.repeat(weights, axis=0)), X[:6], metric=metric)
        np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, atol=1e-12)
        np.testing.assert_array_equal(weighted.labels_.repeat(weights), repeated.labels_)

    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_float32_is_close_to_float64(self, offset):
        X = (blobs(2000, 5, 6)[0] + offset).astype(np.float32)
        one, other = (fit(X.astype(dtype), X[:6], batch_size=100) for dtype in (np.float32, np.float64))
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-5)
        assert one.cluster_centers_.dtype == np.float32

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_means_of_float32_rows_remain_accurate(self, layout):
        """Sums are float64, whatever the rows."""
        X = np.full((1000, 1), 0.1, np.float32)
        X[::2] = 0.3
        model = fit(layout(X), np.array([[0.2]]), np.full(1000, 1e9), batch_size=100, max_iter=200)
        assert model.cluster_centers_[0, 0] == pytest.approx(0.2, abs=5e-3)

    def test_the_l1_ball_is_around_the_origin_of_x(self):
        """The frame shifts rows far from the origin and scales large ones."""
        X = np.abs(blobs(500, 4, 3)[0]) + 100
        for rows, radius in ((X, 300.0), (X * 2.0**70, 300.0 * 2.0**70)):
            model = fit(rows, rows[:3], l1_radius=radius)
            np.testing.assert_allclose(np.abs(model.cluster_centers_).sum(axis=1), radius)

    def test_projection_does_not_move_points_inside(self):
        v = np.array([0.5, -0.25, 0.0])
        np.testing.assert_array_equal(minibatch.project(v, 0.75), v)
        shift = np.array([1.0, -1.0])
        C = minibatch.project_centers(np.array([[1.0, 1.0]]), 1.0, Frame(shift=shift))
        np.testing.assert_allclose(C + shift, [[1.0, 0.0]])

    def test_centroids_of_filled_clusters_stay_in_the_ball(self):
        X = thin(60, 5)
        start = np.vstack([X[:3], np.full(5, 1e3)])
        model = fit(X, start, l1_radius=0.8)
        assert (np.abs(model.cluster_centers_).sum(axis=1) <= 0.8 + 1e-9).all()


class TestResult:
    @LAYOUTS
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_is_close_to_k_means(self, layout, metric):
        X, y = blobs(5000, 6, 8, spread=1.5)
        start = spread_rows(X, y)
        if metric == "cosine":
            X, start = np.random.default_rng(0).gamma(0.5, size=(5000, 8)), np.eye(8) + 0.1
        exact = KMeans(8, init=start, metric=metric).fit(X)
        model = MiniBatchKMeans(8, init=start, metric=metric, batch_size=256, random_state=0).fit(layout(X))
        assert exact.inertia_ * (1 - 1e-9) <= model.inertia_ < 1.03 * exact.inertia_

    def test_energy_of_batches_estimates_that_of_all_rows(self):
        X, y = blobs(5000, 6, 8)
        model = fit(X, spread_rows(X, y), max_iter=30)
        assert np.mean([r["energy"] for r in model.history_[-10:]]) == pytest.approx(model.inertia_, rel=0.03)

    def test_no_cluster_stays_empty(self):
        X, y = blobs(500, 3, 5)
        start = np.vstack([spread_rows(X, y), [[1e4] * 3]])
        model = fit(X, start, batch_size=50)
        assert len(np.unique(model.labels_)) == 6

    def test_warns_of_too_few_distinct_rows(self):
        with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(1\)") as caught:
            MiniBatchKMeans(3).fit(np.ones((9, 2)))
        assert caught[0].filename == __file__

    def test_starts_have_different_batches(self):
        X, seen = cloud(500, 4), []
        MiniBatchKMeans(
            5, init=lambda X, k, random_state: X[:k], n_init=2, batch_size=20, max_iter=3, random_state=0, callback=seen.append
        ).fit(X)
        energies = [[r["energy"] for r in seen if r["start"] == start] for start in (0, 1)]
        assert not set(energies[0]) & set(energies[1])


class TestStopping:
    X = cloud(3000, 4)

    def test_without_improvement(self):
        model = fit(self.X, first_rows(self.X, 6), batch_size=100, max_no_improvement=5, max_iter=5000)
        assert model.stop_reason_ == "converged"
        energies = [record["energy"] for record in model.history_]
        smooth = least = np.mean(energies[:15])
        idle = 0
        for energy in energies[15:]:
            assert idle < 5
            smooth += (energy - smooth) / 15
            idle, least = 0 if smooth < least else idle + 1, min(smooth, least)
        assert idle == 5

    @pytest.mark.parametrize("size", [100, 700, 5000])
    def test_by_the_movement_over_an_epoch(self, size):
        tol, start = 1e-3, first_rows(self.X, 6)
        model = fit(self.X, start, batch_size=size, tol=tol, max_iter=5000)
        assert model.stop_reason_ == "converged"
        epoch = max(3000 / size, 1)
        ends = [t for t in range(1, model.n_iter_ + 1) if t // epoch > (t - 1) // epoch]
        assert ends[-1] == model.n_iter_
        path = [start, *(fit(self.X, start, batch_size=size, max_iter=t).cluster_centers_ for t in ends)]
        drift = [((new - old) ** 2).sum() for old, new in pairwise(path)]
        limit = tol * self.X.var(axis=0).mean()
        assert drift[-1] <= limit
        assert min(drift[:-1]) > limit

    def test_by_time_and_callback(self):
        endless = {"batch_size": 100, "max_iter": 10**9}
        assert fit(self.X, self.X[:6], time_budget=0.05, **endless).stop_reason_ == "time_budget"
        model = fit(self.X, self.X[:6], callback=lambda record: record["step"] == 3, **endless)
        assert (model.stop_reason_, model.n_iter_) == ("callback", 3)

    def test_records(self):
        model = fit(self.X, self.X[:6], batch_size=100, max_iter=2)
        fields = {"step", "seconds", "energy", "shift", "rows", "distances", "start"}
        assert all(record.keys() == fields for record in model.history_)
        assert [(record["rows"], record["distances"]) for record in model.history_] == [(100, 600)] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"batch_size": True}, "'batch_size' parameter"),
        ({"max_no_improvement": 0}, "'max_no_improvement' parameter"),
        ({"l1_radius": 0}, "'l1_radius' parameter"),
        ({"l1_radius": 1.0, "metric": "cosine"}, r"l1_radius=1\.0 .* metric='euclidean'"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_invalid_parameters_are_rejected(options, message, method):
    with pytest.raises(ValueError, match=message):
        getattr(MiniBatchKMeans(3, **options), method)(cloud(50, 3))
