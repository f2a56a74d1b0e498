"""A sketch of the rows: some of them, in few coordinates, clustered there. What hyperplanes for short codes start from.

The coordinates are those along the leading directions, scaled so that a direction of length one sees unit variance on
average, and a last one that is 1, so that hyperplanes need not go through the mean. The paper's alpha, nu and learning rate
are right for rows of this scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..data.cancellation import TimeUp
from ..data.pca import of_unit_length
from ..data.rows import Rows
from ..data.sources import ArraySource
from ..data.types import Array
from ..execution.deadline import Deadline
from ..execution.threads import on_threads
from ..fit import partition
from ..fit.loop import Limits, RunResult, drive
from .codes import LinearCode
from .sample import Centered, Sample, principal

LEADING = 64  # directions, at most
SEEN = 0.5  # rows of whose variance the directions hold less than this share are clustered by their directions
NOTHING = 1e-9  # of the largest share of the variance
STEPS, FEWEST, WORK = 100, 10, 10_000  # of k-means on the sketch: fewer for many clusters, which are rough anyway
TOL = 1e-3
SAME = 1e-5  # energies of two starts that differ by less do so by rounding alone: the first is kept


class Sketch(NamedTuple):
    """Short rows, and the way there."""

    mean: Array  # (d) float64: of the rows
    basis: Array  # (d, q)
    factor: float  # (x - mean) . basis times this are the coordinates
    rows: Centered  # (m, q + 1): a column of ones is the last
    angular: bool  # are they clustered by direction?

    def place(self, X: Array) -> Array:
        """Other rows as those that are clustered."""
        Y = ((X - self.mean) @ self.basis * self.factor).astype(self.basis.dtype)
        return of_unit_length(Y) if self.angular else Y

    def code(self, W: Array) -> LinearCode:
        """The code whose hyperplanes W (q + 1, r) are."""
        return LinearCode(self.mean, self.basis @ W[:-1], -W[-1].astype(np.float64) / self.factor)


def sketch(sample: Sample, rng: np.random.Generator) -> Sketch:
    """The sample along its leading directions."""
    rows = sample.centered()
    basis = principal(rows, min(LEADING, len(sample.mean)), rng)
    Y, total = rows.along_exactly(basis), rows.variance()
    shares = np.einsum("i,ij,ij->j", rows.weights, Y, Y) / rows.weights.sum()
    q = max(1, int(np.count_nonzero(shares > NOTHING * shares[0])))  # the others are what rounding makes of nothing
    held = float(shares[:q].sum())
    factor = np.sqrt(q / held) if held > 0 else 1.0
    short = np.ones((len(Y), q + 1), Y.dtype)
    np.multiply(Y[:, :q], factor, out=short[:, :q], casting="same_kind")
    return Sketch(sample.mean, basis[:, :q], factor / rows.scale, Centered(short, rows.weights), held < SEEN * total)


def cluster(
    short: Sketch,
    k: int,
    starts: list[Callable[[Rows, Deadline], Array]],
    limits: Limits,
    n_threads: int,
    skipped: list[str],
) -> Array:
    """Labels by k-means of the short rows, from the start that has the least energy after some steps.

    Half of the time that is left may go into it: further starts are tried only while there is some, and without a single
    step there are no labels, but `TimeUp`.
    """
    limits = limits.part()
    Y = short.rows.A[:, :-1]
    source = ArraySource(np.ascontiguousarray(of_unit_length(Y) if short.angular else Y))
    tol = TOL * float(np.var(source.X, axis=0).mean())
    with on_threads(Rows.of(source, short.rows.weights), n_threads) as rows:

        def go(state: partition.Partition, most: int) -> RunResult:
            return drive(
                lambda state: partition.advance(rows, state, _assign),
                state,
                lambda state, info: info.reassigned == 0 or info.shift <= tol,
                limits._replace(max_iter=most),
            )

        tries: list[RunResult] = []
        for start in starts:
            deadline = limits.stage()
            outcome = go(partition.initial_partition(rows, np.ascontiguousarray(start(rows, deadline), rows.dtype)), FEWEST)
            if outcome.history:
                tries.append(outcome)
            if outcome.reason == "time_budget":
                skipped += deadline.skipped
                break
        if not tries:
            raise TimeUp
        least = min(outcome.history[-1]["energy"] for outcome in tries)
        best = next(outcome for outcome in tries if outcome.history[-1]["energy"] <= (1 + SAME) * least)
        more = min(STEPS, WORK // k) - FEWEST
        labels: Array = (go(best.state, more) if best.reason == "max_iter" and more > 0 else best).state.labels
        return labels


def _assign(rows: Rows, state: partition.Partition) -> tuple[Any, None]:
    return partition.label_all(rows, state), None


def hyperplanes(short: Sketch, labels: Array, k: int, r: int, rng: np.random.Generator) -> Array:
    """(q + 1, r): random directions, as orthogonal as there is room for, each halfway between two clusters' means."""
    A, w = short.rows.A, short.rows.weights
    q = A.shape[1] - 1
    W = np.hstack([np.linalg.qr(rng.standard_normal((q, q), A.dtype))[0] for _ in range(-(-r // q))])[:, :r]
    sums = np.stack([np.bincount(labels, w * y, k) for y in A.T], axis=1)
    means = sums[:, :-1] / np.maximum(sums[:, -1:], 1e-300)
    one = rng.integers(k, size=r)
    other = (one + 1 + rng.integers(max(k - 1, 1), size=r)) % k
    middle = np.einsum("ij,ji->i", (means[one] + means[other]) / 2, W)
    return np.vstack([W, -middle]).astype(A.dtype)
