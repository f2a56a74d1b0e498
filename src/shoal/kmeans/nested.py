"""Nested mini-batches: Lloyd's steps on a sample that doubles when it has told what it can.

J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS (Algorithm 5, "nmbatch").

Each batch holds the one before, so that bounds on its rows go on; each row has one vote, where it is now. The batch
doubles when every centre is surer of its place than it moves: min_j sigma_C(j) / p(j) > rho.

Differs from the paper: starting centres have no vote of their own; a centre that has no row when the batch is all rows
moves to the one that is served worst; besides one lower bound a centre there are cheaper kinds (see `bounded` and
`projected`), after which a row's distance is not known in each step, so sse(j) comes from the sums. When the batch is all
rows these are taken in their own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..data.blocks import Block, Centers
from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.loop import Limits, RunResult
from ..fit.parameters import Count, keep
from ..fit.partition import Assign, Partition, StepStats
from ..fit.random_streams import generator
from ..fit.restarts import FitResult
from ..fit.schema import Choice, History, Number, Spec
from ..fit.shuffle import Order
from ..fit.solver import Solver
from .dispatch import ALGORITHMS, final_assign, memory, select_algorithm
from .init import INITIALIZERS

MARGIN = 3.0  # gains come in leaps: so many times what is expected is told
LOOKS = 3  # steps on a batch, at least, from which to tell what is left to gain
LEAST, PER_CENTER = 5000, 20  # rows of the first batch, in all and for each centre
WHY = {
    "converged": "the centres hardly moved any more",
    "quality": "good enough",
    "time_budget": "time was up",
    "max_iter": "no more steps allowed",
    "callback": "stopped by a callback",
}


class NestedInfo(NamedTuple):
    """What one step learned."""

    energy: float  # of the centres that came in, over the batch, times what the batch is a part of
    shift: float
    rows: int
    distances: int
    reassigned: int  # rows that changed cluster or joined
    batch: int  # rows in the batch
    newest: float  # what the rows that joined last cost of that, if all were like them; NaN if nobody looked


class NestedState(NamedTuple):
    """Everything needed to go on."""

    partition: Partition  # of the batch
    start: int  # which start this is
    seen: tuple[NestedInfo, ...] = ()  # of the steps on batches of this size

    @property
    def centers(self) -> Array:
        return self.partition.centers


class NestedPlan(NamedTuple):
    """What stays the same in all steps."""

    assign: Assign
    rho: float
    first: int  # rows of the first batch
    watch: bool  # look at the rows that joined last


class Batches:
    """The first rows of a shuffled order, as rows; all of them in their own."""

    def __init__(self, rows: Rows, k: int, rng: np.random.Generator) -> None:
        self.rows, self.k, self.mass = rows, k, float(rows.weights.sum())
        self.heavy = np.flatnonzero(rows.weights > 0) if rows.has_weights else None  # the others have nothing to tell
        self.n = len(rows) if self.heavy is None else len(self.heavy)
        self.order = Order(self.n, rng)
        self.part: Rows | None = None

    def size(self, wanted: int) -> int:
        """So many rows; all of them, if no more than these count."""
        return wanted if wanted < self.n else len(self.rows)

    def places(self, size: int) -> Array:
        """Where the rows of a batch stand."""
        first = self.order.first(size)
        return first if self.heavy is None else self.heavy[first]

    def first(self, size: int) -> Rows:
        if size == len(self.rows):
            self.part = None
            return self.rows
        if self.part is None or len(self.part) != size:
            self.part = None  # before the next one is made
            self.part = self.rows.materialize(self.places(size), self.k)
        return self.part


def ratios(state: Partition) -> Array:
    """sigma_C(j) / p(j): how unsure each centre is of its place, for each length that it moved; infinite if it did not."""
    votes = state.weight_sums * (state.counts - 1)
    known = (state.moves2 > 0) & (votes > 0)
    out = np.full(len(votes), np.inf)
    out[known] = np.sqrt(np.maximum(state.costs[known], 0) / votes[known] / state.moves2[known])
    return out


def grow(state: Partition, size: int, places: Array) -> Partition:
    """The batch grows to this size; its rows so far are at these places, and the others have no label yet."""
    labels = np.full(size, -1, np.int32)
    labels[places] = state.labels
    bounds = None if state.bounds is None else state.bounds.spread(size, places)
    return state._replace(labels=labels, bounds=bounds, n_reassigned=state.n_reassigned + size - len(places))


def newest_energy(rows: Rows, state: Partition) -> float:
    """What the newer half of the batch costs, a unit of weight."""
    new = np.arange(len(rows)) >= len(rows) // 2
    shares = rows.map_blocks(_newest_block, rows.prepare(state.centers), per_row=(rows.weights, state.labels, new))
    energy, mass = np.sum(list(shares), axis=0)
    return float(energy / mass) if mass else np.nan


def _newest_block(block: Block, weights: Array, labels: Array, new: Array, centers: Centers) -> Array:
    at = np.flatnonzero(new)
    return np.array([weights[at] @ block.pair_distances(at, labels[at], centers), weights[at].sum()])


def remaining(seen: Sequence[NestedInfo], n: int) -> float:
    """Which share of its energy the fit may still lose: what the batch is short of its fixed point, and of all rows.

    Gains of a batch fall about as 1 / t^2 in its t-th step, so that t times the last one is to come. A batch of b rows costs
    rows that it has not seen c / b more than it might, and itself c / b less; so rows that join it, and then have their
    say in 2 b, gain 1.5 c / b, a third of which is left. (They are compared with themselves: others may be dearer.)
    """
    if not seen:
        return np.inf
    last = seen[-1]
    if last.batch == n and (last.reassigned == 0 or last.energy <= 0):
        return 0.0
    here = [info for info in seen if info.batch == last.batch]
    energies = np.array([info.energy for info in here[-3:]])
    if len(here) < LOOKS or last.energy <= 0:  # a batch that costs nothing has not met the rows that do
        return np.inf
    if not np.isfinite(energies).all():  # as the user knows them, they may exceed float64
        return np.inf
    tail = len(here) * max(*-np.diff(energies), 0.0)
    gap = 0.0 if last.batch == n else max(here[0].newest - last.newest, 0.0) / 3
    return float("inf") if np.isnan(gap) else float(MARGIN * (tail + gap) / last.energy)


def step(batches: Batches, state: Partition, plan: NestedPlan, wrap_read_errors: int = 0) -> tuple[Partition, NestedInfo]:
    """One step on the batch, of which there were so many before, and which may double for the next."""
    n, size = len(batches.rows), len(state.labels)
    rows = batches.first(size)
    after, told = partition.advance(rows, state, plan.assign, fill=size == n)  # its rows may be yet to come
    share = float(rows.weights.sum()) / batches.mass
    looked = plan.watch and plan.first < size < n
    newest = batches.mass * newest_energy(rows, state) if looked else np.nan
    info = NestedInfo(*told._replace(energy=told.energy / share if share else 0.0), size, newest)
    if size < n and ratios(after).min() > plan.rho and (not plan.watch or wrap_read_errors >= LOOKS - 1):
        larger = batches.size(2 * size)
        after = grow(after, larger, batches.places(size) if larger == n else np.arange(size))
    return after, info


class NestedSolver(Solver):
    """Lloyd's steps on a batch that doubles once centroid noise dominates centroid movement."""

    info_type = NestedInfo

    def __init__(self, rows: Rows, plan: NestedPlan, k: int, seed: int, tol: float, quality: float) -> None:
        super().__init__(rows)
        self.plan, self.k, self.seed, self.tol, self.quality = plan, k, seed, tol, quality
        self._batches: tuple[int, Batches] | None = None  # of the start under way

    def batches(self, start: int) -> Batches:
        if self._batches is None or self._batches[0] != start:
            self._batches = start, Batches(self.rows, self.k, generator(self.seed, start, 1))
        return self._batches[1]

    def init(self, centers: Array, start: int) -> NestedState:
        batches = self.batches(start)
        return NestedState(partition.initial_partition(batches.first(batches.size(self.plan.first)), centers), start)

    def step(self, state: NestedState) -> tuple[NestedState, NestedInfo]:
        before = sum(info.batch == len(state.partition.labels) for info in state.seen)
        after, info = step(self.batches(state.start), state.partition, self.plan, before)
        return NestedState(after, state.start, (*(i for i in state.seen if i.batch == info.batch), info)), info

    def converged(self, state: NestedState, info: NestedInfo) -> bool:
        n = len(self.rows)
        if info.batch == n and (info.reassigned == 0 or info.shift <= self.tol):
            return True
        return remaining(state.seen, n) < self.quality

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return final_assign(rows, state, self.plan.assign)

    def finalize(self, result: RunResult, limits: Limits, skipped: list[str]) -> tuple[RunResult, float]:
        return super().finalize(result._replace(state=result.state.partition), limits, skipped)

    def is_valid_state(self, state: Any) -> bool:
        return all(type(info) is NestedInfo for info in getattr(state, "seen", ()))


