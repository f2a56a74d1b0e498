"""Online k-means: each row moves the centre nearest to it, by one over the number of rows that this centre has had.

L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS, equation 7 (the SGD variant of the
paper on variance reduced k-means); J. MacQueen (1967).
Differs from the papers: rows come in a random order that is drawn anew for each epoch and in which equal rows are
neighbours, so that a weight does what repetition would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions

from ..data.rows import Rows
from ..data.statistics import Moments
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit import streaming_means as running
from ..fit.base import BaseCentroidClusterer
from ..fit.parameters import keep
from ..fit.partition import Partition, PartitionInfo
from ..fit.random_streams import generator
from ..fit.shuffle import keys_of, shuffled
from ..fit.solver import Method
from ..fit.streaming import BaseStreamingClusterer
from ..fit.streaming_means import Means
from .dispatch import final_assigner, select_algorithm
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

    def _method(self, rows: Rows, moments: Moments, seed: int) -> Method:
        keys, tol = keys_of(rows), self.tol * moments.variance
        assign = select_algorithm(rows, self.n_clusters, "auto")[1]

        def advance(state: Any) -> tuple[Any, PartitionInfo]:
            if isinstance(state, Partition):
                return partition.advance(rows, state, assign)
            ids = shuffled(rows, keys, generator(seed, state.start, state.epochs + 1))
            state, info = step(rows, state, ids)
            if self.then == "batch":
                centers = np.ascontiguousarray(state.centers, rows.dtype)
                return partition.initial_partition(rows, centers), info
            return state, info

        def done(state: Any, info: PartitionInfo) -> bool:
            if self.then == "batch" and state.labels[0] < 0:  # exact steps are still to come
                return False
            return info.shift <= tol or (self.then == "batch" and info.reassigned == 0)

        return Method(lambda centers, start: begin(rows, centers, start), advance, done, final_assigner(assign))

    def _take_in(self, rows: Rows, means: Means) -> None:
        running.run_epoch(rows, means, np.arange(len(rows)), np.empty(len(rows), np.int32))
