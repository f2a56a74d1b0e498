"""Mini-batch k-means: a random batch of rows at a time; each centre is the mean of all rows ever assigned to it.

D. Sculley (2010), Web-scale k-means clustering, doi:10.1145/1772690.1772862; as Algorithms 2-4 of J. Newling and F. Fleuret
(2016), Nested mini-batch k-means, and Algorithm 1 of the paper on variance reduced k-means tell it.
Differs from the papers: the row that a centre starts from is not counted as one of its rows (Algorithm 2 does so, Sculley
does not); no row comes twice in a batch; the projection onto the L1 ball is exact (C. Michelot 1986,
doi:10.1007/BF00938486), not to within a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from ..data.frame import Frame
from ..data.rows import Batches as RowBatches
from ..data.rows import Rows
from ..data.types import Array
from ..fit import streaming_means as running
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.parameters import Count, keep
from ..fit.partition import Partition, StepStats
from ..fit.random_streams import generator
from ..fit.solver import Solver
from ..fit.streaming import BaseStreamingClusterer
from ..fit.streaming_means import Means
from .dispatch import assign_once
from .init import INITIALIZERS


class MiniBatchState(NamedTuple):
    """Everything needed to go on. A step reuses the means of the state it is given."""

    means: Means
    start: int  # which start this is
    anchor: Array  # (k, d): the centres when the epoch began
    drift: float = np.inf  # the squared moves of the centres over the last whole epoch
    batches: int = 0  # seen so far
    smooth: float = 0.0  # energy, smoothed over half an epoch
    least: float = np.inf  # the lowest that this was
    idle: int = 0  # batches since then

    @property
    def centers(self) -> Array:
        return self.means.centers


class MiniBatchInfo(NamedTuple):
    """What one step learned."""

    energy: float  # of the batch, by the centres that came in, scaled up to all rows
    shift: float
    rows: int  # in the batch
    distances: int

    @property
    def batch(self) -> int:
        return self.rows


def draw(n: int, size: int, seed: int, start: int, batch: int) -> Array:
    """Which of n rows are in a batch, in row order; batches count from 1."""
    rng = generator(seed, start, batch)
    return np.sort(rng.choice(n, size, replace=False, shuffle=False))


def step(
    batch: Rows, state: MiniBatchState, mass: float, epoch: float, radius: float | None
) -> tuple[MiniBatchState, MiniBatchInfo]:
    """One batch of rows that weigh `mass` in all and make `epoch` batches."""
    energy, shift = take_in(batch, state.means, radius)
    energy *= mass / float(batch.weights.sum())
    t = state.batches + 1
    if t // epoch > state.batches // epoch:
        C = state.centers.copy()
        state = state._replace(anchor=C, drift=float(((C - state.anchor) ** 2).sum()))
    smooth = state.smooth + (energy - state.smooth) / min(t, max(epoch / 2, 1))
    better = smooth < state.least or t <= epoch / 2  # before that it is no average of so many batches
    state = state._replace(batches=t, smooth=smooth, idle=0 if better else state.idle + 1)
    new = state._replace(least=smooth) if better else state
    return new, MiniBatchInfo(energy, shift, len(batch), len(batch) * len(state.means.weight_sums))


def take_in(batch: Rows, means: Means, radius: float | None) -> tuple[float, float]:
    """Let a batch move the means, and pull them back into the ball. Returns energy and shift."""
    if radius is None:
        return means.update_batch(batch)
    before = means.centers.copy()
    energy, _ = means.update_batch(batch)
    C = into_ball(means.centers, radius, batch.frame)
    means.put(C)
    return energy, float(((C - before) ** 2).sum())


def into_ball(C: Array, radius: float, frame: Frame) -> Array:
    """Centres projected onto the L1 ball round the user's origin."""
    origin = 0.0 if frame.shift is None else frame.shift
    radius = float(np.ldexp(radius, frame.exponent))
    return np.stack([project(c, radius) for c in C.astype(np.float64) + origin]) - origin


def project(v: Array, radius: float) -> Array:
    """The point of the L1 ball nearest to v: all coordinates shrink by as much, and those that would pass 0 stay there."""
    left = np.abs(v)
    if left.sum() <= radius:
        return v
    while True:
        theta = (left.sum() - radius) / len(left)
        more = left[left > theta]
        if len(more) == len(left):
            return np.asarray(np.sign(v) * np.maximum(np.abs(v) - theta, 0))
        left = more


