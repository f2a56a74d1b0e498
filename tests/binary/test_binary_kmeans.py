"""`BinaryKMeans`: equality with the oracle for every layout, thresholds, and difficult input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from shoal import BinaryKMeans, binary, metrics
from shoal.binary import Codes
from shoal.data import sources
from tests import naive
from tests.strategies import blobs, cloud

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array, Codes.pack], ids=["dense", "sparse", "codes"])


def groups(n=400, r=70, k=5, noise=0.2, seed=0):
    """Return noisy copies of k random codes, and the code of each row."""
    rng = np.random.default_rng(seed)
    centers, y = rng.random((k, r)) < 0.5, rng.permutation(np.arange(n) % k)
    return centers[y] ^ (rng.random((n, r)) < noise), y


def fit(B, k=5, weights=None, **options):
    return BinaryKMeans(k, **{"random_state": 0, **options}).fit(B, sample_weight=weights)


@st.composite
def problems(draw):
    """Draw rows of few bits, so that rows coincide and distances tie, initial centroids, and optional weights with zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, r = draw(st.integers(1, 60)), draw(st.sampled_from([1, 2, 5, 64, 70]))
    B = rng.random((n, r)) < draw(st.sampled_from([0.1, 0.5]))
    k = draw(st.integers(1, min(n, 9)))
    weights = rng.integers(0, 4, n).astype(float) if draw(st.booleans()) else None
    if weights is not None:
        weights[rng.integers(n)] = 1
    return B, B[rng.choice(n, k, replace=False)], weights


def assert_equals_oracle(model, B, start, weights):
    C, energies = naive.binary_kmeans(B, start, weights=weights)
    w = np.ones(len(B)) if weights is None else weights
    np.testing.assert_array_equal(model.cluster_centers_, C)
    np.testing.assert_array_equal(model.labels_, naive.hamming(B, C).argmin(axis=1))
    assert [record["energy"] for record in model.history_] == energies
    assert model.inertia_ == w @ naive.hamming(B, C).min(axis=1)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestOracle:
    @given(problems())
    @settings(deadline=None)
    def test_with_ties_and_empty_clusters(self, problem):
        B, start, weights = problem
        model = fit(B, len(start), weights, init=start)
        if np.bincount(naive.hamming(B, model.cluster_centers_).argmin(axis=1), weights, len(start)).all():
            assert_equals_oracle(model, B, start, weights)

    @LAYOUTS
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("noise", [0.2, 0.45])
    def test_every_step(self, layout, weighted, noise):
        B, _ = groups(noise=noise)
        weights = np.random.default_rng(1).integers(0, 4, len(B)) if weighted else None
        for steps in (1, 2, 300):
            model = fit(layout(B), 7, weights, init=B[:7], max_iter=steps)
            C, energies = naive.binary_kmeans(B, B[:7], steps, weights)
            np.testing.assert_array_equal(model.cluster_centers_, C)
            np.testing.assert_array_equal(model.labels_, naive.hamming(B, C).argmin(axis=1))
            assert [record["energy"] for record in model.history_] == energies
        assert model.stop_reason_ == "converged"

    def test_over_many_blocks(self):
        """Rows of unchanged centroids are compared with few centroids."""
        B, _ = groups(20_000, 70, 10, 0.3)
        model = fit(B, 10, init=B[:10], n_threads=2)
        assert_equals_oracle(model, B, B[:10], None)
        assert model.history_[-1]["distances"] < 20_000 * 10 / 2

    def test_tied_votes_keep_the_bit(self):
        B = np.array([[0, 0], [0, 1], [1, 1]], bool)
        for first in (False, True):
            model = fit(B[:2], 1, init=[[first, first]])
            assert model.cluster_centers_.tolist() == [[False, first]]

    def test_shift_counts_bits(self):
        B, _ = groups(noise=0.4)
        centers = [fit(B, 5, init=B[:5], max_iter=steps).cluster_centers_ for steps in range(1, 5)]
        shifts = [record["shift"] for record in fit(B, 5, init=B[:5], max_iter=4).history_]
        assert shifts == [(new != old).sum() for old, new in zip([B[:5], *centers], centers, strict=False)]


