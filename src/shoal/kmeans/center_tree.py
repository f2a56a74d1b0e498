"""A tree of centroids: levels from coarse to fine, neighbors of the finest centroids, and the search for a row's centroid.

A row goes to the nearest coarse centroids, from each level to the nearest of their children, and at the finest level from the
nearest centroid to the nearest of its neighbors until none is nearer. The result depends on the row and the tree alone, not on
other rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, CenterLists, Centers, DenseBlock, nearest_others
from ..data.cancellation import pieces
from ..data.rows import Rows
from ..data.sources import find_source
from ..data.types import Array
from ..kernels import tiles

SEARCHED_CELLS = 4  # cells of each level whose children a row is compared with; sparse rows, one
COMPARED_BY_DISTANCE = 4  # centroids of the lowest scores in these cells, which are compared by distance
MAX_HOPS = 20  # moves from a centroid to a nearer neighbor; the search nearly always ends after two
PROBED_CELLS = 16  # cells in which the neighbors of a centroid are searched
MAX_PAIRS_PER_CALL = 1 << 21  # pairs of rows and centroids in one call of a kernel, which cannot be interrupted
MAX_CENTERS_PER_BLOCK = 512  # centroids whose neighbors one thread finds at a time


class Level(NamedTuple):
    """One level of a tree."""

    centers: Array  # (k, d)
    parents: Array  # (k) int32: number of each centroid's parent in the level above; 0 in the coarsest level


def children_of(parents: Array, n_parents: int) -> CenterLists:
    """Return the children of each parent. Every parent has some."""
    order = np.argsort(parents, kind="stable").astype(np.int32)
    return CenterLists(np.searchsorted(parents[order], np.arange(n_parents + 1)), order)


def lists_of(neighbors: Array) -> CenterLists:
    """Return the neighbors of each centroid, (k, L), as lists."""
    k, size = neighbors.shape
    return CenterLists(np.arange(k + 1) * size, neighbors.ravel())


class CenterTree(NamedTuple):
    """A tree, prepared for the search of rows."""

    C: Array  # (k_1 + ... + k_m, d): centroids of all levels, so that they can be converted to another frame
    levels: tuple[Centers, ...]
    children: tuple[CenterLists, ...]  # of the centroids of every level but the last
    neighbors: CenterLists  # of the centroids of the last level, each of which is among its own
    cells: tuple[Cells, ...]  # centroids of every level by their parents

    @classmethod
    def of(cls, prepare: Any, levels: Sequence[Level], neighbors: Array) -> CenterTree:
        """Return the tree of these levels; `prepare` prepares centroids for the layout of the rows."""
        C = np.concatenate([level.centers for level in levels])
        return cls.prepared(prepare, C, [level.parents for level in levels], lists_of(neighbors))

    @classmethod
    def prepared(cls, prepare: Any, C: Array, parents: Sequence[Array], neighbors: CenterLists) -> CenterTree:
        """Return the tree of the centroids C of all levels."""
        sizes = [len(ids) for ids in parents]
        ends = np.cumsum(sizes)
        levels = tuple(prepare(np.ascontiguousarray(C[end - size : end])) for end, size in zip(ends, sizes, strict=True))
        children = tuple(children_of(ids, n) for ids, n in zip(parents[1:], sizes, strict=False))
        lists = (children_of(parents[0], 1), *children)
        cells = tuple(Cells.of(centers.C, some) for centers, some in zip(levels, lists, strict=True))
        return cls(C, levels, children, neighbors, cells)


def search(block: Block, tree: CenterTree) -> tuple[Array, int]:
    """Return the centroid of each row of a block by the search in a tree, and the number of distances."""
    is_flat = len(tree.levels) == 1
    if is_flat or not isinstance(block, DenseBlock) or tree.levels[-1].in_double is not None:
        labels, distances = descend(block, tree.levels, tree.children)
    else:
        labels, distances = descend_widely(block, tree)
    active = np.arange(len(block))
    for _ in range(0 if is_flat else MAX_HOPS):
        before = labels[active]
        nearer = before.copy()
        distances += (block if len(active) == len(block) else block.take(active)).relabel_listed(
            tree.levels[-1], tree.neighbors, before, nearer
        )
        labels[active] = nearer
        active = active[nearer != before]
        if not len(active):
            break
    return labels, distances


def descend(block: Block, levels: Sequence[Centers], children: Sequence[CenterLists]) -> tuple[Array, int]:
    """Return the centroid of each row in the last of the levels, by the nearest child from level to level."""
    labels = np.full(len(block), -1, np.int32)
    block.relabel(levels[0], labels)
    distances = len(block) * len(levels[0].C)
    for centers, lists in zip(levels[1:], children, strict=False):
        groups, labels = labels, np.full(len(block), -1, np.int32)
        distances += block.relabel_listed(centers, lists, groups, labels)
    return labels, distances


def descend_widely(block: DenseBlock, tree: CenterTree) -> tuple[Array, int]:
    """Return the centroid of each row in the last level, among the children of several cells of each level."""
    n, distances = len(block), 0
    cells, nobody = np.zeros((n, 1), np.int32), np.full(n, -1, np.int32)
    for level, packed in enumerate(tree.cells):
        width = SEARCHED_CELLS if level + 1 < len(tree.cells) else COMPARED_BY_DISTANCE
        ids = np.empty((n, min(width, len(tree.levels[level].C))), np.int32)
        distances += int(packed.sizes[cells[cells >= 0]].sum())
        for s in pieces(n, max(1024, MAX_PAIRS_PER_CALL // max(distances // n, 1))):
            nearest_in_cells(block.X[s], nobody[s], cells[s], ids[s], packed)
        cells = ids
    centers = tree.levels[-1]
    far = np.full(ids.shape, np.inf)
    rows, places = np.nonzero(ids >= 0)
    far[rows, places] = block.pair_distances(rows, ids[rows, places].astype(np.int64), centers)
    lowest = np.where(far == far.min(axis=1)[:, None], ids, len(centers.C))
    labels: Array = lowest.min(axis=1)  # of equally near ones, the first
    return labels, distances


class Cells(NamedTuple):
    """Centroids of a level, packed by their parents."""

    packs: Array  # (packs, d, lanes)
    z2: Array  # (packs, lanes)
    members: Array  # (packs, lanes) int32
    firsts: Array  # (parents + 1) int64: first pack of each parent
    sizes: Array  # (parents) int64: children of each parent

    @classmethod
    def of(cls, C: Array, lists: CenterLists) -> Cells:
        sizes, n_lanes = np.diff(lists.indptr), tiles.lanes(C.dtype)
        firsts = np.concatenate([[0], np.cumsum(-(-sizes // n_lanes))])
        members = np.full(firsts[-1] * n_lanes, -1, np.int32)
        places = np.repeat(firsts[:-1] * n_lanes - lists.indptr[:-1], sizes) + np.arange(len(lists.ids))
        members[places] = lists.ids
        Z, z2 = np.zeros((len(members), C.shape[1]), C.dtype), np.full(len(members), np.inf, C.dtype)
        Z[places] = -2 * C[lists.ids]
        z2[places] = np.einsum("ij,ij->i", C, C)[lists.ids]
        return cls(tiles.pack(Z), z2.reshape(-1, n_lanes), members.reshape(-1, n_lanes), firsts, sizes)


def nearest_in_cells(X: Array, own: Array, cells: Array, ids: Array, level: Cells) -> None:
    """Write the nearest centroids of some rows in their cells, by scores, the nearest first; -1 where there are fewer."""
    scores = np.empty(ids.shape, X.dtype)
    tiles.nearest_in_cells(X, own, np.ascontiguousarray(cells), *level[:4], scores, ids)
    ids[:] = np.take_along_axis(ids, np.argsort(scores, axis=1, kind="stable"), axis=1)


def _nearest_block(block: DenseBlock, own: Array, cells: Array, ids: Array, level: Cells) -> None:
    """Write the nearest centroids of a block of centroids in their cells."""
    nearest_in_cells(block.X, own, cells, ids, level)


def _descend_block(block: DenseBlock, out: Array, levels: Sequence[Centers], children: Sequence[CenterLists]) -> None:
    out[:], _ = descend(block, levels, children)


class Neighborhoods(NamedTuple):
    """Neighbors of the finest centroids, found through the levels above."""

    parents: Array  # (k) int32
    neighbors: Array  # (k, L) int32: nearest centroids, the centroid itself among them, sorted by number
    nearest: Array  # (k) int32: the nearest other centroid; the centroid itself if there is none


def find_neighborhoods(rows: Rows, coarse: Sequence[Level], C: Array, size: int) -> Neighborhoods:
    """Find the parent of each centroid and its `size` nearest centroids, in the cells that are nearest to it.

    The executor of the rows is used. Neighbors are approximate; parents are those of the search.
    """
    k, size = len(C), min(size, len(C))
    parents = np.zeros(k, np.int32)
    some = rows.sibling(find_source(C))
    some = some.with_block_rows(max(1, min(MAX_CENTERS_PER_BLOCK, k // 8)))
    if coarse:
        prepared = [DenseBlock.prepare(level.centers) for level in coarse]
        children = [children_of(below.parents, len(above.centers)) for above, below in itertools.pairwise(coarse)]
        some.for_each(_descend_block, prepared, children, per_row=(parents,))
    if size == k:
        all_of_them, block = np.arange(k, dtype=np.int32), DenseBlock(C)
        nearest = nearest_others(block, all_of_them, DenseBlock.prepare(C)) if k > 1 else all_of_them
        return Neighborhoods(parents, np.tile(all_of_them, (k, 1)), nearest.astype(np.int32))
    order = np.argsort(parents, kind="stable")  # so that centroids of a block have common cells
    some = rows.sibling(find_source(np.ascontiguousarray(C[order]))).with_block_rows(some.block_rows)
    cells, nobody = np.zeros((k, 1), np.int32), np.full(k, -1, np.int32)
    for level, n_parents in zip(coarse, [1, *(len(level.centers) for level in coarse)], strict=False):
        packed = Cells.of(level.centers, children_of(level.parents, n_parents))
        ids = np.empty((k, min(PROBED_CELLS, len(level.centers))), np.int32)
        some.for_each(partial(_nearest_block, level=packed), per_row=(nobody, cells, ids))
        cells = ids
    packed = Cells.of(C, children_of(parents, len(coarse[-1].centers) if coarse else 1))
    ids = np.empty((k, size - 1), np.int32)
    own = order.astype(np.int32)
    some.for_each(partial(_nearest_block, level=packed), per_row=(own, cells, ids))
    neighbors = np.empty((k, size), np.int32)
    ids, nearest = np.where(ids < 0, own[:, None], ids), np.empty(k, np.int32)
    neighbors[order], nearest[order] = np.sort(np.column_stack([own, ids]), axis=1), ids[:, 0] if size > 1 else own
    return Neighborhoods(parents, neighbors, nearest)
