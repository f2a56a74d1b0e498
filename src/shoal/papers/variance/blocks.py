"""VRKM by blocks: `shoal.VarianceReducedKMeans`, which is VRKM++, with a batch gradient in each epoch, to measure its cost."""

from __future__ import annotations

import numpy as np

from ...data.types import Array
from ...fit import partition
from ...fit.context import FitContext
from ...fit.partition import Partition
from ...kmeans.variance_reduced import (
    VarianceReducedInfo,
    VarianceReducedKMeans,
    VarianceReducedSolver,
    VarianceReducedState,
    snapshot_means,
)


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
