"""`SphericalMixture`: equal to the oracle, k-means in the limit of small variance, coinciding centroids for a large one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from shoal import KMeans, SphericalMixture
from shoal.kmeans import responsibilities
from tests import naive
from tests.strategies import blobs, cloud, first_rows, problems, spread_rows

pytestmark = pytest.mark.filterwarnings("ignore:Number of distinct clusters:sklearn.exceptions.ConvergenceWarning")
LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])


def fit(X, start, variance=1.0, weights=None, **options):
    return SphericalMixture(len(start), variance=variance, init=start, **{"tol": 0, **options}).fit(X, sample_weight=weights)


def likelihoods(model):
    """Return the log-likelihoods of all incoming centroids and of the final ones."""
    return np.array([record["log_likelihood"] for record in model.history_] + [model.log_likelihood_])


def assert_equals_oracle(model, X, start, weights=None, atol=1e-10):
    steps = model.n_iter_
    C, expected = naive.mixture(X, start, model.variance, steps + 1, weights)
    C, _ = naive.mixture(X, start, model.variance, steps, weights)
    np.testing.assert_allclose(model.cluster_centers_, C, rtol=0, atol=atol)
    np.testing.assert_allclose(likelihoods(model), expected, rtol=1e-10, atol=atol * len(X))
    np.testing.assert_array_equal(model.labels_, model.predict(X))


class TestOracle:
    @LAYOUTS
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("d", [1, 3, 20, 60])
    @pytest.mark.parametrize("variance", [0.05, 1.0, 3.0])
    def test_step_by_step(self, layout, d, weighted, variance):
        X = cloud(300, d, seed=d)
        weights = np.random.default_rng(0).integers(0, 4, 300) if weighted else None
        for steps in (1, 2, 3, 30):
            model = fit(layout(X), first_rows(X, 7), variance, weights, max_iter=steps)
            assert_equals_oracle(model, X, first_rows(X, 7), weights)
            energy = naive.energy(X, model.cluster_centers_, weights)
            assert model.inertia_ == pytest.approx(energy)

    @given(problems(dtypes=(np.float64,)), st.sampled_from([0.1, 1.0, 30.0]))
    def test_on_degenerate_data(self, problem, variance):
        model = fit(problem.X, problem.start, variance, problem.weights, max_iter=3)
        assert_equals_oracle(model, *problem, atol=1e-8)

    def test_over_many_blocks_and_pieces(self, monkeypatch):
        X = cloud(20_000, 60)
        model = fit(X, first_rows(X, 5), 2.0, max_iter=3)
        assert_equals_oracle(model, X, first_rows(X, 5))
        monkeypatch.setattr(responsibilities, "MAX_RESPONSIBILITIES_PER_PIECE", 100)
        in_pieces = fit(X, first_rows(X, 5), 2.0, max_iter=3)
        np.testing.assert_allclose(in_pieces.cluster_centers_, model.cluster_centers_, atol=1e-12)

    @pytest.mark.parametrize("offset", [0, 1e4])
    def test_responsibilities_of_float32_rows_are_float64(self, offset):
        X = (cloud(300, 5) + offset).astype(np.float32)
        model = fit(X, first_rows(X, 6), 0.4, max_iter=20)
        assert model.cluster_centers_.dtype == model.predict_proba(X).dtype == np.float32
        L = naive.log_densities(X, model.cluster_centers_, 0.4)
        assert model.log_likelihood_ == pytest.approx(logsumexp(L, axis=1).sum(), rel=1e-7)
        np.testing.assert_allclose(model.predict_proba(X), softmax(L, axis=1), atol=1e-6)
        C, _ = naive.mixture(X, first_rows(X, 6), 0.4, model.n_iter_)
        np.testing.assert_allclose(model.cluster_centers_, C, rtol=1e-6, atol=1e-6)

    def test_a_centroid_without_responsibilities_moves_to_the_worst_row(self):
        X, _ = blobs(300, 3, 4)
        start = np.vstack([X[:2], X[:2] + 1e5])
        for steps in (1, 2, 3, 20):
            assert_equals_oracle(fit(X, start, max_iter=steps), X, start)
        assert len(set(fit(X, start, tol=1e-4).labels_)) == 4


class TestProbabilities:
    @LAYOUTS
    @pytest.mark.parametrize("offset", [0.0, 300.0])
    @pytest.mark.parametrize("variance", [1e-6, 1e-3, 1.0, 1e9])
    def test_equal_the_oracle(self, layout, offset, variance):
        X = cloud(200, 5) + offset
        model = fit(layout(X), first_rows(X, 7), variance, max_iter=2)
        P = model.predict_proba(layout(X))
        assert P.shape == (200, 7)
        np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(P, softmax(naive.log_densities(X, model.cluster_centers_, variance), axis=1), atol=1e-6)
        if variance < 1e9:  # otherwise they are equal up to rounding
            np.testing.assert_array_equal(P.argmax(axis=1), model.predict(layout(X)))

    @LAYOUTS
    def test_of_centroids_closer_than_the_rounding_of_scores(self, layout):
        """Squared distances between these centroids are below the rounding error of |c|^2 - 2 x.c."""
        rng = np.random.default_rng(0)
        places = 10 * rng.normal(size=(4, 3)).round(2)
        C = np.vstack([places, places + 1e-8])
        X = np.tile(places, (25, 1)) + 1e-8 * rng.normal(size=(100, 3))
        model = SphericalMixture(8, variance=1e-16)
        model.cluster_centers_ = C
        L = naive.log_densities(X, C, 1e-16)
        expected = softmax(L, axis=1)
        assert ((expected > 0.05) & (expected < 0.95)).any()
        np.testing.assert_allclose(model.predict_proba(layout(X)), expected, atol=1e-9)
        np.testing.assert_allclose(model.score_samples(layout(X)), logsumexp(L, axis=1), rtol=1e-9)

    @LAYOUTS
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("size", [1e3, 1e10, 1e30])
    def test_of_distant_rows_are_finite(self, layout, dtype, size):
        X, y = blobs(100, 3, 4)
        model = fit(X.astype(dtype), spread_rows(X, y), max_iter=5)
        far = layout((size * cloud(50, 3)).astype(dtype))
        P = model.predict_proba(far)
        np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-6)
        np.testing.assert_array_equal(P.argmax(axis=1), model.predict(far))
        assert not np.isnan(model.score_samples(far)).any()

    def test_rows_out_of_range_are_rejected(self):
        X = cloud(50, 3)
        with pytest.raises(ValueError, match=r"Row \d+ of X lies so far from the rows of the fit"):
            fit(X, first_rows(X, 3), max_iter=2).predict_proba(1e200 * X)


class TestScore:
    X, y = blobs(400, 4, 5)

    @LAYOUTS
    def test_is_the_mean_log_likelihood(self, layout):
        weights = np.random.default_rng(0).integers(0, 3, 400)
        model = fit(layout(self.X), spread_rows(self.X, self.y), 0.1, weights, max_iter=5)
        samples = logsumexp(naive.log_densities(self.X, model.cluster_centers_, 0.1), axis=1)
        np.testing.assert_allclose(model.score_samples(layout(self.X)), samples, rtol=1e-9)
        assert model.score(layout(self.X)) == pytest.approx(samples.mean())
        assert model.score(layout(self.X), sample_weight=weights) == pytest.approx(np.average(samples, weights=weights))
        assert model.log_likelihood_ == pytest.approx(weights @ samples)

    def test_selects_the_variance_on_validation_rows(self):
        scores = {v: fit(self.X[:200], spread_rows(self.X, self.y), v).score(self.X[200:]) for v in (0.01, 0.03, 0.09, 0.3, 1)}
        assert max(scores, key=scores.get) == 0.09

    def test_ignores_rows_of_weight_zero(self):
        model = fit(self.X, spread_rows(self.X, self.y), 1e-250, max_iter=2)
        rows = np.vstack([model.cluster_centers_, [[1e100] * 4]])
        assert model.score(rows) == -np.inf
        assert model.score(rows, sample_weight=[1] * 5 + [0]) == pytest.approx(model.score(rows[:5]))


class TestRelations:
    @given(problems(weighted=True), st.sampled_from([0.01, 0.3, 1.0, 10.0]))
    def test_the_likelihood_never_falls(self, problem, variance):
        """Up to rounding; the final centroids may be rounded to float32."""
        model = fit(problem.X, problem.start, variance, problem.weights, max_iter=50)
        found = likelihoods(model)
        mass = len(problem.X) if problem.weights is None else problem.weights.sum()
        assert (np.diff(found[:-1]) >= -1e-12 * mass * (1 + np.abs(found[:-2]))).all()
        assert found[-1] >= found[-2] - 1e-4 * mass * (1 + abs(found[-2]))

    def test_a_small_variance_gives_k_means(self):
        X = cloud(500, 4)
        hard, soft = KMeans(9, init=first_rows(X, 9), tol=0).fit(X), fit(X, first_rows(X, 9), 1e-12)
        np.testing.assert_array_equal(soft.labels_, hard.labels_)
        np.testing.assert_allclose(soft.cluster_centers_, hard.cluster_centers_, atol=1e-12)
        assert soft.inertia_ == pytest.approx(hard.inertia_)
        assert soft.stop_reason_ == "converged"
        assert set(np.unique(soft.predict_proba(X))) == {0, 1}

    @pytest.mark.parametrize("variance", [10.0, 1e6, 1e300])
    def test_a_large_variance_gives_coinciding_centroids(self, variance):
        X, weights = cloud(500, 4), np.random.default_rng(1).random(500)
        model = fit(X, first_rows(X, 9), variance, weights)
        np.testing.assert_allclose(model.cluster_centers_, np.tile(np.average(X, axis=0, weights=weights), (9, 1)), atol=1e-6)
        np.testing.assert_allclose(model.predict_proba(X), 1 / 9, rtol=1e-5)
        np.testing.assert_array_equal(model.labels_, model.predict(X))

    def test_warns_of_coinciding_centroids(self):
        X = cloud(50, 3)
        with pytest.warns(ConvergenceWarning, match=r"clusters \(1\) found .* n_clusters \(4\): centroids coincide") as caught:
            model = fit(X, X[[0, 0, 0, 0]])
        assert caught[0].filename == __file__
        np.testing.assert_array_equal(model.labels_, 0)

    def test_weights_equal_repetitions(self):
        X, rng = cloud(150, 3), np.random.default_rng(0)
        weights = rng.integers(0, 4, 150)
        weighted = fit(X, first_rows(X, 5), 0.3, weights, max_iter=20)
        repeated = fit(X.repeat(weights, axis=0), first_rows(X, 5), 0.3, max_iter=20)
        np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, atol=1e-10)
        assert weighted.log_likelihood_ == pytest.approx(repeated.log_likelihood_)

    @pytest.mark.parametrize("factor", [1e-300, 2.0**-40, 1e6])
    def test_a_common_weight_scales_the_likelihood_only(self, factor):
        X = cloud(200, 3)
        plain, heavy = (fit(X, first_rows(X, 5), 0.3, weights, max_iter=9) for weights in (None, np.full(200, factor)))
        np.testing.assert_allclose(plain.cluster_centers_, heavy.cluster_centers_, atol=1e-10)
        assert heavy.log_likelihood_ == pytest.approx(factor * plain.log_likelihood_)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("exponent", [-60, -20, 1, 20, 60])
    def test_the_variance_has_the_scale_of_the_rows(self, exponent, dtype):
        """The fit may scale the rows internally."""
        X, scale = cloud(200, 4).astype(dtype), 2.0**exponent
        base, scaled = fit(X, first_rows(X, 5), 0.5), fit(X * dtype(scale), first_rows(X, 5) * scale, 0.5 * scale**2)
        np.testing.assert_array_equal(scaled.cluster_centers_, base.cluster_centers_ * dtype(scale))
        np.testing.assert_array_equal(scaled.predict_proba(X * dtype(scale)), base.predict_proba(X))
        assert scaled.n_iter_ == base.n_iter_
        assert scaled.score(X * dtype(scale)) == pytest.approx(base.score(X) - 4 * exponent * np.log(2))

    @pytest.mark.parametrize(("scale", "variance"), [(1e200, 1.0), (1e200, 5e-324), (1e-200, 5e-324), (1e-160, 1e308)])
    def test_extreme_scales_and_variances_give_finite_centroids(self, scale, variance):
        X, y = blobs(200, 3, 4)
        model = fit(scale * X, scale * spread_rows(X, y), variance, max_iter=20)
        if scale == 1e200:
            np.testing.assert_array_equal(model.labels_, y)
            assert model.log_likelihood_ == -np.inf
        assert model.stop_reason_ == "converged"
        assert np.isfinite(model.cluster_centers_).all()
        np.testing.assert_allclose(model.predict_proba(scale * X).sum(axis=1), 1)

    def test_is_invariant_to_translation(self):
        X = np.round(cloud(200, 4) * 2**20) / 2**20
        base, moved = (fit(X + shift, first_rows(X, 5) + shift, 0.5, max_iter=20) for shift in (0, 4096))
        np.testing.assert_allclose(moved.cluster_centers_ - 4096, base.cluster_centers_, atol=1e-9)
        assert moved.log_likelihood_ == pytest.approx(base.log_likelihood_)

    def test_result_does_not_depend_on_threads(self):
        X = cloud(30_000, 40, dtype=np.float32)
        one, *others = (fit(X, first_rows(X, 6), max_iter=3, n_threads=threads) for threads in (1, 2, 4))
        for other in others:
            np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
            assert one.log_likelihood_ == other.log_likelihood_


class TestFit:
    @pytest.mark.parametrize("order", [1, -1])
    def test_the_start_of_highest_likelihood_is_kept(self, order):
        """Instead of the one with the lowest energy."""
        X = cloud(300, 3)
        hard = KMeans(6, init=first_rows(X, 6)).fit(X).cluster_centers_
        soft = fit(X, hard, 0.6, tol=1e-6).cluster_centers_
        one, other = (fit(X, C, 0.6, max_iter=1) for C in (hard, soft))
        assert one.inertia_ < other.inertia_
        starts = [hard, soft][::order]
        options = {"variance": 0.6, "n_init": 2, "max_iter": 1}
        model = SphericalMixture(6, init=lambda X, k, random_state: starts.pop(), **options).fit(X)
        assert model.log_likelihood_ == other.log_likelihood_ > one.log_likelihood_

    def test_stops_when_the_gain_is_at_most_tol(self):
        X = cloud(300, 3)
        for tol in (1e-2, 1e-4):
            model = fit(X, first_rows(X, 5), 0.3, tol=tol)
            gains = np.diff(likelihoods(model)) / 300
            assert model.stop_reason_ == "converged"
            assert gains[-2] <= tol < gains[:-2].min()
            np.testing.assert_allclose([record["gain"] for record in model.history_[1:]], gains[:-1], rtol=1e-6)

    def test_with_tol_zero_stops_at_a_maximum_of_the_likelihood(self):
        X, y = blobs(300, 3, 4)
        model = fit(X, spread_rows(X, y), 0.1)
        assert model.stop_reason_ == "converged"
        again, _ = naive.mixture(X, model.cluster_centers_, 0.1, 1)
        np.testing.assert_allclose(again, model.cluster_centers_, atol=1e-6)

    def test_finds_blobs(self):
        X, y = blobs(500, 3, 5)
        model = SphericalMixture(5, random_state=0).fit(X)
        assert naive.accuracy(y, model.labels_) == 1
        assert model.inertia_ == pytest.approx(KMeans(5, random_state=0).fit(X).inertia_, rel=1e-3)

    def test_a_time_budget_ends_the_fit(self):
        X = cloud(5000, 10)
        model = fit(X, first_rows(X, 20), 0.5, time_budget=1e-6, tol=0)
        assert (model.stop_reason_, model.n_iter_) == ("time_budget", 1)
        np.testing.assert_array_equal(model.labels_, model.predict(X))

    def test_history_has_a_record_per_step(self):
        X, seen = cloud(300, 3), []
        model = fit(X, first_rows(X, 5), 0.3, max_iter=4, callback=seen.append)
        assert seen == model.history_
        fields = {"step", "seconds", "energy", "log_likelihood", "gain", "shift", "rows", "distances", "start"}
        assert all(record.keys() == fields for record in seen)
        assert seen[0]["energy"] == pytest.approx(naive.energy(X, first_rows(X, 5)))

    @pytest.mark.parametrize("variance", [0, -1.0, np.inf, np.nan, "1", None])
    def test_an_invalid_variance_is_rejected(self, variance):
        with pytest.raises(ValueError, match="'variance' parameter of SphericalMixture must be a float"):
            SphericalMixture(2, variance=variance).fit(cloud(20, 3))

    def test_has_no_metric_parameter(self):
        with pytest.raises(TypeError, match="metric"):
            SphericalMixture(2, metric="cosine")
        doc = SphericalMixture.__doc__
        names = SphericalMixture().get_params()
        assert all(doc.count(f"\n    {name} : ") == 1 for name in names)
        assert "metric :" not in doc
