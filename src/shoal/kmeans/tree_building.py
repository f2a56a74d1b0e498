"""Build a tree of centroids from the root down: divide every cell of a level by k-means++ and a few steps of Lloyd's algorithm.

Cells are independent of each other, so they are what threads work on, and a cell is divided by a sample of its rows, so that it
may be larger than memory. Children are allotted by the energy of the cells: rows far from their centroid need more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, CenterLists, Centers
from ..data.cancellation import TimeUp, check_cancelled, now, time_limit
from ..data.frame import Frame
from ..data.jobs import Job, folded
from ..data.rows import Rows
from ..data.sources import find_source
from ..data.types import Array
from ..execution.deadline import NO_DEADLINE, Deadline
from ..fit.checkpoint import CheckpointSession
from ..fit.checkpoint_validation import matches_template
from ..fit.partition import advance, initial_partition, label_all
from ..fit.random_streams import generator
from .center_tree import Level, children_of
from .grouped_rows import GroupedRows, group_order
from .init.kmeans_plus_plus import choose, greedy
from .init.local_search import row_distances
from .init.sample import row_keys, sketch, take_rows

MAX_FLAT_CLUSTERS = 256  # clusters up to which one level is enough
MAX_TWO_LEVEL_CLUSTERS = 100_000  # clusters up to which two levels are enough
SAMPLE_ROWS_PER_CHILD = 64  # rows by which a cell is divided
MIN_SAMPLE_ROWS = 4096  # of a cell, which may be few but must not miss rare clusters
SEED_ROWS_PER_CHILD = 20  # rows among which k-means++ chooses the children of cells; more cost more than they improve
STEPS_PER_CELL = 3  # of Lloyd's algorithm; steps over all rows that follow improve more
STEPS_AT_ROOT = 8
MIN_IMPROVEMENT = 1e-3  # steps end once they lower the energy of the sample by less than this share


def level_sizes(k: int, n_levels: int | str) -> list[int]:
    """Return the number of centroids of each level, from the coarsest to the finest."""
    if isinstance(n_levels, str):
        n_levels = 1 if k <= MAX_FLAT_CLUSTERS else 2 if k <= MAX_TWO_LEVEL_CLUSTERS else 3
    sizes = [max(1, round(k ** ((level + 1) / n_levels))) for level in range(n_levels - 1)]
    return [*sizes, k]


def allot(k: int, energies: Array, rows: Array) -> Array:
    """Return the number of children of each cell, k in all: proportional to its energy, at most its rows, at least one.

    Cells without rows get none. If there are fewer rows than children, cells get more children than rows.
    """
    found = (rows > 0).astype(np.int64)
    room = rows - found
    if room.sum() + found.sum() < k:
        room = np.where(found > 0, k, 0)
    left = k - int(found.sum())
    share = np.where(room > 0, np.maximum(energies, 0), 0.0)
    while left > 0:
        if not share.sum() > 0:
            share = room.astype(np.float64)
        wanted = left * share / share.sum()
        more = np.minimum(np.floor(wanted).astype(np.int64), room)
        if not more.any():  # largest remainders first
            first = np.argsort(-np.where(room > 0, wanted, -1.0), kind="stable")[: min(left, np.count_nonzero(room > 0))]
            more[first] = 1
        found, room, left = found + more, room - more, left - int(more.sum())
        share = np.where(room > 0, share, 0.0)
    return found


class _Serial:
    """Executor that runs blocks one after the other in the thread that calls it, which is one of several already."""

    n_threads = 1

    def resize(self, n_threads: int) -> None:
        """There is nothing to change."""

    def run(self, job: Job, per_row: tuple[Array, ...]) -> Generator[Any]:
        def share(here: slice) -> Any:
            mine = (np.ascontiguousarray(a[here]) for a in per_row)
            return job.fn(here.start, job.source.read(here.start, here.stop), *mine, *job.args)

        for span in job.spans:
            yield from folded(share(here) for here in span.blocks())


def divide(block: Block, weights: Array, k: int, unit: bool, seed: tuple[int, ...], at_root: bool) -> Array:
    """Return k centroids of the rows of a block."""
    X: Any = block.X
    rows = Rows.of(find_source(X), np.ascontiguousarray(weights), Frame(unit=unit), _Serial())
    rng, n = generator(*seed), len(block)
    n_seeds = n if at_root else min(n, SEED_ROWS_PER_CHILD * k)
    ids = np.arange(n) if n_seeds == n else np.sort(rng.choice(n, n_seeds, replace=False))
    short = sketch(take_rows(rows, ids))
    order = np.argsort(row_keys(short), kind="stable")  # equal rows side by side
    ids, short = ids[order], np.ascontiguousarray(short[order])
    if at_root:
        chosen = choose(rows, short, rows.weights[ids], k, rng)
    else:
        chosen = greedy(row_distances(short, rows), rows.weights[ids], k, rng, n_candidates=1)
    state, before = initial_partition(rows, rows.take(ids[chosen])), np.inf
    for _ in range(STEPS_AT_ROOT if at_root else STEPS_PER_CELL):
        state, info = advance(rows, state, lambda rows, state: (label_all(rows, state), None))
        if not info.reassigned or before - info.energy <= MIN_IMPROVEMENT * info.energy:
            break
        before = info.energy
    return state.centers


def _divide_cell(start: int, raw: Any, weights: Array, rows: Rows, cuts: Array, children: Array, seed: tuple[int, ...]) -> Any:
    """Return the children of a cell, given the first of its sampled rows."""
    check_cancelled()
    cell = int(np.searchsorted(cuts, start, "right")) - 1
    return divide(rows.convert(raw), weights, int(children[cell]), rows.frame.unit, (*seed, cell), len(children) == 1)


def _sample_cells(rows: Rows, cells: Array, children: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return rows by which the cells are divided, cell by cell, and the first place of each cell."""
    ids = group_order(cells)
    if rows.has_weights:
        ids = ids[rows.weights[ids] > 0]
    cuts = np.searchsorted(cells[ids], np.arange(len(children) + 1))
    sizes = np.minimum(np.diff(cuts), np.maximum(SAMPLE_ROWS_PER_CHILD * children, MIN_SAMPLE_ROWS))
    sizes[children == 0] = 0
    if (sizes < np.diff(cuts)).any():
        parts = []
        for a, b, size in zip(cuts, cuts[1:], sizes, strict=False):
            parts.append(ids[a:b] if size == b - a else ids[a + np.sort(rng.choice(b - a, size, replace=False))])
        ids = np.concatenate(parts)
    return ids, np.concatenate([[0], np.cumsum(sizes)])


