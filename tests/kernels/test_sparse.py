"""Compare the sparse kernels, called by `SparseBlock`, with the dense kernels and NumPy."""

import numpy as np
import pytest
from scipy import sparse

from shoal.data.blocks import DenseBlock, SparseBlock
from tests import naive

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
INDICES = pytest.mark.parametrize("indices", [np.int32, np.int64])


def thin(n, d, dtype, indices=np.int32, density=0.2, seed=0):
    X = sparse.random_array((n, d), density=density, rng=np.random.default_rng(seed), dtype=dtype, format="csr")
    return sparse.csr_array((X.data, X.indices.astype(indices), X.indptr.astype(indices)), shape=X.shape)


@DTYPES
@INDICES
@pytest.mark.parametrize("d", [1, 7, 300])
class TestAgainstNumpy:
    def test_nearest(self, d, indices, dtype):
        X, C = thin(400, d, dtype, indices), thin(12, d, dtype, seed=1).toarray()
        np.testing.assert_array_equal(SparseBlock(X).nearest(SparseBlock.prepare(C)), naive.labels(X.toarray(), C))

    def test_pair_distances(self, d, indices, dtype):
        X, C = thin(60, d, dtype, indices), thin(12, d, dtype, seed=1).toarray()
        rows, ids = np.divmod(np.arange(720), 12)
        found = SparseBlock(X).pair_distances(rows, ids, SparseBlock.prepare(C))
        np.testing.assert_allclose(found.reshape(60, 12), naive.distances(X.toarray(), C), rtol=1e-9, atol=1e-25)

    def test_norms(self, d, indices, dtype):
        X = thin(60, d, dtype, indices)
        np.testing.assert_allclose(SparseBlock(X).squared_norms(), (X.toarray().astype(float) ** 2).sum(axis=1))

    def test_moves(self, d, indices, dtype):
        X, rng = thin(200, d, dtype, indices), np.random.default_rng(0)
        weights, (old, new) = rng.integers(0, 3, 200).astype(float), rng.integers(0, 5, (2, 200)).astype(np.int32)
        for recompute in (False, True):
            mine, theirs = ((np.zeros((5, d)), np.zeros(5), np.zeros(5), np.zeros(5, np.int64)) for _ in range(2))
            SparseBlock(X).moves(weights, old, new, 5, recompute).add_to(*mine)
            DenseBlock(X.toarray()).moves(weights, old, new, 5, recompute).add_to(*theirs)
            for one, other in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-12)


@DTYPES
def test_ties_go_to_the_lowest_index(dtype):
    rng = np.random.default_rng(0)
    X, C = rng.integers(-1, 2, (500, 6)).astype(dtype), rng.integers(-1, 2, (9, 6)).astype(dtype)
    C[5:] = C[:4]
    found = SparseBlock(sparse.csr_array(X)).nearest(SparseBlock.prepare(C))
    np.testing.assert_array_equal(found, naive.labels(X, C))


@DTYPES
def test_rows_without_entries(dtype):
    X, C = sparse.csr_array((5, 3), dtype=dtype), np.array([[1, 0, 0], [0, 0.5, 0]], dtype)
    block, centers = SparseBlock(X), SparseBlock.prepare(C)
    np.testing.assert_array_equal(block.nearest(centers), np.ones(5))
    np.testing.assert_array_equal(block.pair_distances(np.arange(5), np.ones(5, int), centers), np.full(5, 0.25))