class TestRelations:
    @pytest.mark.parametrize("init", ["k-means++", "random"])
    @pytest.mark.parametrize("n", [300, 30_000])
    def test_results_do_not_depend_on_layout_threads_or_dtype(self, init, n):
        B, _ = groups(n, 40)
        rows = (B, B.astype(np.float32), B.astype(int).tolist(), sparse.csc_array(B), Codes.pack(B), np.asfortranarray(B))
        models = [fit(X, n_threads=threads, init=init, max_iter=5) for X, threads in zip(rows, (1, 2, 3, 1, 2, 3), strict=True)]
        for model in models:
            np.testing.assert_array_equal(model.cluster_centers_, models[0].cluster_centers_)
            np.testing.assert_array_equal(model.labels_, models[0].labels_)
            assert model.threshold_ == 0.5
            assert model.inertia_ == models[0].inertia_

    @LAYOUTS
    @pytest.mark.parametrize("init", ["k-means++", "random"])
    def test_weights_equal_repetition(self, layout, init):
        B, _ = groups(200, 30, noise=0.4)
        w = np.random.default_rng(0).integers(0, 4, 200)
        weighted, repeated = fit(layout(B), weights=w, init=init), fit(layout(np.repeat(B, w, axis=0)), init=init)
        np.testing.assert_array_equal(weighted.cluster_centers_, repeated.cluster_centers_)
        assert weighted.inertia_ == repeated.inertia_

    @pytest.mark.parametrize("init", ["k-means++", "random"])
    def test_results_do_not_depend_on_row_order(self, init):
        B, _ = groups(200, 30)
        order = np.random.default_rng(0).permutation(200)
        one, other = fit(B, init=init), fit(B[order], init=init)
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
        np.testing.assert_array_equal(one.labels_[order], other.labels_)

    @LAYOUTS
    @pytest.mark.parametrize("max_iter", [1, 300])
    def test_labels_equal_predict(self, layout, max_iter):
        B, _ = groups(noise=0.45)
        model = fit(layout(B), 9, max_iter=max_iter)
        np.testing.assert_array_equal(model.predict(layout(B)), model.labels_)
        np.testing.assert_array_equal(model.transform(layout(B)), naive.hamming(B, model.cluster_centers_))
        assert model.score(layout(B)) == -model.inertia_

    def test_energy_never_rises(self):
        B, _ = groups(2000, 40, 8, 0.45)
        for seed in range(5):
            energies = [record["energy"] for record in fit(B, 8, random_state=seed).history_]
            assert (np.diff(energies) < 0).all()

    def test_groups_are_found(self):
        B, y = groups(1000, 64, 8, 0.1)
        assert metrics.adjusted_rand_score(y, fit(B, 8).labels_) == 1

    def test_kmeans_plus_plus_is_better_than_random(self):
        B, _ = groups(1000, 64, 20, 0.1)
        energies = {"k-means++": [], "random": []}
        for init, found in energies.items():
            for seed in range(9):
                model = fit(B, 20, init=init, n_init=1, max_iter=1, random_state=seed)
                found.append(model.history_[0]["energy"])
        assert np.median(energies["k-means++"]) < np.median(energies["random"])

    def test_the_best_initialization_is_used(self):
        B, _ = groups(noise=0.4)
        inertias = [fit(B, init="random", n_init=n).inertia_ for n in (1, 10)]
        assert inertias[1] <= inertias[0]

    def test_codes_of_a_memory_map(self, tmp_path):
        B, _ = groups(500, 128)
        path = tmp_path / "words"
        Codes.pack(B).words.tofile(path)
        codes = Codes(np.memmap(path, np.uint64, "r", shape=(500, 2)))
        np.testing.assert_array_equal(fit(codes).labels_, fit(B).labels_)


def above_mean(X):
    return np.greater(X, X.mean(axis=0))


class TestThreshold:
    def test_auto_is_the_mean_of_numbers(self):
        X = cloud(300, 12) + 100
        model = fit(X)
        np.testing.assert_allclose(model.threshold_, X.mean(axis=0), rtol=1e-12)
        np.testing.assert_array_equal(model.labels_, fit(above_mean(X)).labels_)
        np.testing.assert_array_equal(model.predict(X), model.labels_)

    def test_mean_is_weighted(self):
        X, w = cloud(300, 12), np.random.default_rng(0).integers(0, 3, 300)
        np.testing.assert_allclose(fit(X, weights=w).threshold_, np.average(X, axis=0, weights=w), atol=1e-12)

    @pytest.mark.parametrize("threshold", [0.0, -1.5, "mean", np.linspace(-1, 1, 12).tolist()])
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_given_thresholds(self, threshold, layout):
        X = np.where(np.abs(cloud(300, 12)) > 1, cloud(300, 12), 0)
        value = X.mean(axis=0) if threshold == "mean" else threshold
        model = fit(layout(X), threshold=threshold)
        np.testing.assert_array_equal(model.labels_, fit(np.asarray(value) < X).labels_)
        np.testing.assert_array_equal(model.predict(layout(X)), model.labels_)

    def test_auto_is_half_for_zeros_and_ones(self):
        X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
        model = fit(X, 2)
        assert model.threshold_ == 0.5
        assert model.cluster_centers_[:, 0].all()
        assert fit(X, 2, threshold="mean").threshold_.tolist() == [1.0, 2 / 3]

    def test_initial_centroids_use_the_threshold(self):
        X = cloud(300, 12) + 100
        given = fit(X, init=X[:5])
        called = fit(X, init=lambda X, k, random_state: X[:k], n_init=1)
        np.testing.assert_array_equal(given.cluster_centers_, fit(above_mean(X), init=above_mean(X)[:5]).cluster_centers_)
        np.testing.assert_array_equal(given.labels_, called.labels_)

    @pytest.mark.parametrize("threshold", [np.nan, np.inf, "median", None, [0.5, 0.5], [[0.5] * 3], [0.1, np.nan, 0.3]])
    def test_invalid_thresholds(self, threshold):
        with pytest.raises(ValueError, match="threshold"):
            fit(cloud(20, 3), threshold=threshold)

    def test_range_beyond_float64(self):
        with pytest.raises(ValueError, match="X spreads wider than float64"):
            fit(np.array([[-1.7e308], [1.7e308], [1.7e308]]), 2)