def _repeat_rows(rows: Rows, ids: Array, cuts: Array, children: Array) -> Array:
    """Return the first sampled rows of each cell as its children: what takes no time."""
    picked = [ids[a + np.arange(count) % (b - a)] for a, b, count in zip(cuts, cuts[1:], children, strict=False) if count]
    return rows.take(np.concatenate(picked))


def divide_cells(rows: Rows, cells: Array, children: Array, seed: tuple[int, ...], deadline: Deadline) -> Level:
    """Divide every cell of the rows into its number of children. Cells without children get none."""
    ids, cuts = _sample_cells(rows, cells, children, generator(*seed))
    some = rows.cells(ids, cuts)
    parents = np.repeat(np.arange(len(children), dtype=np.int32), children)
    try:
        with time_limit(deadline.end):
            parts = list(some.map_raw_blocks(_divide_cell, rows, cuts, children, seed, per_row=(some.weights,)))
        C = np.concatenate(parts)
    except TimeUp:
        deadline.skip(f"{len(parents):,} centroids are random rows of their cells")
        C = _repeat_rows(rows, ids, cuts, children)
    return Level(np.ascontiguousarray(C, rows.dtype), parents)


class Moments(NamedTuple):
    """Energies and rows of the clusters of a block. They add up."""

    energies: Array  # (k) float64
    counts: Array  # (k) int64: rows of positive weight

    def plus(self, other: Moments) -> Moments:
        """Return the sum of both."""
        return Moments(self.energies + other.energies, self.counts + other.counts)


