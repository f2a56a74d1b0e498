"""Quality measures and a two-dimensional map, computed on a sample of the rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.bits import unpacked
from ..data.blocks import Block, Centers, DenseBlock
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..fit.centroid_model import near_block
from ..fit.random_streams import Stream, generator
from ..metrics.internal import davies_bouldin_index, row_silhouettes
from .cluster_statistics import ClusterStatistics, stack_rows
from .facts import Map, Options, Quality

MAX_DENSE_SAMPLE_VALUES = 1 << 25  # values in a sample of dense rows (256 MB of float64)
MIN_SAMPLE_ROWS = 200  # rows drawn even if they exceed the limit above: fewer make no map
MAX_MULTIPLICATIONS = 1 << 37  # per quality measure; measures that need more are left out, so that a report stays quick


class ClusterSpace(NamedTuple):
    """Rows and centroids in the space in which they were clustered, which may differ from the columns of X."""

    rows: Rows
    centers: Centers
    name: str  # "rows", "standardized", "codes" or "embedding"


def draw_sample(rows: Rows, options: Options) -> Array:
    """Return the sorted numbers of the sampled rows."""
    n_sampled = options.sample
    if not rows.is_sparse:
        n_sampled = min(n_sampled, max(MIN_SAMPLE_ROWS, MAX_DENSE_SAMPLE_VALUES // rows.d))
    if n_sampled >= len(rows):
        return np.arange(len(rows))
    return np.sort(generator(options.seed, Stream.REPORT_SAMPLE).choice(len(rows), n_sampled, replace=False, shuffle=False))


class SampleEvaluation(NamedTuple):
    """Quality measures and the map of a sample."""

    quality: Quality
    silhouettes: Array  # (k): mean over the sampled rows of each cluster; NaN if there are none
    map: Map


def evaluate_sample(space: ClusterSpace, stats: ClusterStatistics, labels: Array, seed: int) -> SampleEvaluation:
    """Compute quality measures and the map from the sampled rows in `stats` and their labels."""
    frame, k = space.rows.frame, len(space.centers.C)
    block, centers = _sample_block(space.rows, space.centers, stats)
    scores = _silhouettes(block, labels, centers, frame, stats.sizes)
    mean = None if scores is None else float(scores.mean())
    quality = Quality(len(labels), mean, _davies_bouldin(space.centers.C, stats, frame))
    cluster_means = np.full(k, np.nan)
    if scores is not None:
        counts = np.bincount(labels, minlength=k)
        np.divide(np.bincount(labels, scores, k), counts, out=cluster_means, where=counts > 0)
    return SampleEvaluation(quality, cluster_means, _project(block, labels, space, seed))


def _sample_block(rows: Rows, centers: Centers, stats: ClusterStatistics) -> tuple[Block, Centers]:
    """Return the sample and the centroids as blocks, with bits unpacked to floats for matrix products."""
    raw = stack_rows(stats.sample)
    if rows.frame.bits:
        X = unpacked(raw, rows.d).astype(np.float32)
        return DenseBlock(X), DenseBlock.prepare((centers.C > 0.5).astype(np.float32))
    return near_block(0, raw, rows, centers)


def _silhouettes(block: Block, labels: Array, centers: Centers, frame: Frame, sizes: Array) -> Array | None:
    """Return the simplified silhouette of each sampled row; None if k < 2 or it is too expensive."""
    k, X = len(centers.C), block.X
    if k < 2 or (X.nnz if is_sparse(X) else X.size) * k > MAX_MULTIPLICATIONS:  # type: ignore[union-attr]
        return None
    return np.where(sizes[labels] > 1, row_silhouettes(block, labels, centers, frame), 0.0)


def _davies_bouldin(C: Array, stats: ClusterStatistics, frame: Frame) -> float | None:
    """Return the Davies-Bouldin index of the non-empty clusters; None if fewer than two or too expensive."""
    occupied = np.flatnonzero(stats.sizes)
    if len(occupied) < 2 or len(occupied) * C.size > MAX_MULTIPLICATIONS:
        return None
    mean_distances = stats.distance_sums[occupied] / stats.sizes[occupied]
    return davies_bouldin_index(C[occupied].astype(np.float32 if frame.bits else C.dtype), mean_distances, frame)


def _project(block: Block, labels: Array, space: ClusterSpace, seed: int) -> Map:
    """Project the sample onto its first two principal components."""
    from sklearn.decomposition import PCA

    X: Any = block.X
    n_components = min(2, *X.shape)
    if is_sparse(X) and n_components >= min(X.shape):
        X = X.toarray()  # the sparse solver of PCA needs n_components < min(X.shape)
    projection = Map(np.zeros((X.shape[0], 2)), labels, np.zeros(2), space.name)
    if X.shape[0] > 1 and _has_variance(X):
        pca = PCA(n_components, random_state=seed).fit(X)
        projection.points[:, :n_components] = pca.transform(X)
        projection.shares[:n_components] = pca.explained_variance_ratio_
    return projection


def _has_variance(X: Any) -> bool:
    """Return whether any row differs from the first."""
    first = X[[0]]
    return bool(abs(X - (first if not is_sparse(X) else first[np.zeros(X.shape[0], int)])).max() > 0)
