"""The Stiefel manifold."""

import numpy as np
import pytest

from shoal.spectral import manifold
from tests import naive

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def deviation(W):
    """Return the largest difference of W' W from the identity."""
    W = W.astype(np.float64)
    return np.abs(W.T @ W - np.eye(W.shape[1])).max()


def rng():
    return np.random.default_rng(0)


@DTYPES
@pytest.mark.parametrize(("n", "k"), [(5, 5), (50, 1), (1000, 7), (200_000, 10)])
def test_a_random_point_is_orthonormal(n, k, dtype):
    W = manifold.random_point(n, k, rng(), dtype)
    assert W.dtype == dtype
    assert deviation(W) < 4 * np.finfo(dtype).eps * k


@DTYPES
def test_retraction_is_the_q_of_qr(dtype):
    A = rng().normal(size=(300, 6)).astype(dtype)
    Q, R = np.linalg.qr(A.astype(np.float64))
    np.testing.assert_allclose(manifold.retract(A), Q * np.sign(np.diag(R)), atol=50 * np.finfo(dtype).eps)


@DTYPES
@pytest.mark.parametrize("spread", [1, 1e2, 1e4, 1e8])
def test_nearly_dependent_columns_become_orthonormal(dtype, spread):
    A = rng().normal(size=(500, 5)) @ np.diag(np.geomspace(1, spread, 5)) @ rng().normal(size=(5, 5))
    assert deviation(manifold.retract(A.astype(dtype))) < 1e3 * np.finfo(dtype).eps


def test_dependent_columns_become_orthonormal():
    A = np.ones((40, 3))
    assert deviation(manifold.retract(A)) < 1e-12
    assert deviation(manifold.retract(np.zeros((40, 3)))) < 1e-12


def test_many_steps_in_float32_stay_orthonormal():
    W, random = manifold.random_point(3000, 8, rng(), np.float32), rng()
    for _ in range(300):
        W = manifold.retract(W + 0.1 * manifold.project(W, random.normal(size=W.shape).astype(np.float32))[0])
    assert deviation(W) < 1e-6


@DTYPES
def test_projection_is_orthogonal_to_the_span(dtype):
    W = manifold.random_point(200, 4, rng(), dtype)
    G = rng().normal(size=(200, 4)).astype(dtype)
    H, T = manifold.project(W, G)
    np.testing.assert_allclose(T, W.T.astype(float) @ G, atol=1e-5)
    assert np.abs(W.T @ H).max() < 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(G - H, W @ (W.T @ G), atol=100 * np.finfo(dtype).eps)


def test_subspace_change_is_the_mean_sine_of_the_angles():
    U, W = manifold.random_point(100, 3, rng()), manifold.random_point(100, 3, np.random.default_rng(1))
    assert manifold.subspace_change(U, W) == pytest.approx(np.sqrt(np.mean(naive.sines(U, W) ** 2)))
    turned = U @ np.linalg.qr(rng().normal(size=(3, 3)))[0]
    assert manifold.subspace_change(U, turned) < 1e-7


def test_equals_pymanopt():
    manifolds = pytest.importorskip("pymanopt.manifolds")
    stiefel = manifolds.Stiefel(60, 4)
    W, step = manifold.random_point(60, 4, rng()), 0.1 * rng().normal(size=(60, 4))
    step, _ = manifold.project(W, step)
    np.testing.assert_allclose(manifold.retract(W + step), stiefel.retraction(W, step), atol=1e-10)
    np.testing.assert_allclose(step, stiefel.projection(W, step), atol=1e-10)