def _label_children(block: Block, cells: Array, weights: Array, labels: Array, centers: Centers, lists: CenterLists) -> Moments:
    """Label the rows of a block by the children of their cells."""
    found, k = np.full(len(block), -1, np.int32), len(centers.C)
    block.relabel_listed(centers, lists, cells, found)
    labels[:] = found
    far = weights * block.pair_distances(np.arange(len(block)), found, centers)
    return Moments(np.bincount(found, far, k), np.bincount(found, weights > 0, k).astype(np.int64))


def label_children(grouped: GroupedRows, cells: Array, level: Level, n_parents: int) -> tuple[Array, Moments]:
    """Return the label of every row by the children of its cell, and the moments of the clusters."""
    rows, order = grouped.by(cells)
    found = np.empty(len(cells), np.int32)
    centers, lists = rows.prepare(level.centers), children_of(level.parents, n_parents)
    shares = rows.map_blocks(_label_children, centers, lists, per_row=(cells[order], rows.weights, found))
    total = Moments(np.zeros(len(level.centers)), np.zeros(len(level.centers), np.int64))
    for share in shares:
        total = total.plus(share)
    labels = np.empty_like(found)
    labels[order] = found
    return labels, total


@dataclass
class TreeBuilder:
    """Builds the levels of a tree, one after the other, and the label of every row. It is the initialization of a fit."""

    sizes: list[int]  # centroids of each level
    seed: int
    session: CheckpointSession
    report: Callable[[dict[str, Any]], object]  # called with a record after each level
    levels: list[Level] = field(default_factory=list)
    labels: Array | None = None  # (n) int32, once the tree is built
    n_starts: int = 1
    final: Any = None  # what the solver has made of the tree in the end

    @property
    def k(self) -> int:
        """Number of centroids of the finest level."""
        return self.sizes[-1]

    def centers(self, rows: Rows, start: int, deadline: Deadline = NO_DEADLINE) -> Array:
        """Build the tree, and return the centroids of its finest level."""
        begun, grouped = now(), GroupedRows(rows)
        cells = np.zeros(len(rows), np.int32)
        some = rows.weights > 0
        moments = Moments(np.ones(1), np.array([np.count_nonzero(some)]))
        self.levels = []
        for number, size in enumerate(self.sizes):
            children, n_parents = allot(size, *moments), len(moments.counts)

            def find(cells: Array = cells, children: Array = children, number: int = number) -> Level:
                return divide_cells(rows, cells, children, (self.seed, start, number), deadline)

            level = self.session.once(self._section(number), find, partial(self._is_level, rows, children))
            self.levels.append(level)
            cells, moments = label_children(grouped, cells, level, n_parents)
            energy = rows.frame.energy_out_of(float(moments.energies.sum()))
            record = {"level": number + 1, "levels": len(self.sizes), "clusters": size, "energy": energy}
            self.report({"step": 0, "seconds": now() - begun, **record})
        self.labels = cells
        return level.centers  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Drop the saved levels, which are part of the state from the first step on."""
        for number in range(len(self.sizes)):
            self.session.discard(self._section(number))

    def _section(self, number: int) -> str:
        return f"level {number + 1}"

    def _is_level(self, rows: Rows, children: Array, value: Any) -> bool:
        """Return whether a value from a checkpoint is the level of a tree with these numbers of children."""
        k = int(children.sum())
        template = Level(np.ones((k, rows.d), rows.dtype), np.zeros(k, np.int32))
        expected = np.repeat(np.arange(len(children), dtype=np.int32), children)
        return matches_template(value, template, k, k) and np.array_equal(value.parents, expected)
