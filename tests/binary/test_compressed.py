"""`CompressedKMeans`: the letter of the paper is the oracle; the default finds what is there, from whatever rows."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score

from shoal import BinaryKMeans, CompressedKMeans, KMeans, load, save
from shoal.binary import compressed, learning
from shoal.binary import paper_variant as letter
from shoal.binary.learning import Rule
from shoal.binary.sample import Centered, draw
from shoal.fit.loop import Limits
from shoal.fit.random_streams import generator
from tests import naive
from tests.strategies import blobs, cloud

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
X, Y = blobs(600, 20, 4)


def hidden(n=2000, d=120, k=6, seed=0):
    """Clusters that few of the columns tell of, the others being noise, and none of them near the origin."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % k)
    rows = rng.normal(size=(n, d)) + 5
    rows[:, :8] += 6 * rng.normal(size=(k, 8))[y]
    return rows, y


def fit(rows=X, k=4, weights=None, **options):
    return CompressedKMeans(k, **{"random_state": 0, **options}).fit(rows, sample_weight=weights)


class TestTheLetter:
    @pytest.mark.parametrize(("alpha", "nu", "eta"), [(10, 1, 0.001), (0.5, 1, 0.01), (1, 25, 0.1)])
    def test_rounds_are_those_of_the_oracle(self, alpha, nu, eta):
        A = cloud(300, 7) - cloud(300, 7).mean(axis=0)
        rng = np.random.default_rng(1)
        W, batches = rng.normal(size=(7, 20)), [rng.choice(300, learning.BATCH, replace=False) for _ in range(6)]
        C = A[:5] @ W > 0
        labels = naive.hamming(A @ W > 0, C).argmin(axis=1).astype(np.int32)
        rows = Centered(A, np.ones(300))

        def clusters(F, state):
            return letter.clusters(F, state, rows.weights, alpha, 1, Limits(1))

        state = learning.begin(rows, learning.LearningState(W, np.where(C, 1.0, -1.0), labels), clusters)
        told = []
        for batch in batches:
            state, info = learning.step(rows, state, Rule(alpha, nu, eta), clusters, [batch])
            told.append(tuple(info))
        W, C, expected = naive.compressed(A, W, C, batches, alpha, nu, eta)
        np.testing.assert_allclose(state.W, W, atol=1e-12)
        np.testing.assert_array_equal(state.C > 0, C)
        np.testing.assert_allclose(told, expected)

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # rows of few codes
    def test_a_fit_is_that_of_the_oracle(self):
        model = fit(learn="paper", init=X[:4], n_bits=20, alpha=1.0)
        mean, m = X.mean(axis=0), len(X)
        W = generator(0, compressed.DIRECTIONS).standard_normal((20, 20))
        rounds = [record for record in model.history_ if "loss" in record]
        batches = [learning.one_batch(m, generator(0, compressed.BATCHES, 0, t))[0] for t in range(len(rounds))]
        W, C, expected = naive.compressed(X - mean, W, (X[:4] - mean) @ W > 0, batches, 1.0, 1.0, 0.001)
        np.testing.assert_allclose([(r["upper_bound"], r["loss"]) for r in rounds], expected)
        np.testing.assert_allclose(model.code_.W, W, rtol=1e-6)
        C, _ = naive.binary_kmeans(np.asarray(model.code_.encode(X)), C)
        np.testing.assert_array_equal(model.cluster_centers_, C)

    @pytest.mark.parametrize("learn", [True, "paper"])
    def test_the_bound_is_above_the_loss_and_both_fall(self, learn):
        rows, _ = hidden()
        history = [r for r in fit(rows, 6, learn=learn, n_bits=32).history_ if "loss" in r]
        assert len(history) > 2
        assert all(record["upper_bound"] >= record["loss"] for record in history)
        for key in ("upper_bound", "loss"):
            assert history[-1][key] < history[0][key]


