"""The algorithm of the compressed k-means paper against its oracle."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from shoal.binary.sample import Centered
from shoal.papers.compressed_kmeans import (
    BATCH_SIZE,
    MAX_ROUNDS,
    algorithm_1,
    center,
    compressed_kmeans,
    descend,
    loss_augmented,
    project,
    random_batches,
    random_start,
    sign,
    until_converged,
)
from tests import naive
from tests.strategies import blobs, cloud, hidden_clusters

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])


@pytest.mark.parametrize(("alpha", "nu", "eta"), [(10, 1, 0.001), (0.5, 1, 0.01), (1, 25, 0.1)])
def test_rounds_equal_the_oracle(alpha, nu, eta):
    X = cloud(300, 7) - cloud(300, 7).mean(axis=0)
    rng = np.random.default_rng(1)
    W, batches = rng.normal(size=(7, 20)), [rng.choice(300, BATCH_SIZE, replace=False) for _ in range(6)]
    C = sign(X[:5] @ W)
    rounds = list(algorithm_1(X, W, C, batches, alpha, nu, eta))
    W, C, expected = naive.compressed(X, W, C > 0, batches, alpha, nu, eta)
    np.testing.assert_allclose(rounds[-1].W, W, atol=1e-12)
    np.testing.assert_array_equal(rounds[-1].C > 0, C)
    np.testing.assert_allclose([(state.upper_bound, state.loss) for state in rounds], expected)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # rows with few distinct codes
@LAYOUTS
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_both_stages_equal_the_oracle(layout, dtype):
    X = blobs(600, 20, 4)[0].astype(dtype)
    found = compressed_kmeans(layout(X), 4, 20, alpha=1.0, seed=3)
    mean = X.mean(axis=0, dtype=np.float64)
    W, C = random_start(center(layout(X), mean, np.dtype(dtype)), 4, 20, 3)
    batches = list(random_batches(600, len(found.losses), 3))
    W, C, expected = naive.compressed(X - mean, W.astype(np.float64), C > 0, batches, 1.0, 1.0, 0.001)
    np.testing.assert_allclose(list(zip(found.upper_bounds, found.losses, strict=True)), expected, rtol=1e-5)
    np.testing.assert_allclose(found.code.W, W, rtol=1e-4, atol=1e-6)
    B = np.asarray(found.code.encode(layout(X)))
    C, _ = naive.binary_kmeans(B, C)
    np.testing.assert_array_equal(found.centers, C)
    np.testing.assert_array_equal(found.labels, naive.hamming(B, C).argmin(axis=1))


def test_equations():
    """(6), (10), (14) and (15) as the paper writes them."""
    rng = np.random.default_rng(0)
    X, W, CG = rng.normal(size=(10, 4)), rng.normal(size=(4, 6)), sign(rng.normal(size=(10, 6)))
    candidates = sign(np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1).T.astype(float))
    E, H = loss_augmented(X @ W, CG, 2.0), sign(X @ W)
    for i in range(10):
        scores = ((candidates - CG[i]) ** 2).sum(axis=1) + 2 * candidates @ W.T @ X[i]
        np.testing.assert_array_equal(E[i], candidates[scores.argmax()])
        np.testing.assert_array_equal(H[i], candidates[(candidates @ W.T @ X[i]).argmax()])
    expected = W - 0.1 * sum(np.outer(X[i], E[i] - H[i]) for i in range(10))
    np.testing.assert_allclose(descend(Centered(X, np.ones(10)), W, CG, 2.0, 0.1), expected)
    projected = project(W, 4.0)
    norms = np.linalg.norm(W, axis=0)
    assert norms.min() < 2.0 < norms.max()
    np.testing.assert_allclose(np.linalg.norm(projected, axis=0), np.minimum(norms, 2.0))
    np.testing.assert_allclose(projected / np.linalg.norm(projected, axis=0), W / norms)


def test_the_bound_is_above_the_loss_and_both_decrease():
    X, _ = hidden_clusters()
    found = compressed_kmeans(X, 6, 32)
    assert len(found.losses) > 2
    assert all(bound >= loss for bound, loss in zip(found.upper_bounds, found.losses, strict=True))
    assert found.upper_bounds[-1] < found.upper_bounds[0]
    assert found.losses[-1] < found.losses[0]


def test_learning_stops_once_a_pass_hardly_decreases_the_bound():
    X = cloud(400, 5)
    X = X - X.mean(axis=0)
    W = np.random.default_rng(0).normal(size=(5, 16))
    all_rounds = list(algorithm_1(X, W, sign(X[:3] @ W), random_batches(400, 60, seed=0), 1.0, 1.0, 0.001))
    bounds = [state.upper_bound for state in all_rounds]
    n_rounds = len(list(until_converged(all_rounds, 4)))
    decreases = [now / before for before, now in zip(bounds, bounds[4:], strict=False)]
    assert n_rounds == 5 + next(i for i, ratio in enumerate(decreases) if ratio >= 0.9)
    assert n_rounds < MAX_ROUNDS


def test_separated_clusters_are_found():
    X, y = blobs(600, 20, 4)
    labels = compressed_kmeans(X, 4, 64, seed=1).labels
    assert adjusted_rand_score(y, labels) > 0.5


def test_batches_are_drawn_without_replacement():
    batches = list(random_batches(300, 5, seed=0))
    assert all(len(set(batch)) == BATCH_SIZE for batch in batches)
    assert all(not np.array_equal(a, b) for a, b in pairwise(batches))
    np.testing.assert_array_equal(next(random_batches(50, 1, seed=0)), np.arange(50))


@LAYOUTS
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_equal_rows(layout, dtype):
    for value in (0, 3):
        found = compressed_kmeans(layout(np.full((30, 5), value, dtype)), 2, 16)
        assert len(set(found.labels)) == 1
