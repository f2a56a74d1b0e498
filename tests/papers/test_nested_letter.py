"""The algorithms of Newling and Fleuret (2016) against their oracles."""

import numpy as np
import pytest
from scipy import sparse

from shoal.papers import nested
from tests.papers import oracles
from tests.strategies import blobs, cloud

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])


def equal_steps(X, k, rho, b, layout=np.asarray, test=True, most=40):
    oracle, n_steps = oracles.NMBatch(X, k, rho, b, test), 0
    for state in nested.nmbatch_iterations(layout(X), k, rho, b=b, test=test, max_iter=most):
        size = len(oracle.M)
        done = oracle.step()
        n_steps += 1
        last = state.history[-1]
        assert (last.b, last.distances) == (size, oracle.distances)
        np.testing.assert_allclose(state.c, oracle.c, atol=1e-6)
        np.testing.assert_array_equal(state.v, oracle.v)
        np.testing.assert_array_equal(state.a[:size], [oracle.a[i] for i in range(size)])
        np.testing.assert_allclose(state.d[:size], [oracle.d[i] for i in range(size)], atol=1e-6)
        np.testing.assert_allclose(state.p, oracle.p, atol=1e-6)
        np.testing.assert_allclose(state.sse, oracle.sse, atol=1e-5)
    assert done or n_steps == most
    return state


@LAYOUTS
@pytest.mark.parametrize(("rho", "test"), [(100.0, True), (1.0, True), (10.0, False)])
def test_each_iteration_equals_the_oracle(layout, rho, test):
    state = equal_steps(cloud(90, 3), 5, rho, 20, layout, test)
    assert state.history[-1].b == 90


def test_one_row_clusters_and_empty_clusters():
    X = cloud(60, 2)
    X[3] = [-40.0, 40.0]  # a cluster of one row, which starts it
    X[4] = X[5] = [40.0, 40.0]  # equal starts: the later one stays without rows
    state = equal_steps(X, 6, 100.0, 10)
    assert state.v[3] == 2  # the vote of the start and that of the row
    assert state.v[5] == 1  # the vote of the start alone
    np.testing.assert_array_equal(state.c[5], X[5])
    assert state.history[-1].b == 60


def test_a_batch_of_one_row_and_one_cluster():
    equal_steps(cloud(9, 2), 1, 100.0, 1)
    equal_steps(cloud(1, 2), 1, 100.0, 5)


def test_bounds_save_distances_and_change_nothing():
    X = nested.shuffled(blobs(2000, 4, 8, spread=1.0)[0], seed=1)
    bounded, plain = (nested.nmbatch(X, 8, b=200, test=test) for test in (True, False))
    np.testing.assert_allclose(bounded.c, plain.c)
    assert bounded.history[-1].distances < 0.7 * plain.history[-1].distances
    assert [step.b for step in bounded.history] == [step.b for step in plain.history]
    assert (bounded.l <= np.linalg.norm(X[:, None] - bounded.c, axis=2) + bounded.p + 1e-9).all()


@LAYOUTS
def test_mini_batches_equal_the_oracle(layout):
    X, rng = cloud(50, 3), np.random.default_rng(3)
    c, v = oracles.mbatch(X, 4, [rng.choice(50, 10, replace=False, shuffle=False) for _ in range(5)])
    found = nested.mbatch_iterations(layout(X), 4, b=10, seed=3)
    for _ in range(5):
        centers, votes, cost = next(found)
    np.testing.assert_allclose(centers, c)
    np.testing.assert_array_equal(votes, v)
    assert cost.distances == 5 * 10 * 4
    np.testing.assert_allclose(nested.mbatch(layout(X), 4, b=10, seed=3, T=5), c)


def test_lloyd():
    X, _ = blobs(100, 2, 3)
    *_, (c, cost) = nested.lloyd(X, 3)
    labels = np.linalg.norm(X[:, None] - c, axis=2).argmin(axis=1)
    np.testing.assert_allclose(c, [X[labels == j].mean(axis=0) if (labels == j).any() else X[j] for j in range(3)])
    assert cost.n_changed == 0


def test_too_many_clusters_are_rejected():
    with pytest.raises(ValueError, match="k must be from 1 to the number of rows, 5, but is 6"):
        nested.nmbatch(cloud(5, 2), 6)
