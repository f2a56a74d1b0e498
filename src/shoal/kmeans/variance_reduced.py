"""Variance-reduced k-means: between two full passes, single rows correct the centres by what has changed since the first.

Y. Zhao et al. (2018), Large-scale k-means clustering via variance reduction, doi:10.1016/j.neucom.2018.03.059:
Algorithms 3 ("vrkm") and 4 ("vrkm++"). An epoch labels all rows, moves each centre to its rows' mean (Algorithm 2, the
position correction), and then picks rows at random. A picked row pulls the centre that is nearest to it now, and takes
back its pull at the centre that it was given by the full pass: in the mean over all rows that is Lloyd's step, and the
rows that still are where they were add no noise to it.

Differs from the paper: rows are picked in blocks whose labels are found together. The steps of a block add up, but a
centre that N of its rows pull at goes 1 - (1 - eta)^N of the way, as it would row after row, not N eta of it, which may
be beyond the goal. A block of one row is the paper's step. The condition in front of a step is left out: what it skips
is zero, but for rounding. Epochs of "doubling" size end to grow at 2 n, and eta is at most 1. With weights, rows are picked by
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.parameters import Count, keep
from ..fit.partition import Assign, Partition, StepStats
from ..fit.random_streams import draw, generator
from ..fit.solver import Solver
from .dispatch import final_assign, select_algorithm
from .init import INITIALIZERS
from .projected import Bounds

SPARED = 4  # of so many centres, bounds leave about one to be looked at


class VarianceReducedState(NamedTuple):
    """Everything needed to go on."""

    partition: Partition  # labels and sums of the last full pass; centres as the picked rows left them
    start: int  # number of the start
    epoch: int  # epochs done

    @property
    def centers(self) -> Array:
        return self.partition.centers


class VarianceReducedInfo(NamedTuple):
    """What one epoch learned."""

    energy: float  # of the centres that came in, over all rows
    shift: float  # sum of the squared moves of the centres, over the epoch
    rows: int  # rows looked at: those that bounds did not settle, in the full pass and among the picked
    distances: int  # row-centre distances computed; a distance in h of d columns counts as h / d
    reassigned: int  # rows that changed cluster: in the full pass, and picked ones that would
    picked: int  # the epoch's size


class VarianceReducedPlan(NamedTuple):
    """What stays the same in all epochs."""

    assign: Assign
    eta: float  # the learning rate
    size: int  # rows to pick in an epoch, or at most, where
    doubling: bool  # the s-th epoch picks 2^s
    block: int  # how many of them at once
    batch: bool  # compute the batch gradient, as "vrkm" does
    seed: int


class Walk(NamedTuple):
    """Where picked rows led the centres."""

    centers: Array
    rows: int
    distances: int
    changed: int


def step(
    rows: Rows, state: VarianceReducedState, plan: VarianceReducedPlan
) -> tuple[VarianceReducedState, VarianceReducedInfo]:
    """One epoch."""
    came = state.centers
    part, full = partition.advance(rows, state.partition, plan.assign)
    epoch = state.epoch + 1
    size = min(2**epoch, plan.size) if plan.doubling else plan.size
    walk = update_sequential(rows, part, plan, picks(rows, size, plan.block, generator(plan.seed, state.start, epoch)))
    shift = float(((walk.centers.astype(np.float64) - came) ** 2).sum())
    looked = full.rows + walk.rows + plan.batch * len(rows)
    info = VarianceReducedInfo(
        full.energy, shift, looked, full.distances + walk.distances, full.reassigned + walk.changed, size
    )
    return VarianceReducedState(part._replace(centers=walk.centers), state.start, epoch), info


def picks(rows: Rows, size: int, block: int, rng: np.random.Generator) -> Iterator[Array]:
    """Rows drawn by weight, with replacement; each block in row order, in which they are read sooner."""
    ids = draw(rng, rows.weights, size) if rows.has_weights else rng.integers(len(rows), size=size)
    for a in range(0, size, block):
        yield np.sort(ids[a : a + block])


def update_sequential(rows: Rows, part: Partition, plan: VarianceReducedPlan, blocks: Iterator[Array]) -> Walk:
    """The steps of an epoch. Cosine follows the means, whose lengths matter, and compares rows with their directions."""
    k = len(part.centers)
    every, ones = np.ones(k, bool), np.ones(k)
    still = part.centers.astype(np.float64)
    np.divide(part.sums, part.weight_sums[:, None], out=still, where=(part.counts > 0)[:, None])
    gradient = batch_gradient(rows, part, still) if plan.batch else np.zeros((1, 1))
    means, centers = still, part.centers
    looked = distances = changed = 0
    for ids in blocks:
        old = part.labels[ids]
        moved, mass, joined = np.zeros_like(means), np.zeros(k), np.zeros(k, np.int64)
        for share in look(rows, ids, part._replace(centers=centers, labels=old.copy()), plan.assign):
            share.moves.add_to(moved, mass, np.zeros(k), joined)
            looked, distances, changed = looked + share.rows, distances + share.distances, changed + share.moves.moved
        before = np.bincount(old, minlength=k)
        pull = np.maximum(before + joined, 1)  # rows that draw a centre nearer, and do so less and less
        rate = (1 - (1 - plan.eta) ** pull) / pull
        gamma = (before + joined)[:, None] * means  # in place from here on: these arrays are as large as the centres
        gamma -= before[:, None] * still
        gamma -= moved
        gamma += len(ids) * gradient
        gamma *= rate[:, None]
        means = np.subtract(means, gamma, out=gamma)
        centers = partition.move(centers, means, ones, ones, every, rows.frame).centers
    return Walk(centers, looked, distances, changed)


def look(rows: Rows, ids: Array, state: Partition, assign: Assign) -> Any:
    """Shares of the picked rows' labels. Where the full pass has left bounds, rows that they settle are not even read."""
    bounds: Bounds | None = state.bounds
    if bounds is not None:
        open_ = bounds.leave_open(ids, state.labels, state.centers)
        ids, state = ids[open_], state._replace(labels=state.labels[open_])
    some = rows.subset(ids, len(state.centers) if bounds is None else len(state.centers) // SPARED)
    some = some.with_weights(np.ones(len(ids)))  # they were drawn by weight
    state = state._replace(moved=0, n_reassigned=state.n_reassigned * len(ids) // len(rows))
    if bounds is None:
        return partition.label_all(some, state)
    return assign(some, state._replace(bounds=bounds.take(ids)))[0]


def batch_gradient(rows: Rows, part: Partition, C: Array) -> Array:
    """c less the mean of its rows, which are read again for it."""
    sums, weight_sums, squares, counts = (np.zeros_like(a) for a in (part.sums, part.weight_sums, part.squares, part.counts))
    for share in partition.keep_labels(rows, part)[0]:
        share.moves.add_to(sums, weight_sums, squares, counts)
    means = np.divide(sums, weight_sums[:, None], out=C.copy(), where=(counts > 0)[:, None])
    return np.subtract(C, means, out=means)


class VarianceReducedSolver(Solver):
    """A full pass over the rows, then steps on single rows whose gradients are corrected by that pass."""

    info_type = VarianceReducedInfo

    def __init__(self, rows: Rows, plan: VarianceReducedPlan, tol: float) -> None:
        super().__init__(rows)
        self.plan, self.tol = plan, tol

    def init(self, centers: Array, start: int) -> VarianceReducedState:
        return VarianceReducedState(partition.initial_partition(self.rows, centers), start, 0)

    def step(self, state: VarianceReducedState) -> tuple[VarianceReducedState, VarianceReducedInfo]:
        return step(self.rows, state, self.plan)

    def converged(self, state: VarianceReducedState, info: VarianceReducedInfo) -> bool:
        return info.reassigned == 0 or info.shift <= self.tol

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return final_assign(rows, state, self.plan.assign)


class VarianceReducedKMeans(BaseCentroidClusterer):
    """K-means by variance-reduced steps: a full pass over the rows, then single ones that tell what has changed since.

    Parameters
    ----------
    variant : {"vrkm++", "vrkm"}, default="vrkm++"
        "vrkm" computes a batch gradient in each epoch that "vrkm++" knows to be zero.
    learning_rate : float or None, default=None
        How far a picked row pulls its centre, in units of n_clusters / n_samples; None for 1.
    epoch_size : float or "doubling", default=1.0
        Rows to pick in an epoch, as a share of all; "doubling" picks 2, 4, 8, ..., up to twice as many as there are.
    block_size : int or None, default=None
        Rows to pick at once. 1 is the paper's way, and slow.
    ...

    Attributes
    ----------
    ...
    history_ : list of dict
        One record an epoch of the start that was kept: step, seconds, energy (of the centres that came in, over all
        rows), shift, rows (looked at), distances (computed), reassigned (rows; picked ones that would be, too), picked
        (rows), start (which of them, from 0).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import VarianceReducedKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = VarianceReducedKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]
    >>> model.history_[0]["picked"]
    6
    """

    _center_arrays = (9, 5)
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "variant": [StrOptions({"vrkm", "vrkm++"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "epoch_size": [Interval(Real, 0, None, closed="neither"), StrOptions({"doubling"})],
        "block_size": [Count(), None],
    }

    variant: str
    learning_rate: float | None
    epoch_size: float | str
    block_size: int | None

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        variant: str = "vrkm++",
        learning_rate: float | None = None,
        epoch_size: float | str = 1.0,
        block_size: int | None = None,
        metric: str = "euclidean",
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _make_solver(self, context: FitContext) -> VarianceReducedSolver:
        assign = select_algorithm(context.rows, self.n_clusters, "auto", context.memory)[1]
        plan = self._plan(assign, int(np.count_nonzero(context.rows.weights)), context.seed)
        return VarianceReducedSolver(context.rows, plan, self.tol * context.variance)

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), "rows to pick": 8.0 * load.n}

    def _plan(self, assign: Assign, n: int, seed: int) -> VarianceReducedPlan:
        """For n rows that count."""
        eta = min(1.0, (1.0 if self.learning_rate is None else float(self.learning_rate)) * self.n_clusters / n)
        doubling = isinstance(self.epoch_size, str)
        size = 2 * n if isinstance(self.epoch_size, str) else max(1, round(self.epoch_size * n))
        block = self.block_size or max(1024, n // 8)
        return VarianceReducedPlan(assign, eta, size, doubling, block, self.variant == "vrkm", seed)
