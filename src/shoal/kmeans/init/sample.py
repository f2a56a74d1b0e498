"""The sample of rows from which initial centroids are chosen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.random_projection import SparseRandomProjection

from ...data.rows import Rows
from ...data.types import Array
from ...fit.random_streams import Stream, generator
from ...kernels import dense

SAMPLE_PER_CENTER = 50

SKETCH = 256  # columns of a sketch

SKETCHED_AT_ONCE = 1024  # rows: the product of sparse matrices takes more than the rows and the sketches

SAMPLE_LEAST = 20_000

TOGETHER = 1 << 20  # rows that are drawn from at a time

SAMPLE_WORK = 1 << 24  # rows x columns x centres up to which a sample may be larger


def _key(X: Array) -> Array:
    """A number for each row that depends on what it holds alone."""
    key = np.empty(len(X))
    dense.weighted_sums(X, generator(0, Stream.ROW_KEYS).standard_normal(X.shape[1]), key)
    return key


class Sample(NamedTuple):
    """The rows to seed from, sorted by what they hold, not by where they stand: a weight does what repetition would."""

    ids: Array
    X: Array  # the rows, or sketches of them
    weights: Array
    keys: Array


def _sketch(rows: Rows, ids: Array) -> Array:
    """The rows; sparse ones as short dense vectors at about the same distances (Li et al. 2006, KDD)."""
    if not rows.is_sparse or rows.d <= SKETCH:
        return rows.take(ids)
    onto = SparseRandomProjection(SKETCH, random_state=0).fit(sparse.csr_array((1, rows.d))).components_.T.astype(rows.dtype)
    out = np.empty((len(ids), SKETCH), rows.dtype)
    step = len(ids) if rows.is_distributed else SKETCHED_AT_ONCE  # each call for rows that are elsewhere takes a while
    for a in range(0, len(ids), step):
        X: Any = rows.convert(rows.source.take(ids[a : a + step])).X
        out[a : a + step] = (X @ onto).toarray()
    return out


def sample_size(d: int, k: int) -> int:
    """Of how many rows to seed from: more of narrow ones, which may have rare clusters, for that costs little."""
    return max(SAMPLE_LEAST, SAMPLE_PER_CENTER * k, SAMPLE_WORK // (k * d))


def _count(rows: Rows) -> int:
    """Of rows that have a weight."""
    return int(np.count_nonzero(rows.weights > 0)) if rows.has_weights else len(rows)


def _sample(rows: Rows, k: int, rng: np.random.Generator) -> Sample:
    """All rows that have a weight; of many, a priority sample: heavy ones surely, light ones with a share of the rest."""
    size = sample_size(rows.d, k)
    if _count(rows) > size:
        ids, weights = _priority_sample(rows, size, rng)
    else:
        ids = np.flatnonzero(rows.weights > 0)
        weights = rows.weights[ids]
    X = _sketch(rows, ids)
    keys = _key(X)
    order = np.argsort(keys, kind="stable")
    return Sample(ids[order], np.ascontiguousarray(X[order]), np.ascontiguousarray(weights[order]), keys[order])


def _priority_sample(rows: Rows, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """So many rows and what each stands for. Some rows are looked at together, so that no number a row is held for all."""
    ids, weights, priority = np.empty(0, np.int64), np.empty(0), np.empty(0)
    for a in range(0, len(rows), TOGETHER):
        some = a + np.flatnonzero(rows.weights[a : a + TOGETHER] > 0)
        w = rows.weights[some]
        ids, weights = np.concatenate([ids, some]), np.concatenate([weights, w])
        priority = np.concatenate([priority, w / (1 - rng.random(len(w)))])
        if len(ids) > size + 1:
            best = np.sort(np.argpartition(-priority, size)[: size + 1])
            ids, weights, priority = ids[best], weights[best], priority[best]
    last = int(priority.argmin())
    chosen = np.delete(np.arange(len(ids)), last)
    return ids[chosen], np.maximum(weights[chosen], priority[last])
