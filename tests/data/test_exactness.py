"""Columns that a frame rounds, compared with exact arithmetic, and the frames that are chosen instead."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from shoal.data.blocks import DenseBlock, SparseBlock
from shoal.data.exactness import fallbacks, find_rounding, holds, moved
from shoal.data.frame import Frame
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.data.statistics import measure
from shoal.execution.threads import on_threads

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def rounds(x, shift, dtype):
    """Return whether the dtype does not represent x - shift exactly."""
    exact = Fraction(float(x)) - Fraction(float(shift))
    return Fraction(float(dtype.type(float(exact)))) != exact


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("seed", range(5))
def test_columns_that_round(seed, dtype, layout):
    rng = np.random.default_rng(seed)
    shift = np.round(rng.normal(size=30) * 1000) * 2.0 ** rng.integers(-12, 12, 30)
    rows = (shift * rng.choice([1, 0.75, 1e-3, 2.5], 30) + rng.normal(size=(2, 30))).astype(dtype)
    rows[rows == 0] = 1
    found = find_rounding(layout(rows), Frame(shift))
    for flags, kind in ((found.single, SINGLE), (found.double, DOUBLE)):
        np.testing.assert_array_equal(flags, [any(rounds(x, s, kind) for x in c) for c, s in zip(rows.T, shift, strict=True)])
    assert found.single.any() == (dtype is not np.int16)


def test_a_shifted_column_must_be_stored():
    rows = sparse.csr_array(np.array([[8.0, 0, 1], [8, 9, 0]]))
    np.testing.assert_array_equal(find_rounding(rows, Frame(np.array([8.0, 8, 0]))).double, [False, True, False])


def test_numbers_that_underflow_when_scaled():
    rows = np.array([[1e30, 1e-20]], np.float32)
    np.testing.assert_array_equal(find_rounding(rows, Frame(exponent=-100)).single, [False, True])
    assert not find_rounding(rows, Frame(exponent=-100)).double.any()


@pytest.mark.parametrize(("kind", "layout"), [(DenseBlock, np.asarray), (SparseBlock, sparse.csr_array)])
def test_rounding_errors_of_the_same_sign(kind, layout):
    """In a long sum of equal numbers, rounding errors do not cancel."""
    x, *centers = np.array([1.470784306526184, 1.4651274681091309, 1.5103822946548462], np.float32)
    X, C = (np.repeat(np.array(values)[:, None], 1_000_000, axis=1) for values in ([x, x], centers))
    nearest = np.abs(np.subtract(centers, x, dtype=np.float64)).argmin()
    np.testing.assert_array_equal(kind(layout(X)).nearest(kind.prepare(C)), nearest)


def test_fallback_frames():
    rows = Rows.of(find_source(np.ones((3, 2), np.float32)), frame=Frame(np.array([1.0, 0]), 3))
    ways = fallbacks(rows)
    assert [(way.frame.shift is None, way.frame.exponent, way.dtype) for way in ways] == [
        (False, 3, SINGLE),
        (False, 3, DOUBLE),
        (True, 3, DOUBLE),
    ]
    assert len(fallbacks(ways[2])) == 1
    assert holds(Frame(unit=True), np.ones((1, 2)), SINGLE)
    C = np.array([[4.0, 5.0]], np.float32)
    np.testing.assert_array_equal(moved(C, rows.frame, ways[2].frame, DOUBLE), [[5.0, 5.0]])
    np.testing.assert_array_equal(moved(sparse.csr_array(C), rows.frame, ways[2].frame, DOUBLE).toarray(), [[5.0, 5.0]])


@pytest.mark.parametrize(
    ("column", "shifted", "dtype"),
    [
        (np.full(200, 1000.5), True, SINGLE),  # exact
        (np.r_[np.full(180, 1000.0), 0.1 * np.arange(20)], False, SINGLE),  # not exact, but near enough to the origin
        (np.r_[np.full(9980, 1e3), 0.1 * np.arange(20)], True, DOUBLE),  # exact in float64 only
        (np.r_[np.full(9980, 1e3), 1e-9 * np.arange(20)], False, DOUBLE),  # exact in neither
    ],
)
def test_the_frame_rounds_no_row(column, shifted, dtype):
    rows = np.column_stack([column, np.tile([0.0, 1.0], len(column) // 2)]).astype(np.float32)
    with on_threads(Rows.of(find_source(rows))) as opened:
        found = measure(opened)
    assert (found.frame.shift is not None, found.dtype) == (shifted, dtype)
    assert holds(found.frame, rows, found.dtype)
