"""Compare the dense kernels with NumPy, at widths and lengths around the boundaries of their unrolled loops and tiles."""

import numpy as np
import pytest

from shoal.data.blocks import FUSED_MAX_COLUMNS, DenseBlock, rounding, slack_of
from shoal.fit.partition import label_block
from shoal.kernels import dense
from tests import naive
from tests.strategies import cloud

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 16, FUSED_MAX_COLUMNS, FUSED_MAX_COLUMNS + 1, 130]
LENGTHS = [1, 2, dense.TILE - 1, dense.TILE, dense.TILE + 1, 1000]
COUNTS = [1, 2, 3, 8, 33]
DTYPES = [np.float32, np.float64]


def grid(n, d, seed=0, dtype=np.float64):
    """Return integer rows: sums are exact in any order, so results must be bitwise identical."""
    return np.random.default_rng(seed).integers(-4, 5, (n, d)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", WIDTHS)
class TestDistances:
    def test_pairs(self, d, dtype):
        X, C = cloud(50, d, 1, dtype), cloud(9, d, 2, dtype)
        rows, ids = np.divmod(np.arange(450), 9)
        out = np.empty(450)
        dense.pair_distances(X, rows, ids, C, out)
        np.testing.assert_allclose(out.reshape(50, 9), naive.distances(X, C), rtol=1e-13)

    def test_norms(self, d, dtype):
        X = cloud(50, d, 1, dtype)
        out = np.empty(50)
        dense.squared_norms(X, out)
        np.testing.assert_allclose(out, (X.astype(float) ** 2).sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", COUNTS)
class TestTwoBest:
    def check(self, X, C, run):
        labels, (best, second) = np.empty(len(X), np.int32), np.empty((2, len(X)), X.dtype)
        run(labels, best, second)
        exact = naive.two_best(X, C)
        np.testing.assert_array_equal(labels, naive.labels(X, C), f"{len(X)} rows")
        np.testing.assert_array_equal(np.column_stack([best, second]), exact, f"{len(X)} rows")

    @pytest.mark.parametrize("d", [1, 3, 4, 17])
    def test_narrow(self, d, k, dtype):
        C = grid(k, d, 2, dtype)
        z2 = (C * C).sum(axis=1)
        for n in LENGTHS:
            X = grid(n, d, 1, dtype)
            self.check(X, C, lambda *out, X=X: dense.two_best_narrow(X, -2 * C, z2, *out))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", WIDTHS)
class TestNearest:
    """Nearest centroids of `DenseBlock`, which all methods use."""

    def test_random_rows(self, d, dtype):
        for k in COUNTS:
            X, C = cloud(500, d, 1, dtype), cloud(k, d, 2, dtype)
            np.testing.assert_array_equal(DenseBlock(X).nearest(DenseBlock.prepare(C)), naive.labels(X, C), f"k={k}")

    def test_ties_go_to_the_lowest_index(self, d, dtype):
        for k in COUNTS:
            X, C = grid(500, d, 1, dtype), grid(k, d, 2, dtype)
            C[k // 2 :] = C[: k - k // 2]  # duplicates
            np.testing.assert_array_equal(DenseBlock(X).nearest(DenseBlock.prepare(C)), naive.labels(X, C), f"k={k}")

    def test_centers_closer_than_the_rounding_of_scores(self, d, dtype):
        for k in COUNTS:
            rng = np.random.default_rng(0)
            base = 100 + cloud(1, d, 2)
            C = (base + 1e-4 * rng.normal(size=(k, d))).astype(dtype)
            X = (base + 1e-4 * rng.normal(size=(300, d))).astype(dtype)
            np.testing.assert_array_equal(DenseBlock(X).nearest(DenseBlock.prepare(C)), naive.labels(X, C), f"k={k}")

    def test_scores_minus_slack_are_lower_bounds(self, d, dtype):
        for k in COUNTS:
            X, C = 10 + cloud(200, d, 1, dtype), 10 + cloud(k, d, 2, dtype)
            block, centers = DenseBlock(X), DenseBlock.prepare(C)
            scores = block.scores(centers, slice(None)).astype(float)
            exact = (C.astype(float) ** 2).sum(axis=1) - 2 * X.astype(float) @ C.astype(float).T
            norms2 = block.squared_norms()[:, None]
            assert (scores - slack_of(norms2, X.dtype, d) <= exact).all(), f"k={k}"
            assert (scores >= exact - 2 * rounding(X.dtype, d) * (norms2 + centers.norms2)).all(), f"k={k}"

    def test_one_distant_center_does_not_widen_the_margin(self, d, dtype):
        """If scores left most rows undecided, labels would still be right, but every distance would be computed."""
        for k in COUNTS:
            X, C = cloud(500, d, 1, dtype), cloud(k + 2, d, 2, dtype)
            C[-1] = 1e6
            centers = DenseBlock.prepare(C)
            labels, (best, second) = np.empty(500, np.int32), np.empty((2, 500), dtype)
            dense.two_best_narrow(X, centers.Z, centers.z2, labels, best, second)
            margin = 2 * rounding(X.dtype, d) * (DenseBlock(X).squared_norms() + centers.norms2[labels])
            assert np.mean(second - best <= margin) < 0.1, f"k={k}"


@pytest.mark.parametrize("dtype", DTYPES)
class TestMoves:
    def rows(self, dtype):
        rng = np.random.default_rng(0)
        return cloud(300, 5, dtype=dtype), rng.integers(0, 4, 300).astype(float), rng.integers(0, 9, (2, 300)).astype(np.int32)

    def sums(self, X, weights, labels):
        chosen = weights[:, None] * (labels[:, None] == np.arange(9))
        squares = (X.astype(float) ** 2).sum(axis=1)
        return chosen.T @ X.astype(float), chosen.sum(axis=0), chosen.T @ squares, (chosen > 0).sum(axis=0)

    def test_reassigned_rows_change_both_sums(self, dtype):
        X, weights, (old, new) = self.rows(dtype)
        found = self.sums(X, weights, old)
        moves = DenseBlock(X).moves(weights, old, new, 9, recompute=False)
        moves.add_to(*found)
        for part, expected in zip(found, self.sums(X, weights, new), strict=True):
            np.testing.assert_allclose(part, expected, atol=1e-12)
        assert moves.moved == (old != new).sum()

    def test_recompute_adds_every_row(self, dtype):
        X, weights, (old, new) = self.rows(dtype)
        found = np.zeros((9, 5)), np.zeros(9), np.zeros(9), np.zeros(9, np.int64)
        moves = DenseBlock(X).moves(weights, old, new, 9, recompute=True)
        moves.add_to(*found)
        for part, expected in zip(found, self.sums(X, weights, new), strict=True):
            np.testing.assert_allclose(part, expected, atol=1e-12)
        assert moves.moved == (old != new).sum()

    def test_no_reassigned_rows(self, dtype):
        X, weights, (old, _) = self.rows(dtype)
        moves = DenseBlock(X).moves(weights, old, old, 9, recompute=False)
        assert (moves.moved, len(moves.ids)) == (0, 0)

    def test_label_block(self, dtype):
        X, weights, (old, labels) = self.rows(dtype)
        centers = DenseBlock.prepare(X[:9])
        share = label_block(DenseBlock(X), labels, old, weights, centers, True)
        np.testing.assert_array_equal(labels, naive.labels(X, X[:9]))
        assert (share.rows, share.distances) == (300, 2700)


@pytest.mark.parametrize("dtype", DTYPES)
def test_column_moments(dtype):
    X, weights, origin = cloud(500, 4, dtype=dtype), np.random.default_rng(0).random(500), np.arange(4.0)
    sums, squares, largest = np.zeros((3, 4))
    dense.column_moments(X, weights, origin, 0.5, sums, squares, largest)
    e = (X - origin) / 2
    np.testing.assert_allclose(sums, weights @ e)
    np.testing.assert_allclose(squares, weights @ e**2)
    np.testing.assert_array_equal(largest, np.abs(e).max(axis=0))