class TestDifficultInput:
    @LAYOUTS
    def test_fewer_codes_than_clusters(self, layout):
        B = np.array([[0, 1], [1, 1], [0, 1], [1, 1], [0, 0]], bool)
        with pytest.warns(
            ConvergenceWarning, match=r"\(3\) found smaller than n_clusters \(4\).*distinct codes: use n_clusters=3 or fewer"
        ):
            model = fit(layout(B), 4)
        assert model.inertia_ == 0

    def test_fewer_weighted_codes_than_clusters(self):
        B = np.array([[0, 1], [1, 1], [0, 0]], bool)
        with pytest.warns(ConvergenceWarning, match="distinct codes of positive weight"):
            fit(B, 3, np.array([1, 1, 0]))

    @LAYOUTS
    @pytest.mark.parametrize("value", [False, True])
    def test_equal_rows(self, layout, value):
        B = np.full((20, 5), value)
        with pytest.warns(ConvergenceWarning, match="too few distinct codes"):
            model = fit(layout(B), 2)
        assert (model.cluster_centers_ == value).all()

    def test_constant_columns(self):
        X = np.column_stack([cloud(50, 3), np.full(50, 0.1), np.full(50, 7.0)])
        model = fit(X, 2)
        assert model.threshold_[3:].tolist() == [0.1, 7.0]
        assert not model.cluster_centers_[:, 3:].any()

    @pytest.mark.parametrize("method", ["fit", "predict", "transform", "score"])
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("threshold", ["auto", 0.5])
    def test_nan(self, method, layout, threshold):
        X = cloud(20, 3)
        model = BinaryKMeans(2, threshold=threshold).fit(X)
        X[7, 1] = np.nan
        with pytest.raises(ValueError, match="X contains NaN at row 7, column 1"):
            getattr(model, method)(layout(X))

    def test_packed_words_are_rejected(self):
        words = Codes.pack(groups(r=128)[0]).words
        with pytest.raises(ValueError, match=r"X holds 64-bit words.*Codes\(X\)"):
            fit(words)

    def test_codes_of_another_number_of_bits(self):
        model = fit(Codes.pack(groups(r=40)[0]))
        with pytest.raises(ValueError, match="X has 41 features, but BinaryKMeans is expecting 40"):
            model.predict(Codes.pack(groups(r=41)[0]))

    @pytest.mark.parametrize("k", [1, 20])
    def test_one_cluster_and_one_per_row(self, k):
        B, _ = groups(20, 64, noise=0.5)
        model = fit(B, k)
        assert (model.inertia_ == 0) == (k == 20)
        assert len(np.unique(model.labels_)) == k

    def test_centroids_set_by_the_user(self):
        B, _ = groups()
        model = BinaryKMeans(5)
        model.cluster_centers_ = fit(B).cluster_centers_.tolist()
        np.testing.assert_array_equal(model.predict(B), fit(B).labels_)

    def test_time_budget_and_callback(self):
        B, _ = groups(5000, 64, noise=0.45)
        assert fit(B, 50, time_budget=1e-9).stop_reason_ == "time_budget"
        assert fit(B, 50, callback=lambda record: record["step"] == 2).n_iter_ == 2


def test_codes_of_numbers():
    X, y = blobs(600, 20, 5)
    codes = binary.itq(X, 32, random_state=0).encode(X)
    assert metrics.adjusted_rand_score(y, fit(codes).labels_) > 0.95


@pytest.mark.parametrize("weight", [0.1, 0.3, 7.7])
def test_ties_do_not_depend_on_the_scale_of_weights(weight):
    B = np.array([[False]] * 3 + [[True]] * 3)
    for start in (False, True):
        model = fit(B, 1, np.full(6, weight), init=[[start]])
        np.testing.assert_array_equal(model.cluster_centers_, [[start]])
    B, _ = groups(40, 9)
    for seed in range(10):
        one, other = (fit(B, 4, weights, random_state=seed) for weights in (None, np.full(40, weight)))
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)


@pytest.mark.parametrize("words", [1, 2])
def test_codes_of_a_large_memory_map(words, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MIN_RELEASED_BYTES", 1)
    B, _ = groups(3000, 64 * words)
    np.save(tmp_path / "words.npy", Codes.pack(B).words)
    one, other = (fit(Codes(np.load(tmp_path / "words.npy", mmap_mode=mode))) for mode in (None, "r"))
    np.testing.assert_array_equal(one.labels_, other.labels_)
