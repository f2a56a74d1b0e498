"""Moments of columns against NumPy in extended precision, for blocks of dense and sparse rows."""

import numpy as np
import pytest
from scipy import sparse

from shoal.report.column_moments import cluster_sums, column_moments, merge_moments
from tests.strategies import cloud


def moments_of_blocks(X, size):
    total = None
    for a in range(0, X.shape[0], size):
        total = merge_moments(total, column_moments(X[a : a + size]))
    return total


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("size", [1, 7, 500])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e8])
def test_moments_match_numpy(layout, size, offset):
    X = cloud(500, 4) + offset * np.array([1, -1, 1, 0])
    X[::3, 3] = 0
    found, wide = moments_of_blocks(layout(X), size), X.astype(np.longdouble)
    assert found.n == 500
    np.testing.assert_allclose(found.means, wide.mean(axis=0).astype(float), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(np.sqrt(found.squares / 500), wide.std(axis=0).astype(float), rtol=1e-6)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8 + 0.1])
def test_a_constant_column_has_no_deviation(layout, value):
    found = moments_of_blocks(layout(np.full((10_000, 1), value)), 999)
    assert np.sqrt(found.squares / found.n) <= np.finfo(float).eps * value


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_cluster_sums(layout):
    X, labels = cloud(50, 3), np.arange(50) % 4
    expected = [X[labels == j].sum(axis=0) for j in range(5)]
    np.testing.assert_allclose(cluster_sums(layout(X), labels, 5), expected)
