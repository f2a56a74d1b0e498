"""Give each empty cluster the row that is farthest from its centre, one after the other.

Each row that is placed lowers the distances of the rows near it, so the next choice depends on it. Every block proposes its
farthest rows; the best of them, as many as fit into `CANDIDATE_BYTES`, are read and filled in until a row outside of them could
be farther. Then the blocks propose again. Which rows are chosen depends neither on the blocks nor on the number of candidates:
always the farthest row, and the first of equals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, Centers
from ..data.cancellation import check_cancelled
from ..data.rows import Rows
from ..data.types import Array, is_sparse

PROPOSALS = 64  # rows that a block proposes, or twice as many as there are empty clusters
CANDIDATES = 4096  # proposals that are read, of all blocks together, or four times as many as one block may make
CANDIDATE_BYTES = 1 << 25  # that these rows may take, in the layout of their block: wide rows are fewer
SAME = 1e-12  # of a row's norm: how far from equal rows the float64 sum of them may put their mean


class Candidates(NamedTuple):
    """Rows to choose from, in row order."""

    ids: Array  # (m) int64
    far: Array  # (m) float64: squared distance to the nearest centre or placed row
    bound: tuple[float, int]  # distance and minus the number of a row: all rows that are no candidates come after it


def _propose(
    block: Block, labels: Array, weights: Array, centers: Centers, placed: Centers | None, counts: Array, m: int, same: float
) -> tuple[Array, Array, Array]:
    """The block's m rows farthest from their centre and from all placed rows: places, squared distances, sizes in bytes.

    A row that is all its cluster has stays there.
    """
    every = np.arange(len(block))
    far = block.pair_distances(every, labels, centers)
    if placed is not None:
        far = np.minimum(far, block.pair_distances(every, block.nearest(placed), placed))
    far[(weights <= 0) | (counts[labels] <= 1)] = 0
    _forget_equal(far, block, same)
    top = np.argsort(-far, kind="stable")[:m]
    return top, far[top], _bytes_of_rows(block)[top]


def _forget_equal(far: Array, block: Block, same: float) -> None:
    """Set distances to zero that are rounding errors: below `same`, in units of the rows' norms."""
    far[far <= same**2 * block.squared_norms()] = 0


def _bytes_of_rows(block: Block) -> Array:
    X: Any = block.X
    if is_sparse(X):
        return np.asarray(np.diff(X.indptr) * (X.data.itemsize + X.indices.itemsize))
    return np.full(len(block), X.shape[1] * X.itemsize)


def _candidates(rows: Rows, shares: Any, m: int) -> Candidates:
    """The farthest of the rows that blocks propose, m each at most."""
    ids, far, sizes = np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
    bound, most = (0.0, 0), max(CANDIDATES, 4 * m)
    for start, (top, distances, bytes_) in zip(rows.starts, shares, strict=True):
        if len(top) == m:
            bound = max(bound, (float(distances[-1]), -int(start + top[-1])))
        ids, far, sizes = np.r_[ids, start + top], np.r_[far, distances], np.r_[sizes, bytes_]
        order = np.lexsort((ids, -far))
        kept = max(1, min(most, int(np.searchsorted(np.cumsum(sizes[order]), CANDIDATE_BYTES, "right"))))
        if kept < len(order):
            first = order[kept]
            bound = max(bound, (float(far[first]), -int(ids[first])))
            order = order[:kept]
        ids, far, sizes = ids[order], far[order], sizes[order]
    order = np.argsort(ids)
    return Candidates(ids[order], far[order], bound)


def fill(rows: Rows, state: Any, sums: Array, weight_sums: Array, squares: Array, counts: Array) -> int:
    """Move rows to empty clusters while there are any of both. Sums and labels are brought up to date.

    `state` is a `partition.Partition`. Returns how many rows were moved.
    """
    empty = np.flatnonzero(counts == 0)
    sums[empty], weight_sums[empty], squares[empty] = 0, 0, 0
    centers, placed, done = rows.prepare(state.centers), np.empty((len(empty), rows.d), rows.dtype), 0
    eps = float(np.finfo(rows.dtype).eps)
    same = max(SAME, 4 * eps) if rows.frame.unit else SAME  # a mean of equal float32 rows rounds to them; a direction may not
    while done < len(empty):
        m = max(PROPOSALS, 2 * (len(empty) - done))
        before = rows.prepare(placed[:done]) if done else None
        shares = rows.map_blocks(_propose, centers, before, counts, m, same, per_row=(state.labels, rows.weights))
        ids, far, bound = _candidates(rows, shares, m)
        block = rows.convert(rows.source.take(ids))
        first = done
        while done < len(empty) and (far[at := int(far.argmax())], -int(ids[at])) >= bound and far[at] > 0:
            check_cancelled()
            row, old, new = int(ids[at]), int(state.labels[ids[at]]), int(empty[done])
            if counts[old] == 1:
                far[at] = 0
                continue
            placed[done] = rows.dense(block.take(np.array([at])))[0]
            x, w = placed[done].astype(np.float64), rows.weights[row]
            for j, sign in ((old, -1), (new, 1)):
                sums[j] += sign * w * x
                weight_sums[j] += sign * w
                squares[j] += sign * w * (x @ x)
                counts[j] += sign
            state.labels[row] = new
            if state.bounds is not None:
                state.bounds.forget(row)
            here = rows.prepare(placed[done : done + 1])
            near = block.pair_distances(np.arange(len(ids)), np.zeros(len(ids), np.int64), here)
            far = np.minimum(far, near)
            _forget_equal(far, block, same)
            far[at] = 0
            done += 1
        if done == first:
            break
    return done
