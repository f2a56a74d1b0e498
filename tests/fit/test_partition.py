"""Compare one step of k-means with the oracle, also with empty clusters."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse

from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit import empty_clusters, partition
from shoal.kmeans import lloyd
from tests import naive
from tests.strategies import blobs, cloud, problems


def advance(X, C, weights=None, steps=1):
    """Return the state after some steps and the info of each step."""
    with on_threads(Rows.of(find_source(X), weights)) as rows:
        state, infos = partition.initial_partition(rows, np.asarray(C, rows.dtype)), []
        for _ in range(steps):
            state, info = partition.advance(rows, state, lloyd.assign)
            infos.append(info)
    return state, infos


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@given(problem=problems(dtypes=(np.float64,)))
def test_a_step(layout, problem):
    state, (info,) = advance(layout(problem.X), problem.start, problem.weights)
    C, (energy,) = naive.lloyd(problem.X, problem.start, 1, weights=problem.weights)
    if len(np.unique(problem.start, axis=0)) == len(problem.start):  # else which row fills a cluster may be a tie
        np.testing.assert_allclose(state.centers, C, atol=1e-9)
    assert info.energy == pytest.approx(energy, rel=1e-6, abs=1e-9)
    assert info.reassigned >= len(problem.X)


class Counted:
    """A source that records the bytes of the rows taken from it."""

    def __init__(self, source, taken):
        self.source, self.taken = source, taken

    def __getattr__(self, name):
        return getattr(self.source, name)

    def partitions(self, partition_rows):
        return [(0, 4000)]

    def take(self, ids):
        rows = self.source.take(ids)
        self.taken.append(rows.data.nbytes + rows.indices.nbytes if sparse.issparse(rows) else rows.nbytes)
        return rows


class TestEmptyClusters:
    def test_each_takes_the_row_with_the_largest_remaining_error(self):
        """The rows with the largest errors before the first relocation may be neighbors."""
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

    @pytest.mark.parametrize("layout", ["dense", "sparse", "ties"])
    def test_any_number_of_candidates_gives_the_same_result(self, monkeypatch, layout):
        """The limit on candidates depends on the number of blocks and columns; the result must not."""
        X = cloud(4000, 6)
        X = np.round(X) if layout == "ties" else X
        X = sparse.csr_array(X * (X > 0.5)) if layout == "sparse" else X
        start = np.concatenate([np.zeros((1, 6)), 1e6 + np.arange(20)[:, None] * np.ones(6)])
        found = []
        for m, size, block_rows in ((64, 1 << 25, 4000), (64, 2000, 100), (2, 1 << 25, 100), (64, 1, 4000), (1, 3000, 7)):
            monkeypatch.setattr(empty_clusters, "MIN_PROPOSALS", m)
            monkeypatch.setattr(empty_clusters, "MAX_CANDIDATE_BYTES", size)
            taken: list[int] = []
            with on_threads(Rows.of(find_source(X))) as rows:
                rows = replace(rows, source=Counted(rows.source, taken)).with_block_rows(block_rows)
                found.append(partition.advance(rows, partition.initial_partition(rows, start), lloyd.assign)[0])
            assert max(taken) <= max(size, 6 * 12)
        for state in found[1:]:
            np.testing.assert_array_equal(state.labels, found[0].labels)
            np.testing.assert_allclose(state.centers, found[0].centers, atol=1e-9)
        dense = X.toarray() if layout == "sparse" else X
        np.testing.assert_allclose(found[0].centers, naive.lloyd(dense, start, 1)[0], atol=1e-9)

    def test_the_only_row_of_a_cluster_stays(self):
        X = np.array([[0.0], [1.0], [2.0], [1000.0]])
        state, _ = advance(X, [[0.5], [500.0], [-1e6]])
        assert sorted(state.counts) == [1, 1, 2]
        assert state.labels[3] == 1

    def test_equal_rows_fill_no_empty_cluster(self):
        """The mean of equal rows differs from them by rounding, which must not count as a distance."""
        X = np.repeat([[0.1, 0.7, 1.3]], 1001, axis=0)
        state, infos = advance(X, np.vstack([X[0], [1e3] * 3]), steps=3)
        assert state.counts.tolist() == [1001, 0]
        assert [info.reassigned for info in infos] == [1001, 0, 0]


def test_updated_sums_equal_sums_from_scratch():
    """Sums are updated over many steps by the rows that change cluster."""
    X = cloud(500, 4)
    state, _ = advance(X, X[:9], steps=40)
    for j in range(9):
        np.testing.assert_allclose(state.sums[j], X[state.labels == j].sum(axis=0), atol=1e-11)
        assert state.counts[j] == (state.labels == j).sum()
