"""Per-cluster statistics of fitted rows, accumulated block by block in one pass over the data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ..data.bits import unpacked
from ..data.blocks import Centers
from ..data.rows import Rows
from ..data.source import Source
from ..data.statistics import check_finite
from ..data.types import Array, is_sparse
from ..execution.threads import on_threads
from ..fit.centroid_model import near_block
from .column_moments import ColumnMoments, cluster_sums, column_moments, merge_moments


class NearestRows(NamedTuple):
    """Rows nearest to the centroids, sorted by cluster and then by distance."""

    labels: Array
    ids: Array
    distances: Array


class ClusterStatistics(NamedTuple):
    """Sums over one block or over all rows. Those of blocks add up."""

    sizes: Array  # (k)
    energies: Array  # (k): in the frame of the rows
    distance_sums: Array  # (k): in the units of the user's data
    nearest: NearestRows
    sample: list[Any]  # raw sampled rows, one entry per block
    columns: ColumnMoments | None  # in the frame of the rows


class StatisticsTask(NamedTuple):
    """Arguments of a statistics pass that are the same for all blocks."""

    rows: Rows
    centers: Centers
    sampled: Array  # sorted numbers of the rows to return
    n_nearest: int  # nearest rows per cluster
    # (k): no row farther than this is among the nearest. Lowered as blocks finish; it saves work and does not change results.
    max_distances: Array
    has_columns: bool  # whether to compute the moments of the columns


def select_nearest(candidates: NearestRows, n_nearest: int) -> NearestRows:
    """Return the nearest rows of each cluster. Ties go to the lower row number."""
    order = np.lexsort((candidates.ids, candidates.distances, candidates.labels))
    labels = candidates.labels[order]
    rank = np.arange(len(order)) - np.searchsorted(labels, labels)  # of each row within its cluster
    selected = order[rank < n_nearest]
    return NearestRows(candidates.labels[selected], candidates.ids[selected], candidates.distances[selected])


def select_rows(start: int, raw: Any, ids: Array) -> Any:
    """Return the rows of a block that are listed in the sorted row numbers `ids`."""
    first, last = np.searchsorted(ids, [start, start + raw.shape[0]])
    return raw[ids[first:last] - start]


def stack_rows(parts: list[Any]) -> Any:
    """Concatenate dense or sparse blocks of rows."""
    return sparse.csr_array(sparse.vstack(parts)) if is_sparse(parts[0]) else np.concatenate(parts)


def _summarize_block(start: int, raw: Any, labels: Array, weights: Array, task: StatisticsTask) -> ClusterStatistics:
    """Return the statistics of one block of rows."""
    block, centers = near_block(start, raw, task.rows, task.centers)
    k = len(centers.C)
    squares = block.pair_distances(np.arange(len(block)), labels, centers)
    with np.errstate(over="ignore", under="ignore"):
        distances = task.rows.frame.distances_out_of(squares)
    candidates = np.flatnonzero(distances <= task.max_distances[labels])
    nearest = select_nearest(NearestRows(labels[candidates], start + candidates, distances[candidates]), task.n_nearest)
    sizes = np.bincount(labels, minlength=k)
    energies, distance_sums = np.bincount(labels, weights * squares, k), np.bincount(labels, distances, k)
    columns = _column_moments_in_frame(task.rows, raw) if task.has_columns else None
    return ClusterStatistics(sizes, energies, distance_sums, nearest, [select_rows(start, raw, task.sampled)], columns)


def _column_moments_in_frame(rows: Rows, raw: Any) -> ColumnMoments:
    """Return the column moments of a block in the frame of the rows.

    Sparse rows are converted without the shift, so that they stay sparse; the shift is subtracted from the means.
    """
    float64, shift = np.dtype(np.float64), rows.frame.shift
    if shift is None or not is_sparse(raw):
        return column_moments(rows.convert(raw, float64).X)
    unshifted = column_moments(rows.with_frame(rows.frame._replace(shift=None), float64).convert(raw).X)
    return unshifted._replace(means=unshifted.means - shift)


def summarize_clusters(
    rows: Rows, centers: Centers, labels: Array, sampled: Array, n_nearest: int, has_columns: bool
) -> ClusterStatistics:
    """Return the statistics of all clusters, in one pass over the rows."""
    k = len(centers.C)
    nearest = NearestRows(np.empty(0, labels.dtype), np.empty(0, np.int64), np.empty(0))
    total = ClusterStatistics(np.zeros(k, np.int64), np.zeros(k), np.zeros(k), nearest, [], None)
    task = StatisticsTask(rows, centers, sampled, n_nearest, np.full(k, np.inf), has_columns)
    for share in rows.map_raw_blocks(_summarize_block, task, per_row=(labels, rows.weights)):
        for sums, block_sum in zip(total[:3], share[:3], strict=True):
            sums += block_sum
        total.sample.extend(share.sample)
        if len(share.nearest.ids):
            merged = NearestRows(*map(np.concatenate, zip(nearest, share.nearest, strict=True)))
            nearest = select_nearest(merged, n_nearest)
            _lower_max_distances(task.max_distances, nearest, n_nearest)
        if share.columns is not None:
            total = total._replace(columns=merge_moments(total.columns, share.columns))
    return total._replace(nearest=nearest)


def _lower_max_distances(max_distances: Array, nearest: NearestRows, n_nearest: int) -> None:
    """Set the limit of every cluster that has all its nearest rows to the distance of the farthest of them."""
    k = len(max_distances)
    is_full = np.flatnonzero(np.bincount(nearest.labels, minlength=k) == n_nearest)
    farthest = np.zeros(k)
    np.maximum.at(farthest, nearest.labels, nearest.distances)
    max_distances[is_full] = farthest[is_full]


def _profile_block(
    start: int, raw: Any, labels: Array, n_bits: int, origin: Array, k: int, selected: Array
) -> tuple[ColumnMoments, Array, Any]:
    """Return the column moments of one block, its column sums per cluster, and its selected rows."""
    check_finite(start, raw)
    X = unpacked(raw, n_bits).astype(np.float32) if n_bits else raw if is_sparse(raw) else raw.astype(np.float64) - origin
    return column_moments(X), cluster_sums(X, labels, k), select_rows(start, raw, selected)


class ColumnProfile(NamedTuple):
    """Column statistics of X for a model whose centroids are in another space."""

    columns: ColumnMoments  # of the rows minus `origin`
    sums: Array  # (k, d): per cluster, of the rows minus `origin`
    origin: Array  # (d): the first row of dense data, subtracted so that sums of large values lose no digits; else zeros
    selected: Any  # raw rows


def profile_columns(source: Source, n_bits: int, labels: Array, k: int, selected: Array) -> ColumnProfile:
    """Compute column statistics of X, and return the selected rows, in one pass over the rows."""
    with on_threads(Rows.of(source)) as rows:
        is_dense = not n_bits and not rows.is_sparse
        origin = np.asarray(source.read(0, 1), np.float64)[0] if is_dense else np.zeros(source.shape[1])
        total, sums, parts = None, np.zeros((k, len(origin))), []
        for columns, block_sums, part in rows.map_raw_blocks(_profile_block, n_bits, origin, k, selected, per_row=(labels,)):
            total = merge_moments(total, columns)
            sums += block_sums
            parts.append(part)
    assert total is not None
    return ColumnProfile(total, sums, origin, stack_rows(parts))
