"""Compare the kernels on packs of centroids with NumPy, around the sizes of tiles, packs and cached parts."""

import numpy as np
import pytest

from shoal.data.blocks import rounding
from shoal.kernels import tiles
from tests import naive
from tests.strategies import cloud

DTYPES = [np.float32, np.float64]


def grid(n, d, seed, dtype):
    """Return integer rows: sums are exact in any order, so results must be bitwise identical."""
    return np.random.default_rng(seed).integers(-4, 5, (n, d)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 7, 16, 17, 50])
def test_packs_hold_all_centroids(k, dtype):
    Z, z2 = cloud(k, 3, 1, dtype), cloud(1, k, 2, dtype)[0]
    packs, norms = tiles.pack(Z), tiles.pack_norms(z2)
    assert packs.shape[1:] == (3, tiles.lanes(dtype))
    np.testing.assert_array_equal(packs.transpose(0, 2, 1).reshape(-1, 3)[:k], Z)
    np.testing.assert_array_equal(norms.ravel()[:k], z2)
    assert np.isinf(norms.ravel()[k:]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 15, 33])
@pytest.mark.parametrize("d", [1, 4, 65])
class TestTwoBest:
    def run(self, X, C, guess):
        labels, (limits, second) = guess.astype(np.int32), np.empty((2, len(X)), X.dtype)
        z2 = (C * C).sum(axis=1)
        tiles.two_best_packed(
            X, rounding(X.dtype, X.shape[1]), C, tiles.pack(-2 * C), tiles.pack_norms(z2), labels, limits, second
        )
        return labels, limits, second

    @pytest.mark.parametrize("n", [1, tiles.ROWS - 1, tiles.ROWS, tiles.ROWS + 1, 2 * tiles.CACHED_ROWS + 1])
    def test_any_guess_gives_the_nearest(self, n, d, k, dtype):
        X, C = grid(n, d, 1, dtype), grid(k, d, 2, dtype)
        best, second = naive.two_best(X, C).T
        for guess in (np.full(n, -1), np.random.default_rng(0).integers(-1, k, n), naive.labels(X, C)):
            labels, limits, found = self.run(X, C, guess)
            np.testing.assert_array_equal(labels, naive.labels(X, C))
            assert (limits >= best).all()
            near = second <= limits
            np.testing.assert_array_equal(found[near], second[near])
            assert (found[~near] > limits[~near]).all()

    def test_the_limit_covers_rounding(self, d, k, dtype):
        X, C = 10 + cloud(300, d, 1, dtype), 10 + cloud(k, d, 2, dtype)
        exact = (C.astype(float) ** 2).sum(axis=1) - 2 * X.astype(float) @ C.astype(float).T
        _, limits, _ = self.run(X, C, np.full(300, -1))
        assert (exact.min(axis=1) <= limits).all()
        norms2 = (X.astype(float) ** 2).sum(axis=1) + (C.astype(float) ** 2).sum(axis=1).max()
        assert (limits <= exact.min(axis=1) + 20 * rounding(X.dtype, d) * norms2).all()
