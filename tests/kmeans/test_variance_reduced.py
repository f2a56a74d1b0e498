"""`VarianceReducedKMeans`: equal to the oracle row by row and in blocks, unbiased, and ends at a fixed point of Lloyd."""

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse

from shoal import KMeans, VarianceReducedKMeans
from shoal.data import rows as rows_module
from shoal.fit.random_streams import draw, generator
from tests import naive
from tests.strategies import blobs, cloud, first_rows, grids

few_distinct = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(X, start, weights=None, **options):
    options = {"tol": 0, "random_state": 0, **options}
    return VarianceReducedKMeans(len(start), init=start, **options).fit(X, sample_weight=weights)


def picked(n, size, epochs, seed=0):
    """Return the rows that each epoch picks."""
    return [generator(seed, 0, epoch).integers(n, size=size) for epoch in range(1, epochs + 1)]


def energies(model):
    return [record["energy"] for record in model.history_]


class TestRowByRow:
    @pytest.mark.parametrize("d", [2, 16, 60])
    @pytest.mark.parametrize("rate", [None, 3.0])
    def test_equals_the_oracle(self, d, rate):
        X, start = cloud(150, d, seed=d), first_rows(cloud(150, d, seed=d), 7)
        for epochs in (1, 2, 4):
            model = fit(X, start, learning_rate=rate, block_size=1, epoch_size=0.5, max_iter=epochs)
            C = naive.variance_reduced(X, start, picked(150, 75, epochs), (rate or 1) * 7 / 150)
            np.testing.assert_allclose(model.cluster_centers_, C, rtol=0, atol=1e-12)
            np.testing.assert_array_equal(model.labels_, naive.labels(X, C))

    @given(grids)
    @few_distinct
    def test_equals_the_oracle_on_degenerate_data(self, problem):
        X, start, weights = problem
        n = len(X) if weights is None else np.count_nonzero(weights)
        model = fit(X, start, weights, learning_rate=2.0, block_size=1, max_iter=1)
        if weights is None:
            epochs = picked(n, n, 1)
        else:
            epochs = [draw(generator(0, 0, 1), weights, n)]
        C = naive.variance_reduced(X, start, epochs, min(1, 2 * len(start) / n), weights=weights)
        if (
            np.bincount(naive.labels(X, C)[np.ones(len(X), bool) if weights is None else weights > 0], minlength=len(C)) > 0
        ).all():
            np.testing.assert_allclose(model.cluster_centers_, C, rtol=0, atol=1e-10)

    def test_rows_with_unchanged_labels_reduce_the_movement(self):
        """After a step, each picked row whose label has not changed moves its centroid back towards the snapshot."""
        X, start = cloud(60, 2), first_rows(cloud(60, 2), 3)
        label_only = naive.labels(X, start)
        C = naive.means(X, label_only, start, np.ones(60))
        changed = np.flatnonzero(naive.labels(X, C) != label_only)
        stayed = np.flatnonzero(naive.labels(X, C) == label_only)
        once = naive.variance_reduced(X, start, [changed[:1]], 0.1)
        then = naive.variance_reduced(X, start, [np.r_[changed[:1], stayed]], 0.1)
        assert np.linalg.norm(then - C) < np.linalg.norm(once - C)


