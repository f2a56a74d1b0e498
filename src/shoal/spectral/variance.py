"""How noisy a stochastic gradient is (Han and Filippone, section 3.3 and the supplement)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.types import Array


def gradient_variance(L: Any, w: Any, p: float, n_vectors: int = 1) -> Array:
    """Variance of each entry of the stochastic gradient of one column of W, by the paper's formula.

    The gradient is the mean of L r r' w over independent vectors r, whose entries are -p^-1/2, 0 and p^-1/2 with
    probabilities p/2, 1 - p and p/2. For w of length one it is

        (g^2 + (1/p - 3) (L * L) w^2 + (L * L) 1) / n_vectors,   g = L w,

    entry by entry. (For a w of another length, the last term counts |w|^2 times.)

    Parameters
    ----------
    L : array of shape (n, n)
    w : array of shape (n,)
    p : float
        Share of entries that are not zero.
    n_vectors : int, default=1

    Returns
    -------
    variance : float64 array of shape (n,)

    Examples
    --------
    >>> from shoal.spectral import gradient_variance
    >>> gradient_variance([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], p=0.5)
    array([1., 1.])
    """
    L, w = np.asarray(L, np.float64), np.asarray(w, np.float64)
    if L.ndim != 2 or w.shape != (len(L),) or L.shape != (len(L), len(L)):
        raise ValueError(f"L must be square and w have an entry for each of its columns, but they are {L.shape} and {w.shape}.")
    if not 0 < p <= 1 or n_vectors < 1:
        raise ValueError(f"p must lie in (0, 1] and n_vectors be 1 or more, but they are {p} and {n_vectors}.")
    squares = L**2
    return np.asarray(((L @ w) ** 2 + (1 / p - 3) * squares @ w**2 + squares.sum(axis=1) * (w @ w)) / n_vectors)
