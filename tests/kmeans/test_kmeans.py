"""`KMeans`: all algorithms give bitwise identical results, and those of "lloyd" equal the oracle."""

import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from scipy import sparse
from sklearn import cluster
from sklearn.exceptions import ConvergenceWarning

from shoal import KMeans
from shoal.data import cancellation
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit import partition
from shoal.fit.finalize import finalize, round_as_published
from shoal.fit.loop import Limits, RunResult
from shoal.kmeans import lloyd
from tests import naive
from tests.strategies import ALGORITHMS, blobs, cloud, first_rows, grids, problems, spread_rows

OTHERS = ALGORITHMS[1:]
few_distinct = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(X, start, algorithm="lloyd", weights=None, **options):
    return KMeans(len(start), init=start, algorithm=algorithm, **{"tol": 0, **options}).fit(X, sample_weight=weights)


def assert_same(one, other):
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    assert one.inertia_ == other.inertia_
    assert one.n_iter_ == other.n_iter_
    assert [r["energy"] for r in one.history_] == [r["energy"] for r in other.history_]


def assert_algorithms_agree(X, start, weights=None, **options):
    reference = fit(X, start, "lloyd", weights, **options)
    for algorithm in OTHERS:
        if algorithm != "projected" or not sparse.issparse(X):
            assert_same(fit(X, start, algorithm, weights, **options), reference)
    np.testing.assert_array_equal(reference.labels_, reference.predict(X))


class TestAlgorithmsAgree:
    @pytest.mark.parametrize("d", [1, 2, 16, 40, 41, 47, 48, 49, 60, 130])
    @pytest.mark.parametrize("k", [1, 2, 7, 33, 100])
    def test_on_every_width(self, d, k):
        dtype = np.float32 if (d + k) % 2 else np.float64
        X = np.concatenate([cloud(300, d, seed=k, dtype=dtype), blobs(200, d, 9, spread=1, dtype=dtype)[0]])
        assert_algorithms_agree(X, first_rows(X, k), max_iter=12)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("d", [3, 40, 60])
    def test_on_sparse_rows(self, d, dtype):
        X = sparse.random_array((300, d), density=0.2, rng=np.random.default_rng(d), dtype=dtype, format="csr")
        assert_algorithms_agree(X, X[:33].toarray(), max_iter=12)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_with_weights(self, dtype):
        X = cloud(500, 16, dtype=dtype)
        assert_algorithms_agree(X, first_rows(X, 33), np.random.default_rng(0).gamma(1, size=500))

    @pytest.mark.parametrize("offset", [1.0, 1e3, 1e6])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_far_from_the_origin(self, offset, dtype):
        X = (cloud(400, 6) + offset).astype(dtype)
        assert_algorithms_agree(X, first_rows(X, 20))

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_with_many_ties(self, metric):
        X = np.random.default_rng(0).integers(1, 4, (400, 5)).astype(np.float32)
        assert_algorithms_agree(X, np.unique(X, axis=0)[:33], metric=metric)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("d", [3, 5, 16, 47, 60, 130])
    def test_with_ties_up_to_rounding(self, d, dtype):
        """Centroids are permutations of one vector and rows are constant, so distances are equal, but round differently.

        All algorithms must round them in the same way. The constant rows have weight zero, so that centroids do not move.
        """
        rng = np.random.default_rng(d)
        centers = rng.permuted(np.tile(rng.normal(size=d), (33, 1)), axis=1).astype(dtype)
        probes = np.repeat(rng.normal(size=(500, 1)), d, axis=1).astype(dtype)
        X, weights = np.vstack([centers, probes]), np.r_[np.ones(33), np.zeros(500)]
        assert_algorithms_agree(X, np.unique(centers, axis=0).astype(float), weights, max_iter=5)

    def test_over_many_blocks(self):
        X, _ = blobs(20_000, 60, 30, spread=2, dtype=np.float32)
        assert_algorithms_agree(X, first_rows(X, 50), max_iter=6)

    @given(problems())
    @few_distinct
    def test_on_degenerate_data(self, problem):
        assert_algorithms_agree(*problem, max_iter=20)

    @given(problems())
    @few_distinct
    def test_on_degenerate_sparse_data(self, problem):
        assert_algorithms_agree(sparse.csr_array(problem.X), problem.start, problem.weights, max_iter=20)

    @given(problems())
    @few_distinct
    def test_on_degenerate_directions(self, problem):
        X = np.column_stack([problem.X, np.ones(len(problem.X), problem.X.dtype)])  # no row of zeros
        start = np.column_stack([problem.start, np.ones(len(problem.start))])
        assert_algorithms_agree(X, start, problem.weights, max_iter=20, metric="cosine")


