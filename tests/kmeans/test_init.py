"""Initial centroids: quality, weights, and independence of threads and layouts."""

import contextlib

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import kmeans_plusplus

import shoal
from shoal.data import rows as rows_module
from shoal.data.frame import Frame
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit.random_streams import generator
from shoal.kmeans.init import INITIALIZERS, REFINING_INITIALIZERS, kmeans_parallel, kmeans_plus_plus, sample
from shoal.kmeans.init.kmeans_plus_plus import choose
from shoal.kmeans.init.local_search import row_distances, swap
from shoal.kmeans.init.sparse_distances import sparse_row_distances
from tests import naive
from tests.strategies import blobs, cloud

SEEDS = range(12)
ADAPTIVE = ("k-means++", "k-means||", "afk-mc2")


def start(name, X, k, seed=0, weights=None, **options):
    n_threads = options.pop("n_threads", None)
    with on_threads(Rows.of(find_source(X), weights, **options), n_threads) as rows:
        return INITIALIZERS.methods[name](rows, k, generator(seed))


def mean_energy(make, X):
    return float(np.mean([naive.energy(X, make(seed)) for seed in SEEDS]))


@pytest.fixture(scope="module")
def problem():
    X, _ = blobs(2000, 8, 25, spread=1.0)
    return X


class TestQuality:
    def test_plus_plus_is_as_good_as_in_scikit_learn(self, problem):
        ours = mean_energy(lambda seed: start("k-means++", problem, 25, seed), problem)
        theirs = mean_energy(lambda seed: kmeans_plusplus(problem, 25, random_state=seed)[0], problem)
        assert ours < 1.05 * theirs

    @pytest.mark.parametrize("name", ADAPTIVE)
    def test_adaptive_methods_are_as_good_as_k_means_plus_plus(self, problem, name):
        ours = mean_energy(lambda seed: start(name, problem, 25, seed), problem)
        plain = mean_energy(lambda seed: naive.plus_plus(problem, 25, np.random.default_rng(seed)), problem)
        assert ours < 1.15 * plain

    @pytest.mark.parametrize("name", ADAPTIVE)
    def test_adaptive_methods_are_better_than_random_rows(self, name):
        X, _ = blobs(2000, 3, 20, spread=0.1)
        random = mean_energy(lambda seed: start("random", X, 20, seed), X)
        assert mean_energy(lambda seed: start(name, X, 20, seed), X) < 0.3 * random

    def test_a_sample_is_sufficient(self, monkeypatch, problem):
        whole = mean_energy(lambda seed: start("k-means++", problem, 25, seed), problem)
        monkeypatch.setattr(sample, "MIN_SAMPLE_ROWS", 500)
        monkeypatch.setattr(sample, "SAMPLE_ROWS_PER_CENTER", 20)
        monkeypatch.setattr(sample, "MAX_WORK_FOR_LARGER_SAMPLE", 1)
        assert mean_energy(lambda seed: start("k-means++", problem, 25, seed), problem) < 1.2 * whole

    def test_rounds_end_when_they_improve_little(self, monkeypatch):
        passes, map_blocks = [], Rows.map_blocks

        def count(rows, *args, **options):
            passes.extend([1] * (len(rows) == 2000))  # not those over the candidates
            return map_blocks(rows, *args, **options)

        monkeypatch.setattr(Rows, "map_blocks", count)
        wide, narrow = cloud(2000, 200), blobs(2000, 2, 50, spread=0.01)[0]
        found = {}
        for share in (usual := kmeans_parallel.MAX_ENERGY_RATIO, 1.0):
            monkeypatch.setattr(kmeans_parallel, "MAX_ENERGY_RATIO", share)
            for name, X, k in (("wide", wide, 20), ("narrow", narrow, 50)):
                passes.clear()
                mean = mean_energy(lambda seed, X=X, k=k: start("k-means||", X, k, seed), X)
                found[name, share] = mean, len(passes) / len(SEEDS)
        assert found["wide", usual][1] == 3  # the first row, and two rounds
        assert found["wide", 1.0][1] == 6
        assert found["narrow", usual][1] > 5
        assert found["wide", usual][0] < 1.05 * found["wide", 1.0][0]


