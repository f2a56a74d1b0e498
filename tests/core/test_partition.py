"""One step of k-means against the oracle's, empty clusters included."""

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse

from shoal.core import partition
from shoal.core.rows import Rows
from shoal.core.sources import find_source
from shoal.kmeans import lloyd
from tests import naive
from tests.strategies import blobs, cloud, problems


def advance(X, C, weights=None, steps=1):
    """Centres after some steps, and what each of them told."""
    with Rows(find_source(X), weights) as rows:
        state, told = partition.begin(rows, np.asarray(C, rows.dtype)), []
        for _ in range(steps):
            state, info = partition.advance(rows, state, lloyd.assign)
            told.append(info)
    return state, told


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@given(problem=problems(dtypes=(np.float64,)))
def test_a_step(layout, problem):
    state, (info,) = advance(layout(problem.X), problem.start, problem.weights)
    C, (energy,) = naive.lloyd(problem.X, problem.start, 1, weights=problem.weights)
    if len(np.unique(problem.start, axis=0)) == len(problem.start):  # else which row fills a cluster may be a tie
        np.testing.assert_allclose(state.centers, C, atol=1e-9)
    assert info.energy == pytest.approx(energy, rel=1e-6, abs=1e-9)
    assert info.reassigned >= len(problem.X)


class TestEmptyClusters:
    def test_each_takes_the_row_that_is_served_worst_then(self):
        """Not the rows that were served worst at first: those may be neighbours."""
        X, _ = blobs(200, 3, 4)
        start = np.concatenate([X[:1], X[:1] + 1e6 * np.arange(1, 4)[:, None]])
        state, _ = advance(X, start)
        np.testing.assert_allclose(state.centers, naive.lloyd(X, start, 1)[0], atol=1e-9)

    @pytest.mark.parametrize("k", [30, 150])
    def test_many(self, k):
        X = cloud(400, 2)
        start = np.concatenate([X[:1], 1e6 + np.arange(k - 1)[:, None] * [1.0, 1.0]])
        state, (info,) = advance(X, start)
        np.testing.assert_allclose(state.centers, naive.lloyd(X, start, 1)[0], atol=1e-9)
        assert info.reassigned == 400 + k - 1
        assert (state.counts > 0).all()

    def test_of_many_blocks_few_rows_are_taken(self, monkeypatch):
        """Where each block proposes its own: a pool for every block of ten million rows would take gigabytes."""
        monkeypatch.setattr(partition, "MOST", 200)
        taken, take = [], Rows.take
        monkeypatch.setattr(Rows, "take", lambda rows, ids: taken.append(len(ids)) or take(rows, ids))
        X = cloud(4000, 2)
        start = np.concatenate([X[:1], 1e6 + np.arange(20)[:, None] * [1.0, 1.0]])
        with Rows(find_source(X)) as rows:
            rows.block_rows = 100
            state, _ = partition.advance(rows, partition.begin(rows, start), lloyd.assign)
        np.testing.assert_allclose(state.centers, naive.lloyd(X, start, 1)[0], atol=1e-9)
        assert max(taken) <= 4 * 64

    def test_a_row_that_is_all_its_cluster_has_stays(self):
        X = np.array([[0.0], [1.0], [2.0], [1000.0]])
        state, _ = advance(X, [[0.5], [500.0], [-1e6]])
        assert sorted(state.counts) == [1, 1, 2]
        assert state.labels[3] == 1

    def test_rows_that_differ_by_rounding_alone_fill_none(self):
        """The mean of equal rows is not quite the row; that must not count as a distance."""
        X = np.repeat([[0.1, 0.7, 1.3]], 1001, axis=0)
        state, told = advance(X, np.vstack([X[0], [1e3] * 3]), steps=3)
        assert state.counts.tolist() == [1001, 0]
        assert [info.reassigned for info in told] == [1001, 0, 0]


def test_sums_follow_the_rows_that_move():
    """Many steps, in which sums are kept up to date, end where sums from nothing would."""
    X = cloud(500, 4)
    state, _ = advance(X, X[:9], steps=40)
    for j in range(9):
        np.testing.assert_allclose(state.sums[j], X[state.labels == j].sum(axis=0), atol=1e-11)
        assert state.counts[j] == (state.labels == j).sum()