class TestLloydEqualsTheOracle:
    @given(problems(dtypes=(np.float64,), weighted=False))
    @few_distinct
    def test_labels_are_the_nearest_final_centroids(self, problem):
        model = fit(problem.X, problem.start, max_iter=20)
        far = naive.distances(problem.X, model.cluster_centers_)
        own = far[np.arange(len(far)), model.labels_]
        np.testing.assert_allclose(own, far.min(axis=1), rtol=1e-9, atol=1e-25)

    @given(grids)
    @few_distinct
    def test_ties_go_to_the_first_centroid(self, problem):
        """Distances of integer rows and centroids are exact, so labels equal those of the oracle even for ties."""
        model = fit(problem.X, problem.start, max_iter=1)
        model.cluster_centers_ = problem.start
        np.testing.assert_array_equal(model.predict(problem.X), naive.labels(problem.X, problem.start))

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("d", [2, 16, 60])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_step_by_step(self, algorithm, d, weighted):
        X = cloud(300, d, seed=d)
        weights = np.random.default_rng(0).integers(0, 4, 300) if weighted else None
        for steps in (1, 2, 3, 100):
            model = fit(X, first_rows(X, 7), algorithm, weights, max_iter=steps)
            C, energies = naive.lloyd(X, first_rows(X, 7), steps, weights=weights)
            np.testing.assert_allclose(model.cluster_centers_, C, rtol=0, atol=1e-12)
            np.testing.assert_array_equal(model.labels_, naive.labels(X, C))
            found = [record["energy"] for record in model.history_]
            np.testing.assert_allclose(found, energies, rtol=1e-9)
            assert (model.n_iter_, model.stop_reason_) == (len(energies), "converged" if steps == 100 else "max_iter")

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("tol", [0, 1e-3])
    def test_n_iter_equals_that_of_scikit_learn(self, algorithm, tol):
        X = cloud(500, 4)
        theirs = cluster.KMeans(9, init=first_rows(X, 9), n_init=1, tol=tol, algorithm="lloyd").fit(X)
        ours = fit(X, first_rows(X, 9), algorithm, tol=tol)
        assert ours.n_iter_ == theirs.n_iter_ > 5
        np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=0, atol=1e-12)
        exactly = fit(X, first_rows(X, 9), algorithm, tol=tol, max_iter=ours.n_iter_)
        assert (exactly.n_iter_, exactly.stop_reason_) == (ours.n_iter_, "converged")


