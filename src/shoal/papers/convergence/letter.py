"""The five algorithms of Bottou and Bengio exactly as printed, each as a function that runs one epoch.

The letters are those of the paper: patterns x (P, d), prototypes w (k, d), subscripts s_i(w), counts N_k and n_k, learning
rates epsilon_t. All functions return new prototypes; the loops over patterns are compiled.

Left open by the paper: of equally close prototypes the first one wins, and a prototype without patterns keeps its position.

References
----------
L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS.
"""

from __future__ import annotations

import numpy as np

from ...data.types import Array
from ...kernels import kernel


@kernel
def _closest(
    x,  # IN (d)
    w,  # IN (k, d)
):
    """Return s_i(w), the subscript of the prototype closest to a pattern, and its squared distance."""
    best, least = 0, np.inf
    for k in range(w.shape[0]):
        distance = 0.0
        for t in range(w.shape[1]):
            distance += (x[t] - w[k, t]) ** 2
        if distance < least:
            best, least = k, distance
    return best, least


@kernel
def _assign(
    x,  # IN (P, d)
    w,  # IN (k, d)
    total,  # ADD (k, d): sum of x_i - w_k over the patterns of each prototype
    N,  # ADD (k): number of its patterns
):
    """Add up the patterns of each prototype and return the sum of squared distances."""
    E = 0.0
    for i in range(x.shape[0]):
        k, distance = _closest(x[i], w)
        N[k] += 1
        E += distance
        for t in range(w.shape[1]):
            total[k, t] += x[i, t] - w[k, t]
    return E


@kernel
def _present_with_rates(
    x,  # IN (P, d)
    w,  # ADD (k, d)
    epsilon,  # IN (P)
):
    """Apply (4) after each pattern."""
    for i in range(x.shape[0]):
        k, _ = _closest(x[i], w)
        for t in range(w.shape[1]):
            w[k, t] += epsilon[i] * (x[i, t] - w[k, t])


@kernel
def _present_with_counts(
    x,  # IN (P, d)
    w,  # ADD (k, d)
    n,  # ADD (k)
):
    """Apply (7) after each pattern."""
    for i in range(x.shape[0]):
        k, _ = _closest(x[i], w)
        n[k] += 1
        for t in range(w.shape[1]):
            w[k, t] += (x[i, t] - w[k, t]) / n[k]


@kernel
def _expect(
    x,  # IN (P, d)
    w,  # IN (k, d)
    variance,  # IN
    total,  # ADD (k, d): sum of the patterns, weighted by their shares in each Gaussian
    shares,  # ADD (k): sum of these shares
):
    """Add up the patterns for EM and return the negative log-likelihood without the constants of the Gaussians."""
    cost = 0.0
    density = np.zeros(w.shape[0])
    for i in range(x.shape[0]):
        _, least = _closest(x[i], w)
        for k in range(w.shape[0]):
            distance = 0.0
            for t in range(w.shape[1]):
                distance += (x[i, t] - w[k, t]) ** 2
            density[k] = np.exp((least - distance) / (2 * variance))
        norm = density.sum()
        cost += least / (2 * variance) - np.log(norm)
        for k in range(w.shape[0]):
            share = density[k] / norm
            shares[k] += share
            for t in range(w.shape[1]):
                total[k, t] += share * x[i, t]
    return cost


def _differences(x: Array, w: Array) -> tuple[Array, Array, float]:
    """Return the sums of x_i - w_k over the patterns of each prototype, the counts N_k, and the sum of squared distances."""
    x, w = np.ascontiguousarray(x, np.float64), np.ascontiguousarray(w, np.float64)
    total, N = np.zeros_like(w), np.zeros(len(w))
    return total, N, float(_assign(x, w, total, N))


def quantization_error(x: Array, w: Array) -> float:
    """Return E(w), half the sum of squared distances to the closest prototypes (equation 1).

    Parameters
    ----------
    x : ndarray of shape (P, d)
        Patterns.
    w : ndarray of shape (k, d)
        Prototypes.

    Returns
    -------
    E : float
    """
    return _differences(x, w)[2] / 2


