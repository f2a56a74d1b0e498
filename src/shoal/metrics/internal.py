"""Measures of a clustering by itself, which need no classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions, validate_parameter_constraints

from ..data.blocks import Block, Centers, DenseBlock, nearest_others, rounding
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.source import file_column_names
from ..data.tables import column_names
from ..data.types import Array
from ..data.validation import check_centers, check_same_columns, check_weights
from ..execution.threads import on_threads
from ..fit.centroid_model import near_block, new_rows_energy_block
from ..fit.input import check_rows
from ..fit.parameters import MAX_THREADS, Count

MAX_PAIRS_PER_BATCH = 1 << 20  # pairs of centroids compared at a time (8 MB per float64 array); does not affect results


def _frame_for(centers: Array, metric: str) -> Frame:
    """Return the frame to compute distances in, scaled if squares of the centroids would overflow or underflow float64."""
    if metric == "cosine":
        return Frame(unit=True)
    largest = float(np.abs(centers).max())
    is_in_range = largest == 0 or 2.0**-300 < largest < 2.0**300
    return Frame(exponent=0 if is_in_range else -int(np.clip(np.frexp(largest)[1], -1000, 1000)))


def _validate(X: Any, centers: Any, weights: Any, metric: str, n_threads: int | None, caller: str) -> tuple[Rows, Array]:
    """Validate the input and return the rows, in float64, and the centroids in the frame of the rows."""
    constraints = {"metric": [StrOptions({"euclidean", "cosine"})], "n_threads": [Count(MAX_THREADS), None]}
    validate_parameter_constraints(constraints, {"metric": metric, "n_threads": n_threads}, caller)
    source = check_rows(None, X, reset=False)
    check_same_columns(centers, file_column_names(X) or column_names(X), "centers")
    C = check_centers(centers, None, source.shape[1], "centers")
    frame = _frame_for(C, metric)
    if frame.unit and not C.any(axis=1).all():
        raise ValueError(f"centers row {int(np.argmin(C.any(axis=1)))} is all zeros: remove it or use metric='euclidean'.")
    rows = Rows.of(source, check_weights(weights, source.shape[0]), frame).with_dtype(np.dtype(np.float64))
    C_in_frame: Any = rows.convert(C).X  # dense, as C is
    return rows, C_in_frame


def energy(
    X: Any, centers: Any, sample_weight: Any = None, *, metric: str = "euclidean", n_threads: int | None = None
) -> float:
    """Energy (inertia): sum of squared distances of the rows to their nearest centroid.

    For ``metric="cosine"``, the sum of 1 - cosine. Equals `inertia_` of `KMeans` in both cases.

    Parameters
    ----------
    X : array, sparse matrix, table or file source of shape (n_samples, n_features)
        Rows.
    centers : array-like of shape (n_clusters, n_features)
        Centroids.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weight of each row; equivalent to repeating the row.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Metric, as in `KMeans`.
    n_threads : int or None, default=None
        Number of threads; None for all cores. Does not affect the result.

    Returns
    -------
    energy : float
        Computed in float64, whatever the dtype of X.

    Examples
    --------
    >>> from shoal.metrics import energy
    >>> energy([[0.0], [1.0], [10.0]], [[0.0], [10.0]])
    1.0
    >>> energy([[5.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]], metric="cosine")
    1.0
    """
    rows, C = _validate(X, centers, sample_weight, metric, n_threads, "energy")
    with on_threads(rows, n_threads) as rows:
        shares = rows.map_raw_blocks(new_rows_energy_block, rows, rows.prepare(C), per_row=(rows.weights,))
        return rows.frame.energy_out_of(sum(shares))


class _ClusterSums(NamedTuple):
    """Sums over the rows of each cluster in one block. Those of blocks add up."""

    sizes: Array  # (k)
    distances: Array  # (k): to the assigned centroid
    silhouettes: Array  # (k)


def row_silhouettes(block: Block, labels: Array, centers: Centers, frame: Frame) -> Array:
    """Return the simplified silhouette of each row: (b - a) / max(a, b), or 0 if both are 0.

    a is the distance to the assigned centroid and b the distance to the nearest other one.
    """
    pairs = (labels, nearest_others(block, labels, centers))
    own, other = (frame.distances_out_of(block.pair_distances(np.arange(len(block)), ids, centers)) for ids in pairs)
    larger = np.maximum(own, other)
    return np.asarray((other - own) / np.where(larger > 0, larger, 1))


def _silhouette_block(start: int, raw: Any, labels: Array, rows: Rows, centers: Centers, use_nearest: bool) -> _ClusterSums:
    """Return the cluster sums of one block; with `use_nearest`, rows belong to the nearest centroid instead of `labels`."""
    block, centers = near_block(start, raw, rows, centers)
    k = len(centers.C)
    labels = block.nearest(centers) if use_nearest else labels
    distances = rows.frame.distances_out_of(block.pair_distances(np.arange(len(block)), labels, centers))
    per_row = (np.ones(len(block)), distances, row_silhouettes(block, labels, centers, rows.frame))
    return _ClusterSums(*(np.bincount(labels, values, k) for values in per_row))


def _sum_clusters(
    X: Any, centers: Any, labels: Any, metric: str, n_threads: int | None, caller: str
) -> tuple[_ClusterSums, Array, Frame]:
    """Validate the input and return the cluster sums over all rows, the centroids, and the frame of both."""
    rows, C = _validate(X, centers, None, metric, n_threads, caller)
    n, k = len(rows), len(C)
    if k < 2:
        raise ValueError(f"centers has {k} row, but {caller} needs at least 2: pass the centroids of all clusters.")
    assigned = np.zeros(n, np.intp) if labels is None else np.asarray(labels)
    if assigned.shape != (n,) or assigned.dtype.kind not in "iu" or assigned.min() < 0 or assigned.max() >= k:
        raise ValueError(f"labels must be {n} integers from 0 to {k - 1}, one index into centers for each row.")
    total = _ClusterSums(*np.zeros((3, k)))
    with on_threads(rows, n_threads) as rows:
        for share in rows.map_raw_blocks(_silhouette_block, rows, rows.prepare(C), labels is None, per_row=(assigned,)):
            for sums, block_sum in zip(total, share, strict=True):
                sums += block_sum
    return total, C, rows.frame


def simplified_silhouette(
    X: Any, centers: Any, labels: Any = None, *, metric: str = "euclidean", n_threads: int | None = None
) -> float:
    """Simplified silhouette: mean over the rows of (b - a) / max(a, b).

    a is the distance of a row to its own centroid and b its distance to the nearest other centroid. Unlike the silhouette,
    which averages distances to all rows, it takes one pass over the rows. A row alone in its cluster scores 0.

    Parameters
    ----------
    X : array, sparse matrix, table or file source of shape (n_samples, n_features)
        Rows.
    centers : array-like of shape (n_clusters, n_features)
        Centroids.
    labels : array-like of int of shape (n_samples,) or None, default=None
        Index into `centers` for each row; None for the nearest centroid.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Metric, as in `KMeans`.
    n_threads : int or None, default=None
        Number of threads; None for all cores. Does not affect the result.

    Returns
    -------
    score : float
        Between -1 and 1; higher is better.

    References
    ----------
    E. R. Hruschka, L. N. de Castro, R. J. G. B. Campello (2004), Evolutionary algorithms for clustering gene-expression
    data, ICDM.

    Examples
    --------
    >>> from shoal.metrics import simplified_silhouette
    >>> simplified_silhouette([[0.0], [2.0], [9.0], [11.0]], [[1.0], [10.0]])
    0.8875
    """
    total, _, _ = _sum_clusters(X, centers, labels, metric, n_threads, "simplified_silhouette")
    return float(total.silhouettes[total.sizes > 1].sum() / total.sizes.sum())


def davies_bouldin(
    X: Any, centers: Any, labels: Any = None, *, metric: str = "euclidean", n_threads: int | None = None
) -> float:
    """Davies-Bouldin index: mean similarity of each cluster to its most similar other cluster.

    The similarity of two clusters is the sum of the mean distances of their rows to the centroid, divided by the distance
    between the centroids. Empty clusters are ignored.

    Parameters
    ----------
    X : array, sparse matrix, table or file source of shape (n_samples, n_features)
        Rows.
    centers : array-like of shape (n_clusters, n_features)
        Centroids.
    labels : array-like of int of shape (n_samples,) or None, default=None
        Index into `centers` for each row; None for the nearest centroid.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Metric, as in `KMeans`.
    n_threads : int or None, default=None
        Number of threads; None for all cores. Does not affect the result.

    Returns
    -------
    score : float
        Zero or greater; lower is better. Infinite if two non-empty clusters have the same centroid and their rows do not
        all coincide with it.

    References
    ----------
    D. L. Davies, D. W. Bouldin (1979), A cluster separation measure, doi:10.1109/TPAMI.1979.4766909.

    Examples
    --------
    >>> from shoal.metrics import davies_bouldin
    >>> davies_bouldin([[0.0], [2.0], [9.0], [11.0]], [[1.0], [10.0]])
    0.2222222222222222
    """
    total, C, frame = _sum_clusters(X, centers, labels, metric, n_threads, "davies_bouldin")
    occupied = total.sizes > 0
    return davies_bouldin_index(C[occupied], total.distances[occupied] / total.sizes[occupied], frame)


def davies_bouldin_index(C: Array, mean_distances: Array, frame: Frame) -> float:
    """Return the Davies-Bouldin index from centroids (k, d) and the mean distances (k) of their rows to them.

    Distances from a matrix product, with bounds on their rounding errors, rule out most pairs. The exact distances of the
    remaining pairs decide, so the result does not depend on rounding in the product.
    """
    block, centers = DenseBlock(C), DenseBlock.prepare(C)
    norms2, relative_error = centers.norms2, rounding(C.dtype, C.shape[1])
    max_similarity = np.zeros(len(C))

    def similarities(sums: Array, squares: Array) -> Array:
        """Return sums / distances; infinite at distance zero, and 0 if the sum is zero, too."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(sums / frame.distances_out_of(np.maximum(squares, 0)), nan=0.0, posinf=np.inf)

    step = max(1, MAX_PAIRS_PER_BATCH // len(C))
    for a in range(0, len(C), step):
        batch = np.arange(a, min(a + step, len(C)))
        sums, scale = mean_distances[batch, None] + mean_distances, norms2[batch, None] + norms2
        squares = scale - 2 * (C[batch] @ C.T).astype(np.float64)
        lower = similarities(sums, squares + relative_error * scale)
        upper = similarities(sums, squares - relative_error * scale)
        for bound in (lower, upper):
            bound[np.arange(len(batch)), batch] = -1  # a cluster is not compared with itself
        line, other = np.nonzero(upper >= np.maximum(lower.max(axis=1), 0)[:, None])
        exact = similarities(sums[line, other], block.pair_distances(batch[line], other, centers))
        np.maximum.at(max_similarity, batch[line], exact)
    return float(max_similarity.mean()) if len(C) > 1 else 0.0