class TestBlocks:
    @pytest.mark.parametrize("block", [7, 64, 1000])
    @pytest.mark.parametrize("d", [2, 20])
    def test_equal_the_oracle(self, block, d):
        X, start, eta = cloud(300, d), first_rows(cloud(300, d), 9), 4 * 9 / 300
        model = fit(X, start, learning_rate=4.0, block_size=block, max_iter=1)
        names = naive.labels(X, start)
        C = snapshot = naive.means(X, names, start, np.ones(300))
        ids = picked(300, 300, 1)[0]
        for a in range(0, 300, block):
            some = ids[a : a + block]
            C = naive.variance_reduced_block(X[some], C, names[some], snapshot, eta)
        np.testing.assert_allclose(model.cluster_centers_, C, rtol=0, atol=1e-12)

    def test_keep_the_expectation_of_the_step(self):
        """The mean over many seeds does not depend on the block size, up to sampling error."""
        X, start = cloud(400, 3), first_rows(cloud(400, 3), 5)
        means = [
            np.mean([fit(X, start, block_size=block, max_iter=1, random_state=s).cluster_centers_ for s in range(60)], axis=0)
            for block in (1, 20)
        ]
        corrected = fit(X, start, epoch_size=1e-9, max_iter=1).cluster_centers_
        assert np.linalg.norm(means[0] - means[1]) < 0.15 * np.linalg.norm(means[0] - corrected)

    def test_large_steps_do_not_overshoot(self):
        X, start = cloud(2000, 4), first_rows(cloud(2000, 4), 6)
        model = fit(X, start, learning_rate=1000.0, block_size=2000, max_iter=15)
        assert energies(model)[-1] < energies(model)[1]

    @pytest.mark.parametrize("d", [40, 60, 130])
    def test_find_the_same_labels_with_bounds_and_without(self, d, monkeypatch):
        X = blobs(3000, d, 40, spread=2, dtype=np.float32)[0]
        monkeypatch.setattr("shoal.kmeans.dispatch.MIN_PAIRS_FOR_HEADS", 1)
        monkeypatch.setattr("shoal.kmeans.dispatch.MIN_WORK_FOR_BOUNDS", 1)
        bounded = fit(X, first_rows(X, 40), max_iter=6, learning_rate=8.0, block_size=300)
        monkeypatch.setattr("shoal.kmeans.dispatch.MIN_WORK_FOR_BOUNDS", 10**9)
        plain = fit(X, first_rows(X, 40), max_iter=6, learning_rate=8.0, block_size=300)
        np.testing.assert_array_equal(bounded.labels_, plain.labels_)
        np.testing.assert_array_equal(bounded.cluster_centers_, plain.cluster_centers_)
        assert bounded.history_[-1]["distances"] < plain.history_[-1]["distances"]


class TestEnergy:
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.parametrize("seed", range(3))
    def test_ends_at_a_fixed_point_of_lloyd(self, metric, seed):
        X = cloud(800, 5, seed=seed) + 0.5
        model = VarianceReducedKMeans(8, tol=0, metric=metric, random_state=seed).fit(X)
        assert model.stop_reason_ == "converged"
        once = KMeans(8, init=model.cluster_centers_, tol=0, metric=metric).fit(X)
        assert once.n_iter_ <= 2
        np.testing.assert_allclose(once.inertia_, model.inertia_, rtol=1e-4)

    def test_is_as_low_as_that_of_lloyd(self):
        X = cloud(3000, 6)
        found = [[cls(20, random_state=s).fit(X).inertia_ for s in range(5)] for cls in (KMeans, VarianceReducedKMeans)]
        assert np.mean(found[1]) < 1.01 * np.mean(found[0])

    def test_falls_faster_per_epoch_than_lloyd_per_step(self):
        X, start = cloud(3000, 6), first_rows(cloud(3000, 6), 20)
        lloyd = KMeans(20, init=start, tol=0).fit(X)
        model = fit(X, start, learning_rate=8.0)
        steps = [r["energy"] for r in lloyd.history_]
        assert energies(model)[3] < steps[6]


class TestEpochs:
    def test_double_in_size_if_asked(self):
        X = cloud(100, 3)
        model = fit(X, first_rows(X, 5), epoch_size="doubling", max_iter=40)
        sizes = [record["picked"] for record in model.history_]
        assert sizes == [min(2**s, 200) for s in range(1, len(sizes) + 1)]
        assert len(sizes) > 3

    @pytest.mark.parametrize("share", [0.25, 1, 2.0])
    def test_are_a_share_of_the_rows_of_positive_weight(self, share):
        X, weights = cloud(100, 3), np.r_[np.zeros(20), np.ones(80)]
        model = fit(X, first_rows(X, 5), weights, epoch_size=share, max_iter=2)
        assert model.history_[0]["picked"] == 80 * share

    def test_are_recorded_in_the_history(self):
        X, _ = blobs(5000, 80, 12, spread=3)
        history = fit(X, first_rows(X, 20), max_iter=3).history_
        keys = ["step", "seconds", "energy", "shift", "rows", "distances", "reassigned", "picked", "start"]
        assert list(history[0]) == keys
        for record in history:
            assert 0 < record["distances"] <= 2 * 5000 * 20 * 2
            assert record["rows"] <= 2 * 5000