class TestRelations:
    def test_weights_equal_repetitions(self):
        X, rng = cloud(150, 3), np.random.default_rng(0)
        weights = rng.integers(0, 4, 150)
        weighted = fit(X, first_rows(X, 9), weights=weights)
        repeated = fit(X.repeat(weights, axis=0), first_rows(X, 9))
        np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, atol=1e-12)
        np.testing.assert_array_equal(weighted.labels_.repeat(weights), repeated.labels_)
        assert weighted.inertia_ == pytest.approx(repeated.inertia_)

    @pytest.mark.parametrize("factor", [2.0**-40, 1e-3, 1e6, 2.0**40])
    def test_a_common_weight_scales_the_energy_only(self, factor):
        X = cloud(200, 3)
        plain, heavy = fit(X, first_rows(X, 6)), fit(X, first_rows(X, 6), weights=np.full(200, factor))
        np.testing.assert_array_equal(plain.labels_, heavy.labels_)
        assert heavy.inertia_ == pytest.approx(factor * plain.inertia_)

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.parametrize("algorithm", ALGORITHMS[:-1])
    def test_sparse_equals_dense(self, algorithm, metric):
        X = np.random.default_rng(1).poisson(0.4, (300, 30)) * np.random.default_rng(2).random((300, 30))
        X[:, 0] += 0.1
        dense, thin = (fit(rows, X[:8], algorithm, metric=metric) for rows in (X, sparse.csr_array(X)))
        np.testing.assert_array_equal(dense.labels_, thin.labels_)
        np.testing.assert_allclose(dense.cluster_centers_, thin.cluster_centers_, atol=1e-12)
        assert dense.inertia_ == pytest.approx(thin.inertia_)

    @pytest.mark.parametrize("d", [5, 60])
    def test_is_invariant_to_the_order_of_columns(self, d):
        X, order = cloud(300, d), np.random.default_rng(0).permutation(d)
        one, other = fit(X, first_rows(X, 12)), fit(X[:, order], first_rows(X, 12)[:, order])
        np.testing.assert_array_equal(one.labels_, other.labels_)
        np.testing.assert_allclose(one.cluster_centers_[:, order], other.cluster_centers_, atol=1e-12)

    def test_is_invariant_to_the_order_of_centroids(self):
        X = cloud(300, 5)
        one, other = fit(X, first_rows(X, 12)), fit(X, first_rows(X, 12)[::-1])
        np.testing.assert_array_equal(one.labels_, 11 - other.labels_)

    def test_one_more_centroid_lowers_the_energy(self):
        X = cloud(500, 4)
        few = KMeans(5, tol=0, random_state=0).fit(X)
        worst = naive.distances(X, few.cluster_centers_).min(axis=1).argmax()
        more = fit(X, np.vstack([few.cluster_centers_, X[worst]]))
        assert more.inertia_ < few.inertia_

    @given(problems(weighted=True))
    @few_distinct
    def test_energy_never_increases(self, problem):
        model = fit(problem.X, problem.start, weights=problem.weights)
        energies = np.array([record["energy"] for record in model.history_] + [model.inertia_])
        scale = np.square(problem.X - problem.X.mean(axis=0), dtype=float).sum()
        assert (np.diff(energies) <= 1e-6 * energies[:-1] + 1e-12 * scale).all()


class TestWork:
    @pytest.mark.parametrize("algorithm", OTHERS)
    @pytest.mark.parametrize("d", [8, 100])
    def test_bounds_save_distances_on_clusters(self, algorithm, d):
        X, _ = blobs(3000, d, 20, spread=1.5)
        slow, fast = (fit(X, first_rows(X, 40), name, max_iter=15) for name in ("lloyd", algorithm))
        count = [sum(record["distances"] for record in model.history_) for model in (slow, fast)]
        assert slow.n_iter_ > 3
        assert count[0] == slow.n_iter_ * 3000 * 40
        assert 0 < count[1] < 0.8 * count[0]

    def test_history_has_a_record_per_step(self):
        X = cloud(300, 3)
        seen = []
        model = fit(X, first_rows(X, 5), callback=seen.append)
        assert seen == model.history_
        assert len(seen) == model.n_iter_
        assert [record["step"] for record in seen] == list(range(1, len(seen) + 1))
        fields = {"step", "seconds", "energy", "shift", "rows", "distances", "reassigned", "start"}
        assert all(record.keys() == fields for record in seen)
        assert seen[0]["reassigned"] == 300
        assert seen[-1]["reassigned"] == 0
        assert seen[-1]["shift"] == pytest.approx(0, abs=1e-20)
        assert np.all(np.diff([record["seconds"] for record in seen]) > 0)

    @pytest.mark.parametrize("scale", [1.0, 1e-200])
    def test_callbacks_get_copies_of_records(self, scale):
        """Rows may be so small that energies underflow in float64."""
        X = scale * cloud(300, 3)
        assert_same(fit(X, first_rows(X, 5), callback=lambda record: record.clear()), fit(X, first_rows(X, 5)))

    def test_records_have_the_number_of_their_start(self):
        seen = []
        model = KMeans(5, n_init=4, random_state=0, callback=seen.append).fit(cloud(300, 3))
        assert sorted({record["start"] for record in seen}) == [0, 1, 2, 3]
        best = model.history_[0]["start"]
        assert model.history_ == [record for record in seen if record["start"] == best]

    def test_verbose_prints_each_step(self, capsys):
        X = cloud(100, 3)
        model = fit(X, first_rows(X, 3), verbose=1)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == model.n_iter_
        assert all("energy=" in line for line in lines)

    def test_auto_sets_the_algorithm_used(self):
        X = cloud(100, 3)
        assert KMeans(3, random_state=0).fit(X).algorithm_ in ALGORITHMS
        assert KMeans(3, random_state=0).fit(sparse.csr_array(X)).algorithm_ in ALGORITHMS[:-1]
        assert KMeans(3, random_state=0, algorithm="elkan").fit(X).algorithm_ == "elkan"


