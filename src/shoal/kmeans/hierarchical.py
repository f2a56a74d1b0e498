"""Hierarchical k-means for very many clusters: a tree of centroids, then Lloyd's algorithm among neighboring centroids.

The tree is built from the root down, each cell by k-means++ and a few steps on a sample of its rows. A step then compares each
row with the L centroids nearest to its own instead of all k, and moves every centroid to the mean of its rows.

References
----------
D. Nistér, H. Stewénius (2006), Scalable recognition with a vocabulary tree, CVPR, doi:10.1109/CVPR.2006.264.

Differs from the paper: children are allotted by energy, and the finest centroids are improved across the borders of cells.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ..data.blocks import Block, CenterLists, Centers
from ..data.rows import Rows
from ..data.types import Array
from ..execution.engine import lazy_on_dask
from ..execution.memory import Workload
from ..execution.threads import on_threads
from ..execution.time_estimate import labelling_seconds
from ..fit import finalize, partition
from ..fit.base import BaseCentroidClusterer
from ..fit.callbacks import report_step
from ..fit.centroid_model import near_block
from ..fit.context import FitContext
from ..fit.finalize import published_centers
from ..fit.initializers import ArrayStarts, Initialization
from ..fit.loop import Limits, RunResult
from ..fit.parameters import Count
from ..fit.partition import Partition, PartitionInfo, StepStats
from ..fit.random_streams import Stream, generator
from ..fit.restarts import FitResult
from ..fit.schema import ArraySpec, Number, Parts, Sizes, Spec, check_fitted_state, fail, floats
from ..fit.solver import Solver
from .center_tree import CenterTree, Level, Neighborhoods, find_neighborhoods, lists_of, search
from .grouped_rows import GroupedRows
from .init import INITIALIZERS
from .nearest_check import EXACT, NearestCheck, check_nearest
from .reseeding import reseed
from .tree_building import TreeBuilder, level_sizes

MAX_RESEEDING_STEPS = 9  # steps in which centroids are moved into costly clusters
STEPS_PER_SEARCH = 2  # steps after which the neighbors of the centroids are found again


class HierarchicalState(NamedTuple):
    """State of the fit after a step."""

    partition: Partition
    coarse: tuple[Level, ...]  # levels above the centroids of the partition
    neighborhoods: Neighborhoods  # of the centroids, some steps ago
    steps: int
    reseeded: int  # centroids that were moved into costly clusters before the last step
    energy: float  # of the centroids before the last step; infinite at first
    gain: float  # by which the last step lowered it

    @property
    def centers(self) -> Array:
        return self.partition.centers


def _compare_block(
    block: Block, labels: Array, old: Array, weights: Array, centers: Centers, lists: CenterLists, recompute: bool
) -> StepStats:
    """Label a block by comparing every row with the neighbors of its centroid, and return its share of the step."""
    distances = block.relabel_listed(centers, lists, old, labels)
    return StepStats(block.moves(weights, old, labels, len(centers.C), recompute), len(block), distances)


def _search_block(block: Block, labels: Array, old: Array, weights: Array, tree: CenterTree, recompute: bool) -> StepStats:
    """Label a block by the search in a tree, and return its share of the step."""
    found, distances = search(block, tree)
    labels[:] = found
    return StepStats(block.moves(weights, old, labels, len(tree.levels[-1].C), recompute), len(block), distances)


class FinalTree(NamedTuple):
    """Results of a fit besides its labels."""

    levels: tuple[Level, ...]
    neighbors: Array  # (k, L) int32
    energies: list[float]  # of the levels, in the units of X
    check: NearestCheck


class HierarchicalSolver(Solver):
    """Steps of Lloyd's algorithm that compare each row with the neighbors of its centroid."""

    def __init__(self, rows: Rows, builder: TreeBuilder, n_neighbors: int, tol: float, is_exact: bool) -> None:
        super().__init__(rows)
        self.builder, self.n_neighbors, self.tol, self.is_exact = builder, n_neighbors, tol, is_exact
        self.grouped = GroupedRows(rows)
        self._final: tuple[Array, tuple[Level, ...], Array, CenterTree] | None = None  # centroids, levels, neighbors, tree
        self._coarse: tuple[Level, ...] = ()  # of the final tree

    def init(self, centers: Array, start: int) -> HierarchicalState:
        (k, d), builder = centers.shape, self.builder
        state = partition.initial_partition(self.rows, centers)
        if builder.labels is None:  # a template of saved states
            coarse = tuple(Level(np.ones((size, d), centers.dtype), np.zeros(size, np.int32)) for size in builder.sizes[:-1])
        else:
            state, coarse = state._replace(labels=builder.labels.copy()), tuple(builder.levels[:-1])
        near = Neighborhoods(np.zeros(k, np.int32), np.zeros((k, min(self.n_neighbors, k)), np.int32), np.zeros(k, np.int32))
        return HierarchicalState(state, coarse, near, 0, 0, np.inf, np.inf)

    def step(self, state: HierarchicalState) -> tuple[HierarchicalState, PartitionInfo]:
        now, near, reseeded = state.partition, state.neighborhoods, 0
        if state.steps % STEPS_PER_SEARCH == 0:
            near = find_neighborhoods(self.rows, state.coarse, state.centers, self.n_neighbors)
            if 0 < state.steps < MAX_RESEEDING_STEPS:
                rng = generator(self.builder.seed, 0, len(self.builder.sizes) + state.steps)
                now, near, reseeded = reseed(self.rows, now, near, rng)
        lists = lists_of(near.neighbors)
        after, info = partition.advance(self.rows, now, partial(self._compare, lists=lists))
        if state.steps == 0:
            self.builder.forget()
        gain = (state.energy - info.energy) / info.energy if info.energy > 0 else 0.0
        return HierarchicalState(after, state.coarse, near, state.steps + 1, reseeded, info.energy, gain), info

    def converged(self, state: HierarchicalState, info: PartitionInfo) -> bool:
        if state.reseeded or state.steps == 1 or state.steps % STEPS_PER_SEARCH != 1:  # a search may still move centroids
            return False
        return info.reassigned == 0 or state.gain <= self.tol

    def _compare(self, rows: Rows, state: Partition, lists: CenterLists) -> tuple[Iterable[StepStats], Any]:
        """Assign rows by the neighbors of their centroids."""
        centers, recompute = rows.prepare(state.centers), partition.sums_need_recompute(state)
        return self._in_groups(state, partial(_compare_block, centers=centers, lists=lists, recompute=recompute)), None

    def _in_groups(self, state: Partition, fn: Callable[..., StepStats]) -> Iterator[StepStats]:
        """Yield the shares of a block function on rows in the order of their labels, which it updates."""
        rows, order = self.grouped.by(state.labels, self.n_neighbors)
        old = state.labels[order]
        labels = old.copy()
        yield from rows.map_blocks(fn, per_row=(labels, old, rows.weights))
        state.labels[order] = labels

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        """Assign all rows by the final tree, as `predict` does."""
        if self.is_exact:
            return partition.label_all(rows, state), None
        tree, recompute = self.tree(state.centers), partition.sums_need_recompute(state)
        return self._in_groups(state, partial(_search_block, tree=tree, recompute=recompute)), None

    def tree(self, centers: Array) -> CenterTree:
        """Return the tree of the final centroids. Coarse centroids without children are left out."""
        if self._final is None or self._final[0] is not centers:
            near = find_neighborhoods(self.rows, self._coarse, centers, self.n_neighbors)
            levels = prune((*self._coarse, Level(centers, near.parents)))
            tree = CenterTree.of(self.rows.prepare, levels, near.neighbors)
            self._final = centers, levels, near.neighbors, tree
        return self._final[3]

    def finalize(self, result: RunResult, limits: Limits, skipped: list[str]) -> tuple[RunResult, float]:
        """Return the run with the labels that the search finds for the published centroids, and its energy."""
        if result.info is None and not result.history:
            skipped.append("no step over the rows was completed")
        before: HierarchicalState = result.state
        state, _ = finalize.last_partition(self.rows, result._replace(state=before.partition))
        self._coarse = self._final_coarse(before)
        state = self.publish(state)
        state, energy = finalize.label_and_fill(self.rows, state, self.assign, self.publish, limits, skipped, _label)
        result, loss = finalize.with_energy(self.rows, result, state, energy)
        self.tree(state.centers)
        assert self._final is not None
        _, levels, neighbors, _ = self._final
        energies = self._level_energies(levels, state, loss)
        rng = generator(self.builder.seed, Stream.NEAREST_CHECK)
        check = EXACT if self.is_exact else check_nearest(self.rows, state.centers, state.labels, loss, rng)
        self.builder.final = FinalTree(levels, neighbors, energies, check)
        return result, loss

    def evaluate(self, result: RunResult) -> tuple[RunResult, float]:
        """Return the run as it is: there is one start, so there is none to compare it with."""
        return finalize.with_energy(self.rows, result, result.state, None)

    def _final_coarse(self, state: HierarchicalState) -> tuple[Level, ...]:
        """Return the coarse levels with each centroid at the mean of its rows, rounded to the values that the user will see."""
        sums, weight_sums = state.partition.sums, state.partition.weight_sums
        parents, out = state.neighborhoods.parents, list[Level]()
        for level in reversed(state.coarse):
            C = level.centers
            if state.steps:
                sums, weight_sums = sums_by(parents, sums, weight_sums, len(C))
                C = partition.move(self.rows, C, sums, weight_sums, weight_sums, weight_sums).centers
            C = self.rows.frame.into(published_centers(self.rows, C), self.rows.dtype)
            out.append(Level(C, level.parents))
            parents = level.parents
        return tuple(reversed(out))

    def _level_energies(self, levels: tuple[Level, ...], state: Partition, energy: float) -> list[float]:
        """Return the energies for the clusters of all levels, from the sums of the finest ones."""
        C, k = state.centers.astype(np.float64), len(state.centers)
        sums, (weight_sums, squares), counts = np.zeros(C.shape), np.zeros((2, k)), np.zeros(k, np.int64)
        for share in partition.keep_labels(self.rows, state)[0]:
            share.moves.add_to(sums, weight_sums, squares, counts)
        sums -= weight_sums[:, None] * C
        above, out = np.arange(k), [energy]
        for level, coarse in zip(levels[::-1], levels[-2::-1], strict=False):
            above = level.parents[above]
            far = C - coarse.centers[above]
            out.append(energy + float(np.einsum("ij,ij", 2 * sums + weight_sums[:, None] * far, far)))
        return [self.rows.frame.energy_out_of(max(found, 0.0)) for found in reversed(out)]

    def labelling_seconds(self, k: int) -> float:
        sizes = [1, *self.builder.sizes]
        compared = sum(-(-b // a) for a, b in itertools.pairwise(sizes)) + 2 * self.n_neighbors
        return labelling_seconds(self.rows, k if self.is_exact else min(k, compared))

    def is_valid_state(self, state: Any) -> bool:
        if state is None:
            return True
        parents = [level.parents for level in state.coarse] + [state.neighborhoods.parents]
        n_parents = [1, *self.builder.sizes]
        return all(not len(ids) or int(ids.max()) < n for ids, n in zip(parents, n_parents, strict=False))


def _label(rows: Rows, state: Partition, assign: partition.Assign) -> tuple[Partition, None]:
    """Label the rows. Their energy takes another pass, as comparing them with all centroids would take longer."""
    return partition.label(rows, state, assign), None


def sums_by(parents: Array, sums: Array, weight_sums: Array, n_parents: int) -> tuple[Array, Array]:
    """Return the sums of clusters, added up by their parents."""
    total, weights = np.zeros((n_parents, sums.shape[1])), np.bincount(parents, weight_sums, n_parents)
    np.add.at(total, parents, sums)
    return total, weights


def prune(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the levels without centroids that have no children."""
    out = [levels[-1]]
    for level in reversed(levels[:-1]):
        has_children = np.bincount(out[0].parents, minlength=len(level.centers)) > 0
        numbers = np.cumsum(has_children) - 1
        out[0] = out[0]._replace(parents=numbers[out[0].parents].astype(np.int32))
        out.insert(0, Level(np.ascontiguousarray(level.centers[has_children]), level.parents[has_children]))
    return tuple(out)


MAX_LEVELS = 8
MAX_COPIED_BYTES = 2.0**26  # of the rows of a file; more go to a temporary file
SUMMARY_ENDS = {
    "converged": "a step hardly lowered the energy",
    "time_budget": "time was up",
    "max_iter": "the number of steps was limited",
    "callback": "stopped by a callback",
}


@dataclass(frozen=True)
class ChildrenSpec(ArraySpec):
    """Numbers of parents, each of which has a child."""

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        super().check(value, name, sizes)
        n_parents = sizes[str(self.high)]
        if not np.bincount(value, minlength=n_parents).all():
            raise fail(name, "leaves parents without children", "a child of each parent")


class CoarseLevels(Spec):
    """The levels above the finest one; the size of the last one is that of the symbol "parents"."""

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, list):
            raise fail(name, f"is of type {type(value).__name__}", "a list")
        sizes["parents"] = 1
        for i, level in enumerate(value):
            place, own = f"{name}[{i}]", {"d": sizes["d"], "parents": sizes["parents"]}
            spec = Parts(Level, {"centers": floats("size", "d"), "parents": children_spec("size")})
            spec.check(level, place, own)
            sizes["parents"] = own["size"]


class Energies(Spec):
    """A list of numbers."""

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, list) or not value:
            raise fail(name, f"is of type {type(value).__name__}", "a list of numbers")
        for number in value:
            Number(finite=False).check(number, name, sizes)


def children_spec(size: str) -> ChildrenSpec:
    """Return the spec of the parents of centroids."""
    return ChildrenSpec((size,), ("int32",), 0, "parents")


SHARES = ArraySpec((2,), ("float64",))


def _label_new_block(start: int, raw: Any, out: Array, rows: Rows, tree: CenterTree, parents: tuple[Array, ...]) -> None:
    """Write the labels of a block of new rows by the search in the tree."""
    block, here = _near_tree(start, raw, rows, tree, parents)
    out[:], _ = search(block, here)


def _energy_of_new_block(
    start: int, raw: Any, weights: Array, rows: Rows, tree: CenterTree, parents: tuple[Array, ...]
) -> float:
    """Return the weighted energy of a block of new rows by the search in the tree."""
    block, here = _near_tree(start, raw, rows, tree, parents)
    return partition.energy_block(block, weights, search(block, here)[0], here.levels[-1])


def _near_tree(start: int, raw: Any, rows: Rows, tree: CenterTree, parents: tuple[Array, ...]) -> tuple[Block, CenterTree]:
    """Return new rows as a block in a frame that represents them exactly, and the tree in the same frame."""

    def prepare(other: Rows, C: Array) -> Any:
        return CenterTree.prepared(other.prepare, C, parents, tree.neighbors)

    found: Any = near_block(start, raw, rows, tree, prepare)  # type: ignore[arg-type]
    return found  # type: ignore[no-any-return]


class HierarchicalKMeans(BaseCentroidClusterer):
    """K-means for very many clusters, from thousands to a million.

    A tree of centroids gives the start. Steps of Lloyd's algorithm then compare each row with the centroids nearest to its own
    instead of all. How far the result is from comparing with all is measured on a sample of the rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_levels : int or "auto", default="auto"
        Number of levels of the tree. "auto" is 1 for up to 256 clusters, 2 for up to 100,000 and 3 for more.
    n_neighbors : int, default=64
        Number of centroids that a row is compared with in a step: the nearest ones of its present centroid.
    refine : {"neighbors", "exact"}, default="neighbors"
        How the final labels are found: by the search of `predict`, or by a comparison of every row with all centroids.
    max_iter : int, default=20
        Maximum number of steps after the tree is built.
    tol : float, default=1e-3
        Stop when a step lowers the energy by at most this share.
    time_budget : float or None, default=None
        Seconds after which `fit` ends with the best centroids found so far. Initialization may use half of them; if it
        would take longer, it is simplified, with a ConvergenceWarning. The check of X, a short initialization and the final
        labels are computed in any case, so `n_iter_` may be 0. Compilation of kernels, on their first use, counts. None
        sets no limit, and the result does not depend on time.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" scales rows and centroids to unit length, and the energy is the sum of 1 - cosine. Rows of zeros are
        rejected.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers. Pass an int for reproducible results.
    n_threads : int or None, default=None
        Number of threads. None uses as many as OpenMP would. The result does not depend on it.
    callback : callable or None, default=None
        Function called with a copy of each record of `history_`. The fit stops if it returns a true value. Before these,
        it is called with a record of each level of the tree, which has a field `level`, and cannot stop the fit.
    verbose : int, default=0
        Whether to print each record of `history_`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centroids.
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row. Equal to ``predict(X)``.
    inertia_ : float
        Energy: the weighted sum of squared distances from the rows to their centroids.
    parents_ : ndarray of shape (n_clusters,)
        Number of each centroid's parent in the level above; 0 if there is none.
    neighbors_ : ndarray of shape (n_clusters, n_neighbors)
        Nearest centroids of each centroid, itself among them, in the order of their numbers.
    coarse_levels_ : list of Level
        The levels above the finest one, the coarsest first, each with `centers` and `parents`.
    levels_ : list of Level
        All levels. The last one has `cluster_centers_` and `parents_`.
    level_energies_ : list of float
        Energy for the clusters of each level.
    off_nearest_ : float
        Estimated share of the rows that are not with their nearest centroid.
    off_nearest_interval_ : tuple of two floats
        Interval of 95% for `off_nearest_`.
    excess_energy_ : float
        Estimated share of `inertia_` that would be saved if every row were with its nearest centroid.
    excess_energy_interval_ : tuple of two floats
        Interval of 95% for `excess_energy_`.
    summary_ : str
        One line that says what was done, why it ended, and how far the labels are from the nearest centroids.
    n_iter_ : int
        Number of iterations from the initialization that was kept.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the iterations ended. "time_budget" and "callback" also if they ended the fit before all initializations were
        tried.
    history_ : list of dict
        One record per step: step, seconds, energy (of the incoming centroids), shift (sum of the squared movements of the
        centroids), rows (all), distances (computed), reassigned (rows whose label changed) and start (0).
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    KMeans : Exact k-means, which compares every row with all centroids.
    NestedKMeans : Batches that grow, for up to some thousands of clusters.

    Notes
    -----
    The tree costs about n_samples * sqrt(n_clusters) distances for each of a few passes, and a step n_samples * n_neighbors.
    Each cell is divided by k-means++ on a sample of its rows; children are allotted by the energy of the cells.

    The search of `predict` goes from the nearest coarse centroid to the nearest child, and then from neighbor to neighbor until
    none is nearer. It nearly always finds one of the nearest centroids, but not always the nearest: see `off_nearest_`, which
    compares at least 1,000 random rows (all, if there are fewer) with all centroids.

    Rows of a file are copied once to a temporary file, cell by cell. Rows in memory are neither copied nor converted as a
    whole. Distributed rows are compared on their workers; samples of the cells are gathered and divided by the driver.

    References
    ----------
    .. [1] D. Nistér, H. Stewénius (2006), Scalable recognition with a vocabulary tree, CVPR.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import HierarchicalKMeans
    >>> X = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
    >>> model = HierarchicalKMeans(n_clusters=400, random_state=0).fit(X)
    >>> [len(level.centers) for level in model.levels_]
    [20, 400]
    >>> int(model.labels_at(0).max())
    19
    """

    _initializers = INITIALIZERS
    _center_arrays = (4, 8)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: rule for name, rule in BaseCentroidClusterer._parameter_constraints.items() if name not in ("init", "n_init")},
        "n_levels": [Count(MAX_LEVELS), StrOptions({"auto"})],
        "n_neighbors": [Count()],
        "refine": [StrOptions({"neighbors", "exact"})],
    }
    init = "k-means++"  # not a parameter: the tree is the only initialization
    n_init = 1

    parents_: Array
    neighbors_: Array
    coarse_levels_: list[Level]
    level_energies_: list[float]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_levels: int | Literal["auto"] = "auto",
        n_neighbors: int = 64,
        refine: Literal["neighbors", "exact"] = "neighbors",
        max_iter: int = 20,
        tol: float = 1e-3,
        time_budget: float | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_levels = n_levels
        self.n_neighbors = n_neighbors
        self.refine = refine
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _initialization(self, X: Any, given: Array | None, seed: int) -> Initialization:
        return ArrayStarts(())  # replaced by the tree in `_prepare`

    def _prepare(self, context: FitContext) -> FitContext:
        context = context.prepared(self)
        sizes = level_sizes(self.n_clusters, self.n_levels)
        builder = TreeBuilder(sizes, context.seed, context.session, partial(report_step, self))
        return replace(context, initialization=builder)

    def _make_solver(self, context: FitContext) -> HierarchicalSolver:
        builder: Any = context.initialization
        return HierarchicalSolver(context.rows, builder, self.n_neighbors, self.tol, self.refine == "exact")

    def _memory(self, load: Workload) -> dict[str, float]:
        lists = min(self.n_neighbors, self.n_clusters) * self.n_clusters
        copied = 0.0 if load.held else min(MAX_COPIED_BYTES, load.n * load.numbers * float(load.raw_itemsize))
        return {"labels": 28.0 * load.n, "neighbors": 16.0 * lists, "rows of a file": copied}

    def _init_memory(self, load: Workload) -> float:
        return 0.0

    def _fitted_schema(self) -> dict[str, Spec]:
        return {
            **super()._fitted_schema(),
            "coarse_levels_": CoarseLevels(),
            "parents_": children_spec("k"),
            "neighbors_": ArraySpec(("k", "neighbors"), ("int32",), 0, "k"),
            "level_energies_": Energies(),
            "off_nearest_": Number(0, 1),
            "off_nearest_interval_": SHARES,
            "excess_energy_": Number(),
            "excess_energy_interval_": SHARES,
            "_tree_digest": Number(integral=True),
        }

    def _set_fitted_attributes(self, result: FitResult) -> None:
        super()._set_fitted_attributes(result)
        rows, builder = result.context.rows, result.context.initialization
        assert isinstance(builder, TreeBuilder)
        tree: FinalTree = builder.final
        self.coarse_levels_ = [Level(published_centers(rows, level.centers), level.parents) for level in tree.levels[:-1]]
        self.parents_, self.neighbors_ = tree.levels[-1].parents, tree.neighbors
        self.level_energies_ = tree.energies
        self.off_nearest_, *interval = tree.check.off
        self.off_nearest_interval_ = np.array(interval)
        self.excess_energy_, *interval = tree.check.excess
        self.excess_energy_interval_ = np.array(interval)
        self._tree_digest = _digest(self.cluster_centers_)

    @property
    def levels_(self) -> list[Level]:
        """All levels, the coarsest first."""
        check_is_fitted(self, "parents_")
        return [*self.coarse_levels_, Level(self.cluster_centers_, self.parents_)]

    def labels_at(self, level: int) -> Array:
        """Return the cluster of each row of the fit in a level.

        Parameters
        ----------
        level : int
            0 for the coarsest level; -1 for the finest one, whose labels are `labels_`.

        Returns
        -------
        labels : int32 array of shape (n_samples,)
        """
        levels = self.levels_
        if not -len(levels) <= level < len(levels):
            raise ValueError(f"level={level} does not exist: give 0 (the coarsest) to {len(levels) - 1} (the finest).")
        check_fitted_state(self)
        labels: Array = self.labels_
        for finer in levels[: level % len(levels) : -1]:
            labels = finer.parents[labels]
        return labels

    def _new_tree(self, rows: Rows, centers: Centers) -> tuple[CenterTree, tuple[Array, ...]] | None:
        """Return the tree in the frame of new rows, and its parents; None to compare rows with all centroids."""
        if self.refine == "exact" or "neighbors_" not in vars(self):
            return None
        check_fitted_state(
            self, "n_features_in_", "cluster_centers_", "coarse_levels_", "parents_", "neighbors_", "_tree_digest"
        )
        if self._tree_digest != _digest(np.asarray(self.cluster_centers_)):  # set by the user
            return None
        parents = tuple(level.parents for level in self.levels_)
        C = [rows.frame.into(level.centers, rows.dtype) for level in self.coarse_levels_]
        tree = CenterTree.prepared(rows.prepare, np.concatenate([*C, centers.C]), parents, lists_of(self.neighbors_))
        return tree, parents

    def predict(self, X: Any, *, exact: bool = False) -> Array:
        """Predict the cluster of each row by the search in the tree.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows to label, with the columns of the fit.
        exact : bool, default=False
            Whether to compare every row with all centroids instead. Always done after a fit with ``refine="exact"``, and for
            centroids that were set after the fit.

        Returns
        -------
        labels : int32 array of shape (n_samples,)
            For a dask array or dataframe, a lazy dask array.
        """
        return self._predict_exactly(X) if exact else self._predict_by_tree(X)

    @lazy_on_dask
    def _predict_exactly(self, X: Any) -> Array:
        """Return the nearest of all centroids of each row."""
        return super().predict(X)

    @lazy_on_dask
    def _predict_by_tree(self, X: Any) -> Array:
        """Return the labels of the search."""
        rows, centers = self._rows(X)
        tree = self._new_tree(rows, centers)
        if tree is None:
            return super().predict(X)
        labels = np.empty(len(rows), np.int32)
        with on_threads(rows, self.n_threads) as rows:
            rows.for_each_raw(_label_new_block, rows, *tree, per_row=(labels,))
        return labels

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the negative inertia of rows; higher is better.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            Weight of each row; None for weight 1.

        Returns
        -------
        score : float
            Negative weighted sum of squared distances to the centroids that `predict` finds.
        """
        rows, centers = self._rows(X, sample_weight)
        tree = self._new_tree(rows, centers)
        if tree is None:
            return super().score(X, y, sample_weight)
        with on_threads(rows, self.n_threads) as rows:
            shares = rows.map_raw_blocks(_energy_of_new_block, rows, *tree, per_row=(rows.weights,))
            return -rows.frame.energy_out_of(sum(shares))

    @property
    def summary_(self) -> str:
        """One line that says what was done, why it ended, and how far the labels are from the nearest centroids."""
        check_is_fitted(self, "parents_")
        sizes = " > ".join(f"{len(level.centers):,}" for level in self.levels_)
        seconds = self.history_[-1]["seconds"] if self.history_ else 0.0
        steps = f"{self.n_iter_} step{'s' * (self.n_iter_ != 1)} in {seconds:.2g} s"
        low, high = self.off_nearest_interval_
        gap = "every row is with its nearest centroid"
        if high > 0:
            _, most = self.excess_energy_interval_
            gap = (
                f"{100 * self.off_nearest_:.2g}% of the rows ({100 * low:.2g} to {100 * high:.2g}%) are not with their nearest "
                f"centroid, which costs {100 * self.excess_energy_:.2g}% of the energy (at most {100 * most:.2g}%)"
            )
        ended = SUMMARY_ENDS[self.stop_reason_]
        return f"{sizes} clusters of {len(self.labels_):,} rows: {steps}; energy {self.inertia_:.6g}; {ended}; {gap}."


def _digest(centers: Array) -> int:
    """Return a number that changes with the centroids."""
    return zlib.crc32(np.ascontiguousarray(centers).tobytes())
