"""Heads and bounds: every way to score gives Lloyd's result, and each is taken where it pays."""

import numpy as np
import pytest

from shoal import KMeans
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit import partition
from shoal.kmeans import projected
from shoal.kmeans.center_groups import gaps
from tests import naive
from tests.strategies import cloud


def flat(n, d, rank=8, seed=0, dtype=np.float32):
    """Rows near a plane of few dimensions, as real data is."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d)) + 0.1 * rng.normal(size=(n, d))).astype(dtype)


def force_heads(monkeypatch, use):
    """Use heads, or do not, whatever a trial would measure."""
    monkeypatch.setattr(projected, "MIN_COLUMNS_FOR_HEADS", 1)
    monkeypatch.setattr(projected, "HEAD_COLUMNS", (4, 4))
    monkeypatch.setattr(projected, "try_heads", lambda rows, C, bounds: bounds._replace(with_heads=use))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("use", [True, False])
@pytest.mark.parametrize(("d", "k"), [(5, 70), (100, 70), (100, 3), (30, 300)])
def test_gives_the_result_of_lloyd(monkeypatch, d, k, use, dtype):
    force_heads(monkeypatch, use)
    X = flat(1500, d, dtype=dtype)
    X[::7] = X[0]  # and ties
    plain, fast = (
        KMeans(k, init=X[:k] + 0.01 * cloud(k, d, 3, dtype), algorithm=a, tol=0).fit(X) for a in ("lloyd", "projected")
    )
    np.testing.assert_array_equal(fast.labels_, plain.labels_)
    np.testing.assert_array_equal(fast.cluster_centers_, plain.cluster_centers_)
    assert fast.n_iter_ == plain.n_iter_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("use", [True, False])
def test_bounds_hold_after_every_step(monkeypatch, use, dtype):
    """The upper bound is at least the distance to the own centroid, lower bounds at most those to all others of a group."""
    force_heads(monkeypatch, use)
    X = flat(1200, 40, dtype=dtype)
    X[::7] = X[0]
    with on_threads(Rows.of(find_source(X))) as rows:
        state = partition.initial_partition(rows, X[:100] + 0.01 * cloud(100, 40, 3, dtype))
        for _ in range(8):
            centers = state.centers.astype(float)
            state, _ = partition.advance(rows, state, projected.assign)
            b, labels = state.bounds, state.labels
            distances = np.sqrt(((X.astype(float)[:, None] - centers) ** 2).sum(axis=2))
            bounded = np.isfinite(b.upper)
            assert (b.upper >= distances[np.arange(len(X)), labels])[bounded].all()
            distances[np.arange(len(X)), labels] = np.inf
            nearest = np.minimum.reduceat(distances[:, b.order], b.groups[:-1], axis=1)
            assert (b.lower * b.unit <= nearest)[bounded].all()


class TestHeads:
    def trial(self, X, C):
        with on_threads(Rows.of(find_source(X))) as rows:
            bounds = projected.initial_bounds(rows, partition.initial_partition(rows, C))
            return projected.try_heads(rows, C, bounds).with_heads

    def test_are_used_near_a_plane(self):
        X = flat(4000, 500)
        assert self.trial(X, X[:500])

    def test_are_not_used_in_a_ball(self):
        X = cloud(4000, 150, 0, np.float32)
        assert not self.trial(X, X[:500])

    def test_spare_most_work(self):
        X = flat(3000, 150)
        model = KMeans(100, init=X[:100], algorithm="projected", tol=0).fit(X)
        assert sum(record["distances"] for record in model.history_) < 0.4 * len(X) * 100 * model.n_iter_


class TestAuto:
    @pytest.mark.parametrize("d", [40, 100])
    def test_gives_lloyds_result_where_it_steps_plainly_first(self, d, monkeypatch):
        monkeypatch.setattr("shoal.kmeans.dispatch.MIN_PAIRS_FOR_HEADS", 1)
        X = cloud(2000, d, 0, np.float32)
        plain, auto = (KMeans(60, init=X[:60], algorithm=a, tol=0).fit(X) for a in ("lloyd", "auto"))
        np.testing.assert_array_equal(auto.cluster_centers_, plain.cluster_centers_)
        np.testing.assert_array_equal(auto.labels_, plain.labels_)
        work = [record["distances"] for record in auto.history_]
        assert work[1] >= 2000 * 60  # all rows and all centroids, while many rows change cluster
        assert work[-1] < 2000 * 60 / 2

    @pytest.mark.parametrize(
        ("shape", "k", "chosen"),
        [((3000, 10), 99, "lloyd"), ((3000, 10), 100, "projected"), ((3000, 499), 10, "lloyd"), ((3000, 500), 10, "projected")],
    )
    def test_bounds_pay_from_some_work_a_row_on(self, shape, k, chosen):
        X = cloud(*shape, 0, np.float32)
        assert KMeans(k, init=X[:k], max_iter=1).fit(X).algorithm_ == chosen

    def test_bounds_must_fit_into_memory(self, monkeypatch):
        X = cloud(3000, 100, 0, np.float32)
        monkeypatch.setattr(projected, "memory", lambda *_: 1 << 40)
        assert KMeans(50, init=X[:50], max_iter=1).fit(X).algorithm_ == "lloyd"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaps_are_lower_bounds_of_half_the_distances(dtype):
    C = np.vstack([cloud(300, 40, dtype=dtype), [[0] * 40], [[1000] * 40]]).astype(dtype)
    C[7] = C[8]
    half = naive.distances(C.astype(float), C.astype(float)) ** 0.5 / 2
    np.fill_diagonal(half, np.inf)
    found = gaps(C)
    assert (found <= half.min(axis=1)).all()
    assert found[7] == 0
    near = np.abs(C).max(axis=1) < 10
    np.testing.assert_allclose(found[near], half.min(axis=1)[near], rtol=0.01, atol=1e-3)