class TestStopping:
    def assert_valid(self, model, X):
        np.testing.assert_array_equal(model.labels_, model.predict(X))
        assert np.isfinite(model.cluster_centers_).all()
        assert model.inertia_ == pytest.approx(naive.energy(X, model.cluster_centers_), rel=1e-9)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_converged(self, algorithm):
        X = cloud(200, 3)
        model = fit(X, first_rows(X, 5), algorithm)
        assert model.stop_reason_ == "converged"
        again = fit(X, model.cluster_centers_, algorithm)
        np.testing.assert_allclose(again.cluster_centers_, model.cluster_centers_, atol=1e-12)
        self.assert_valid(model, X)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_max_iter(self, algorithm):
        X = cloud(400, 3)
        model = fit(X, first_rows(X, 15), algorithm, max_iter=2)
        assert (model.stop_reason_, model.n_iter_) == ("max_iter", 2)
        self.assert_valid(model, X)

    def test_a_wide_tolerance_stops_early(self):
        X = cloud(400, 3)
        loose, tight = (fit(X, first_rows(X, 15), tol=tol) for tol in (1e-2, 0))
        assert loose.n_iter_ < tight.n_iter_
        assert loose.stop_reason_ == tight.stop_reason_ == "converged"
        assert loose.inertia_ >= tight.inertia_

    def test_callback(self):
        X = cloud(400, 3)
        model = fit(X, first_rows(X, 15), callback=lambda record: record["step"] == 3)
        assert (model.stop_reason_, model.n_iter_) == ("callback", 3)
        self.assert_valid(model, X)

    def test_callback_ends_all_starts(self):
        seen = []
        KMeans(5, n_init=4, random_state=0, callback=lambda record: seen.append(record) or True).fit(cloud(400, 3))
        assert len(seen) == 1

    def test_errors_of_callbacks_are_propagated(self):
        def fail(record):
            raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            KMeans(5, callback=fail).fit(cloud(400, 3))

    @pytest.mark.parametrize("budget", [1e-9, 1e-3, 0.05])
    @pytest.mark.parametrize("algorithm", ["lloyd", "projected"])
    def test_time_budget(self, budget, algorithm):
        X = cloud(20_000, 10)
        began = time.perf_counter()
        model = fit(X, first_rows(X, 50), algorithm, time_budget=budget, max_iter=100_000)
        assert time.perf_counter() - began < 5
        assert model.stop_reason_ == "time_budget"
        assert model.n_iter_ == len(model.history_)
        self.assert_valid(model, X)

    @pytest.mark.parametrize("budget", [1e6, np.inf])
    def test_a_sufficient_time_budget_changes_nothing(self, budget):
        X = cloud(100, 3)
        assert_same(fit(X, first_rows(X, 5), time_budget=budget), fit(X, first_rows(X, 5)))

    @pytest.mark.parametrize(("budget", "reason", "starts"), [(3, "time_budget", {0, 1}), (9, "converged", {0, 1, 2, 3, 4})])
    def test_the_stop_reason_mentions_starts_that_were_skipped(self, monkeypatch, budget, reason, starts):
        """A start has converged, but not all of `n_init` were run."""
        clock, seen = [0], set()
        monkeypatch.setattr(cancellation, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

        def advance_clock(record):
            seen.add(record["start"])
            clock[0] += 2 * (record["reassigned"] == 0)

        model = KMeans(3, n_init=5, tol=0, random_state=0, time_budget=budget, callback=advance_clock).fit(cloud(100, 3))
        assert (model.stop_reason_, seen) == (reason, starts)

    def test_the_stop_reason_mentions_a_callback_in_another_start(self):
        X, _ = blobs(300, 3, 5)

        def init(rows, k, random_state):
            return model_rows.pop()

        model_rows = [X[:5] + 1e3, fit(X, X[:5]).cluster_centers_]
        model = KMeans(5, init=init, n_init=2, callback=lambda record: record["start"] == 1).fit(X)
        assert model.history_[0]["start"] == 0
        assert model.stop_reason_ == "callback"

    def test_labels_belong_to_the_final_centroids_if_clusters_stay_empty(self, monkeypatch):
        """Filling them may move the centroids each time."""
        X = np.repeat([[0.0], [1.0]], 5, axis=0)
        with on_threads(Rows.of(find_source(X))) as rows:
            start = partition.initial_partition(rows, np.array([[0.0], [1.0], [9.0]]))
            state, info = partition.advance(rows, start, lloyd.assign)
            outcome = RunResult(state, [], "max_iter", info)
            swap = {"reassigned": 1}
            monkeypatch.setattr(
                partition, "advance", lambda _, s, __: (s._replace(centers=s.centers[[1, 0, 2]]), info._replace(**swap))
            )
            rounds = []
            assign = lambda *args: rounds.append(1) or lloyd.assign(*args)  # noqa: E731
            publish = partial(round_as_published, rows)
            settled, energy = finalize(rows, outcome, assign, publish, Limits(1), [])
        assert len(rounds) > 5
        np.testing.assert_array_equal(settled.state.labels, naive.labels(X, settled.state.centers))
        assert energy == naive.energy(X, settled.state.centers) == 0


class Recorder:
    """A callback that implements the protocol of scikit-learn."""

    def __init__(self, stop_after=None):
        self.calls, self.results, self.stop_after = [], [], stop_after

    def setup(self, estimator, context):
        self.calls.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        self.calls.append(f"end {context.task_name}")
        if fitted_estimator is not None:
            self.results.append((fitted_estimator.predict(X), fitted_estimator.score(X)))
        return len(self.results) == self.stop_after

    def teardown(self, estimator, context):
        self.calls.append("teardown")


class TestScikitLearnCallbacks:
    @pytest.fixture(autouse=True)
    def _protocol(self):
        pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")

    def run(self, **options):
        X, recorder = cloud(300, 3) + 50, Recorder(**options)
        model = KMeans(6, init=first_rows(X, 6), tol=0).set_callbacks(recorder).fit(X)
        return X, model, recorder

    def test_is_called_in_every_step(self):
        _, model, recorder = self.run()
        steps = ["begin step", "end step"] * model.n_iter_
        assert recorder.calls == ["setup", "begin fit", *steps, "end fit", "teardown"]

    def test_receives_a_model_that_predicts(self):
        _, model, recorder = self.run()
        for step, (_, score) in enumerate(recorder.results[:-1]):
            assert -score == pytest.approx(model.history_[step + 1]["energy"], rel=1e-6)
        np.testing.assert_array_equal(recorder.results[-1][0], model.labels_)
        assert recorder.results[-1][1] == pytest.approx(-model.inertia_)

    def test_may_stop_the_fit(self):
        X, model, _ = self.run(stop_after=2)
        assert (model.stop_reason_, model.n_iter_) == ("callback", 2)
        np.testing.assert_array_equal(model.predict(X), model.labels_)

    def test_is_torn_down_if_the_fit_fails(self):
        recorder = Recorder()
        recorder.on_fit_task_end = lambda estimator, context: 1 / 0
        with pytest.raises(ZeroDivisionError):
            KMeans(3).set_callbacks(recorder).fit(cloud(100, 3))
        assert recorder.calls[-1] == "teardown"


class TestInit:
    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "afk-mc2", "random"])
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_each_method_finds_blobs(self, init, layout):
        X, y = blobs(500, 3, 5)
        model = KMeans(5, init=init, n_init=20, random_state=0).fit(layout(X))
        assert model.inertia_ == pytest.approx(fit(X, spread_rows(X, y)).inertia_, rel=1e-9)

    def test_an_array(self):
        X, _ = blobs(500, 3, 5)
        from_array, from_list = (KMeans(5, init=C).fit(X) for C in (X[:5], X[:5].tolist()))
        assert_same(from_array, from_list)
        with pytest.warns(RuntimeWarning, match="not n_init=7") as caught:
            assert_same(from_array, KMeans(5, init=X[:5], n_init=7).fit(X))
        assert caught[0].filename == __file__
        assert_same(from_array, KMeans(5, init=X[:5], n_init=1).fit(X))

    def test_a_callable(self):
        X, _ = blobs(500, 3, 5)
        calls = []

        def init(rows, k, random_state):
            calls.append((rows is X, k, random_state.randint(2**31)))
            return rows[:k]

        model = KMeans(5, init=init, n_init=3, random_state=0).fit(X)
        assert_same(model, KMeans(5, init=X[:5]).fit(X))
        assert [call[:2] for call in calls] == [(True, 5)] * 3
        assert len({call[2] for call in calls}) == 3

    def test_the_start_of_lowest_energy_is_kept(self):
        X = cloud(400, 3)
        energies = []

        def init(rows, k, random_state):
            C = rows[random_state.choice(len(rows), k, replace=False)]
            energies.append(fit(X, C, tol=1e-4).inertia_)
            return C

        model = KMeans(12, init=init, n_init=6, random_state=0).fit(X)
        assert len(set(energies)) > 1
        assert model.inertia_ == min(energies)

    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "afk-mc2", "random"])
    def test_the_seed_determines_the_result(self, init):
        X = cloud(400, 3)
        one, same, other = (KMeans(12, init=init, n_init=1, random_state=seed).fit(X) for seed in (7, 7, 8))
        assert_same(one, same)
        assert not np.array_equal(one.cluster_centers_, other.cluster_centers_)

    @pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
    def test_generators_as_seeds(self, make):
        X = cloud(400, 3)
        assert_same(*(KMeans(12, random_state=make(3)).fit(X) for _ in range(2)))

    def test_random_state_none_uses_the_global_seed_of_numpy(self):
        X = cloud(400, 3)
        models = []
        for _ in range(2):
            np.random.seed(5)  # noqa: NPY002
            models.append(KMeans(12, n_init=1).fit(X))
        assert_same(*models)


