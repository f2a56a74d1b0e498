"""Projected bounds: all ways to score give the result of Lloyd's algorithm, and each is used where it is faster."""

import numpy as np
import pytest

from shoal import KMeans
from shoal.data.pca import basis_of
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit import partition
from shoal.kmeans import projected
from tests.strategies import cloud


def flat(n, d, rank=8, seed=0, dtype=np.float32):
    """Return rows near a subspace of low dimension."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d)) + 0.1 * rng.normal(size=(n, d))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("open_share", [-1.0, 0.3, 2.0])
@pytest.mark.parametrize(("d", "narrow"), [(5, 256), (64, 256), (100, 256), (100, 1)])
def test_all_ways_to_score_give_the_result_of_lloyd(monkeypatch, d, narrow, open_share, dtype):
    monkeypatch.setattr(projected, "MIN_OPEN_SHARE_FOR_GEMM", open_share)
    monkeypatch.setattr(projected, "MAX_NARROW_COLUMNS", narrow)
    monkeypatch.setattr(projected, "PROBE_ROWS", 50)
    X = flat(1500, d, dtype=dtype)
    X[::7] = X[0]  # ties
    plain, fast = (
        KMeans(70, init=X[:70] + 0.01 * cloud(70, d, 3, dtype), algorithm=a, tol=0).fit(X) for a in ("lloyd", "projected")
    )
    np.testing.assert_array_equal(fast.labels_, plain.labels_)
    np.testing.assert_array_equal(fast.cluster_centers_, plain.cluster_centers_)
    assert fast.n_iter_ == plain.n_iter_


class TestHeads:
    def open_share(self, X):
        return projected.open_share(X[:200], X[-100:], basis_of(X, projected.FINE_COLUMNS[0] - 2))

    def test_exclude_most_centroids_near_a_subspace(self):
        assert self.open_share(flat(2000, 150)) < 0.01

    def test_exclude_few_centroids_in_a_ball(self):
        assert self.open_share(cloud(2000, 150, 0, np.float32)) > projected.MAX_OPEN_SHARE

    def test_are_not_used_if_they_exclude_little(self):
        for X, used in ((flat(2000, 150), True), (cloud(2000, 150, 0, np.float32), False)):
            with on_threads(Rows.of(find_source(X))) as rows:
                state = partition.initial_partition(rows, X[:50])
                assert bool(projected.initial_bounds(rows, state).heads.size) == used

    def test_save_most_distances(self):
        X = flat(3000, 150)
        model = KMeans(100, init=X[:100], algorithm="projected", tol=0).fit(X)
        assert sum(record["distances"] for record in model.history_) < 0.2 * len(X) * 100 * model.n_iter_


class TestAuto:
    @pytest.mark.parametrize("d", [40, 100])
    def test_gives_the_result_of_lloyd_if_it_begins_without_bounds(self, d, monkeypatch):
        monkeypatch.setattr("shoal.kmeans.dispatch.MIN_PAIRS_FOR_HEADS", 1)
        X = cloud(2000, d, 0, np.float32)
        plain, auto = (KMeans(60, init=X[:60], algorithm=a, tol=0).fit(X) for a in ("lloyd", "auto"))
        np.testing.assert_array_equal(auto.cluster_centers_, plain.cluster_centers_)
        np.testing.assert_array_equal(auto.labels_, plain.labels_)
        work = [record["distances"] for record in auto.history_]
        assert work[1] >= 2000 * 60  # all pairs, while many rows are reassigned
        assert work[-1] < 2000 * 60 / 2

    @pytest.mark.parametrize(
        ("shape", "k", "chosen"),
        [((3000, 10), 99, "lloyd"), ((3000, 10), 100, "projected"), ((3000, 100), 9, "lloyd"), ((3000, 100), 10, "projected")],
    )
    def test_uses_bounds_from_a_minimum_of_work_per_row(self, shape, k, chosen):
        X = cloud(*shape, 0, np.float32)
        assert KMeans(k, init=X[:k], max_iter=1).fit(X).algorithm_ == chosen

    def test_uses_no_bounds_that_do_not_fit_into_memory(self, monkeypatch):
        X = cloud(3000, 100, 0, np.float32)
        monkeypatch.setattr(projected, "memory", lambda *_: 1 << 40)
        assert KMeans(50, init=X[:50], max_iter=1).fit(X).algorithm_ == "lloyd"