@pytest.fixture
def small_samples(monkeypatch):
    """Limit samples to 500 rows, and blocks to 100."""
    for name, value in (("MIN_SAMPLE_ROWS", 500), ("SAMPLE_ROWS_PER_CENTER", 20), ("MAX_WORK_FOR_LARGER_SAMPLE", 1)):
        monkeypatch.setattr(sample, name, value)
    monkeypatch.setattr(kmeans_plus_plus, "MIN_IMPROVEMENT", 0.0)
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))


@pytest.mark.usefixtures("small_samples")
class TestRefined:
    X = blobs(2000, 5, 5, spread=1.0)[0]
    weights = np.random.default_rng(0).lognormal(0, 2, 2000)

    def start(self, X=X, weights=None, k=5, **options):
        n_threads = options.pop("n_threads", None)
        with on_threads(Rows.of(find_source(X), weights, **options), n_threads) as rows:
            chosen = REFINING_INITIALIZERS.methods["k-means++"](rows, k, generator(3))
            return chosen, sample.draw_sample(rows, k, generator(3), importance=True)

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_ends_at_a_fixed_point_on_the_sample(self, metric):
        found, sample = self.start(weights=self.weights, frame=Frame.of(metric))
        assert len(sample.X) == 500
        assert np.ptp(sample.weights) > 0
        labels = naive.distances(sample.X, found).argmin(axis=1)
        C = np.stack([np.average(sample.X[labels == j], axis=0, weights=sample.weights[labels == j]) for j in range(5)])
        if metric == "cosine":
            C /= np.linalg.norm(C, axis=1)[:, None]
        np.testing.assert_allclose(C, found, atol=1e-12)

    @pytest.mark.parametrize(("name", "least"), [("MIN_ROWS_PER_SAMPLE_ROW", 5), ("MIN_SAMPLE_ROWS_PER_CENTER", 101)])
    def test_no_steps_if_the_sample_is_small_or_most_of_the_rows(self, monkeypatch, name, least):
        monkeypatch.setattr(kmeans_plus_plus, name, least)
        assert naive.distances(self.start()[0], self.X).min(axis=1).max() == 0

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_does_not_depend_on_threads(self, dtype):
        X = self.X.astype(dtype)
        one, many = (self.start(X, n_threads=count)[0] for count in (1, 4))
        assert one.dtype == dtype
        np.testing.assert_array_equal(one, many)

    def test_rows_of_weight_zero_have_no_effect(self):
        more = np.insert(self.X, np.arange(0, 2000, 2), 1e3, axis=0)
        weights = np.insert(self.weights, np.arange(0, 2000, 2), 0.0)
        np.testing.assert_array_equal(self.start(more, weights)[0], self.start(weights=self.weights)[0])

    def test_all_rows_equal(self):
        np.testing.assert_allclose(self.start(np.full((2000, 2), 7.0))[0], np.full((5, 2), 7.0), rtol=1e-14)

    def test_is_used_by_exact_methods_only(self):
        model = shoal.KMeans(5, random_state=0).fit(self.X)
        assert model.history_[0]["energy"] < 1.1 * model.inertia_
        others = shoal.GradientKMeans(5, random_state=0).fit(self.X)
        assert others.history_[0]["energy"] > 1.2 * model.inertia_