class TestRelations:
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_sparse_equals_dense(self, metric):
        X = np.random.default_rng(1).poisson(0.4, (300, 30)) * np.random.default_rng(2).random((300, 30))
        X[:, 0] += 0.1
        dense, thin = (fit(rows, X[:8], metric=metric, max_iter=9, block_size=50) for rows in (X, sparse.csr_array(X)))
        np.testing.assert_array_equal(dense.labels_, thin.labels_)
        np.testing.assert_allclose(dense.cluster_centers_, thin.cluster_centers_, atol=1e-12)

    @pytest.mark.parametrize("d", [5, 80])
    def test_result_does_not_depend_on_threads(self, d, monkeypatch):
        monkeypatch.setattr(rows_module, "BLOCK_ROWS", (256, 256))
        X = cloud(3000, d, dtype=np.float32)
        one, *others = (fit(X, first_rows(X, 25), n_threads=t, max_iter=5, block_size=700) for t in (1, 2, 4))
        for other in others:
            np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
            np.testing.assert_array_equal(one.labels_, other.labels_)
            assert energies(one) == energies(other)

    def test_float32_equals_float64_up_to_rounding(self):
        X = cloud(1000, 6, dtype=np.float32)
        single, double = (fit(rows, first_rows(X, 9), max_iter=4) for rows in (X, X.astype(np.float64)))
        np.testing.assert_allclose(single.cluster_centers_, double.cluster_centers_, rtol=0, atol=1e-5)

    def test_rows_of_weight_zero_have_no_effect(self):
        X = cloud(400, 4)
        weights = np.r_[np.full(300, 2.0), np.zeros(100)]
        model = fit(X, first_rows(X, 6), weights, max_iter=4)
        X[300:] += 100
        np.testing.assert_array_equal(fit(X, first_rows(X, 6), weights, max_iter=4).cluster_centers_, model.cluster_centers_)

    @pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
    def test_a_common_weight_scales_the_energy_only(self, factor):
        X = cloud(200, 3)
        one, other = (fit(X, first_rows(X, 6), np.full(200, w), max_iter=4) for w in (1.0, factor))
        np.testing.assert_array_equal(one.labels_, other.labels_)
        assert other.inertia_ == pytest.approx(factor * one.inertia_)

    def test_weights_equal_repetitions_in_expectation(self):
        X, weights = cloud(200, 3), np.random.default_rng(0).integers(0, 4, 200)
        start, options = first_rows(X, 5), {"max_iter": 1, "block_size": 50, "learning_rate": 0.5}
        means = [
            np.mean([fit(rows, start, w, random_state=s, **options).cluster_centers_ for s in range(60)], axis=0)
            for rows, w in ((X, weights), (X.repeat(weights, axis=0), None))
        ]
        np.testing.assert_allclose(*means, atol=0.02)

    def test_the_seed_determines_the_result(self):
        X = cloud(500, 4)
        one, same, other = (fit(X, first_rows(X, 9), max_iter=2, random_state=s).cluster_centers_ for s in (0, 0, 1))
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)

    @few_distinct
    def test_no_cluster_stays_empty(self):
        X = np.r_[cloud(300, 2), cloud(5, 2) + 50]
        start = np.r_[X[:6], [[1e3, 1e3], [-1e3, 1e3]]]
        model = fit(X, start)
        assert len(np.unique(model.labels_)) == 8


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": 0.0},
        {"learning_rate": -1.0},
        {"epoch_size": 0},
        {"epoch_size": "halving"},
        {"block_size": 0},
        {"block_size": True},
    ],
    ids=str,
)
def test_invalid_parameters_are_rejected_by_name(options):
    with pytest.raises(ValueError, match=rf"The '{next(iter(options))}' parameter of VarianceReducedKMeans must be"):
        VarianceReducedKMeans(2, **options).fit(cloud(20, 2))


@pytest.mark.filterwarnings("ignore:time_budget=0.001 seconds are too short")  # or not, depending on the machine
def test_a_time_budget_ends_the_fit():
    X = cloud(20_000, 8)
    model = VarianceReducedKMeans(50, tol=0, time_budget=1e-3, random_state=0).fit(X)
    assert (model.stop_reason_, model.n_iter_) == ("time_budget", 1)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
