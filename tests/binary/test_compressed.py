"""`CompressedKMeans`: learning against the equations of the paper, clusters that are found, and difficult input."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score

from shoal import BinaryKMeans, CompressedKMeans, KMeans, load, save
from shoal.binary import code_learner, learning
from shoal.binary.learning import LearningParameters
from shoal.binary.sample import Centered, draw
from shoal.binary.sketch import cluster
from tests import naive
from tests.strategies import blobs, cloud, hidden_clusters

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
X, Y = blobs(600, 20, 4)


def sign(F):
    return np.where(F > 0, 1.0, -1.0)


def fit(rows=X, k=4, weights=None, **options):
    return CompressedKMeans(k, **{"random_state": 0, **options}).fit(rows, sample_weight=weights)


class TestLearning:
    @pytest.mark.parametrize(("alpha", "nu", "eta"), [(10, 1, 0.001), (0.5, 1, 0.01), (1, 25, 0.1)])
    def test_a_round_takes_the_steps_of_the_equations(self, alpha, nu, eta):
        A, labels = cloud(300, 7), np.arange(300, dtype=np.int32) % 5
        parameters, rows = LearningParameters(alpha, nu, eta), Centered(A, np.ones(300))
        state = learning.initial_state(rows, np.random.default_rng(1).normal(size=(7, 20)), labels, 5)
        found, info = learning.step(rows, state, parameters, np.random.default_rng(2))
        W, CG = state.W, state.C[labels]
        for ids in np.array_split(np.random.default_rng(2).permutation(300), 3):
            F = A[ids] @ W
            E, H = sign(alpha * F - 2 * CG[ids]), sign(F)
            W = W - eta * learning.BATCH_SIZE / len(ids) * A[ids].T @ (E - H)
            W = W * np.minimum(1, np.sqrt(nu) / np.linalg.norm(W, axis=0))
        F = A @ W
        votes = np.array([sign(F)[labels == j].sum(axis=0) for j in range(5)])
        C = np.where(votes == 0, state.C, sign(votes))
        E, CG = sign(alpha * F - 2 * C[labels]), C[labels]
        bound = ((E - CG) ** 2).sum(axis=1) + alpha * (F * (E - sign(F))).sum(axis=1)
        assert not found.ended
        np.testing.assert_allclose(found.W, W, atol=1e-12)
        np.testing.assert_array_equal(found.C, C)
        np.testing.assert_allclose(info, (bound.mean() / 4, ((sign(F) - CG) ** 2).sum(axis=1).mean() / 4))
        np.testing.assert_array_equal(found.bounds, [info.upper_bound])

    def test_the_bound_is_above_the_loss_and_both_decrease(self):
        rows, _ = hidden_clusters()
        history = [r for r in fit(rows, 6, n_bits=32).history_ if "loss" in r]
        assert len(history) > 2
        assert all(record["upper_bound"] >= record["loss"] for record in history)
        for key in ("upper_bound", "loss"):
            assert history[-1][key] < history[0][key]


class TestClusters:
    @LAYOUTS
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
    @pytest.mark.parametrize("n_bits", [16, 32, 100, 128, 500])
    def test_separated_clusters(self, layout, dtype, n_bits):
        model = fit(layout((10 * X).astype(dtype)), n_bits=n_bits)
        assert adjusted_rand_score(Y, model.labels_) == 1
        assert model.cluster_centers_.shape == (4, n_bits)

    @LAYOUTS
    def test_learned_codes_are_better_than_random_ones(self, layout):
        scores = {learn: [] for learn in (True, False)}
        for seed in range(3):
            rows, y = hidden_clusters(seed=seed)
            for learn, found in scores.items():
                model = fit(layout(rows), 6, learn=learn, n_bits=32, random_state=seed)
                found.append(adjusted_rand_score(y, model.labels_))
        assert np.mean(scores[True]) > 0.9
        assert np.mean(scores[True]) > np.mean(scores[False]) + 0.1

    def test_cosine(self):
        rows = (X + 5) * np.random.default_rng(0).exponential(size=(len(X), 1))
        model = fit(rows, metric="cosine")
        assert adjusted_rand_score(Y, model.labels_) == 1
        np.testing.assert_array_equal(model.predict(7 * rows), model.labels_)

    def test_the_fraction_to_learn_from_has_little_effect(self, monkeypatch):
        monkeypatch.setattr(code_learner, "MIN_SUBSET", 100)
        rows, y = hidden_clusters(6000)
        sizes = []
        monkeypatch.setattr(code_learner, "draw", lambda rows, size, rng: sizes.append(size) or draw(rows, size, rng))
        for beta in (0.05, 0.2, 1.0):
            assert adjusted_rand_score(y, fit(rows, 6, beta=beta).labels_) > 0.9
        assert sizes == [300, 1200, 6000]

    def test_given_initial_centroids(self):
        centers = np.array([X[j == Y].mean(axis=0) for j in range(4)])
        for learn in (True, False):
            for init in (centers, lambda rows, k, random_state: centers):
                labels = fit(init=init, learn=learn, n_init=1).labels_
                assert (labels == Y).mean() > 0.95

    def test_the_best_initialization_is_used(self, monkeypatch):
        """The first initializations of a seed do not depend on their number, so more of them are never worse."""
        rows, _ = hidden_clusters(k=20)
        energies = []

        def record(short, k, starts, *args):
            labels = cluster(short, k, starts, *args)
            Y = short.rows.A[:, :-1]
            energies.append(naive.energy(Y, naive.means(Y, labels, np.zeros((k, Y.shape[1])), np.ones(len(Y)))))
            return labels

        monkeypatch.setattr(code_learner, "cluster", record)
        for n_init in (1, 3, 10):
            fit(rows, 20, n_init=n_init, init="random", n_bits=16)
        assert energies[0] > energies[2]
        assert energies[1] >= energies[2] * (1 - 1e-6)

    @pytest.mark.parametrize(
        ("rows", "k"), [(X, 8), (X, 50), (cloud(3000, 30), 200), (X[:50], 50)], ids=["few", "more", "many", "all"]
    )
    def test_more_clusters_than_groups(self, rows, k):
        """Learning stops before it merges clusters: an empty cluster would warn, and warnings are errors."""
        assert len(set(fit(rows, k, n_bits=256).labels_)) == k

    def test_learning_ends_if_the_clusters_are_separated(self):
        rows = np.repeat(np.eye(4) * 1000, 50, axis=0) + cloud(200, 4) / 1000
        assert len(fit(rows).history_) < 30

    @pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e15), (np.float32, 1e-20), (np.float64, 1e200)])
    def test_initial_centroids_of_any_scale(self, dtype, scale):
        rows = (X * scale).astype(dtype)
        centers = np.array([rows[j == Y].mean(axis=0, dtype=float) for j in range(4)])
        for learn in (True, False):
            assert (fit(rows, init=centers, learn=learn).labels_ == Y).mean() > 0.95

    def test_extreme_weights(self):
        model = fit(weights=np.r_[1e200, np.full(len(X) - 1, 1e-200)])
        assert np.isfinite(model.code_.W).all()
        assert adjusted_rand_score(Y, model.labels_) > 0.9

    def test_rows_at_the_limits_of_their_dtype(self):
        rows = np.full((50, 3), np.finfo(np.float32).max, np.float32)
        rows[0] *= -1
        labels = fit(rows, 2).labels_
        assert labels[0] != labels[1]
        assert len(set(labels[1:])) == 1
        with pytest.raises(ValueError, match="range of X exceeds that of float64"):
            fit(np.sign(rows).astype(np.float64) * np.finfo(np.float64).max, 2)


class TestModel:
    @pytest.mark.parametrize("learn", [True, False])
    @LAYOUTS
    def test_predictions_use_the_codes(self, learn, layout):
        model = fit(layout(X), learn=learn, n_bits=40)
        new = layout(cloud(50, 20))
        distances = naive.hamming(np.asarray(model.code_.encode(new)), model.cluster_centers_)
        np.testing.assert_array_equal(model.predict(new), distances.argmin(axis=1))
        np.testing.assert_array_equal(model.transform(new), distances)
        assert model.score(new) == -distances.min(axis=1).sum()
        np.testing.assert_array_equal(model.predict(layout(X)), model.labels_)
        own = naive.hamming(np.asarray(model.code_.encode(X)), model.cluster_centers_)
        assert model.inertia_ == own.min(axis=1).sum()

    def test_without_learning_equals_lsh_and_binary_kmeans(self):
        model = fit(learn=False, n_bits=24, init=X[:4])
        codes = model.code_.encode(X)
        other = BinaryKMeans(4, init=np.asarray(model.code_.encode(X[:4]))).fit(codes)
        np.testing.assert_array_equal(model.labels_, other.labels_)
        np.testing.assert_array_equal(model.cluster_centers_, other.cluster_centers_)
        assert not [record for record in model.history_ if "loss" in record]

    @LAYOUTS
    @pytest.mark.parametrize("weighted", [False, True])
    def test_refined_centroids_are_means_of_rows(self, layout, weighted):
        rows, _ = hidden_clusters(500, 30)
        weights = np.random.default_rng(0).integers(0, 3, 500) if weighted else None
        plain, model = (fit(layout(rows), 6, weights, n_bits=16, refine=refine) for refine in (False, True))
        C = naive.means(rows, plain.labels_, np.zeros((6, 30)), np.ones(500) if weights is None else weights)
        np.testing.assert_allclose(model.cluster_centers_, C)
        np.testing.assert_array_equal(model.labels_, naive.labels(rows, C))
        assert model.inertia_ == pytest.approx(naive.energy(rows, C, weights))
        np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)
        np.testing.assert_allclose(model.transform(rows[:3]) ** 2, naive.distances(rows[:3], C))

    def test_results_do_not_depend_on_threads(self):
        rows = cloud(20_000, 30, dtype=np.float32)
        one, two = (fit(rows, 7, n_threads=n, refine=True) for n in (1, 2))
        np.testing.assert_array_equal(one.labels_, two.labels_)
        np.testing.assert_array_equal(one.code_.W, two.code_.W)
        np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)

    def test_a_callback_stops_the_learning(self):
        rows, _ = hidden_clusters()
        model = fit(rows, 6, callback=lambda record: "loss" in record)
        assert [("loss" in record) for record in model.history_] == [True, False]
        assert model.stop_reason_ == "callback"
        np.testing.assert_array_equal(model.predict(rows), model.labels_)

    @pytest.mark.filterwarnings("ignore:time_budget=1e-06 seconds are too short")  # raised or not, depending on the load
    @pytest.mark.parametrize("learn", [True, False])
    def test_time_budget(self, learn):
        model = fit(cloud(20_000, 30), 50, learn=learn, time_budget=1e-6)
        assert model.stop_reason_ == "time_budget"

    def test_max_iter_limits_the_rounds(self):
        rows, _ = hidden_clusters()
        assert len(fit(rows, 6, max_iter=1).history_) == 2


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("n_bits", value) for value in (0, -8, 2.5)),
            *(("beta", value) for value in (0, 1.5)),
            *((name, 0) for name in ("alpha", "nu", "learning_rate")),
            *(("learn", "x"), ("refine", "no"), ("init", "k-means||")),
        ],
    )
    def test_parameters(self, name, value):
        with pytest.raises(ValueError, match=f"'{name}' parameter of CompressedKMeans"):
            fit(**{name: value})

    @pytest.mark.parametrize("learn", [True, False])
    @LAYOUTS
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_nan_and_infinity(self, learn, layout, value):
        rows = X.copy()
        rows[17, 3] = value
        with pytest.raises(ValueError, match=r"X contains (NaN|infinity) at row 17, column 3"):
            fit(layout(rows), learn=learn)

    @pytest.mark.parametrize("learn", [True, False])
    def test_nan_outside_the_subset(self, learn, monkeypatch):
        monkeypatch.setattr(code_learner, "MIN_SUBSET", 50)
        rows = cloud(25_000, 3)
        rows[20_007, 1] = np.nan
        with pytest.raises(ValueError, match="X contains NaN at row 20007, column 1"):
            fit(rows, learn=learn)

    @LAYOUTS
    @pytest.mark.parametrize("learn", [True, False])
    def test_fewer_codes_than_clusters(self, learn, layout):
        rows = np.repeat(X[:3], 20, axis=0)
        with pytest.warns(ConvergenceWarning, match=r"clusters \(\d\) found smaller than n_clusters \(8\).*n_bits=16"):
            model = fit(layout(rows), 8, n_bits=16, learn=learn)
        assert len(set(model.labels_)) <= 3

    @LAYOUTS
    @pytest.mark.parametrize("learn", [True, False])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
    def test_equal_rows(self, learn, layout, dtype):
        for value in (0, 3):
            model = fit(layout(np.full((30, 5), value, dtype)), 2, learn=learn, refine=True)
            np.testing.assert_array_equal(model.cluster_centers_[model.labels_], np.full((30, 5), value))

    @pytest.mark.parametrize("learn", [True, False])
    def test_zero_rows_and_constant_columns(self, learn):
        rows = np.hstack([X, np.full((len(X), 3), 7.0), np.zeros((len(X), 2))])
        rows[:10] = 0
        model = fit(rows, 5, learn=learn)
        assert len(set(model.labels_[:10])) == 1
        assert np.isfinite(model.code_.W).all()

    def test_zero_rows_have_no_cosine(self):
        rows = X.copy()
        rows[5] = 0
        with pytest.raises(ValueError, match="Row 5 of X is all zeros"):
            fit(rows, metric="cosine")

    def test_too_large_a_learning_rate(self):
        with pytest.raises(ValueError, match=r"learning_rate=1e\+300 makes hyperplanes overflow"), np.errstate(all="ignore"):
            fit(learning_rate=1e300)

    def test_refined_clusters_do_not_warn_of_empty_codes(self):
        model = fit(n_bits=1, refine=True, k=3)
        assert len(set(model.labels_)) == 3

    @LAYOUTS
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_refinement_fills_clusters_without_codes(self, metric, layout):
        for seed in range(20):
            rows = np.repeat(np.random.default_rng(seed).normal(size=(15, 3)) + 100 * (metric == "euclidean"), 4, axis=0)
            model = fit(layout(rows), 9, n_bits=2, refine=True, metric=metric, random_state=seed)
            assert len(set(model.labels_)) == 9
            np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_centroids_of_empty_clusters_are_rows(self, metric, tmp_path):
        rows = np.repeat(cloud(3, 4) + 100 * (metric == "euclidean"), 10, axis=0)
        model = fit(rows, 8, refine=True, metric=metric)
        assert len(set(model.labels_)) == 3
        assert KMeans(8, init=model.cluster_centers_, metric=metric, max_iter=1).fit(rows).inertia_ == pytest.approx(0)
        assert model.transform(rows).min(axis=0).max() == pytest.approx(0, abs=1e-6)
        save(model, tmp_path / "model.npz")
        np.testing.assert_array_equal(load(tmp_path / "model.npz").predict(rows), model.labels_)

    def test_centroids_without_a_code(self):
        model = CompressedKMeans(4)
        model.cluster_centers_ = np.zeros((4, 128), bool)
        with pytest.raises(NotFittedError):
            model.predict(X)