def test_rare_far_rows_are_not_missed():
    """A uniform sample would miss most of them, and each costs as much as a hundred others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 60)).astype(np.float32)
    far = rng.choice(len(X), 8, replace=False)
    X[far, np.arange(8)] = 1000
    model = shoal.KMeans(30, random_state=0, max_iter=2).fit(X)
    assert len(np.unique(model.labels_[far])) == 8
    assert (np.bincount(model.labels_)[model.labels_[far]] == 1).all()


@contextlib.contextmanager
def distances_between(X):
    with on_threads(Rows.of(find_source(X))) as rows:
        yield row_distances(X, rows)


class TestSwaps:
    def test_never_increase_the_energy(self, problem):
        rng = np.random.default_rng(0)
        chosen = rng.choice(len(problem), 25, replace=False)
        energies = [naive.energy(problem, problem[chosen])]
        with distances_between(problem) as distances:
            for u in rng.random(40):
                chosen = swap(problem, np.ones(len(problem)), chosen, [u], distances)
                energies.append(naive.energy(problem, problem[chosen]))
        assert (np.diff(energies) <= 0).all()
        assert energies[-1] < 0.7 * energies[0]
        assert len(np.unique(chosen)) == 25

    def test_equal_the_oracle(self, problem):
        """The next k / 4 rows are proposed by the distances to the centroids at that time, and tried one after the other."""
        draws, expected = np.random.default_rng(1).random(30), np.arange(25)
        for batch in np.split(draws, range(6, 30, 6)):
            mass = np.cumsum(naive.distances(problem, problem[expected]).min(axis=1))
            for row in np.searchsorted(mass, batch * mass[-1], "right"):
                swapped = [np.where(np.arange(25) == j, row, expected) for j in range(25)]
                energies = [naive.energy(problem, problem[chosen]) for chosen in swapped]
                if min(energies) < naive.energy(problem, problem[expected]):
                    expected = swapped[int(np.argmin(energies))]
        with distances_between(problem) as distances:
            chosen = swap(problem, np.ones(len(problem)), np.arange(25), list(draws), distances)
        np.testing.assert_array_equal(chosen, expected)
        assert len(np.setdiff1d(chosen, np.arange(25))) > 5

    @pytest.mark.parametrize("d", [3, 64, 65, 300])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_row_distances_equal_all_distances(self, d, dtype):
        """Scores exclude distances without changing the minimum."""
        X = np.vstack([cloud(300, d, dtype=dtype), blobs(300, d, 5, dtype=dtype)[0]])
        least = naive.distances(X, X[:5]).min(axis=1)
        X[5] *= 1000  # an outlier widens no margin but its own
        for some in (np.array([7]), np.array([333, 2, 599]), np.arange(40)):
            exact = naive.distances(X, X[some])
            found = least.copy()
            with distances_between(X) as distances:
                distances.lower(some, found)
                below = distances.below(some, least)
            np.testing.assert_allclose(found, np.minimum(least, exact.min(axis=1)), rtol=1e-12)
            np.testing.assert_allclose(below, np.minimum(least[:, None], exact), rtol=1e-12)


class TestWideSparseRows:
    X = sparse.random_array((1500, 3000), density=0.004, rng=np.random.default_rng(0), dtype=np.float32, format="csr")

    @contextlib.contextmanager
    def distances(self):
        with on_threads(Rows.of(find_source(self.X))) as rows:
            yield sparse_row_distances(self.X, rows)

    def test_distances_equal_those_of_dense_rows(self):
        X, some = self.X.toarray(), np.arange(40) * 7
        exact = naive.distances(X, X[some])
        least = naive.distances(X, X[:3]).min(axis=1)
        found = least.copy()
        with self.distances() as distances:
            distances.lower(some, found)
            products = distances.take(np.arange(100)).products(self.X[some])
            assert (distances.place == -1).all()
        np.testing.assert_allclose(found, np.minimum(least, exact.min(axis=1)), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(products, X[some] @ X[:100].T, rtol=1e-6)
        assert (found[some] == 0).all()

    def test_plus_plus_is_as_good_as_in_scikit_learn(self):
        """Rows of 20 groups, each with words of its own and words of all."""
        rng = np.random.default_rng(1)
        own = np.repeat(np.arange(20), 60)[:, None] * 50 + rng.integers(0, 50, (1200, 8))
        columns = np.hstack([own, 1000 + rng.integers(0, 200, (1200, 4))])
        X = sparse.csr_array((np.ones(columns.size), columns.ravel(), np.arange(1201) * 12), shape=(1200, 1200))
        X.sum_duplicates()
        ours = mean_energy(lambda seed: start("k-means++", X, 20, seed), X.toarray())
        theirs = mean_energy(lambda seed: kmeans_plusplus(X.toarray(), 20, random_state=seed)[0], X.toarray())
        assert ours < 1.02 * theirs

    @pytest.mark.parametrize("name", ADAPTIVE)
    def test_equal_rows_are_chosen_once(self, name):
        X = sparse.vstack([self.X[:30]] * 20, format="csr")
        assert len(np.unique(start(name, X, 25), axis=0)) == 25

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_does_not_depend_on_threads(self, metric):
        options = {"frame": Frame.of(metric), "weights": np.random.default_rng(0).random(1500)}
        one, many = (start("k-means++", self.X, 30, n_threads=count, **options) for count in (1, 4))
        np.testing.assert_array_equal(one, many)


class TestParallel:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_candidates_have_the_weight_of_their_rows(self, monkeypatch, problem, layout):
        """Rows are assigned to the nearest of all candidates; equal candidates are merged."""
        given = []
        monkeypatch.setattr(kmeans_parallel, "choose", lambda *args: given.append(args) or choose(*args))
        weights = np.random.default_rng(0).random(len(problem))
        start("k-means||", layout(np.round(problem)), 25, weights=weights)  # rounding makes equal rows
        (_, X, served, *_) = given[0]
        labels = naive.distances(np.round(problem), X).argmin(axis=1)
        assert len(X) > 100
        assert served.sum() == pytest.approx(weights.sum())
        least = naive.distances(np.round(problem), X)
        tied = (least <= least.min(axis=1)[:, None]).sum(axis=1) > 1
        sure = np.bincount(labels[~tied], weights[~tied], len(X))
        assert (served >= sure - 1e-9).all()
        assert (served <= sure + weights[tied].sum() + 1e-9).all()


@pytest.mark.parametrize("name", INITIALIZERS.methods)
class TestAllMethods:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("k", [1, 2, 50])
    def test_returns_rows_of_the_data(self, name, k, dtype):
        X = cloud(300, 3, dtype=dtype)
        C = start(name, X, k)
        assert (C.shape, C.dtype) == ((k, 3), dtype)
        assert naive.distances(C, X).min(axis=1).max() == 0

    def test_returns_distinct_rows_if_possible(self, name):
        X = np.arange(40.0)[np.arange(400) % 40][:, None]
        assert len(np.unique(start(name, X, 20))) == 20

    def test_never_draws_rows_of_weight_zero(self, name):
        X = np.vstack([cloud(100, 3), 1e6 + cloud(900, 3)])
        weights = np.r_[np.ones(100), np.zeros(900)]
        for seed in SEEDS:
            assert np.abs(start(name, X, 30, seed, weights)).max() < 1e3

    def test_prefers_heavy_rows(self, name):
        """If one of two groups is a million times heavier, the first centroid is in it."""
        X = np.repeat([[0.0], [1.0]], 100, axis=0) + cloud(200, 1) / 1e6
        weights = np.repeat([1e-6, 1.0], 100)
        assert all(start(name, X, 1, seed, weights)[0, 0] > 0.5 for seed in SEEDS)

    def test_samples_contain_heavy_rows(self, name, monkeypatch):
        monkeypatch.setattr(sample, "MIN_SAMPLE_ROWS", 200)
        monkeypatch.setattr(sample, "MAX_WORK_FOR_LARGER_SAMPLE", 1)
        X, weights = np.r_[cloud(5000, 2), [[30, 0], [0, 30]]], np.ones(5002)
        weights[-2:] = 1e5
        for seed in SEEDS:
            found = start(name, X, 10, seed, weights)
            assert all((found == row).all(axis=1).any() for row in X[-2:])

    def test_sparse_equals_dense(self, name):
        X = np.random.default_rng(0).poisson(0.3, (300, 20)).astype(float)
        np.testing.assert_array_equal(start(name, X, 15), start(name, sparse.csr_array(X), 15))

    def test_the_seed_determines_the_result(self, name):
        X = cloud(300, 3)
        np.testing.assert_array_equal(start(name, X, 10, 3), start(name, X, 10, 3))
        assert not np.array_equal(start(name, X, 10, 3), start(name, X, 10, 4))

    def test_does_not_depend_on_threads(self, name):
        X = cloud(150_000, 3)
        np.testing.assert_array_equal(start(name, X, 10, n_threads=1), start(name, X, 10, n_threads=4))

    def test_all_rows_equal(self, name):
        X = np.full((50, 2), 7.0)
        np.testing.assert_array_equal(start(name, X, 5), X[:5])

    def test_as_many_centroids_as_rows(self, name):
        X = cloud(20, 3)
        np.testing.assert_array_equal(np.sort(start(name, X, 20), axis=0), np.sort(X, axis=0))


@pytest.mark.parametrize("d", [2, 100])
def test_choose_returns_distinct_rows(d):
    X = cloud(200, d)
    with on_threads(Rows.of(find_source(X))) as rows:
        chosen = choose(rows, X, np.ones(200), 60, generator(0))
    assert len(np.unique(chosen)) == 60


def test_streams_are_independent_and_repeatable():
    draws = [
        generator(*key).random(4).tolist() for key in ((0,), (0, 0), (0, 0, 1), (0, 2**32), (0, 1), (1, 0), (1, 1), (2**40, 0))
    ]
    assert len({tuple(draw) for draw in draws}) == len(draws)
    assert generator(0, 1).random() == generator(0, 1).random()