class TestCosine:
    X = np.random.default_rng(0).gamma(0.5, size=(300, 12)) * np.random.default_rng(1).gamma(1, size=(300, 1))

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("algorithm", ["lloyd", "auto", "elkan"])
    def test_equals_the_oracle_of_spherical_k_means(self, layout, algorithm):
        model = fit(layout(self.X), self.X[:6], algorithm, metric="cosine")
        C, labels, energy = naive.spherical(self.X, self.X[:6])
        np.testing.assert_allclose(model.cluster_centers_, C, atol=1e-12)
        np.testing.assert_array_equal(model.labels_, labels)
        assert model.inertia_ == pytest.approx(energy)
        assert model.history_[-1]["energy"] == pytest.approx(energy)

    def test_centroids_have_unit_length(self):
        for X in (self.X, self.X.astype(np.float32), sparse.csr_array(self.X)):
            C = KMeans(6, metric="cosine", random_state=0).fit(X).cluster_centers_
            np.testing.assert_allclose(np.linalg.norm(C, axis=1), 1, rtol=1e-6)

    @pytest.mark.parametrize("algorithm", ["lloyd", "auto"])
    def test_memory_layout_does_not_change_the_result(self, algorithm):
        X = np.random.default_rng(0).normal(size=(2000, 37))
        one = fit(X, X[:6], algorithm, metric="cosine")
        for rows in (np.asfortranarray(X), pd.DataFrame({str(i): x for i, x in enumerate(X.T)}), X[:, ::-1].copy()[:, ::-1]):
            other = fit(rows, X[:6], algorithm, metric="cosine")
            np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
            np.testing.assert_array_equal(one.transform(X), one.transform(np.asarray(rows)))

    def test_is_invariant_to_the_length_of_rows(self):
        one = fit(self.X, self.X[:6], metric="cosine")
        other = fit(self.X * 2.0 ** np.arange(-150, 150)[:, None], self.X[:6], metric="cosine")
        np.testing.assert_array_equal(one.labels_, other.labels_)

    @pytest.mark.parametrize("scale", [1e-6, 1e6])
    def test_tol_is_relative_to_unit_vectors(self, scale):
        """Convergence does not depend on the length of the rows."""
        base, scaled = (KMeans(6, init=self.X[:6], metric="cosine").fit(factor * self.X) for factor in (1, scale))
        assert base.n_iter_ == scaled.n_iter_ > 3
        np.testing.assert_array_equal(base.labels_, scaled.labels_)

    def test_transform_is_one_minus_cosine(self):
        model = fit(self.X, self.X[:6], metric="cosine")
        np.testing.assert_allclose(model.transform(self.X), 1 - naive.unit(self.X) @ model.cluster_centers_.T, atol=1e-12)


