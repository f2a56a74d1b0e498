"""Relocate each empty cluster to the row that is farthest from its centroid, one after the other.

Every relocation reduces the distances of the rows near it, so the next choice depends on it. Each block proposes its farthest
rows. The farthest of all proposals, as many as fit into `MAX_CANDIDATE_BYTES`, become candidates. Clusters are relocated to
them until a row that is no candidate could be farther. Then the blocks propose again. The invariant: the chosen row is always
the farthest of all rows, and the first one of equals, independent of the blocks and of the number of candidates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, Centers
from ..data.cancellation import check_cancelled
from ..data.rows import Rows
from ..data.types import Array, is_sparse

MIN_PROPOSALS = 64  # smallest number of rows that a block proposes; more if there are more than half as many empty clusters
MIN_CANDIDATES = 4096  # smallest limit on the number of candidates; more if a block proposes more than a quarter as many
MAX_CANDIDATE_BYTES = 1 << 25  # largest memory of all candidates, in the layout of their block
ROUNDING_TOLERANCE = 1e-12  # relative rounding error of the mean of equal rows; rows nearer than that to a centroid equal it


class Candidates(NamedTuple):
    """Candidates for a relocation, in row order."""

    ids: Array  # (m) int64
    far: Array  # (m) float64: squared distance to the nearest centroid, relocated ones included
    bound: tuple[float, int]  # (distance, minus row number), an upper bound for all rows that are no candidates


def _propose(
    block: Block, labels: Array, weights: Array, centers: Centers, placed: Centers | None, counts: Array, m: int, same: float
) -> tuple[Array, Array, Array]:
    """Return the m rows of a block farthest from all centroids: their positions, squared distances and sizes in bytes.

    The only row of a cluster is not proposed.
    """
    every = np.arange(len(block))
    far = block.pair_distances(every, labels, centers)
    if placed is not None:
        far = np.minimum(far, block.pair_distances(every, block.nearest(placed), placed))
    far[(weights <= 0) | (counts[labels] <= 1)] = 0
    _zero_rounding_errors(far, block, same)
    top = np.argsort(-far, kind="stable")[:m]
    return top, far[top], _bytes_of_rows(block)[top]


def _zero_rounding_errors(far: Array, block: Block, same: float) -> None:
    """Set distances to zero that may be rounding errors: those below `same` times the norm of the row."""
    far[far <= same**2 * block.squared_norms()] = 0


def _bytes_of_rows(block: Block) -> Array:
    """Return the memory of each row of a block."""
    X: Any = block.X
    if is_sparse(X):
        return np.asarray(np.diff(X.indptr) * (X.data.itemsize + X.indices.itemsize))
    return np.full(len(block), X.shape[1] * X.itemsize)


def _candidates(rows: Rows, shares: Any, m: int) -> Candidates:
    """Return the farthest of the rows that blocks propose, at most m each, and a bound for all other rows."""
    ids, far, sizes = np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
    bound, most = (0.0, 0), max(MIN_CANDIDATES, 4 * m)
    for start, (top, distances, bytes_) in zip(rows.starts, shares, strict=True):
        if len(top) == m:
            bound = max(bound, (float(distances[-1]), -int(start + top[-1])))
        ids, far, sizes = np.r_[ids, start + top], np.r_[far, distances], np.r_[sizes, bytes_]
        order = np.lexsort((ids, -far))
        kept = max(1, min(most, int(np.searchsorted(np.cumsum(sizes[order]), MAX_CANDIDATE_BYTES, "right"))))
        if kept < len(order):
            first = order[kept]
            bound = max(bound, (float(far[first]), -int(ids[first])))
            order = order[:kept]
        ids, far, sizes = ids[order], far[order], sizes[order]
    order = np.argsort(ids)
    return Candidates(ids[order], far[order], bound)


def fill(rows: Rows, state: Any, sums: Array, weight_sums: Array, squares: Array, counts: Array) -> int:
    """Relocate empty clusters while there are candidates. Sums, labels and bounds are updated in place.

    `state` is a `partition.Partition`. Return the number of relocated clusters.
    """
    empty = np.flatnonzero(counts == 0)
    sums[empty], weight_sums[empty], squares[empty] = 0, 0, 0
    centers, placed, done = rows.prepare(state.centers), np.empty((len(empty), rows.d), rows.dtype), 0
    eps = float(np.finfo(rows.dtype).eps)
    # Directions computed from equal float32 rows may differ by rounding.
    same = max(ROUNDING_TOLERANCE, 4 * eps) if rows.frame.unit else ROUNDING_TOLERANCE
    while done < len(empty):
        m = max(MIN_PROPOSALS, 2 * (len(empty) - done))
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
                state.bounds.reset(row)
            here = rows.prepare(placed[done : done + 1])
            near = block.pair_distances(np.arange(len(ids)), np.zeros(len(ids), np.int64), here)
            far = np.minimum(far, near)
            _zero_rounding_errors(far, block, same)
            far[at] = 0
            done += 1
        if done == first:
            break
    return done
