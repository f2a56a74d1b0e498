"""One more look at the rows of a fit, block by block: what each cluster costs, which rows are nearest, a sample, columns."""

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


class Near(NamedTuple):
    """Rows, the nearest of each cluster."""

    labels: Array
    ids: Array
    far: Array


class Columns(NamedTuple):
    """Sums over all rows, and of each cluster's rows where these are wanted."""

    sums: Array  # (d)
    squares: Array  # (d)
    clusters: Array | None = None  # (k, d)


class Look(NamedTuple):
    sizes: Array  # (k)
    energies: Array  # (k), in the frame
    distances: Array  # (k), as the user knows them
    near: Near
    sample: list[Any]  # raw rows of the blocks
    columns: Columns | None


class Plan(NamedTuple):
    """What to look for."""

    rows: Rows
    centers: Centers
    wanted: Array  # rows to pick, in order
    few: int  # nearest rows of each cluster
    worst: Array  # (k): no row farther than this is among them. It falls as blocks are done, and spares work, no more
    columns: bool


def nearest_few(near: Near, few: int) -> Near:
    """Of each cluster; the first of equals."""
    order = np.lexsort((near.ids, near.far, near.labels))
    names = near.labels[order]
    keep = order[np.arange(len(order)) - np.searchsorted(names, names) < few]
    return Near(near.labels[keep], near.ids[keep], near.far[keep])


def subset(start: int, raw: Any, wanted: Array) -> Any:
    """Those of the wanted rows that are in this block."""
    first, last = np.searchsorted(wanted, [start, start + raw.shape[0]])
    return raw[wanted[first:last] - start]


def stacked(parts: list[Any]) -> Any:
    return sparse.csr_array(sparse.vstack(parts)) if is_sparse(parts[0]) else np.concatenate(parts)


def column_sums(X: Any, labels: Array | None = None, k: int = 0) -> Columns:
    """Of dense or sparse rows; with labels, of clusters too."""
    d = X.shape[1]
    clusters = None
    if labels is not None:
        of = sparse.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(k, len(labels)))
        clusters = of @ X
        clusters = clusters.toarray() if is_sparse(clusters) else clusters
    with np.errstate(over="ignore", under="ignore"):
        if is_sparse(X):
            data = X.data.astype(np.float64)
            return Columns(np.bincount(X.indices, data, d), np.bincount(X.indices, data * data, d), clusters)
        return Columns(X.sum(axis=0, dtype=np.float64), np.einsum("ij,ij->j", X, X, dtype=np.float64), clusters)


def added(total: Columns | None, more: Columns) -> Columns:
    if total is None:
        return more
    for sums, part in zip(total, more, strict=True):
        if sums is not None:
            sums += part
    return total


def _look_block(start: int, raw: Any, labels: Array, weights: Array, plan: Plan) -> Look:
    block, centers = near_block(start, raw, plan.rows, plan.centers)
    k = len(centers.C)
    squares = block.pair_distances(np.arange(len(block)), labels, centers)
    with np.errstate(over="ignore", under="ignore"):
        far = plan.rows.frame.distances_out_of(squares)
    close = np.flatnonzero(far <= plan.worst[labels])
    near = nearest_few(Near(labels[close], start + close, far[close]), plan.few)
    sizes = np.bincount(labels, minlength=k)
    energies, distances = np.bincount(labels, weights * squares, k), np.bincount(labels, far, k)
    columns = _sums_in_frame(plan.rows, raw) if plan.columns else None
    return Look(sizes, energies, distances, near, [subset(start, raw, plan.wanted)], columns)


def _sums_in_frame(rows: Rows, raw: Any) -> Columns:
    """Sums of the columns in the rows' own frame, whatever frame the block was compared in."""
    double, shift = np.dtype(np.float64), rows.frame.shift
    if shift is None or not is_sparse(raw):
        return column_sums(rows.convert(raw, double).X)
    plain = column_sums(
        rows.with_frame(rows.frame._replace(shift=None), double).convert(raw).X
    )  # with zeros that are not stored
    n = raw.shape[0]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = plain.squares - 2 * shift * plain.sums + n * shift**2
    return Columns(plain.sums - n * shift, squares, plain.clusters)


def look(rows: Rows, centers: Centers, labels: Array, wanted: Array, few: int, columns: bool) -> Look:
    """At all rows, which are open."""
    k = len(centers.C)
    near = Near(np.empty(0, labels.dtype), np.empty(0, np.int64), np.empty(0))
    total = Look(np.zeros(k, np.int64), np.zeros(k), np.zeros(k), near, [], None)
    plan = Plan(rows, centers, wanted, few, np.full(k, np.inf), columns)
    for share in rows.map_raw_blocks(_look_block, plan, per_row=(labels, rows.weights)):
        for sums, part in zip(total[:3], share[:3], strict=True):
            sums += part
        total.sample.extend(share.sample)
        if len(share.near.ids):
            near = nearest_few(Near(*map(np.concatenate, zip(near, share.near, strict=True))), few)
            full = np.flatnonzero(np.bincount(near.labels, minlength=k) == few)
            farthest = np.zeros(k)
            np.maximum.at(farthest, near.labels, near.far)
            plan.worst[full] = farthest[full]
        if share.columns is not None:
            total = total._replace(columns=added(total.columns, share.columns))
    return total._replace(near=near)


def _describe_block(
    start: int, raw: Any, labels: Array, n_bits: int, origin: Array, k: int, wanted: Array
) -> tuple[Columns, Any]:
    check_finite(start, raw)
    X = unpacked(raw, n_bits).astype(np.float32) if n_bits else raw if is_sparse(raw) else raw.astype(np.float64) - origin
    return column_sums(X, labels, k), subset(start, raw, wanted)


def describe(source: Source, n_bits: int, labels: Array, k: int, wanted: Array) -> tuple[Columns, Array, Any]:
    """Columns of rows that were clustered in other ones, where the zero of these sums lies, and some of the rows."""
    with on_threads(Rows.of(source)) as rows:
        plain = not n_bits and not rows.is_sparse
        origin = np.asarray(source.read(0, 1), np.float64)[0] if plain else np.zeros(source.shape[1])
        total, picked = None, []
        for columns, some in rows.map_raw_blocks(_describe_block, n_bits, origin, k, wanted, per_row=(labels,)):
            total = added(total, columns)
            picked.append(some)
    assert total is not None
    return total, origin, stacked(picked)
