"""Compare the kernels for packed bits with NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.data.bits import build_slice_tables, packed
from shoal.kernels import bits, slices
from tests import naive


def draw(n, r, seed, share=0.5):
    return np.random.default_rng(seed).random((n, r)) < share


@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 400), st.integers(0, 1000))
def test_nearest(n, k, r, seed):
    B, C = draw(n, r, seed), draw(k, r, seed + 1)
    labels, far = np.empty((2, n), np.int32)
    bits.nearest(packed(B), np.ascontiguousarray(packed(C).T), labels, far)
    expected = naive.hamming(B, C)
    np.testing.assert_array_equal(labels, expected.argmin(axis=1))
    np.testing.assert_array_equal(far, expected.min(axis=1))


def test_nearest_of_many_centers_breaks_ties_by_index():
    B, C = draw(20, 128, 0), draw(5000, 128, 1)
    C[[17, 4000]] = B[0]
    labels, far = np.empty((2, 20), np.int32)
    bits.nearest(packed(B), np.ascontiguousarray(packed(C).T), labels, far)
    np.testing.assert_array_equal(labels, naive.hamming(B, C).argmin(axis=1))
    assert (labels[0], far[0]) == (17, 0)


@pytest.mark.parametrize("r", [1, 64, 65, 200])
def test_pairs_and_ones(r):
    B, C = draw(30, r, 0), draw(7, r, 1)
    rows, ids = np.repeat(np.arange(30), 7), np.tile(np.arange(7), 30)
    far, ones = np.empty(210), np.empty(30)
    bits.pair_distances(packed(B), rows, ids, np.ascontiguousarray(packed(C).T), far)
    bits.ones(packed(B), ones)
    np.testing.assert_array_equal(far.reshape(30, 7), naive.hamming(B, C))
    np.testing.assert_array_equal(ones, B.sum(axis=1))


@pytest.mark.parametrize("r", [1, 63, 64, 100])
def test_moves(r):
    rng = np.random.default_rng(0)
    B, w = draw(40, r, 0), rng.integers(0, 3, 40).astype(float)
    old, new = rng.integers(-1, 4, 40).astype(np.int32), rng.integers(0, 4, 40).astype(np.int32)
    sums, weight_sums, squares, counts = np.zeros((4, r)), np.zeros(4), np.zeros(4), np.zeros(4, np.int64)
    bits.add_moves(packed(B), w, old, new, np.arange(4, dtype=np.int32), sums, weight_sums, squares, counts)
    for j in range(4):
        sign = np.where(new == old, 0, (new == j) * 1 - (old == j))
        np.testing.assert_array_equal(sums[j], (sign * w) @ B)
        assert (weight_sums[j], squares[j]) == ((sign * w).sum(), (sign * w) @ B.sum(axis=1))
        assert counts[j] == (sign * (w > 0)).sum()


@pytest.mark.parametrize("r", [5, 130])
def test_energy_reduction_of_a_new_center(r):
    rng = np.random.default_rng(0)
    B, mass, least = draw(50, r, 0), rng.random(50), rng.integers(0, r, 50).astype(float)
    Z, tried, out = np.ascontiguousarray(packed(B).T), np.array([3, 49]), np.empty(2)
    bits.saved(Z, tried, mass, least, out)
    far = naive.hamming(B, B[tried])
    np.testing.assert_allclose(out, mass @ np.maximum(least[:, None] - far, 0))
    bits.lower_least(Z, 3, least := least.copy())
    np.testing.assert_array_equal(least, np.minimum(least, far[:, 0]))


@pytest.mark.parametrize("r", [1, 63, 64, 65, 128, 190, 256])
@pytest.mark.parametrize("k", [154, 256, 257 + 60, 700])
def test_slices(r, k):
    """Include ties and Hamming distances from 0 to all bits."""
    C = draw(k, r, 1)
    B = np.concatenate([draw(300, r, 0), C[::7], ~C[::9], draw(40, r, 2, 0.05)])
    tables = build_slice_tables(packed(C))
    assert len(tables) == -(-r // 64)
    labels, far = np.empty((2, len(B)), np.int32)
    slices.nearest(packed(B), tables, labels, far)
    expected = naive.hamming(B, C)
    np.testing.assert_array_equal(labels, expected.argmin(axis=1))
    np.testing.assert_array_equal(far, expected.min(axis=1))


def test_no_slices_for_few_centers_or_long_codes():
    for k, r in ((100, 64), (300, 64), (256, 300)):
        assert build_slice_tables(packed(draw(k, r, 0))) == ()