class TestFindsWhatIsThere:
    @LAYOUTS
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
    @pytest.mark.parametrize("n_bits", [16, 32, 100, 128, 500])
    def test_clusters_that_lie_apart(self, layout, dtype, n_bits):
        model = fit(layout((10 * X).astype(dtype)), n_bits=n_bits)
        assert adjusted_rand_score(Y, model.labels_) == 1
        assert model.cluster_centers_.shape == (4, n_bits)

    @LAYOUTS
    def test_clusters_that_random_hyperplanes_miss(self, layout):
        scores = {learn: [] for learn in (True, False)}
        for seed in range(3):
            rows, y = hidden(seed=seed)
            for learn, found in scores.items():
                model = fit(layout(rows), 6, learn=learn, n_bits=32, random_state=seed)
                found.append(adjusted_rand_score(y, model.labels_))
        assert np.mean(scores[True]) > 0.9
        assert np.mean(scores[True]) > np.mean(scores[False]) + 0.1

    def test_directions(self):
        rows = (X + 5) * np.random.default_rng(0).exponential(size=(len(X), 1))
        model = fit(rows, metric="cosine")
        assert adjusted_rand_score(Y, model.labels_) == 1
        np.testing.assert_array_equal(model.predict(7 * rows), model.labels_)

    def test_the_share_to_learn_from_matters_little(self, monkeypatch):
        monkeypatch.setattr(compressed, "LEAST", 100)
        rows, y = hidden(6000)
        seen = []
        monkeypatch.setattr(compressed, "draw", lambda rows, size, rng: seen.append(size) or draw(rows, size, rng))
        for beta in (0.05, 0.2, 1.0):
            assert adjusted_rand_score(y, fit(rows, 6, beta=beta).labels_) > 0.9
        assert seen == [300, 1200, 6000]

    def test_starts_that_are_given(self):
        centers = np.array([X[j == Y].mean(axis=0) for j in range(4)])
        for learn in (True, "paper", False):
            for init in (centers, lambda rows, k, random_state: centers):
                labels = fit(init=init, learn=learn, n_init=1).labels_
                assert (labels == Y).mean() > 0.95

    def test_starts_that_are_tried(self):
        """The first of a seed are the same, whatever their number."""
        one, three, ten = (fit(n_init=n, init="random", learn="paper", n_bits=16) for n in (1, 3, 10))
        losses = [[r for r in m.history_ if "loss" in r][-1]["loss"] for m in (one, three, ten)]
        assert losses == sorted(losses, reverse=True)

    @pytest.mark.parametrize(("rows", "k"), [(X, 8), (X, 50), (cloud(3000, 30), 200), (X[:50], 50)], ids=str)
    def test_more_clusters_than_there_are_groups(self, rows, k):
        """Learning would make one of them, if it went on; a warning would be an error here."""
        assert len(set(fit(rows, k).labels_)) == k

    def test_learning_ends_when_there_is_nothing_to_learn(self):
        rows = np.repeat(np.eye(4) * 1000, 50, axis=0) + cloud(200, 4) / 1000
        for learn in (True, "paper"):
            assert len(fit(rows, learn=learn).history_) < 30

    @pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e15), (np.float32, 1e-20), (np.float64, 1e200)])
    def test_starts_of_any_scale(self, dtype, scale):
        rows = (X * scale).astype(dtype)
        centers = np.array([rows[j == Y].mean(axis=0, dtype=float) for j in range(4)])
        for learn in (True, "paper", False):
            assert (fit(rows, init=centers, learn=learn).labels_ == Y).mean() > 0.95

    def test_weights_of_a_wide_range(self):
        model = fit(weights=np.r_[1e200, np.full(len(X) - 1, 1e-200)])
        assert np.isfinite(model.code_.W).all()
        assert adjusted_rand_score(Y, model.labels_) > 0.9

    def test_rows_as_far_apart_as_numbers_go(self):
        rows = np.full((50, 3), np.finfo(np.float32).max, np.float32)
        rows[0] *= -1
        labels = fit(rows, 2).labels_
        assert labels[0] != labels[1]
        assert len(set(labels[1:])) == 1
        with pytest.raises(ValueError, match="wider than float64 can hold"):
            fit(np.sign(rows).astype(np.float64) * np.finfo(np.float64).max, 2)


