"""A sketch of the rows: a sample in few coordinates, its clusters, and initial hyperplanes between them.

The coordinates are those along the leading principal directions, scaled to unit variance on average, and a constant one, so
that hyperplanes need not pass through the mean. The default alpha, nu and learning rate of the paper suit rows of this scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..data.cancellation import TimeUp
from ..data.pca import of_unit_length
from ..data.rows import Rows
from ..data.sources import ArraySource
from ..data.types import Array
from ..execution.deadline import Deadline
from ..execution.threads import on_threads
from ..fit.loop import Limits, RunResult, drive
from ..fit.partition import Partition
from ..kmeans import lloyd
from ..kmeans.kmeans import LloydSolver
from .linear_code import LinearCode
from .sample import Centered, Sample, principal

MAX_DIRECTIONS = 64  # principal directions of a sketch
# If the directions explain a smaller fraction of the variance, rows are scaled to unit length before they are clustered.
MIN_EXPLAINED_VARIANCE = 0.5
MIN_RELATIVE_VARIANCE = 1e-9  # directions with a smaller variance, relative to the first, are rounding errors
MAX_STEPS, STEPS_PER_START = 100, 10  # of k-means: after the first steps of each start, only the best one continues
MAX_STEPS_TIMES_CLUSTERS = 10_000  # limits the steps for many clusters, where a coarse result is sufficient
TOL = 1e-3  # as `tol` of KMeans
ENERGY_RTOL = 1e-5  # energies of starts that differ by less are equal up to rounding: the first start is used


class Sketch(NamedTuple):
    """Sampled rows in few coordinates, and the map to them."""

    mean: Array  # (d) float64
    basis: Array  # (d, q) principal directions
    factor: float  # the coordinates of x are (x - mean) @ basis * factor
    rows: Centered  # (m, q + 1), the last column being ones
    is_angular: bool  # whether to cluster rows of unit length

    def place(self, X: Array) -> Array:
        """Return other rows in the coordinates that are clustered."""
        Y = ((X - self.mean) @ self.basis * self.factor).astype(self.basis.dtype)
        return of_unit_length(Y) if self.is_angular else Y

    def code(self, W: Array) -> LinearCode:
        """Return the code of the rows of X with the hyperplanes W (q + 1, r) of the sketch."""
        return LinearCode(self.mean, self.basis @ W[:-1], -W[-1].astype(np.float64) / self.factor)


def sketch(sample: Sample, rng: np.random.Generator) -> Sketch:
    """Project a sample onto its leading principal directions."""
    rows = sample.centered()
    basis = principal(rows, min(MAX_DIRECTIONS, len(sample.mean)), rng)
    Y, total = rows.along_exactly(basis), rows.variance()
    variances = np.einsum("i,ij,ij->j", rows.weights, Y, Y) / rows.weights.sum()
    q = max(1, int(np.count_nonzero(variances > MIN_RELATIVE_VARIANCE * variances[0])))
    explained = float(variances[:q].sum())
    factor = np.sqrt(q / explained) if explained > 0 else 1.0
    short = np.ones((len(Y), q + 1), Y.dtype)
    np.multiply(Y[:, :q], factor, out=short[:, :q], casting="same_kind")
    is_angular = explained < MIN_EXPLAINED_VARIANCE * total
    return Sketch(sample.mean, basis[:, :q], factor / rows.scale, Centered(short, rows.weights), is_angular)


def cluster(
    short: Sketch,
    k: int,
    starts: Sequence[Callable[[Rows, Deadline], Array]],
    limits: Limits,
    n_threads: int,
    skipped: list[str],
) -> Array:
    """Return the labels of k-means on the sketch, from the start with the lowest energy after a few steps.

    Uses at most half of the remaining time. Further starts are tried only if there is time. Raises `TimeUp` if there is no
    time for one step.
    """
    limits = limits.part()
    Y = short.rows.A[:, :-1]
    source = ArraySource(np.ascontiguousarray(of_unit_length(Y) if short.is_angular else Y))
    tol = TOL * float(np.var(source.X, axis=0).mean())
    with on_threads(Rows.of(source, short.rows.weights), n_threads) as rows:
        solver = LloydSolver(rows, lloyd.assign, tol)

        def run(state: Partition, max_iter: int) -> RunResult:
            return drive(solver.step, state, solver.converged, limits._replace(max_iter=max_iter))

        results: list[RunResult] = []
        for start, choose_centers in enumerate(starts):
            deadline = limits.stage()
            C = np.ascontiguousarray(choose_centers(rows, deadline), rows.dtype)
            result = run(solver.init(C, start), STEPS_PER_START)
            if result.history:
                results.append(result)
            if result.reason == "time_budget":
                skipped += deadline.skipped
                break
        if not results:
            raise TimeUp
        lowest = min(result.history[-1]["energy"] for result in results)
        best = next(result for result in results if result.history[-1]["energy"] <= (1 + ENERGY_RTOL) * lowest)
        n_more = min(MAX_STEPS, MAX_STEPS_TIMES_CLUSTERS // k) - STEPS_PER_START
        labels: Array = (run(best.state, n_more) if best.reason == "max_iter" and n_more > 0 else best).state.labels
        return labels


def hyperplanes(short: Sketch, labels: Array, k: int, r: int, rng: np.random.Generator) -> Array:
    """Return hyperplanes (q + 1, r) with random normals, each halfway between the means of two random clusters.

    The normals are orthogonal in groups of q.
    """
    A, w = short.rows.A, short.rows.weights
    q = A.shape[1] - 1
    W = np.hstack([np.linalg.qr(rng.standard_normal((q, q), A.dtype))[0] for _ in range(-(-r // q))])[:, :r]
    sums = np.stack([np.bincount(labels, w * y, k) for y in A.T], axis=1)
    means = sums[:, :-1] / np.maximum(sums[:, -1:], 1e-300)
    one = rng.integers(k, size=r)
    other = (one + 1 + rng.integers(max(k - 1, 1), size=r)) % k
    midpoints = np.einsum("ij,ji->i", (means[one] + means[other]) / 2, W)
    return np.vstack([W, -midpoints]).astype(A.dtype)
