"""Nested mini-batches: Lloyd's steps on a sample that doubles when it has told what it can.

J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS (Algorithm 5, "nmbatch").

Each batch holds the one before, so that bounds on its rows go on; each row has one vote, where it is now. The batch
doubles when every centre is surer of its place than it moves: min_j sigma_C(j) / p(j) > rho.

Differs from the paper: starting centres have no vote of their own; a centre that loses all its rows moves to the row
that is served worst; besides one lower bound a centre there are cheaper kinds (see `bounded` and `projected`), after
which a row's distance is not known in each step, so sse(j) comes from the sums. When the batch is all rows these are
taken in their own order.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..core import partition
from ..core.blocks import Block, Centers
from ..core.driver import Outcome
from ..core.fitting import CenterMover, Count, Method, keep
from ..core.moments import Moments
from ..core.partition import Assign, Partition
from ..core.rows import Rows
from ..core.seeding import generator
from ..core.shuffle import Order
from ..core.types import Array
from .auto import find

SLOWEST = 0.97  # steps whose gains fall more slowly than this are taken to fall this fast
BOUNDS = {"auto": "auto", "none": "lloyd", "one": "hamerly", "groups": "yinyang", "all": "elkan"}


class Info(NamedTuple):
    """What one step learned."""

    energy: float  # of the centres that came in, over the batch, times what the batch is a part of
    shift: float
    rows: int
    distances: int
    reassigned: int  # rows that changed cluster or joined
    batch: int  # rows in the batch
    gap: float  # by how much more a row that joined in this step may cost than the others, as a share


class Batches:
    """The first rows of a shuffled order, as rows; all of them in their own."""

    def __init__(self, rows: Rows, k: int, rng: np.random.Generator) -> None:
        self.rows, self.k = rows, k
        self.order = Order(len(rows), rng)
        self.part = rows.part(np.empty(0, np.int64), k)

    def first(self, size: int) -> Rows:
        if size == len(self.rows):
            return self.rows
        if len(self.part) != size:
            self.part = self.rows.part(self.order.first(size), self.k)
        return self.part


def ratios(state: Partition, after: Partition) -> Array:
    """sigma_C(j) / p(j): how unsure each centre is of its place, for each length that it moved; infinite if it did not."""
    C = state.centers.astype(np.float64)
    sse = after.squares - 2 * np.einsum("ij,ij->i", C, after.sums) + after.masses * (C * C).sum(axis=1)
    moved2 = ((after.centers.astype(np.float64) - C) ** 2).sum(axis=1)
    votes = after.masses * (after.counts - 1)
    known = (moved2 > 0) & (votes > 0)
    out = np.full(len(C), np.inf)
    out[known] = np.sqrt(np.maximum(sse[known], 0) / votes[known] / moved2[known])
    return out


def grow(state: Partition, size: int, places: Array) -> Partition:
    """The batch grows to this size; its rows so far are at these places, and the others have no label yet."""
    labels = np.full(size, -1, np.int32)
    labels[places] = state.labels
    bounds = None if state.bounds is None else state.bounds.spread(size, places)
    return state._replace(labels=labels, bounds=bounds, restless=state.restless + size - len(places))


def measure_gap(rows: Rows, state: Partition, joined: Array) -> float:
    """What centres that have not seen a row cost it more than those that have: the bias of an energy on the batch.

    By two standard errors more than was seen, so that a few rows that cost much don't go unnoticed.
    """
    per_row = (rows.weights, state.labels, joined)
    energy, energy2, mass, mass2 = np.sum([*rows.shares(_gap_block, rows.prepare(state.centers), per_row=per_row)], axis=0)
    if not mass.all() or energy[0] <= 0:
        return 0.0 if mass.all() else np.inf
    mean = energy / mass
    error2 = np.maximum(energy2 / mass - mean**2, 0) * mass2 / mass**2
    return float((mean[1] - mean[0] + 2 * np.sqrt(error2.sum())) / mean[0])


def _gap_block(block: Block, weights: Array, labels: Array, joined: Array, centers: Centers) -> Array:
    distances = block.pair_distances(np.arange(len(block)), labels, centers)
    return np.array([np.bincount(joined, w, 2) for w in (weights * distances, weights * distances**2, weights, weights**2)])


def tail(energies: list[float]) -> float:
    """What further steps would gain, as a share of the energy, if gains went on falling as the last ones fell."""
    gains = -np.diff(energies[-4:])
    if len(gains) < 2:
        return np.inf
    if gains.min() <= 0:  # so near the end that they are rounding, or clusters that ran empty
        return float(max(gains.max(), 0) / energies[-1])
    fall = max(gains[-1] / gains[-2], (gains[-1] / gains[0]) ** (1 / (len(gains) - 1)))
    fall = min(max(fall, 0.5), SLOWEST)
    return float(gains[-1] * fall / (1 - fall) / energies[-1])


def remaining(seen: list[Info], n: int) -> float:
    """Which share of its energy the fit may still lose: what the batch is short of all rows, and of its fixed point.

    Rows that have joined know the gap of a batch of half the size, which should be twice as wide.
    """
    last, energies = seen[-1], [info.energy for info in seen if info.batch == seen[-1].batch]
    if last.energy <= 0 or (last.batch == n and last.reassigned == 0):
        return 0.0
    gaps = [info.gap for info in seen if not np.isnan(info.gap)] or [np.inf]
    return tail(energies) + (0.0 if last.batch == n else max(gaps[-1], 0.0) / 2)


def step(batches: Batches, state: Partition, rho: float, assign: Assign) -> tuple[Partition, Info]:
    """One step on the batch, which may double for the next."""
    n, size = len(batches.rows), len(state.labels)
    rows = batches.first(size)
    joined = state.labels < 0  # the step will label them
    after, told = partition.advance(rows, state, assign)
    share = float(rows.weights.sum() / batches.rows.weights.sum())
    gap = measure_gap(rows, state, joined) if joined.any() and not joined.all() else np.nan
    info = Info(*told._replace(energy=told.energy / share if share else 0.0), size, gap)
    if size < n and ratios(state, after).min() > rho:
        larger = min(2 * size, n)
        after = grow(after, larger, batches.order.first(size) if larger == n else np.arange(size))
    return after, info


class NestedKMeans(CenterMover):
    """k-means on nested mini-batches: a good clustering long before Lloyd's method has one, then its fixed point.

    Parameters
    ----------
    batch_size : int, default=5000
        Rows of the first batch.
    rho : float, default=1.0
        When the batch doubles: when each centre's standard error is this many times what it moved. The larger, the later.
    quality : float, default=0.0
        Stop when the energy is thought to be within this share of what it would be at the end, even if that is before all
        rows have been looked at; 0 to go on to the end.
    bounds : {"auto", "none", "one", "groups", "all"}, default="auto"
        What a row remembers about the centres that are not its own: nothing, one number, one a group of centres, or one a
        centre as in the paper. The result is the same, to the last bit; "auto" is what `KMeans` would run.
    ...

    Attributes
    ----------
    ...
    remaining_ : float
        Which share of the energy was thought to be still to gain in the end.
    history_ : list of dict
        One record a step of the start that was kept, as in `KMeans`, `batch` (rows looked at) and `gap` (by how much
        more rows that had just joined may cost than the others, as a share: two standard errors above what was seen).
        Until the batch is all rows, `energy` is an estimate: that of the batch, times what the batch is a part of.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import NestedKMeans
    >>> X = np.random.default_rng(0).normal(size=(20000, 4)) + 9 * np.arange(20000)[:, None] % 27
    >>> model = NestedKMeans(n_clusters=3, batch_size=1000, random_state=0).fit(X)
    >>> model.history_[0]["batch"], model.history_[-1]["batch"]
    (1000, 20000)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CenterMover._parameter_constraints,
        "batch_size": [Count()],
        "rho": [Interval(Real, 0, None, closed="neither")],
        "quality": [Interval(Real, 0, 1, closed="left")],
        "bounds": [StrOptions(set(BOUNDS))],
    }

    batch_size: int
    rho: float
    quality: float
    bounds: str

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        batch_size: int = 5000,
        rho: float = 1.0,
        quality: float = 0.0,
        bounds: str = "auto",
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

    def _method(self, rows: Rows, moments: Moments, seed: int) -> Method:
        _, assign = find(rows, self.n_clusters, BOUNDS[self.bounds])
        size = min(len(rows), max(self.batch_size, self.n_clusters))
        tol = self.tol * moments.variance
        batches, seen = list[Batches](), list[Info]()

        def begin(centers: Array, start: int) -> Partition:
            batches[:] = [Batches(rows, self.n_clusters, generator(seed, start, 1))]
            seen.clear()
            return partition.begin(batches[0].first(size), centers)

        def done(state: Partition, info: Info) -> bool:
            seen.append(info)
            whole = info.batch == len(rows)
            return (whole and (info.reassigned == 0 or info.shift <= tol)) or remaining(seen, len(rows)) < self.quality

        return Method(begin, lambda state: step(batches[0], state, self.rho, assign), done, assign)

    def _publish(self, rows: Rows, outcome: Outcome, energy: float) -> None:
        super()._publish(rows, outcome, energy)
        self.remaining_ = remaining([Info(*(record[name] for name in Info._fields)) for record in self.history_], len(rows))