def hessian(x: Array, w: Array) -> Array:
    """Return the Hessian of E(w), a diagonal matrix of the counts N_k (section 4.1).

    Parameters
    ----------
    x : ndarray of shape (P, d)
        Patterns.
    w : ndarray of shape (k, d)
        Prototypes.

    Returns
    -------
    H : ndarray of shape (k d, k d)
    """
    return np.diag(np.repeat(_differences(x, w)[1], np.shape(w)[1]))


def batch_gradient(x: Array, w: Array, epsilon: float) -> Array:
    """Run one epoch of batch gradient descent (equation 3).

    Parameters
    ----------
    x : ndarray of shape (P, d)
        Patterns.
    w : ndarray of shape (k, d)
        Prototypes.
    epsilon : float
        Learning rate of the epoch; 0.03 / t in section 5.

    Returns
    -------
    w : ndarray of shape (k, d)
    """
    return np.asarray(w + epsilon * _differences(x, w)[0])


def online_gradient(x: Array, w: Array, epsilon: float | Array) -> Array:
    """Run one epoch of online gradient descent, which updates a prototype after each pattern (equation 4).

    Parameters
    ----------
    x : ndarray of shape (P, d)
        Patterns, in the order of their presentation.
    w : ndarray of shape (k, d)
        Prototypes.
    epsilon : float or ndarray of shape (P,)
        Learning rate, of the epoch or of each pattern.

    Returns
    -------
    w : ndarray of shape (k, d)
    """
    w = np.array(w, np.float64)
    _present_with_rates(np.ascontiguousarray(x, np.float64), w, np.full(len(x), epsilon, np.float64))
    return w


def batch_kmeans(x: Array, w: Array) -> Array:
    """Run one epoch of batch k-means (equation 6), which is a step of Newton's method (equation 8).

    Parameters
    ----------
    x : ndarray of shape (P, d)
        Patterns.
    w : ndarray of shape (k, d)
        Prototypes.

    Returns
    -------
    w : ndarray of shape (k, d)
    """
    total, N, _ = _differences(x, w)
    return np.asarray(w + total / np.maximum(N, 1)[:, None])


def online_kmeans(x: Array, w: Array, n: Array) -> Array:
    """Run one epoch of online k-means, whose learning rate is 1 / n_k (equation 7).

    Parameters
    ----------
    x : ndarray of shape (P, d)
        Patterns, in the order of their presentation.
    w : ndarray of shape (k, d)
        Prototypes.
    n : ndarray of shape (k,), float64
        Number of patterns assigned to each prototype so far, zero at first. It is updated in place.

    Returns
    -------
    w : ndarray of shape (k, d)

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.papers import convergence
    >>> x, n = np.array([[0.0], [1.0], [9.0], [2.0]]), np.zeros(2)
    >>> convergence.online_kmeans(x, x[[0, 2]], n), n
    (array([[1.],
           [9.]]), array([3., 1.]))
    """
    w = np.array(w, np.float64)
    _present_with_counts(np.ascontiguousarray(x, np.float64), w, n)
    return w


def em(x: Array, w: Array, variance: float = 1.0) -> tuple[Array, float]:
    """Run one epoch of EM for a mixture of Gaussians with equal weights and a fixed variance (section 5).

    Parameters
    ----------
    x : ndarray of shape (P, d)
        Patterns.
    w : ndarray of shape (k, d)
        Means.
    variance : float, default=1.0
        Variance of each Gaussian per column. The paper scales the patterns instead, so that it is 1.

    Returns
    -------
    w : ndarray of shape (k, d)
    cost : float
        Negative logarithm of the likelihood of the means that were given.
    """
    x, w = np.ascontiguousarray(x, np.float64), np.ascontiguousarray(w, np.float64)
    total, shares = np.zeros_like(w), np.zeros(len(w))
    cost = _expect(x, w, variance, total, shares)
    return total / shares[:, None], float(cost) + len(x) * (x.shape[1] / 2 * np.log(2 * np.pi * variance) + np.log(len(w)))
