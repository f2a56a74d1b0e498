"""The algorithms of Shen et al. (2017) and of their rivals against their oracles."""

import numpy as np
import pytest
from scipy import sparse

from shoal.papers import compressed
from shoal.papers.compressed import Reading, rivals
from tests.papers import oracles
from tests.strategies import blobs, cloud

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])


@LAYOUTS
@pytest.mark.parametrize(("alpha", "nu", "eta", "r"), [(10, 1, 0.001, 20), (0.5, 1, 0.01, 70), (1, 25, 0.1, 32)])
def test_each_round_equals_the_oracle(layout, alpha, nu, eta, r):
    X, rng = cloud(120, 5), np.random.default_rng(1)
    W, batches = rng.normal(size=(5, r)), [rng.choice(120, 40, replace=False) for _ in range(4)]
    C = X[:4] @ W > 0
    C[3] = C[2]  # the later of two equal codes begins without rows
    rounds = list(compressed.algorithm_1(layout(X), W, C, batches, alpha, nu, eta))
    for t, state in enumerate(rounds, 1):
        W_t, C_t, G, history = oracles.compressed(X, W, oracles.sign(C), batches[:t], alpha, nu, eta)
        np.testing.assert_allclose(state.W, W_t, atol=1e-12)
        np.testing.assert_array_equal(state.C, C_t > 0)
        np.testing.assert_array_equal(state.G, G)
        np.testing.assert_allclose((state.upper_bound, state.loss), history[-1])


@pytest.mark.parametrize("r", [7, 32, 33, 128])
def test_k_means_on_codes_equals_the_oracle(r):
    B = np.random.default_rng(0).random((60, r)) < 0.4
    start = np.vstack([B[:4], B[:1]])  # the last code is equal to the first, and stays without rows
    *_, (C, G) = compressed.bk_means(B, start)
    expected, labels = oracles.cluster_codes(oracles.sign(B), oracles.sign(start))
    np.testing.assert_array_equal(C, expected > 0)
    np.testing.assert_array_equal(G, labels)
    distances = compressed.assign(compressed.pack(B), C)[1]
    np.testing.assert_array_equal(distances, (C[G] != B).sum(axis=1))


def test_codes_are_packed_into_no_more_than_their_bits():
    assert compressed.pack(np.zeros((3, 32), bool)).nbytes == 12
    assert compressed.pack(np.zeros((3, 128), bool)).nbytes == 48


def test_equations():
    """(6), (9), (10), (14) and (15) by trying all codes."""
    rng = np.random.default_rng(0)
    X, W, own = rng.normal(size=(10, 4)), rng.normal(size=(4, 6)), rng.random((10, 6)) < 0.5
    candidates = oracles.sign(np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1).T)
    E, H = compressed.loss_augmented(X @ W, own, 2.0), compressed.encode(X, W)
    for i in range(10):
        scores = ((candidates - oracles.sign(own[i] - 0.5)) ** 2).sum(axis=1) + 2 * candidates @ W.T @ X[i]
        np.testing.assert_array_equal(E[i], candidates[scores.argmax()] > 0)
        np.testing.assert_array_equal(H[i], candidates[(candidates @ W.T @ X[i]).argmax()] > 0)
    step = sum(np.outer(X[i], 2.0 * E[i] - 2.0 * H[i]) for i in range(10))
    np.testing.assert_allclose(compressed.descend(X, W, own, 2.0, 0.1), W - 0.1 * step)
    mean = Reading(gradient="mean", alpha_in_gradient=True)
    np.testing.assert_allclose(compressed.descend(X, W, own, 2.0, 0.1, mean), W - 0.1 * 2 / 10 * step)
    norms = np.linalg.norm(W, axis=0)
    np.testing.assert_allclose(np.linalg.norm(compressed.project(W, 4.0), axis=0), np.minimum(norms, 2.0))


def test_the_bound_of_the_theorem():
    """(7): the surrogate is at least the loss, for any W."""
    rng = np.random.default_rng(0)
    for scale in (0.01, 1.0, 100.0):
        bound, loss = compressed.objectives(scale * rng.normal(size=(50, 9)), rng.random((50, 9)) < 0.5, 10.0)
        assert bound >= loss > 0


@pytest.mark.parametrize("patience", [1, 3])
def test_learning_ends_without_a_new_minimum(patience):
    rounds = [compressed.Round(None, None, None, bound, 0.0, 1) for bound in (5.0, 4.0, 4.5, 4.2, 3.9, 4.0, 4.1, 4.0, 1.0)]
    found = [state.upper_bound for state in compressed.until_converged(rounds, patience)]
    assert found == ([5.0, 4.0, 4.5] if patience == 1 else [5.0, 4.0, 4.5, 4.2, 3.9, 4.0, 4.1, 4.0])


@LAYOUTS
@pytest.mark.parametrize(
    "reading",
    [Reading(), Reading(clusters_on="h", majority=True, bias=True), Reading(project_first=True, batches_per_round=3)],
)
def test_both_stages(layout, reading):
    X, _ = blobs(400, 12, 3)
    found = compressed.ckm(layout(X), 3, 32, beta=0.5, seed=1, reading=reading)
    assert found.W.shape == (12 + reading.bias, 32)
    assert len(found.losses) == len(found.upper_bounds) >= compressed.letter.MIN_ROUNDS
    assert len(found.G) == 400
    again = compressed.ckm(layout(X), 3, 32, beta=0.5, seed=1, reading=reading)
    np.testing.assert_array_equal(found.G, again.G)


def test_the_subset_is_a_fraction_of_the_rows(monkeypatch):
    seen = []
    monkeypatch.setattr(
        compressed.letter, "random_batches", lambda n, *_: seen.append(n) or compressed.random_batches(n, 20, 0)
    )
    compressed.ckm(cloud(1000, 3), 2, 8, beta=0.07)
    compressed.ckm(cloud(1000, 3), 2, 8, beta=0.0001)
    assert seen == [70, 2]


def test_random_codes():
    X, y = blobs(300, 6, 3)
    labels = compressed.lsh_bk_means(X, 3, 64, seed=0)
    assert len(np.unique(labels)) > 1
    assert all(len(np.unique(labels[y == j])) < 3 for j in range(3))


@LAYOUTS
def test_landmarks_equal_the_oracle(layout):
    X, _ = blobs(60, 3, 3)
    Z = rivals.representation(layout(X), X[:10], 4)
    expected = oracles.lsc_embedding(X, X[:10], 4, 3)
    found = rivals.lsc_embedding(Z, 3)
    np.testing.assert_allclose(np.abs(found.T @ expected).sum(), np.abs(expected.T @ expected).sum(), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    np.testing.assert_allclose(Z.sum(axis=1), 1)


def test_lsc_runs():
    X, _ = blobs(300, 3, 3)
    labels = rivals.lsc_k(X, 3, p=30)
    assert len(labels) == 300
