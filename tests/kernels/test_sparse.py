"""Compare the sparse kernels, called by `SparseBlock`, with the dense kernels and NumPy."""

import numpy as np
import pytest
from scipy import sparse

from shoal.data import blocks
from shoal.data.blocks import DenseBlock, SparseBlock
from shoal.kernels import sparse as sparse_kernels
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


def power_law(n, d, length, dtype, seed=0):
    """Return rows whose columns occur with a frequency of about 1 / rank, like words."""
    rng = np.random.default_rng(seed)
    columns = np.minimum(np.exp(rng.random((n, length)) * np.log(d)).astype(int) - 1, d - 1)
    X = sparse.csr_array((rng.random(n * length), columns.ravel(), np.arange(n + 1) * length), shape=(n, d))
    X.sum_duplicates()
    return X.astype(dtype)


@DTYPES
@pytest.mark.parametrize("share", [0, 1 / 16, 1])
@pytest.mark.parametrize("k", [1, 15, 16, 90])
def test_columns_in_lists_and_in_a_table(monkeypatch, k, share, dtype):
    """Some columns have an entry in most centroids, most of them in hardly any, and some in none."""
    monkeypatch.setattr(blocks, "MAX_LISTED_SHARE", share)
    monkeypatch.setattr(blocks, "MAX_CENTERS_IN_TABLE", 0)
    monkeypatch.setattr(blocks, "ENTRIES_AT_ONCE", 2000)
    X, C = power_law(300, 700, 9, dtype), power_law(max(k, 2), 700, 40, dtype, seed=1)[:k].toarray()
    C[0] = 0
    block, centers = SparseBlock(X), SparseBlock.prepare(C)
    listed = np.diff(centers.Z.starts) > 0
    in_table = centers.Z.place < len(centers.Z.table) - 1
    assert not (listed & in_table).any()
    np.testing.assert_array_equal(listed | in_table, C.any(axis=0))
    assert listed.any() == (k > 1 and share * k >= 1)
    assert in_table.any() == (k > 1 and share < 1)
    np.testing.assert_array_equal(block.nearest(centers), naive.labels(X.toarray(), C))
    exact = naive.distances(X.toarray(), C)
    error = blocks.rounding(np.dtype(dtype), 700) * (block.squared_norms()[:, None] + centers.norms2)
    for part in (slice(None), slice(k // 3, k // 2 + 1)):
        found = block.scores(centers, part).astype(float) + block.squared_norms()[:, None]
        assert (np.abs(found - exact[:, part]) <= 2 * error[:, part]).all()
        assert (found <= exact[:, part] + error[:, part]).all()


@DTYPES
@pytest.mark.parametrize("share", [0, 1])
@pytest.mark.parametrize("k", [5, 40])
def test_rows_longer_than_one_sum(monkeypatch, k, share, dtype):
    """Scores are summed in parts of at most `ENTRIES_PER_SUM` entries."""
    monkeypatch.setattr(blocks, "MAX_LISTED_SHARE", share)
    monkeypatch.setattr(blocks, "MAX_CENTERS_IN_TABLE", 0)
    rng, part = np.random.default_rng(0), sparse_kernels.ENTRIES_PER_SUM
    X = sparse.vstack([power_law(10, 3 * part, n, dtype) for n in (1, 4 * part, 40 * part)], format="csr")
    X = sparse.vstack(
        [X, *(rng.normal(size=(1, 3 * part)).astype(dtype) * (np.arange(3 * part) < part + n) for n in (-1, 0, 1, part))]
    )
    X = sparse.csr_array(X)
    C = np.ascontiguousarray(rng.normal(size=(k, 3 * part)) * (rng.random((k, 3 * part)) < 0.5), dtype)
    block, centers, exact = SparseBlock(X), SparseBlock.prepare(C), naive.distances(X.toarray(), C)
    assert (len(centers.Z.ids) > 0) == share
    np.testing.assert_array_equal(block.nearest(centers), naive.labels(X.toarray(), C))
    error = np.finfo(dtype).eps * 200 * (block.squared_norms()[:, None] + centers.norms2)
    found = block.scores(centers._replace(z2=centers.norms2.astype(dtype)), slice(1, k)) + block.squared_norms()[:, None]
    assert (np.abs(found - exact[:, 1:]) <= error[:, 1:]).all()


def test_nearly_equal_centroids_are_told_apart():
    """Scores in float32 do not decide between centroids that differ in the last digits."""
    X = power_law(200, 500, 9, np.float32)
    C = np.repeat(X[:20].toarray(), 2, axis=0)
    C[1::2] *= 1 + np.finfo(np.float32).eps
    np.testing.assert_array_equal(SparseBlock(X).nearest(SparseBlock.prepare(C)), naive.labels(X.toarray(), C))


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
