"""Arrays are used again only once nothing refers to them."""

import numpy as np

from shoal.data.array_pool import MAX_ARRAYS, ArrayPool


def test_arrays_in_use_are_not_handed_out():
    pool, example = ArrayPool(), np.empty((3, 4), np.float32)
    arrays = [pool.empty_like(example) for _ in range(2 * MAX_ARRAYS)]
    assert len({a.ctypes.data for a in arrays}) == len(arrays)
    assert all((a.shape, a.dtype) == (example.shape, example.dtype) for a in arrays)


def test_unused_arrays_are_handed_out_again():
    pool, example = ArrayPool(), np.empty((3, 4))
    one, other = pool.empty_like(example), pool.empty_like(example)
    place = one.ctypes.data
    del one
    assert pool.empty_like(example).ctypes.data == place
    assert other.ctypes.data != place


def test_a_view_is_a_reference():
    pool, example = ArrayPool(), np.empty((3, 4))
    view = pool.empty_like(example)[1:, ::2].T
    assert not np.shares_memory(pool.empty_like(example), view)


def test_another_shape_or_type():
    pool = ArrayPool()
    pool.empty_like(np.empty((3, 4)))
    for other in (np.empty((3, 4), np.float32), np.empty(7)):
        assert pool.empty_like(other).shape == other.shape
        assert pool.empty_like(other).dtype == other.dtype
