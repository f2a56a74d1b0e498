"""The algorithms of the mini-batch spectral clustering paper against their oracles."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from shoal.papers.spectral import (
    authors,
    gradient_variance,
    htild,
    laplacian_by_columns,
    mini_batch_spectral,
    normalized_laplacian,
    nystrom,
    power_method,
    random_vectors,
    rbf_affinity,
    shuffled_vectors,
)
from tests import naive
from tests.strategies import blobs, cloud

X = cloud(80, 3)
L = naive.laplacian(naive.affinity(X, 2.0))
VECTORS = {
    "random": lambda n, m, N_r, T, seed=0: random_vectors(n, m / N_r / n, N_r, T, seed),
    "shuffled": shuffled_vectors,
}
FORMS = pytest.mark.parametrize(
    ("kind", "m", "N_r"), [("shuffled", 20, 20), ("shuffled", 20, 5), ("shuffled", 10, 4), ("random", 20, 4), ("random", 10, 4)]
)


def random_start(n, k, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, k)))[0]


@pytest.mark.parametrize("squared", [True, False])
def test_affinity_and_laplacian_equal_the_oracle(squared):
    A = rbf_affinity(X, 2.0, squared=squared)
    distances2 = naive.distances(X, X)
    expected = np.exp(-(distances2 if squared else np.sqrt(distances2)) / 4) * (1 - np.eye(80))
    np.testing.assert_allclose(A, expected, atol=1e-14)
    np.testing.assert_allclose(normalized_laplacian(A), naive.laplacian(expected), atol=1e-14)


@FORMS
def test_gradient_equals_the_oracle(kind, m, N_r):
    """The oracle points uphill."""
    W = random_start(80, 3)
    for vectors in VECTORS[kind](80, m, N_r, 3):
        np.testing.assert_allclose(htild(L, vectors, W), -naive.stochastic_gradient(L, vectors.toarray(), W), atol=1e-12)


def test_gradient_without_any_entry_is_zero():
    assert not htild(L, csr_array((3, 80)), random_start(80, 3)).any()


@FORMS
@pytest.mark.parametrize("T", [1, 2, 10])
def test_steps_equal_the_oracle(kind, m, N_r, T):
    W, batches, lambda_ = random_start(80, 3), list(VECTORS[kind](80, m, N_r, T)), 0.5 / np.sqrt(80)
    found = list(mini_batch_spectral(L, W, batches, lambda_))
    assert len(found) == T
    expected = naive.mini_batch_spectral(L, W, [R.toarray() for R in batches], lambda_)
    np.testing.assert_allclose(found[-1], expected, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_computed_when_used_change_nothing(dtype):
    W, batches = random_start(80, 3), list(random_vectors(80, 0.05, 5, 5))
    *_, expected = mini_batch_spectral(L, W, batches, 0.1)
    with laplacian_by_columns(X.astype(dtype), 2.0) as operator:
        *_, found = mini_batch_spectral(operator, W, batches, 0.1)
    np.testing.assert_allclose(found, expected, atol=1e-3 if dtype == np.float32 else 1e-9)


def test_degrees_may_be_estimated():
    with laplacian_by_columns(X, 2.0) as exact, laplacian_by_columns(X, 2.0, degree_columns=60) as estimated:
        assert not np.array_equal(exact.s, estimated.s)
        np.testing.assert_allclose(exact.s, estimated.s, rtol=0.5)


@pytest.mark.parametrize("kind", ["random", "shuffled"])
def test_converges_to_the_exact_eigenvectors(kind):
    rows, _ = blobs(300, 3, 4, spread=2.0)
    L = normalized_laplacian(rbf_affinity(rows, 6.0))
    U, _ = naive.leading(L, 4)
    path = list(mini_batch_spectral(L, random_start(300, 4), VECTORS[kind](300, 60, 60, 1000), 300**-0.5))
    angles = [naive.sines(U, path[t - 1]).max() for t in (4, 40, 1000)]
    assert angles[2] < angles[1] < angles[0]
    assert angles[2] < 0.06


@FORMS
def test_vectors_are_the_identity_in_the_mean(kind, m, N_r):
    n, T = 30, 3000
    batches = list(VECTORS[kind](n, m, N_r, T))
    assert np.mean([R.nnz for R in batches]) == pytest.approx(m, rel=0.02)
    mean = sum(R.T @ R for R in batches).toarray() / N_r / T
    np.testing.assert_allclose(mean, np.eye(n), atol=0.25)
    np.testing.assert_allclose(np.diag(mean).mean(), 1, atol=0.03)


def test_entries_of_random_vectors():
    (R,) = random_vectors(60, 4 / 60, 5, 1)
    np.testing.assert_allclose(np.abs(R.data), np.sqrt(60 / 4))
    assert set(np.sign(R.data)) == {-1, 1}
    (other,) = random_vectors(60, 4 / 60, 5, 1, seed=1)
    assert not np.array_equal(R.toarray(), other.toarray())


def test_shuffled_vectors_use_each_column_once_per_epoch():
    ids = [R.indices for R in shuffled_vectors(60, 20, 5, 6)]
    assert all(set(np.concatenate(epoch)) == set(range(60)) for epoch in (ids[:3], ids[3:]))
    assert not np.array_equal(ids[0], ids[3])


class TestVariance:
    @pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
    @pytest.mark.parametrize("N_r", [1, 4])
    def test_equals_that_of_a_simulation(self, p, N_r):
        rng = np.random.default_rng(0)
        L = naive.laplacian(naive.affinity(cloud(12, 2), 1.0))
        w = rng.normal(size=12)
        w /= np.linalg.norm(w)
        r = rng.choice([-1, 0, 1], (200_000 // N_r, N_r, 12), p=[p / 2, 1 - p, p / 2]) / np.sqrt(p)
        gradients = ((r @ w)[..., None] * (r @ L)).mean(axis=1)
        np.testing.assert_allclose(gradients.mean(axis=0), L @ w, atol=0.05)
        np.testing.assert_allclose(gradients.var(axis=0), gradient_variance(L, w, p, N_r), rtol=0.1)

    def test_is_within_the_bound_of_the_paper(self):
        L = naive.laplacian(naive.affinity(cloud(30, 2), 1.0))
        w = np.full(30, 30**-0.5)
        for p in (0.05, 0.3):
            assert (gradient_variance(L, w, p) <= (L @ w) ** 2 + (L**2).sum(axis=1) / p).all()

    @pytest.mark.parametrize(
        ("L", "w", "p"), [(np.ones((2, 3)), [1, 1], 0.5), (np.eye(2), [1], 0.5), (np.eye(2), [1, 0], 0), (np.eye(2), [1, 0], 2)]
    )
    def test_invalid_arguments(self, L, w, p):
        with pytest.raises(ValueError, match="must"):
            gradient_variance(L, w, p)


def test_power_method_equals_the_oracle():
    S = np.random.default_rng(0).normal(size=(80, 3))
    B = L @ (L @ (L @ S))
    U, _, _ = np.linalg.svd(B, full_matrices=False)
    np.testing.assert_allclose(naive.sines(power_method(L, S, 3), U), 0, atol=1e-6)
    np.testing.assert_allclose(authors.power(L, 3, 1, seed=0), power_method(L, S, 3))
    with laplacian_by_columns(X, 2.0) as operator:
        np.testing.assert_allclose(np.abs(authors.power(operator, 3, 1)), np.abs(authors.power(L, 3, 1)), atol=1e-9)


def test_nystrom_equals_the_oracle():
    K, order = naive.affinity(X, 2.0) + np.eye(80), np.random.default_rng(1).permutation(80)
    expected, _ = naive.nystrom(K, order[:20], 3)
    K = K[np.ix_(order, order)]
    found = np.empty((80, 3))
    found[order] = nystrom(K[:20, :20], K[:20, 20:], 3)
    np.testing.assert_allclose(np.abs(found.T @ expected), np.eye(3), atol=1e-6)


def test_nystrom_of_all_rows_is_exact():
    K = naive.affinity(X, 2.0) + np.eye(80)
    U, _ = naive.leading(naive.laplacian(K), 3)
    np.testing.assert_allclose(naive.sines(nystrom(K, np.empty((80, 0)), 3), U), 0, atol=1e-6)


class TestAuthors:
    """Mini-batch spectral clustering as its authors ran it, line by line from a description of their program."""

    def test_gradients_use_columns_one_by_one(self):
        """The product of sampled columns and rows, divided by p and averaged over the subsets."""
        W = random_start(80, 3)
        for vectors in authors.column_subsets(80, 2, seed=1, N_r=5, l=4):
            columns, LW = vectors.indices.reshape(5, 4), np.zeros((80, 3))
            for subset in columns:
                assert len(set(subset)) == 4
                LW += sum(np.outer(L[:, j], W[j]) for j in subset) / (4 / 80) / 5
            np.testing.assert_allclose(htild(L, vectors, W), -(LW - W @ (W.T @ LW)))

    def test_start_is_a_nystrom_embedding_of_unit_rows(self):
        V = authors.nystrom_embedding(X, 2.0, 3, 10, seed=4)
        order = np.random.default_rng(4).permutation(80)
        expected, _ = naive.nystrom(naive.affinity(X, 2.0) + np.eye(80), order[:10], 3)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(np.abs(V.T @ expected), np.abs(expected.T @ expected), atol=1e-5)

    def test_steps(self):
        W, _ = np.linalg.qr(authors.nystrom_embedding(X, 2.0, 3, 10, seed=0))
        M, path = np.zeros_like(W), list(authors.run(X, L, 2.0, 3, 4, seed=0))
        for vectors, found in zip(authors.column_subsets(80, 4, seed=0), path, strict=True):
            H = -naive.stochastic_gradient(L, vectors.toarray(), W)
            M += H**2
            W, _ = np.linalg.qr(W - 0.0025 * H / (1e-6 + np.sqrt(M)))
            np.testing.assert_allclose(found @ found.T, W @ W.T, atol=1e-9)

    def test_clusters(self):
        rows, y = blobs(200, 3, 3, spread=1.0)
        A = rbf_affinity(rows, 4.0)
        *_, W = authors.run(rows, normalized_laplacian(A), 4.0, 3, 100)
        labels = authors.cluster(W, A.sum(axis=1), 3)
        assert len(set(zip(y, labels, strict=True))) == 3
