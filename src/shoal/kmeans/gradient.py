"""K-means by gradient descent on the energy: batch (all rows move the centres together) or online (one by one).

L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS, equations 3 and 4; the learning rate
falls as eps_t = eps_0 / t (T. Kohonen 1989), where t counts epochs.
Differs from the paper: it gives no eps_0 that suits all data; with ours no cluster goes beyond its mean. Online, rows come
in a random order that is drawn anew for each epoch and in which equal rows are neighbours, so that a weight does what
repetition would (for metric="cosine" nearly so, as a centre is brought back to length one only after the whole pull).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..fit import streaming_means as running
from ..fit.base import BaseCentroidClusterer
from ..fit.centroid_model import MAX_COORDINATE
from ..fit.context import FitContext
from ..fit.parameters import keep
from ..fit.partition import Partition, PartitionInfo, StepStats
from ..fit.random_streams import generator
from ..fit.shuffle import keys_of, shuffled
from ..fit.solver import Solver
from .dispatch import assign_once
from .init import INITIALIZERS


class GradientState(NamedTuple):
    """Everything needed to go on. A step reuses the labels of the state it is given."""

    centers: Array  # (k, d) float64
    labels: Array  # (n) int32, -1 before the first step
    start: int  # which start this is
    rate: float  # eps_0; 0 before it is known
    epochs: int = 0  # so far


def batch_step(rows: Rows, state: GradientState, cap: bool) -> tuple[GradientState, PartitionInfo]:
    """Equation 3. Capped, no cluster goes beyond its mean; where no eps_0 is given, the largest first goes right there."""
    C, t = state.centers, state.epochs + 1
    served = running.assign_and_sum(rows, C, state.labels)
    most = 1 / float(served.weight_sums.max())
    rate = state.rate or most
    eps = min(rate / t, most) if cap else rate / t
    new = C + eps * (served.sums - served.weight_sums[:, None] * C)
    if rows.frame.unit:
        new, _ = running.directions(new, C)
    shift = float(((new - C) ** 2).sum())
    info = PartitionInfo(served.energy, shift, len(rows), len(rows) * len(C), served.reassigned)
    return state._replace(centers=new, rate=rate, epochs=t), info


def online_step(rows: Rows, state: GradientState, ids: Array, unit: float = 1.0) -> tuple[GradientState, PartitionInfo]:
    """Equation 4, for the rows in the order named. Energy is of each row by the centres as it met them."""
    t = state.epochs + 1
    means = running.initial_means(rows, state.centers)
    epoch = running.run_epoch(rows.with_weights(rows.weights / unit), means, ids, state.labels, state.rate / t)
    info = PartitionInfo(unit * epoch.energy, epoch.shift, len(ids), len(ids) * len(means.weight_sums), epoch.reassigned)
    return state._replace(centers=means.centers, epochs=t), info


class GradientSolver(Solver):
    """Gradient descent with a learning rate of eps_0 / t in epoch t, on all rows at once or row by row."""

    def __init__(self, rows: Rows, model: GradientKMeans, seed: int, tol: float) -> None:
        super().__init__(rows)
        self.k, self.learning_rate, self.seed, self.tol = model.n_clusters, model.learning_rate, seed, tol
        online = model.mode == "online"
        self.keys = keys_of(rows) if online else None
        self.unit = 1.0  # of weight
        if online and self.learning_rate is None:  # weights of less than one row, on the average, are taken to be shares
            self.unit = min(1.0, float(rows.weights[rows.weights > 0].mean()))
        default = min(1.0, self.unit * self.k / float(rows.weights.sum())) if online else 0.0
        self.rate = self.learning_rate or default

    def init(self, centers: Array, start: int) -> GradientState:
        return GradientState(centers.astype(np.float64), np.full(len(self.rows), -1, np.int32), start, self.rate)

    def step(self, state: GradientState) -> tuple[GradientState, PartitionInfo]:
        if self.keys is None:
            new, info = batch_step(self.rows, state, cap=self.learning_rate is None)
        else:
            ids = shuffled(self.rows, self.keys, generator(self.seed, state.start, state.epochs + 1))
            new, info = online_step(self.rows, state, ids, self.unit)
        if not np.abs(new.centers).max() < MAX_COORDINATE[self.rows.dtype]:
            raise ValueError(
                f"learning_rate={self.learning_rate} drives the centres away from the rows (epoch {new.epochs}): "
                f"give less, for instance {self.k / float(self.rows.weights.sum()):.1g}, or None."
            )
        return new, info

    def converged(self, state: GradientState, info: PartitionInfo) -> bool:
        return info.shift <= self.tol

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return assign_once(rows, state)


class GradientKMeans(BaseCentroidClusterer):
    """K-means by gradient descent, batch or online: slower than `KMeans` and `OnlineKMeans`, and here to show by how much.

    Parameters
    ----------
    mode : {"batch", "online"}, default="batch"
        Whether all rows move the centres together or each does so by itself.
    learning_rate : float or None, default=None
        eps_0: in epoch t a row moves its centre by eps_0 / t of the way. At most 1 if online. None: one over the mass of the
        largest cluster at the start, or, online, of the average one.
    ...

    Attributes
    ----------
    ...
    history_ : list of dict
        One record a step, which is an epoch, of the start that was kept: step, seconds, energy (of the centres that came in;
        online, of each row by the centres as it met them), shift, rows (looked at), distances (computed), reassigned
        (rows), start (from 0).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import GradientKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = GradientKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]
    """

    _center_arrays = (7, 3)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "mode": [StrOptions({"batch", "online"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        mode: str = "batch",
        learning_rate: float | None = None,
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        metric: str = "euclidean",
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.mode == "online" and self.learning_rate is not None and self.learning_rate > 1:
            raise ValueError(
                f"learning_rate={self.learning_rate} would move a centre beyond the row that pulls it: "
                "give at most 1 if mode='online'."
            )

    @property
    def _not_distributable_because(self) -> str:
        return "each row moves a centre before the next one looks: take mode='batch'" if self.mode == "online" else ""

    def _make_solver(self, context: FitContext) -> GradientSolver:
        return GradientSolver(context.rows, self, context.seed, self.tol * context.variance)
