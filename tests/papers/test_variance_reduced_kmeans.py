"""The algorithms of the variance reduction paper against their oracle."""

from itertools import pairwise

import numpy as np
import pytest

from shoal import VarianceReducedKMeans
from shoal.papers.variance_reduced_kmeans import VRKM, random_epochs, svrg, vrkm, vrkm_plus_plus
from tests import naive
from tests.strategies import cloud, first_rows


@pytest.mark.parametrize(("algorithm", "variant"), [(vrkm, "vrkm"), (vrkm_plus_plus, "vrkm++")])
@pytest.mark.parametrize("d", [2, 16, 60])
@pytest.mark.parametrize("rate", [1, 3])
def test_equals_the_oracle(algorithm, variant, d, rate):
    X, eta = cloud(150, d, seed=d), rate * 7 / 150
    start = first_rows(X, 7)
    for n_epochs in (1, 2, 4):
        epochs = list(random_epochs(150, 75, n_epochs, seed=0))
        found = algorithm(X, start, epochs, eta)
        np.testing.assert_allclose(found.centers, naive.variance_reduced(X, start, epochs, eta, variant), rtol=0, atol=1e-12)
        assert found.energies[0] == pytest.approx(naive.energy(X, start))


def test_svrg_equals_the_oracle():
    X, start = cloud(100, 3), first_rows(cloud(100, 3), 4)
    epochs = list(random_epochs(100, 100, 2, seed=0))
    C = naive.variance_reduced(X, start, epochs, 4 / 100, "vrkm", correction=False)
    np.testing.assert_allclose(svrg(X, start, epochs, 4 / 100).centers, C, rtol=0, atol=1e-9)


@pytest.mark.parametrize("block_size", [7, 64, 1000])
def test_svrg_takes_the_steps_of_a_block_together(block_size):
    X, start, eta = cloud(300, 5), first_rows(cloud(300, 5), 9), 9 / 300
    (picked,) = epochs = list(random_epochs(300, 300, 1, seed=0))
    labels = naive.labels(X, start)
    C, gradient = start, start - naive.means(X, labels, start, np.ones(300))
    for a in range(0, 300, block_size):
        block = picked[a : a + block_size]
        N = np.maximum(np.bincount(naive.labels(X[block], C), minlength=9), 1)
        batch = ((1 - (1 - eta) ** N) / N)[:, None] * len(block) * gradient
        C = naive.variance_reduced_block(X[block], C, labels[block], start, eta) - batch
    np.testing.assert_allclose(svrg(X, start, epochs, eta, block_size).centers, C, rtol=0, atol=1e-12)


def test_svrg_diverges():
    """Figure 3 of the paper: without position correction the energy rises."""
    X, start = cloud(2000, 8), first_rows(cloud(2000, 8), 20)
    plain = svrg(X, start, random_epochs(2000, 2000, 6, seed=0), 20 / 2000, block_size=50).energies
    model = VRKM(20, init=start, max_iter=6, tol=0, block_size=50, random_state=0).fit(X)
    corrected = [record["energy"] for record in model.history_]
    assert plain[1] > plain[0]
    assert min(plain[1:]) > 1.2 * corrected[-1]
    assert all(after < before for before, after in pairwise(corrected))


@pytest.mark.parametrize(("algorithm", "estimator"), [(vrkm, VRKM), (vrkm_plus_plus, VarianceReducedKMeans)])
def test_equals_the_estimator_with_blocks_of_one_row(algorithm, estimator):
    X, start = cloud(200, 4), first_rows(cloud(200, 4), 5)
    model = estimator(5, init=start, block_size=1, max_iter=3, tol=0, random_state=1).fit(X)
    found = algorithm(X, start, random_epochs(200, 200, 3, seed=1), 5 / 200)
    np.testing.assert_allclose(found.centers, model.cluster_centers_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.energies, [record["energy"] for record in model.history_])


def test_a_centroid_without_rows_keeps_its_position():
    X = cloud(50, 2)
    start = np.r_[X[:2], [[1e3, 1e3]]]
    for algorithm in (vrkm, vrkm_plus_plus, svrg):
        np.testing.assert_array_equal(algorithm(X, start, random_epochs(50, 50, 2, seed=0), 0.05).centers[2], [1e3, 1e3])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_batch_gradients_change_rounding_only(metric):
    X = cloud(500, 6) + 0.5
    options = {"init": first_rows(X, 9), "metric": metric, "max_iter": 5, "tol": 0, "block_size": 50, "random_state": 0}
    one, other = (estimator(9, **options).fit(X) for estimator in (VRKM, VarianceReducedKMeans))
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=0, atol=1e-12)
    for with_gradient, without in zip(one.history_, other.history_, strict=True):
        assert with_gradient["rows"] == without["rows"] + 500
        assert with_gradient["distances"] == without["distances"]
