"""Random orders, with and without an eye for what rows hold."""

import numpy as np
import pytest
from scipy import sparse

from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit.random_streams import generator
from shoal.fit.shuffle import Order, keys_of, shuffled
from tests.strategies import cloud


class TestOrder:
    @pytest.mark.parametrize("n", [*range(1, 20), 100, 1023, 1024, 1025, 20_000])
    def test_has_every_row_once(self, n):
        order = Order(n, generator(n)).first(n)
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
        np.testing.assert_array_equal(Order(n, generator(n)).first(n // 2), order[: n // 2])

    def test_depends_on_the_seed_and_is_uniform(self):
        """Each of 50 rows is at each of 50 places about 40 times in 2000 orders."""
        table = np.zeros((50, 50))
        for seed in range(2000):
            table[Order(50, generator(seed)).first(50), np.arange(50)] += 1
        assert 2200 < ((table - 40) ** 2 / 40).sum() < 2600  # chi-squared of 49 x 49 degrees of freedom

    def test_parts_are_computed_without_the_rest(self):
        assert len(np.unique(Order(10**12, generator(0)).first(1000))) == 1000


def keys(X):
    with on_threads(Rows.of(find_source(X)), 2) as rows:
        return keys_of(rows)


def order(X, seed=0, weights=None):
    with on_threads(Rows.of(find_source(X), weights)) as rows:
        return shuffled(rows, keys_of(rows), generator(seed))


def test_equal_rows_have_equal_keys_in_every_layout():
    X = np.random.default_rng(0).integers(-2, 3, (500, 4)).astype(np.float32)
    X[X == 0] = -0.0
    found = keys(X)
    _, names = np.unique(X, axis=0, return_inverse=True)
    assert len(np.unique(found)) == len(np.unique(names)) == len({*zip(found, names.ravel(), strict=True)})
    for other in (X.astype(float), X.astype(np.int8), np.asfortranarray(X), sparse.csr_array(X), X + 0.0):
        np.testing.assert_array_equal(keys(other), found)


@pytest.mark.parametrize("X", [np.arange(50_000.0)[:, None], np.eye(300), cloud(50_000, 2)], ids=["integers", "eye", "cloud"])
def test_different_rows_have_different_keys(X):
    assert len(np.unique(keys(X))) == len(X)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("values", [(-1, 1), (0, 1), (0, 2.0**-1000)], ids=["signs", "bits", "tiny"])
def test_rows_of_two_numbers_have_different_keys(layout, values):
    """The rows differ in one bit, or a few, of each entry."""
    X = np.random.default_rng(0).choice(np.float64(values), (100_000, 64))
    assert len(np.unique(keys(layout(X)))) == len(X)


@pytest.mark.parametrize("X", [np.arange(2000.0)[:, None], 2.0 ** np.arange(-999, 1000)[:, None], cloud(2000, 3)])
def test_order_is_random(X):
    ids = order(X)
    assert sorted(ids) == list(range(len(X)))
    assert abs(np.corrcoef(ids, np.arange(len(X)))[0, 1]) < 0.1
    assert abs(np.corrcoef(ids[1:], ids[:-1])[0, 1]) < 0.1
    assert not np.array_equal(ids, order(X, seed=1))


def test_order_does_not_depend_on_the_positions_of_rows():
    X, places = cloud(300, 3), np.random.default_rng(0).permutation(300)
    np.testing.assert_array_equal(X[order(X)], X[places][order(X[places])])


def test_rows_of_weight_zero_are_left_out():
    weights = np.arange(10) % 2.0
    assert sorted(order(cloud(10, 3), weights=weights)) == [1, 3, 5, 7, 9]
