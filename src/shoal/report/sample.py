"""A sample of the rows: how far apart the clusters are, and a map of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.bits import unpacked
from ..data.blocks import Block, Centers, DenseBlock
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..fit.centroid_model import near_block
from ..fit.random_streams import generator
from ..metrics import overlap, silhouettes
from .facts import Map, Options, Quality
from .look import Look, stacked

SAMPLE = 1 << 48  # the stream that the sample is drawn from
SAMPLE_NUMBERS = 1 << 25  # of dense rows, at most; but no fewer rows than this:
SAMPLE_LEAST = 200
WORK = 1 << 37  # multiplications that a measure may take


class Place(NamedTuple):
    """Where the clusters were found: not always in the columns of X."""

    rows: Rows
    centers: Centers
    space: str  # "rows", "standardized", "codes" or "embedding"


def draw_sample(rows: Rows, options: Options) -> Array:
    """Which rows, in order."""
    most = options.sample
    if not rows.is_sparse:
        most = min(most, max(SAMPLE_LEAST, SAMPLE_NUMBERS // rows.d))
    if most >= len(rows):
        return np.arange(len(rows))
    return np.sort(generator(options.seed, SAMPLE).choice(len(rows), most, replace=False, shuffle=False))


class Judged(NamedTuple):
    """What the sample has to say."""

    quality: Quality
    silhouettes: Array  # (k): in the mean of each cluster's rows in the sample
    map: Map


def judge(place: Place, seen: Look, labels: Array, seed: int) -> Judged:
    """From what a look has brought along, and the labels of the sample."""
    frame, k = place.rows.frame, len(place.centers.C)
    block, centers = _block(place.rows, place.centers, seen)
    scores = _silhouettes(block, labels, centers, frame, seen.sizes)
    mean = None if scores is None else float(scores.mean())
    quality = Quality(len(labels), mean, _davies_bouldin(place.centers.C, seen, frame))
    of_each = np.full(k, np.nan)
    if scores is not None:
        counts = np.bincount(labels, minlength=k)
        np.divide(np.bincount(labels, scores, k), counts, out=of_each, where=counts > 0)
    return Judged(quality, of_each, _map(block, labels, place, seed))


def _block(rows: Rows, centers: Centers, seen: Look) -> tuple[Block, Centers]:
    """The sample in the frame; bits as numbers, of which products can be had."""
    raw = stacked(seen.sample)
    if rows.frame.bits:
        X = unpacked(raw, rows.d).astype(np.float32)
        return DenseBlock(X), DenseBlock.prepare((centers.C > 0.5).astype(np.float32))
    return near_block(0, raw, rows, centers)


def _silhouettes(block: Block, labels: Array, centers: Centers, frame: Frame, sizes: Array) -> Array | None:
    """Of the rows of the sample."""
    k, X = len(centers.C), block.X
    if k < 2 or (X.nnz if is_sparse(X) else X.size) * k > WORK:  # type: ignore[union-attr]
        return None
    return np.where(sizes[labels] > 1, silhouettes(block, labels, centers, frame), 0.0)


def _davies_bouldin(C: Array, seen: Look, frame: Frame) -> float | None:
    filled = np.flatnonzero(seen.sizes)
    if len(filled) < 2 or len(filled) * C.size > WORK:
        return None
    return overlap(C[filled].astype(np.float32 if frame.bits else C.dtype), seen.distances[filled] / seen.sizes[filled], frame)


def _map(block: Block, labels: Array, place: Place, seed: int) -> Map:
    """Principal components of the sample."""
    from sklearn.decomposition import PCA

    X: Any = block.X
    count = min(2, *X.shape)
    if is_sparse(X) and count >= min(X.shape):
        X = X.toarray()
    flat = Map(np.zeros((X.shape[0], 2)), labels, np.zeros(2), place.space)
    if X.shape[0] > 1 and _varies(X):
        pca = PCA(count, random_state=seed).fit(X)
        flat.points[:, :count], flat.shares[:count] = pca.transform(X), pca.explained_variance_ratio_
    return flat


def _varies(X: Any) -> bool:
    first = X[[0]]
    return bool(abs(X - (first if not is_sparse(X) else first[np.zeros(X.shape[0], int)])).max() > 0)
