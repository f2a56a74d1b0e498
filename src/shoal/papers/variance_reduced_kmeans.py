"""Variance-reduced k-means as printed: VRKM, VRKM++, and SVRG without position correction.

Y. Zhao et al. (2018), Large-scale k-means clustering via variance reduction, doi:10.1016/j.neucom.2018.03.059. The names are
those of the paper: rows X, centroids C, learning rate eta. `shoal.VarianceReducedKMeans` is the estimator for users; `VRKM` is
the same with batch gradients, to measure what they cost.

Left open by the paper: a centroid without rows keeps its position. The condition in front of a step (line 12 of Algorithm 3) is
omitted, because the steps that it skips are zero up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..data.types import Array
from ..fit import partition
from ..fit.context import FitContext
from ..fit.partition import Partition
from ..fit.random_streams import generator
from ..kmeans.variance_reduced import (
    VarianceReducedInfo,
    VarianceReducedKMeans,
    VarianceReducedSolver,
    VarianceReducedState,
    snapshot_means,
)


class VarianceReducedResult(NamedTuple):
    """Result of a run of all epochs."""

    centers: Array  # (k, d) float64
    energies: list[float]  # sum of squared distances at the beginning of each epoch


def random_epochs(n: int, epoch_size: int, n_epochs: int, seed: int) -> Iterator[Array]:
    """Generate the row indices that each epoch picks, with the random streams of `shoal.VarianceReducedKMeans`."""
    for epoch in range(1, n_epochs + 1):
        yield generator(seed, 0, epoch).integers(n, size=epoch_size)


def vrkm(X: Array, C: Array, epochs: Iterable[Array], eta: float) -> VarianceReducedResult:
    """Run VRKM (Algorithm 3), which computes the batch gradient in every epoch.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows to cluster.
    C : ndarray of shape (k, d)
        Initial centroids.
    epochs : iterable of ndarray of int
        Indices of the rows that each epoch picks, in order. See `random_epochs`.
    eta : float
        Constant learning rate. The paper recommends k / n.

    Returns
    -------
    VarianceReducedResult
        Final centroids, and the energy at the beginning of each epoch.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.papers.variance_reduced_kmeans import random_epochs, vrkm
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> vrkm(X, X[[0, 3]], random_epochs(6, 6, 2, seed=0), eta=2 / 6).energies
    [16.0, 16.0]
    """
    return _run(X, C, epochs, eta, position_correction=True, batch_gradient=True)


def vrkm_plus_plus(X: Array, C: Array, epochs: Iterable[Array], eta: float) -> VarianceReducedResult:
    """Run VRKM++ (Algorithm 4), which omits the batch gradient. Parameters and result are those of `vrkm`."""
    return _run(X, C, epochs, eta, position_correction=True, batch_gradient=False)


def svrg(X: Array, C: Array, epochs: Iterable[Array], eta: float, block_size: int = 1) -> VarianceReducedResult:
    """Run SVRG without position correction (equation 6), which diverges (Figure 3).

    Parameters and result are those of `vrkm`. With ``block_size > 1``, the steps of a block of rows are taken together, as
    `shoal.VarianceReducedKMeans` does: a centroid with N rows in the block moves 1 - (1 - eta)^N of the way.
    """
    return _run(X, C, epochs, eta, position_correction=False, batch_gradient=True, block_size=block_size)


def _run(
    X: Array,
    C: Array,
    epochs: Iterable[Array],
    eta: float,
    *,
    position_correction: bool,
    batch_gradient: bool,
    block_size: int = 1,
) -> VarianceReducedResult:
    X, C, energies = np.asarray(X, np.float64), np.array(C, np.float64), []
    for picked in epochs:
        labels, energy = _assign(X, C)
        energies.append(energy)
        means = _means(X, labels, C)
        snapshot = means if position_correction else C
        gradient = snapshot - means if batch_gradient else np.zeros_like(C)
        C = snapshot
        for start in range(0, len(picked), block_size):
            block = picked[start : start + block_size]
            C = _move(X[block], labels[block], C, snapshot, gradient, eta)
    return VarianceReducedResult(C, energies)


def _assign(X: Array, C: Array) -> tuple[Array, float]:
    """Nearest centroid of each row, and the sum of squared distances."""
    scores = np.einsum("ij,ij->i", C, C) - 2 * X @ C.T
    return scores.argmin(axis=1), float(np.vdot(X, X) + scores.min(axis=1).sum())


def _means(X: Array, labels: Array, C: Array) -> Array:
    """Mean of the rows of each cluster; a cluster without rows keeps its centroid."""
    means = C.copy()
    for j in np.unique(labels):
        means[j] = X[labels == j].mean(axis=0)
    return means


def _move(X: Array, old: Array, C: Array, snapshot: Array, gradient: Array, eta: float) -> Array:
    """Subtract the variance-reduced gradients (equation 6) of some rows, which had these labels in the full pass."""
    new, _ = _assign(X, C)
    gamma = len(X) * gradient
    np.add.at(gamma, new, C[new] - X)
    np.subtract.at(gamma, old, snapshot[old] - X)
    N = np.maximum(np.bincount(new, minlength=len(C)), 1)
    rates = (1 - (1 - eta) ** N) / N  # eta, for a block of one row
    moved: Array = C - rates[:, None] * gamma
    return moved


class BatchGradientSolver(VarianceReducedSolver):
    """The solver of `VarianceReducedKMeans`, with a batch gradient in each epoch."""

    def snapshot_gradient(self, part: Partition) -> Array:
        """Return c - mean(rows of c) for each centroid c, from another pass over the rows. It is zero up to rounding."""
        C = snapshot_means(part)
        totals = [np.zeros_like(a) for a in (part.sums, part.weight_sums, part.squares, part.counts)]
        for share in partition.keep_labels(self.rows, part)[0]:
            share.moves.add_to(*totals)
        sums, weight_sums, _, counts = totals
        return np.asarray(C - np.divide(sums, weight_sums[:, None], out=C.copy(), where=(counts > 0)[:, None]))

    def step(self, state: VarianceReducedState) -> tuple[VarianceReducedState, VarianceReducedInfo]:
        new, info = super().step(state)
        return new, info._replace(rows=info.rows + len(self.rows))


class VRKM(VarianceReducedKMeans):
    """Algorithm 3 for large data: `shoal.VarianceReducedKMeans`, which is Algorithm 4, with a batch gradient in each epoch."""

    def _make_solver(self, context: FitContext) -> BatchGradientSolver:
        return BatchGradientSolver(context.rows, self._plan(context), self.tol * context.variance)