class TestTransform:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("offset", [0.0, 300.0])
    def test_equals_the_distances_to_the_centroids(self, layout, offset):
        X = cloud(100, 5) + offset
        model = fit(layout(X), first_rows(X, 7))
        np.testing.assert_allclose(model.transform(layout(X)), np.sqrt(naive.distances(X, model.cluster_centers_)), rtol=1e-6)

    def test_keeps_float32(self):
        X = cloud(100, 5, dtype=np.float32)
        assert fit(X, first_rows(X, 7)).transform(X).dtype == np.float32

    def test_its_smallest_column_is_the_label(self):
        X = cloud(100, 5)
        model = fit(X, first_rows(X, 7))
        np.testing.assert_array_equal(model.transform(X).argmin(axis=1), model.predict(X))


class TestEmptyClusters:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_as_many_clusters_as_distinct_rows(self, algorithm, metric):
        X = (1 + np.arange(12.0))[:, None] ** [0, 1, 2]
        rows = X[np.random.default_rng(0).integers(12, size=100)]
        rows[:12] = X
        model = fit(rows, rows[[0] * 12], algorithm, metric=metric)
        assert len(np.unique(model.labels_)) == 12
        assert model.inertia_ == pytest.approx(0, abs=1e-9)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("few", [1, 2, 5])
    def test_warns_of_fewer_distinct_rows(self, algorithm, few):
        X = np.random.default_rng(few).normal(size=(few, 3))[np.arange(60) % few]
        with pytest.warns(ConvergenceWarning, match=rf"distinct clusters \({few}\) found smaller than n_clusters \(8\)"):
            model = fit(X, X[:8], algorithm)
        assert len(np.unique(model.labels_)) == few
        assert model.n_iter_ < 10
        assert model.inertia_ == pytest.approx(0, abs=1e-20)
        np.testing.assert_array_equal(model.labels_, model.predict(X))

    def test_the_warning_has_the_file_of_the_caller(self):
        with pytest.warns(ConvergenceWarning) as caught:
            KMeans(2, random_state=0).fit(np.ones((5, 2)))
        assert caught[0].filename == __file__

    @pytest.mark.parametrize(
        ("weights", "cause"), [(None, "distinct rows;"), ([1, 1, 1, 0, 0], "distinct rows of positive weight;")]
    )
    def test_the_warning_names_the_cause(self, weights, cause):
        X = np.array([[0.0], [0.0], [1.0], [2.0], [3.0]]) if weights else np.ones((5, 1))
        with pytest.warns(ConvergenceWarning, match=cause):
            KMeans(4, random_state=0).fit(X, sample_weight=weights)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_rows_of_weight_zero_fill_no_cluster(self, algorithm):
        X, y = blobs(100, 3, 4)
        X = np.vstack([X, [[1e6] * 3]])
        weights = np.r_[np.ones(100), 0]
        model = fit(X, spread_rows(X[:100], y), algorithm, weights)
        assert np.abs(model.cluster_centers_).max() < 1e3
        assert model.inertia_ == pytest.approx(naive.energy(X, model.cluster_centers_, weights))


@pytest.mark.parametrize("call", ["fit", "fit_predict", "fit_transform"])
def test_warnings_have_the_line_of_the_caller(call):
    with pytest.warns(ConvergenceWarning, match="use n_clusters=2 or fewer") as seen:
        getattr(KMeans(3), call)(np.array([[0.0], [1.0], [1.0]]))
    assert [warning.filename for warning in seen] == [__file__]


def test_rows_of_weight_zero_fill_no_cluster():
    with pytest.warns(ConvergenceWarning, match="use n_clusters=2 or fewer"):
        KMeans(3).fit(np.array([[0.0], [1.0], [9.0]]), sample_weight=[1, 1, 0])


def test_the_shift_of_directions_is_their_movement():
    X = np.random.default_rng(0).normal(size=(100, 3)) + 2
    C = X[:4] / np.linalg.norm(X[:4], axis=1)[:, None]
    model = KMeans(4, init=C, metric="cosine", max_iter=1).fit(X)
    assert model.history_[0]["shift"] == pytest.approx(((model.cluster_centers_ - C) ** 2).sum())