class MiniBatchSolver(Solver):
    """Running means over random batches of rows."""

    info_type = MiniBatchInfo

    def __init__(self, rows: Rows, model: MiniBatchKMeans, seed: int, tol: float) -> None:
        super().__init__(rows)
        self.k, self.size, self.l1_radius = model.n_clusters, model.batch_size, model.l1_radius
        self.patience = model.max_no_improvement
        self.seed, self.tol, self.weight = seed, tol, float(rows.weights.sum())
        self.weighted_rows = np.flatnonzero(rows.weights > 0) if rows.has_weights else None  # the others have no effect
        self.n = len(rows) if self.weighted_rows is None else len(self.weighted_rows)
        self._batches: dict[int, RowBatches] = {}

    def ids(self, start: int, batch: int) -> Array:
        """Return the rows of a batch."""
        ids = draw(self.n, self.size, self.seed, start, batch)
        return ids if self.weighted_rows is None else self.weighted_rows[ids]

    def batch(self, state: MiniBatchState) -> Rows:
        """Return the next batch."""
        if self.size >= self.n:
            return self.rows
        batches = self._batches.setdefault(state.start, self.rows.batches(partial(self.ids, state.start), self.k))
        return batches[state.batches + 1]

    def init(self, centers: Array, start: int) -> MiniBatchState:
        return MiniBatchState(running.initial_means(self.rows, centers), start, centers)

    def step(self, state: MiniBatchState) -> tuple[MiniBatchState, MiniBatchInfo]:
        return step(self.batch(state), state, self.weight, max(self.n / self.size, 1), self.l1_radius)

    def converged(self, state: MiniBatchState, info: MiniBatchInfo) -> bool:
        return state.drift <= self.tol or (self.patience is not None and state.idle >= self.patience)

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return assign_once(rows, state)

    def publish(self, state: Partition) -> Partition:
        if self.l1_radius is not None:  # a row given to an empty cluster may have moved its centroid out of the ball
            state = state._replace(centers=into_ball(state.centers, self.l1_radius, self.rows.frame))
        return super().publish(state)


class MiniBatchKMeans(BaseStreamingClusterer):
    """Mini-batch k-means: running means over random batches of rows. Near to `KMeans` in a fraction of its time.

    Parameters
    ----------
    batch_size : int, default=1024
        Rows in a batch. As many as there are, or more: all rows, every time. An epoch is as many batches as hold so many
        rows, and `tol` is about the moves of an epoch. `partial_fit` cuts its chunk into batches of this size, in the order
        of the rows.
    max_no_improvement : int or None, default=10
        Stop when so many batches in a row have not lowered their energy, smoothed over half an epoch; not before that much
        has been seen. None: go on.
    l1_radius : float or None, default=None
        Keep the sum of the absolute coordinates of each centre down to this, so that few of them are not zero: for sparse
        rows. Not for metric="cosine".
    ...

    Attributes
    ----------
    ...
    history_ : list of dict
        One record a step, which is a batch, of the start that was kept: step, seconds, energy (of the batch by the centres
        that came in, scaled up to all rows), shift, rows (in the batch), distances (computed), start (from 0).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import MiniBatchKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = MiniBatchKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]

    Chunk by chunk:

    >>> stream = MiniBatchKMeans(n_clusters=2, random_state=0)
    >>> for chunk in (X, X + 1, X + 2):
    ...     stream = stream.partial_fit(chunk)
    >>> sorted(stream.cluster_centers_[:, 0].tolist())
    [2.0, 11.0]
    """

    _center_arrays = (7, 3)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "batch_size": [Count()],
        "max_no_improvement": [Count(), None],
        "l1_radius": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        batch_size: int = 1024,
        max_iter: int = 10_000,
        tol: float = 1e-4,
        max_no_improvement: int | None = 10,
        l1_radius: float | None = None,
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
        if self.l1_radius is not None and self.metric == "cosine":
            raise ValueError(
                f"l1_radius={self.l1_radius} would shorten centres that metric='cosine' keeps at length one: "
                "use metric='euclidean' or l1_radius=None."
            )

    def _make_solver(self, context: FitContext) -> MiniBatchSolver:
        return MiniBatchSolver(context.rows, self, context.seed, self.tol * context.variance)

    def _take_in(self, rows: Rows, means: Means) -> None:
        for a in range(0, len(rows), self.batch_size):
            ids = np.arange(a, min(a + self.batch_size, len(rows)))
            take_in(rows.subset(ids, self.n_clusters), means, self.l1_radius)
