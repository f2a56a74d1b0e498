"""Online k-means: each row moves the centre nearest to it, by one over the number of rows that this centre has had.

L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS, equation 7 (the SGD variant of the
paper on variance reduced k-means); J. MacQueen (1967).
Differs from the papers: rows come in a random order that is drawn anew for each epoch and in which equal rows are
neighbours, so that a weight does what repetition would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit import streaming_means as running
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.parameters import keep
from ..fit.partition import Assign, Partition, PartitionInfo, StepStats
from ..fit.random_streams import generator
from ..fit.shuffle import keys_of, shuffled
from ..fit.solver import Solver
from ..fit.streaming import BaseStreamingClusterer
from ..fit.streaming_means import Means
from .dispatch import final_assign, select_algorithm
from .init import INITIALIZERS


class OnlineState(NamedTuple):
    """Everything needed to go on. A step reuses the arrays of the state it is given."""

    means: Means
    labels: Array  # (n) int32: each row's centre when it last came by, -1 before
    start: int  # which start this is
    epochs: int = 0  # so far

    @property
    def centers(self) -> Array:
        return self.means.centers


def begin(rows: Rows, centers: Array, start: int) -> OnlineState:
    return OnlineState(running.initial_means(rows, centers), np.full(len(rows), -1, np.int32), start)


def step(rows: Rows, state: OnlineState, ids: Array) -> tuple[OnlineState, PartitionInfo]:
    """One epoch: the rows, in the order named. Energy is of each row by the centres as it met them."""
    epoch = running.run_epoch(rows, state.means, ids, state.labels)
    distances = len(ids) * len(state.means.weight_sums)
    return state._replace(epochs=state.epochs + 1), PartitionInfo(
        epoch.energy, epoch.shift, len(ids), distances, epoch.reassigned
    )


class OnlineSolver(Solver):
    """Epochs of online updates; after the first one, exact batch steps if asked for."""

    def __init__(self, rows: Rows, assigner: Assign, seed: int, tol: float, ends_in_batches: bool) -> None:
        super().__init__(rows)
        self.assigner, self.seed, self.tol, self.ends_in_batches = assigner, seed, tol, ends_in_batches
        self.keys = keys_of(rows)

    def init(self, centers: Array, start: int) -> OnlineState:
        return begin(self.rows, centers, start)

    def step(self, state: Any) -> tuple[Any, PartitionInfo]:
        if isinstance(state, Partition):
            return partition.advance(self.rows, state, self.assigner)
        ids = shuffled(self.rows, self.keys, generator(self.seed, state.start, state.epochs + 1))
        state, info = step(self.rows, state, ids)
        if self.ends_in_batches:
            return partition.initial_partition(self.rows, np.ascontiguousarray(state.centers, self.rows.dtype)), info
        return state, info

    def converged(self, state: Any, info: PartitionInfo) -> bool:
        if not self.ends_in_batches:
            return info.shift <= self.tol
        if state.labels[0] < 0:  # exact steps are still to come
            return False
        return info.shift <= self.tol or info.reassigned == 0

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return final_assign(rows, state, self.assigner)


class OnlineKMeans(BaseStreamingClusterer):
    """Online k-means: every row moves its centre at once. A stream needs no more; for a fit, `then="batch"` ends it well.

    Parameters
    ----------
    then : {"batch"} or None, default=None
        What follows the first epoch: more of them, or exact batch steps (as in `KMeans`) to convergence.
    ...

    Attributes
    ----------
    ...
    history_ : list of dict
        One record a step, which is an epoch or a batch step, of the start that was kept: step, seconds, energy (of each row
        by the centres as it met them; in batch steps of the centres that came in), shift, rows (looked at), distances
        (computed), reassigned (rows), start (from 0).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import OnlineKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = OnlineKMeans(n_clusters=2, then="batch", random_state=0).fit(X)
    >>> model.inertia_
    16.0

    A stream:

    >>> stream = OnlineKMeans(n_clusters=2, random_state=0)
    >>> for chunk in (X, X + 1, X + 2):
    ...     stream = stream.partial_fit(chunk)
    >>> sorted(stream.cluster_centers_[:, 0].tolist())
    [2.0, 11.0]
    """

    _not_distributable_because = "each row moves a centre before the next one looks: take MiniBatchKMeans"
    _center_arrays = (6, 5)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "then": [StrOptions({"batch"}), None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        then: str | None = None,
        max_iter: int = 100,
        tol: float = 1e-4,
        time_budget: float | None = None,
        metric: str = "euclidean",
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), "order of the rows": 24.0 * load.n}

    def _make_solver(self, context: FitContext) -> OnlineSolver:
        assigner = select_algorithm(context.rows, self.n_clusters, "auto", context.memory)[1]
        tol = self.tol * context.variance
        return OnlineSolver(context.rows, assigner, context.seed, tol, ends_in_batches=self.then == "batch")

    def _take_in(self, rows: Rows, means: Means) -> None:
        running.run_epoch(rows, means, np.arange(len(rows)), np.empty(len(rows), np.int32))