class TestTheModel:
    @pytest.mark.parametrize("learn", [True, False, "paper"])
    @LAYOUTS
    def test_is_about_the_codes(self, learn, layout):
        model = fit(layout(X), learn=learn, n_bits=40)
        new = layout(cloud(50, 20))
        far = naive.hamming(np.asarray(model.code_.encode(new)), model.cluster_centers_)
        np.testing.assert_array_equal(model.predict(new), far.argmin(axis=1))
        np.testing.assert_array_equal(model.transform(new), far)
        assert model.score(new) == -far.min(axis=1).sum()
        np.testing.assert_array_equal(model.predict(layout(X)), model.labels_)
        own = naive.hamming(np.asarray(model.code_.encode(X)), model.cluster_centers_)
        assert model.inertia_ == own.min(axis=1).sum()

    def test_without_learning_it_is_lsh_and_k_means_of_bits(self):
        model = fit(learn=False, n_bits=24, init=X[:4])
        codes = model.code_.encode(X)
        other = BinaryKMeans(4, init=np.asarray(model.code_.encode(X[:4]))).fit(codes)
        np.testing.assert_array_equal(model.labels_, other.labels_)
        np.testing.assert_array_equal(model.cluster_centers_, other.cluster_centers_)
        assert not [record for record in model.history_ if "loss" in record]

    @LAYOUTS
    @pytest.mark.parametrize("weighted", [False, True])
    def test_refined_it_is_about_the_rows(self, layout, weighted):
        rows, _ = hidden(500, 30)
        weights = np.random.default_rng(0).integers(0, 3, 500) if weighted else None
        plain, model = (fit(layout(rows), 6, weights, n_bits=16, refine=refine) for refine in (False, True))
        C = naive.means(rows, plain.labels_, np.zeros((6, 30)), np.ones(500) if weights is None else weights)
        np.testing.assert_allclose(model.cluster_centers_, C)
        np.testing.assert_array_equal(model.labels_, naive.labels(rows, C))
        assert model.inertia_ == pytest.approx(naive.energy(rows, C, weights))
        np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)
        np.testing.assert_allclose(model.transform(rows[:3]) ** 2, naive.distances(rows[:3], C))

    def test_threads_and_blocks_change_no_bit(self):
        rows = cloud(20_000, 30, dtype=np.float32)
        one, two = (fit(rows, 7, n_threads=n, refine=True) for n in (1, 2))
        np.testing.assert_array_equal(one.labels_, two.labels_)
        np.testing.assert_array_equal(one.code_.W, two.code_.W)
        np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)

    @pytest.mark.parametrize("learn", [True, "paper"])
    def test_the_user_may_end_the_learning(self, learn):
        rows, _ = hidden()
        model = fit(rows, 6, learn=learn, callback=lambda record: "loss" in record)
        assert [("loss" in record) for record in model.history_] == [True, False]
        assert model.stop_reason_ == "callback"
        np.testing.assert_array_equal(model.predict(rows), model.labels_)

    @pytest.mark.parametrize("learn", [True, "paper", False])
    def test_time_is_kept(self, learn):
        model = fit(cloud(20_000, 30), 50, learn=learn, time_budget=1e-6)
        assert model.stop_reason_ == "time_budget"

    def test_rounds_are_limited(self):
        rows, _ = hidden()
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

    @pytest.mark.parametrize("learn", [True, "paper", False])
    @LAYOUTS
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_rows_that_are_not_finite(self, learn, layout, value):
        rows = X.copy()
        rows[17, 3] = value
        with pytest.raises(ValueError, match=r"X contains (NaN|infinity) at row 17, column 3"):
            fit(layout(rows), learn=learn)

    @pytest.mark.parametrize("learn", [True, "paper", False])
    def test_a_row_that_no_one_learns_from(self, learn, monkeypatch):
        monkeypatch.setattr(compressed, "LEAST", 50)
        rows = cloud(25_000, 3)
        rows[20_007, 1] = np.nan
        with pytest.raises(ValueError, match="X contains NaN at row 20007, column 1"):
            fit(rows, learn=learn)

    @LAYOUTS
    @pytest.mark.parametrize("learn", [True, "paper", False])
    def test_fewer_codes_than_clusters(self, learn, layout):
        rows = np.repeat(X[:3], 20, axis=0)
        with pytest.warns(ConvergenceWarning, match=r"clusters \(\d\) found smaller than n_clusters \(8\).*n_bits=16"):
            model = fit(layout(rows), 8, n_bits=16, learn=learn)
        assert len(set(model.labels_)) <= 3

    @LAYOUTS
    @pytest.mark.parametrize("learn", [True, "paper", False])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
    def test_rows_that_are_all_alike(self, learn, layout, dtype):
        for value in (0, 3):
            model = fit(layout(np.full((30, 5), value, dtype)), 2, learn=learn, refine=True)
            np.testing.assert_array_equal(model.cluster_centers_[model.labels_], np.full((30, 5), value))

    @pytest.mark.parametrize("learn", [True, "paper", False])
    def test_zero_rows_and_constant_columns(self, learn):
        rows = np.hstack([X, np.full((len(X), 3), 7.0), np.zeros((len(X), 2))])
        rows[:10] = 0
        model = fit(rows, 5, learn=learn)
        assert len(set(model.labels_[:10])) == 1
        assert np.isfinite(model.code_.W).all()

    def test_cosine_of_a_row_of_zeros(self):
        rows = X.copy()
        rows[5] = 0
        with pytest.raises(ValueError, match="Row 5 of X is all zeros"):
            fit(rows, metric="cosine")

    def test_a_step_that_is_too_large(self):
        with pytest.raises(ValueError, match=r"learning_rate=1e\+300 takes hyperplanes beyond"), np.errstate(all="ignore"):
            fit(learning_rate=1e300)

    def test_a_warning_is_of_the_labels_that_come_out(self):
        model = fit(n_bits=1, refine=True, k=3)
        assert len(set(model.labels_)) == 3

    @LAYOUTS
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_clusters_without_codes_are_refined_too(self, metric, layout):
        for seed in range(20):
            rows = np.repeat(np.random.default_rng(seed).normal(size=(15, 3)) + 100 * (metric == "euclidean"), 4, axis=0)
            model = fit(layout(rows), 9, n_bits=2, refine=True, metric=metric, random_state=seed)
            assert len(set(model.labels_)) == 9
            np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_centres_of_clusters_that_stay_empty_are_among_the_rows(self, metric, tmp_path):
        rows = np.repeat(cloud(3, 4) + 100 * (metric == "euclidean"), 10, axis=0)
        model = fit(rows, 8, refine=True, metric=metric)
        assert len(set(model.labels_)) == 3
        assert KMeans(8, init=model.cluster_centers_, metric=metric, max_iter=1).fit(rows).inertia_ == pytest.approx(0)
        assert model.transform(rows).min(axis=0).max() == pytest.approx(0, abs=1e-6)
        save(model, tmp_path / "model.npz")
        np.testing.assert_array_equal(load(tmp_path / "model.npz").predict(rows), model.labels_)

    def test_centres_without_a_code(self):
        model = CompressedKMeans(4)
        model.cluster_centers_ = np.zeros((4, 128), bool)
        with pytest.raises(NotFittedError):
            model.predict(X)
