"""The algorithms of Zhao et al. (2018) against their oracles."""

from itertools import pairwise

import numpy as np
import pytest

from shoal import VarianceReducedKMeans
from shoal.papers import variance
from shoal.papers.variance.blocks import VRKM
from tests.papers import oracles
from tests.strategies import cloud, first_rows


def last(epochs):
    *_, found = epochs
    return found.C


def start_of(X, k):
    """Return initial centroids, of which one owns one row and one none."""
    X[k - 1] = 30.0
    return np.vstack([first_rows(X, k), np.full((1, X.shape[1]), -90.0)])


@pytest.mark.parametrize("plus_plus", [False, True])
@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_each_epoch_equals_the_oracle(plus_plus, eta):
    X = cloud(60, 5)
    start = start_of(X, 6)
    epochs = list(variance.random_epochs(60, 40, 3, seed=0))
    algorithm = variance.vrkm_plus_plus if plus_plus else variance.vrkm
    for s, found in enumerate(algorithm(X, start, epochs, eta), 1):
        np.testing.assert_allclose(found.C, oracles.vrkm(X, start, epochs[:s], eta, plus_plus), atol=1e-9)
        assert found.distances == s * 100 * 7
    np.testing.assert_array_equal(found.C[-1], start[-1])
    assert next(algorithm(X, start, epochs, eta)).energy == pytest.approx(2 * oracles.E(X, start))


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"weighted": True}, {"frozen": True, "weighted": True}])
def test_svrg_equals_the_oracle(options):
    X = cloud(50, 3)
    start = start_of(X, 4)
    epochs = list(variance.random_epochs(50, 50, 3, seed=0))
    expected = oracles.vrkm(X, start, epochs, 0.02, corrected=False, **options)
    np.testing.assert_allclose(last(variance.svrg(X, start, epochs, 0.02, **options)), expected, atol=1e-9)


@pytest.mark.parametrize("m", [1, 7])
def test_algorithm_1_equals_the_oracle(m):
    X = cloud(40, 3)
    start = start_of(X, 4)
    epochs = list(variance.random_epochs(40, 42, 2, seed=0))
    batches = [epoch[a : a + m] for epoch in epochs for a in range(0, 42, m)]
    np.testing.assert_allclose(last(variance.algorithm_1(X, start, epochs, m)), oracles.algorithm_1(X, start, batches))
    if m == 1:
        np.testing.assert_array_equal(last(variance.sgd_kmeans(X, start, epochs)), last(variance.algorithm_1(X, start, epochs)))


def test_batch_kmeans_equals_the_oracle():
    X = cloud(40, 3)
    w = start_of(X, 4)
    for found in variance.batch_kmeans(X, w, 5):
        w = oracles.batch_kmeans(X, w)
        np.testing.assert_allclose(found.C, w)


@pytest.mark.parametrize("algorithm", [variance.vrkm, variance.vrkm_plus_plus])
def test_one_row(algorithm):
    X = np.array([[1.0, 2.0]])
    np.testing.assert_array_equal(last(algorithm(X, X + 1, [np.zeros(3, int)] * 2, 0.5)), X)


def test_svrg_diverges_even_for_a_frozen_partition():
    """Figure 3: the printed batch gradient, a mean over the cluster, overshoots; weighted by v_k / n it does not."""
    X, K = cloud(2000, 8), 20
    start, epochs = first_rows(X, K), list(variance.random_epochs(2000, 2000, 5, seed=0))
    energies = {
        options: [epoch.energy for epoch in variance.svrg(X, start, epochs, K / 2000, frozen=options[0], weighted=options[1])]
        for options in ((False, False), (True, False), (False, True))
    }
    assert energies[False, False][-1] > energies[False, False][0]
    assert energies[True, False][-1] > energies[True, False][0]
    assert all(after < before for before, after in pairwise(energies[False, True]))


def test_epochs_of_doubling_size():
    assert [len(picked) for picked in variance.doubling_epochs(50, 5, seed=0)] == [2, 4, 8, 16, 32]


@pytest.mark.parametrize(("algorithm", "estimator"), [(variance.vrkm, VRKM), (variance.vrkm_plus_plus, VarianceReducedKMeans)])
def test_equals_the_estimator_with_blocks_of_one_row(algorithm, estimator):
    X, start = cloud(200, 4), first_rows(cloud(200, 4), 5)
    model = estimator(5, init=start, block_size=1, max_iter=3, tol=0, random_state=1).fit(X)
    found = list(algorithm(X, start, variance.random_epochs(200, 200, 3, seed=1), 5 / 200))
    np.testing.assert_allclose(found[-1].C, model.cluster_centers_, rtol=0, atol=1e-9)
    np.testing.assert_allclose([epoch.energy for epoch in found], [record["energy"] for record in model.history_])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_batch_gradients_change_rounding_only(metric):
    X = cloud(500, 6) + 0.5
    options = {"init": first_rows(X, 9), "metric": metric, "max_iter": 5, "tol": 0, "block_size": 50, "random_state": 0}
    one, other = (estimator(9, **options).fit(X) for estimator in (VRKM, VarianceReducedKMeans))
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=0, atol=1e-12)
    for with_gradient, without in zip(one.history_, other.history_, strict=True):
        assert with_gradient["rows"] == without["rows"] + 500
        assert with_gradient["distances"] == without["distances"]
