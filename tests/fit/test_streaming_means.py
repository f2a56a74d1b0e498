"""Streaming updates: each centroid becomes the mean of the rows assigned to it."""

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse

from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit import streaming_means
from tests.strategies import cloud, grids, problems

LAYOUTS = (np.asarray, sparse.csr_array)


def run_epoch(problem, layout, rate=0.0):
    """Run one epoch over the rows in their order; return the means, the labels and the result of the epoch."""
    with on_threads(Rows.of(find_source(layout(problem.X)), problem.weights), 1) as rows:
        means = streaming_means.initial_means(rows, problem.start)
        labels = np.full(len(rows), -1, np.int32)
        epoch = streaming_means.run_epoch(rows, means, np.arange(len(rows)), labels, rate)
    return means, labels, epoch


@given(problems())
@pytest.mark.parametrize("layout", LAYOUTS)
def test_centroids_are_the_means_of_their_rows(layout, problem):
    means, labels, epoch = run_epoch(problem, layout)
    weights = np.ones(len(labels)) if problem.weights is None else problem.weights
    weight_sums = np.bincount(labels, weights, len(problem.start))
    np.testing.assert_allclose(means.weight_sums, weight_sums)
    expected = problem.start.copy()
    for j in np.flatnonzero(weight_sums):
        own = labels == j
        expected[j] = np.average(problem.X[own].astype(float), axis=0, weights=weights[own])
    scale = float(np.abs(problem.X).max())
    np.testing.assert_allclose(means.centers, expected, atol=1e-12 * (1 + scale))
    assert epoch.shift == pytest.approx(((expected - problem.start) ** 2).sum(), abs=1e-10 * (1 + scale) ** 2)
    assert epoch.reassigned == len(labels)


@given(grids)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ties_go_to_the_first_centroid(layout, problem):
    _, labels, _ = run_epoch(problem, layout)
    distances = ((problem.X[0] - problem.start) ** 2).sum(axis=1)
    assert labels[0] == distances.argmin()


@given(problems(weighted=False))
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dense_and_sparse_rows_give_the_same_result(rate, problem):
    """The results may differ from the first row on for which two centroids are equally near up to rounding."""
    one, other = (run_epoch(problem, layout, rate) for layout in LAYOUTS)
    if np.array_equal(one[1], other[1]):
        np.testing.assert_allclose(one[0].centers, other[0].centers, atol=1e-10 * (1 + np.abs(problem.X).max()))
    else:  # the first row that differs had a tie
        row = int(np.argmax(one[1] != other[1]))
        before = problem._replace(X=problem.X[:row])
        C = run_epoch(before, np.asarray, rate)[0].centers if row else problem.start
        near = np.sort(((problem.X[row].astype(float) - C) ** 2).sum(axis=1))
        assert near[1] - near[0] <= 1e-9 * (1 + near[1] + np.square(problem.X[row].astype(float)).sum())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_do_not_depend_on_blocks(layout, monkeypatch):
    X = cloud(500, 7)
    results = []
    for work in (1 << 23, 1):
        monkeypatch.setattr("shoal.data.rows.SUBSET_BLOCK_MULTIPLICATIONS", work)
        with on_threads(Rows.of(find_source(layout(X))), 2) as rows:
            means = streaming_means.initial_means(rows, X[:9])
            infos = [means.update_batch(rows.subset(np.arange(a, a + 100), 9)) for a in range(0, 500, 100)]
        results.append((means.centers, infos))
    np.testing.assert_allclose(results[0][0], results[1][0], atol=1e-13)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_put_keeps_the_weights(layout):
    X = cloud(100, 4)
    with on_threads(Rows.of(find_source(layout(X)))) as rows:
        means = streaming_means.initial_means(rows, X[:3], np.array([1.0, 2.0, 3.0]))
        means.put(X[3:6])
        np.testing.assert_array_equal(means.centers, X[3:6])
        np.testing.assert_array_equal(means.weight_sums, [1, 2, 3])
        labels, distances = means.update_sequential(rows.convert(layout(X[3:4])), np.ones(1))
    assert (labels[0], distances[0]) == (0, pytest.approx(0, abs=1e-15))
