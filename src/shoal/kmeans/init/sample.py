"""The sample of rows from which initial centroids are chosen.

References
----------
N. Duffield, C. Lund, M. Thorup (2007), Priority sampling for estimation of arbitrary subset sums, doi:10.1145/1314690.1314696.
O. Bachem, M. Lucic, A. Krause (2018), Scalable k-means clustering via lightweight coresets, KDD.
P. Li, T. J. Hastie, K. W. Church (2006), Very sparse random projections, KDD.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.random_projection import SparseRandomProjection

from ...data.blocks import Block
from ...data.rows import Rows
from ...data.types import Array, is_sparse, read_only
from ...fit.random_streams import Stream, generator
from ...kernels import dense

# The sample has at least this number of rows, and this number per centroid; the second one up to a number of rows.
MIN_SAMPLE_ROWS, MANY_SAMPLE_ROWS = 5000, 20_000
SAMPLE_ROWS_PER_CENTER, MORE_ROWS_PER_CENTER = 50, 100
MAX_WORK_FOR_LARGER_SAMPLE = 1 << 24  # rows x columns x centroids up to which it is larger: narrow data may have rare clusters

SKETCH_COLUMNS = 256  # columns of the sketch of a sparse row
SKETCH_ROWS_PER_CALL = 1024  # the product of sparse matrices takes more memory than the rows and the sketches
ROWS_PER_DRAW = 1 << 20  # rows read together by priority sampling, which allocates several numbers for each


def row_keys(X: Any) -> Array:
    """Return a number for each row that depends on its values only."""
    numbers = generator(0, Stream.ROW_KEYS).standard_normal(X.shape[1])
    if is_sparse(X):
        return np.asarray(X @ numbers)
    key = np.empty(len(X))
    dense.weighted_sums(read_only(X), numbers, key)
    return key


class Sample(NamedTuple):
    """Rows from which centroids are chosen, sorted by their values, so that a weight is equivalent to repetition."""

    ids: Array  # (m): row indices
    X: Any  # (m, d): the rows; wide sparse ones as a CSR matrix
    weights: Array  # (m) float64
    keys: Array  # (m) float64, ascending: see `row_keys`


def take_rows(rows: Rows, ids: Array) -> Any:
    """Return rows: wide sparse ones as a CSR matrix, others as an array."""
    if not rows.is_sparse or rows.d <= SKETCH_COLUMNS:
        return rows.take(ids)
    return rows.convert(rows.source.take(ids)).X


def sketch(X: Any) -> Array:
    """Return rows; wide sparse ones as random projections, whose distances are about the same."""
    if not is_sparse(X):
        return np.asarray(X)
    projection = SparseRandomProjection(SKETCH_COLUMNS, random_state=0).fit(sparse.csr_array((1, X.shape[1])))
    onto = projection.components_.T.astype(X.dtype)
    out = np.empty((X.shape[0], SKETCH_COLUMNS), X.dtype)
    for a in range(0, X.shape[0], SKETCH_ROWS_PER_CALL):
        out[a : a + SKETCH_ROWS_PER_CALL] = (X[a : a + SKETCH_ROWS_PER_CALL] @ onto).toarray()
    return out


def sample_size(d: int, k: int) -> int:
    """Return the number of rows to sample."""
    more = min(MORE_ROWS_PER_CENTER * k, MANY_SAMPLE_ROWS)
    return max(MIN_SAMPLE_ROWS, SAMPLE_ROWS_PER_CENTER * k, more, MAX_WORK_FOR_LARGER_SAMPLE // (k * d))


def n_weighted_rows(rows: Rows) -> int:
    """Return the number of rows of positive weight."""
    return int(np.count_nonzero(rows.weights > 0)) if rows.has_weights else len(rows)


def draw_sample(rows: Rows, k: int, rng: np.random.Generator, importance: bool = False) -> Sample:
    """Return all rows of positive weight; a priority sample if there are many.

    A priority sample contains rows of large weight with certainty, and others with a probability proportional to their weight.
    It is uniform if weights are equal. With `importance`, the probability is proportional to the sum of a row's share of the
    weight and of its share of the energy of a single cluster, so that rare rows far from all others are not missed.
    """
    size = sample_size(rows.d, k)
    if n_weighted_rows(rows) > size:
        ids, weights = _priority_sample(rows, size, rng, _energy_shares(rows) if importance else None)
    else:
        ids = np.flatnonzero(rows.weights > 0)
        weights = rows.weights[ids]
    X = take_rows(rows, ids)
    keys = row_keys(X)
    order = np.argsort(keys, kind="stable")
    X = X[order]
    return Sample(ids[order], X if is_sparse(X) else np.ascontiguousarray(X), np.ascontiguousarray(weights[order]), keys[order])


def _energy_shares(rows: Rows) -> Array:
    """Return the squared distance of each row to the origin of the frame, relative to the mean."""
    norms2 = np.empty(len(rows))
    rows.for_each(_norms_block, per_row=(norms2,))
    some = rows.weights > 0 if rows.has_weights else slice(None)  # so that other rows do not even affect rounding
    norms2 /= float(np.average(norms2[some], weights=rows.weights[some])) or 1.0
    return norms2


def _norms_block(block: Block, out: Array) -> None:
    out[:] = block.squared_norms()


def _priority_sample(rows: Rows, size: int, rng: np.random.Generator, shares: Array | None) -> tuple[Array, Array]:
    """Draw `size` rows, and return their indices and the weight that each represents."""
    ids, weights, chances, priority = np.empty(0, np.int64), *np.empty((3, 0))
    for a in range(0, len(rows), ROWS_PER_DRAW):
        some = a + np.flatnonzero(rows.weights[a : a + ROWS_PER_DRAW] > 0)
        w = rows.weights[some]
        chance = w if shares is None else w * (0.5 + 0.5 * shares[some])
        ids, weights, chances = np.concatenate([ids, some]), np.concatenate([weights, w]), np.concatenate([chances, chance])
        priority = np.concatenate([priority, chance / (1 - rng.random(len(w)))])
        if len(ids) > size + 1:
            best = np.sort(np.argpartition(-priority, size)[: size + 1])
            ids, weights, chances, priority = ids[best], weights[best], chances[best], priority[best]
    last = int(priority.argmin())
    chosen = np.delete(np.arange(len(ids)), last)
    return ids[chosen], weights[chosen] * np.maximum(1, priority[last] / chances[chosen])