class NestedKMeans(BaseCentroidClusterer):
    """k-means on nested mini-batches: a good clustering long before Lloyd's method has one, then its fixed point.

    Parameters
    ----------
    batch_size : int or "auto", default="auto"
        Rows of the first batch: 5000 as in the paper, but no fewer than 20 for each cluster, if "auto".
    rho : float, default=1.0
        When the batch doubles: when each centre's standard error is this many times what it moved. The larger, the later.
    quality : float, default=0.0
        Stop when going on is thought to lower the energy by less than this share, even if that is before all rows have been
        looked at; 0 to go on to the end.
    algorithm : {"auto", "lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected"}, default="auto"
        Algorithm that assigns the rows of a batch, as in `KMeans`. "elkan" keeps one lower bound per row and centroid, as in
        the paper. All give bitwise identical results; "projected" requires dense rows.
    ...

    Attributes
    ----------
    ...
    remaining_ : float
        Which share of the energy was thought to be still to gain in the end.
    stop_reason_ : str
        As above, or "quality": what was left to gain was thought to be less than that.
    summary_ : str
        In one line, what was done and how sure it is.
    history_ : list of dict
        One record a step of the start that was kept, as in `KMeans`, `batch` (rows looked at) and `newest` (what those
        that joined last cost; NaN for quality=0). Until the batch is all rows, both are estimates: what the batch costs,
        times what it is a part of.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import NestedKMeans
    >>> X = np.random.default_rng(0).normal(size=(20000, 4)) + 9 * np.arange(20000)[:, None] % 27
    >>> model = NestedKMeans(n_clusters=3, batch_size=1000, random_state=0).fit(X)
    >>> model.history_[0]["batch"], model.history_[-1]["batch"]
    (1000, 20000)
    """

    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "batch_size": [Count(), StrOptions({"auto"})],
        "rho": [Interval(Real, 0, None, closed="neither")],
        "quality": [Interval(Real, 0, 1, closed="left")],
        "algorithm": [StrOptions({"auto", *ALGORITHMS})],
    }

    batch_size: int | str
    rho: float
    quality: float
    algorithm: str

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        batch_size: int | str = "auto",
        rho: float = 1.0,
        quality: float = 0.0,
        algorithm: str = "auto",
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

    def _make_solver(self, context: FitContext) -> NestedSolver:
        _, assign = select_algorithm(context.rows, self.n_clusters, self.algorithm, context.memory)
        k, size = self.n_clusters, self.batch_size
        size = max(LEAST, PER_CENTER * k) if isinstance(size, str) else max(size, k)
        plan = NestedPlan(assign, self.rho, size, watch=self.quality > 0)
        return NestedSolver(context.rows, plan, k, context.seed, self.tol * context.variance, self.quality)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.algorithm != "projected"
        return tags

    def _memory(self, load: Workload) -> dict[str, float]:
        bounds = memory(self.algorithm, load.n, load.d, self.n_clusters, load.wide)
        return {**super()._memory(load), "the batch's places": 2.0 * load.n, **bounds}

    def _fitted_schema(self) -> dict[str, Spec]:
        own = {"remaining_": Number(finite=False), "history_": History(("step", "seconds", *NestedInfo._fields))}
        return {**super()._fitted_schema(), **own, "stop_reason_": Choice(tuple(WHY))}

    def _set_fitted_attributes(self, result: FitResult) -> None:
        super()._set_fitted_attributes(result)
        self.remaining_ = left = remaining(
            [NestedInfo(*(record[name] for name in NestedInfo._fields)) for record in self.history_], len(self.labels_)
        )
        if self.stop_reason_ == "converged" and 0 < left < self.quality:
            self.stop_reason_ = "quality"

    @property
    def summary_(self) -> str:
        check_is_fitted(self)
        n, last = len(self.labels_), self.history_[-1] if self.history_ else {"batch": 0, "seconds": 0.0}
        looked = "all of them" if last["batch"] == n else f"{last['batch']:,} of them"
        if self.remaining_ < 1e-6:
            sure = "nothing left to gain"
        elif self.stop_reason_ == "converged":
            sure = "next to nothing left to gain"
        elif self.remaining_ == np.inf:
            sure = "too few steps to tell what is left to gain"
        else:
            sure = f"about {100 * self.remaining_:.2g}% left to gain"
        steps = f"{self.n_iter_} step{'s' * (self.n_iter_ != 1)} in {last['seconds']:.2g} s"
        return (
            f"{self.n_clusters:,} clusters of {n:,} rows: {steps} on nested batches, the last on {looked}; "
            f"energy {self.inertia_:.6g}; {WHY[self.stop_reason_]}: {sure}."
        )
