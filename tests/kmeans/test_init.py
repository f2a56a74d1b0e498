"""Where the centres start: good on average, blind to rows without weight, the same for every thread count."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import kmeans_plusplus

import shoal
from shoal.data import rows as rows_module
from shoal.data.frame import Frame
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads, one_blas_thread
from shoal.fit.random_streams import generator
from shoal.kmeans.init import INITIALIZERS, SETTLED, kmeans_parallel, kmeans_plus_plus, sample
from shoal.kmeans.init.kmeans_plus_plus import choose
from shoal.kmeans.init.local_search import swap
from tests import naive
from tests.strategies import blobs, cloud

SEEDS = range(12)
CAREFUL = ("k-means++", "k-means||", "afk-mc2")


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
    def test_plus_plus_is_as_good_as_scikit_learns(self, problem):
        ours = mean_energy(lambda seed: start("k-means++", problem, 25, seed), problem)
        theirs = mean_energy(lambda seed: kmeans_plusplus(problem, 25, random_state=seed)[0], problem)
        assert ours < 1.05 * theirs

    @pytest.mark.parametrize("name", CAREFUL)
    def test_careful_ones_are_as_good_as_published(self, problem, name):
        ours = mean_energy(lambda seed: start(name, problem, 25, seed), problem)
        plain = mean_energy(lambda seed: naive.plus_plus(problem, 25, np.random.default_rng(seed)), problem)
        assert ours < 1.15 * plain

    @pytest.mark.parametrize("name", CAREFUL)
    def test_careful_ones_beat_chance(self, name):
        X, _ = blobs(2000, 3, 20, spread=0.1)
        random = mean_energy(lambda seed: start("random", X, 20, seed), X)
        assert mean_energy(lambda seed: start(name, X, 20, seed), X) < 0.3 * random

    def test_a_sample_is_enough(self, monkeypatch, problem):
        whole = mean_energy(lambda seed: start("k-means++", problem, 25, seed), problem)
        monkeypatch.setattr(sample, "SAMPLE_LEAST", 500)
        monkeypatch.setattr(sample, "SAMPLE_PER_CENTER", 20)
        monkeypatch.setattr(sample, "SAMPLE_WORK", 1)
        assert mean_energy(lambda seed: start("k-means++", problem, 25, seed), problem) < 1.2 * whole

    def test_rounds_end_where_they_no_longer_pay(self, monkeypatch):
        passes, shares = [], Rows.map_blocks
        monkeypatch.setattr(Rows, "map_blocks", lambda self, *args, **rest: passes.append(1) or shares(self, *args, **rest))
        wide, narrow = cloud(2000, 200), blobs(2000, 2, 50, spread=0.01)[0]
        found = {}
        for share in (usual := kmeans_parallel.WORTH, 1.0):
            monkeypatch.setattr(kmeans_parallel, "WORTH", share)
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
    """Of 500 rows, in blocks of 100."""
    for name, value in (("SAMPLE_LEAST", 500), ("SAMPLE_PER_CENTER", 20), ("SAMPLE_WORK", 1)):
        monkeypatch.setattr(sample, name, value)
    monkeypatch.setattr(kmeans_plus_plus, "SAVED", 0.0)
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))


@pytest.mark.usefixtures("small_samples")
class TestSettled:
    X = blobs(2000, 5, 5, spread=1.0)[0]
    weights = np.random.default_rng(0).lognormal(0, 2, 2000)

    def start(self, X=X, weights=None, k=5, **options):
        n_threads = options.pop("n_threads", None)
        with on_threads(Rows.of(find_source(X), weights, **options), n_threads) as rows:
            return SETTLED.methods["k-means++"](rows, k, generator(3)), sample._sample(rows, k, generator(3))

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_a_step_on_the_sample_leads_nowhere(self, metric):
        found, sample = self.start(weights=self.weights, frame=Frame.of(metric))
        assert len(sample.X) == 500
        assert np.ptp(sample.weights) > 0
        labels = naive.distances(sample.X, found).argmin(axis=1)
        C = np.stack([np.average(sample.X[labels == j], axis=0, weights=sample.weights[labels == j]) for j in range(5)])
        if metric == "cosine":
            C /= np.linalg.norm(C, axis=1)[:, None]
        np.testing.assert_allclose(C, found, atol=1e-12)

    @pytest.mark.parametrize(("name", "least"), [("MANY_MORE", 5), ("ENOUGH", 101)])
    def test_not_where_the_sample_is_most_of_the_rows_or_small(self, monkeypatch, name, least):
        monkeypatch.setattr(kmeans_plus_plus, name, least)
        assert naive.distances(self.start()[0], self.X).min(axis=1).max() == 0

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_does_not_depend_on_threads(self, dtype):
        X = self.X.astype(dtype)
        one, many = (self.start(X, n_threads=count)[0] for count in (1, 4))
        assert one.dtype == dtype
        np.testing.assert_array_equal(one, many)

    def test_rows_without_weight_do_not_matter(self):
        more = np.insert(self.X, np.arange(0, 2000, 2), 1e3, axis=0)
        weights = np.insert(self.weights, np.arange(0, 2000, 2), 0.0)
        np.testing.assert_array_equal(self.start(more, weights)[0], self.start(weights=self.weights)[0])

    def test_all_rows_equal(self):
        np.testing.assert_allclose(self.start(np.full((2000, 2), 7.0))[0], np.full((5, 2), 7.0), rtol=1e-14)

    def test_is_where_exact_methods_start(self):
        model = shoal.KMeans(5, random_state=0).fit(self.X)
        assert model.history_[0]["energy"] < 1.1 * model.inertia_
        others = shoal.GradientKMeans(5, random_state=0).fit(self.X)
        assert others.history_[0]["energy"] > 1.2 * model.inertia_


class TestSwaps:
    def test_each_lowers_the_energy(self, problem):
        rng, ruler = np.random.default_rng(0), kmeans_plus_plus._ruler(problem)
        chosen = rng.choice(len(problem), 25, replace=False)
        energies = [naive.energy(problem, problem[chosen])]
        for luck in rng.random(40):
            chosen = swap(problem, np.ones(len(problem)), chosen, [luck], ruler)
            energies.append(naive.energy(problem, problem[chosen]))
        assert (np.diff(energies) <= 0).all()
        assert energies[-1] < 0.7 * energies[0]
        assert len(np.unique(chosen)) == 25

    def test_many_at_once_are_one_after_the_other(self, problem):
        luck, ruler, ones = list(np.random.default_rng(1).random(30)), kmeans_plus_plus._ruler(problem), np.ones(len(problem))
        single = together = np.arange(25)
        for number in luck:
            single = swap(problem, ones, single, [number], ruler)
        np.testing.assert_array_equal(swap(problem, ones, together, luck, ruler), single)

    @pytest.mark.parametrize("d", [3, 64, 65, 300])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_distances_that_are_ruled_out_do_not_matter(self, d, dtype):
        """Wide rows are compared by their leading coordinates first: the result must not show it."""
        X = np.vstack([cloud(300, d, dtype=dtype), blobs(300, d, 5, dtype=dtype)[0]])
        least = naive.distances(X, X[:5]).min(axis=1)
        with one_blas_thread():  # as in a fit
            ruler = kmeans_plus_plus._ruler(X)
        for c in (7, 333):
            found = least.copy()
            ruler.lower(c, found)
            np.testing.assert_allclose(found, np.minimum(least, naive.distances(X, X[c : c + 1])[:, 0]), rtol=1e-12)


class TestParallel:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_candidates_weigh_what_they_serve(self, monkeypatch, problem, layout):
        """Rows go over to a nearer candidate as these are drawn; equal ones are one, and have the rows of all."""
        given = []
        monkeypatch.setattr(kmeans_parallel, "choose", lambda *args: given.append(args) or choose(*args))
        weights = np.random.default_rng(0).random(len(problem))
        start("k-means||", layout(np.round(problem)), 25, weights=weights)  # so that there are equal ones
        (X, served, *_) = given[0]
        labels = naive.distances(np.round(problem), X).argmin(axis=1)
        assert len(X) > 100
        assert served.sum() == pytest.approx(weights.sum())
        least = naive.distances(np.round(problem), X)
        tied = (least <= least.min(axis=1)[:, None]).sum(axis=1) > 1
        sure = np.bincount(labels[~tied], weights[~tied], len(X))
        assert (served >= sure - 1e-9).all()
        assert (served <= sure + weights[tied].sum() + 1e-9).all()


@pytest.mark.parametrize("name", INITIALIZERS.methods)
class TestEvery:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("k", [1, 2, 50])
    def test_gives_rows_of_the_data(self, name, k, dtype):
        X = cloud(300, 3, dtype=dtype)
        C = start(name, X, k)
        assert (C.shape, C.dtype) == ((k, 3), dtype)
        assert naive.distances(C, X).min(axis=1).max() == 0

    def test_gives_distinct_rows_where_there_are_enough(self, name):
        X = np.arange(40.0)[np.arange(400) % 40][:, None]
        assert len(np.unique(start(name, X, 20))) == 20

    def test_never_takes_rows_without_weight(self, name):
        X = np.vstack([cloud(100, 3), 1e6 + cloud(900, 3)])
        weights = np.r_[np.ones(100), np.zeros(900)]
        for seed in SEEDS:
            assert np.abs(start(name, X, 30, seed, weights)).max() < 1e3

    def test_prefers_heavy_rows(self, name):
        """Two places, one of them a million times heavier: the first centre is there, and others are too."""
        X = np.repeat([[0.0], [1.0]], 100, axis=0) + cloud(200, 1) / 1e6
        weights = np.repeat([1e-6, 1.0], 100)
        assert all(start(name, X, 1, seed, weights)[0, 0] > 0.5 for seed in SEEDS)

    def test_finds_heavy_rows_among_more_than_it_looks_at(self, name, monkeypatch):
        monkeypatch.setattr(sample, "SAMPLE_LEAST", 200)
        monkeypatch.setattr(sample, "SAMPLE_WORK", 1)
        X, weights = np.r_[cloud(5000, 2), [[30, 0], [0, 30]]], np.ones(5002)
        weights[-2:] = 1e5
        for seed in SEEDS:
            found = start(name, X, 10, seed, weights)
            assert all((found == row).all(axis=1).any() for row in X[-2:])

    def test_dense_is_sparse(self, name):
        X = np.random.default_rng(0).poisson(0.3, (300, 20)).astype(float)
        np.testing.assert_array_equal(start(name, X, 15), start(name, sparse.csr_array(X), 15))

    def test_one_seed_one_start(self, name):
        X = cloud(300, 3)
        np.testing.assert_array_equal(start(name, X, 10, 3), start(name, X, 10, 3))
        assert not np.array_equal(start(name, X, 10, 3), start(name, X, 10, 4))

    def test_does_not_depend_on_threads(self, name):
        X = cloud(150_000, 3)
        np.testing.assert_array_equal(start(name, X, 10, n_threads=1), start(name, X, 10, n_threads=4))

    def test_all_rows_equal(self, name):
        X = np.full((50, 2), 7.0)
        np.testing.assert_array_equal(start(name, X, 5), X[:5])

    def test_as_many_centres_as_rows(self, name):
        X = cloud(20, 3)
        np.testing.assert_array_equal(np.sort(start(name, X, 20), axis=0), np.sort(X, axis=0))


@pytest.mark.parametrize("d", [2, 100])
def test_choice_has_no_row_twice(d):
    chosen = choose(cloud(200, d), np.ones(200), 60, generator(0))
    assert len(np.unique(chosen)) == 60


def test_streams_are_independent_and_repeatable():
    draws = [
        generator(*key).random(4).tolist() for key in ((0,), (0, 0), (0, 0, 1), (0, 2**32), (0, 1), (1, 0), (1, 1), (2**40, 0))
    ]
    assert len({tuple(draw) for draw in draws}) == len(draws)
    assert generator(0, 1).random() == generator(0, 1).random()
