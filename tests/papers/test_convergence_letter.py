"""The algorithms of Bottou and Bengio (1995) against their oracles."""

import numpy as np
import pytest

from shoal.papers import convergence
from tests.papers import oracles
from tests.strategies import cloud

FAR = np.full((1, 3), 50.0)  # a prototype without patterns


def problem(P, k, seed):
    x = cloud(P, 3, seed)
    return x, np.vstack([cloud(k, 3, seed + 1), FAR])


@pytest.mark.parametrize(("P", "k", "seed"), [(30, 4, 0), (50, 2, 1), (1, 1, 2), (3, 5, 3)])
def test_epochs_equal_the_oracles(P, k, seed):
    x, w = problem(P, k, seed)
    rates = np.random.default_rng(seed).uniform(0, 0.3, P)
    v = u = w
    n = m = np.zeros(k + 1)
    n = n.copy()
    for t in range(1, 4):
        assert convergence.quantization_error(x, w) == pytest.approx(oracles.E(x, w))
        np.testing.assert_allclose(convergence.batch_gradient(x, w, 0.03 / t), oracles.batch_gradient(x, w, 0.03 / t))
        np.testing.assert_allclose(convergence.online_gradient(x, w, rates), oracles.online_gradient(x, w, rates))
        np.testing.assert_allclose(convergence.online_gradient(x, w, 0.1), oracles.online_gradient(x, w, np.full(P, 0.1)))
        expected, m = oracles.online_kmeans(x, u, m)
        u = convergence.online_kmeans(x, v, n)
        np.testing.assert_allclose(u, expected)
        np.testing.assert_array_equal(n, m)
        v = u
        np.testing.assert_allclose(convergence.batch_kmeans(x, w), oracles.batch_kmeans(x, w))
        w = convergence.batch_kmeans(x, w)
        np.testing.assert_array_equal(w[-1], FAR[0])
    assert n.sum() == 3 * P


def test_em_equals_the_oracle():
    x, w = cloud(20, 3), cloud(4, 3, 1)
    for _ in range(3):
        (found, cost), (expected, likely) = convergence.em(x, w), oracles.em(x, w)
        np.testing.assert_allclose(found, expected)
        assert cost == pytest.approx(likely)
        w = found
    scaled, _ = convergence.em(5 * x, 5 * w, variance=25.0)
    np.testing.assert_allclose(scaled / 5, convergence.em(x, w)[0])


def test_batch_kmeans_is_a_newton_step():
    x, w = cloud(60, 3), cloud(4, 3, 1)
    gradient = -(convergence.batch_gradient(x, w, 1.0) - w)
    step = np.linalg.solve(convergence.hessian(x, w), gradient.ravel())
    np.testing.assert_allclose(convergence.batch_kmeans(x, w), w - step.reshape(w.shape))


def test_arguments_are_not_changed():
    x, w = problem(20, 3, 0)
    before = w.copy()
    for result in (convergence.online_gradient(x, w, 0.1), convergence.online_kmeans(x, w, np.zeros(4))):
        assert result is not w
        np.testing.assert_array_equal(w, before)
