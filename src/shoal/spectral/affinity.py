"""How alike rows are: exp(-|x - y|^2 / sigma^2) and its kin, computed by the column when asked for.

L. Zelnik-Manor, P. Perona (2004), Self-tuning spectral clustering, NIPS: exp(-|x - y|^2 / (s_x s_y)), where s is the
distance from a near neighbour.

A column is a product of matrices and an exponential of each entry, a tile of rows at a time, so that the tile stays in
the cache; the rows' threads share the tiles. A row is not like itself: the diagonal is zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, Centers
from ..data.jobs import Span
from ..data.rows import Rows
from ..data.types import Array, is_sparse
from ..fit.random_streams import generator
from ..kernels import affinity as kernels
from .neighbors import nearest
from .tiles import COLUMN_NUMBERS, block_of, dense_rows, prepare, prepare_sparse, scores, small_blocks, tiles

SAMPLE, SHARE, FEWEST = 1000, 2, 7  # to choose sigma from: rows, parts of a cluster, neighbours at least
DIGITS = 1e-2  # how far off an exponent may be
NOISE = 1e-12  # of their squares: equal rows seem to be as far apart as this


class Columns(NamedTuple):
    """Some rows, made ready to be compared with others."""

    ids: Array  # int64, in order
    centers: Centers
    v: Array  # one over their scales


def _tile(start: int, block: Block, where: slice, u: Array, columns: Columns, root: bool, known: bool) -> Array:
    """Affinities of some rows of a block."""
    part = block.take(where)
    S = scores(part, columns.centers)
    kernels.fall_off(S, part.squared_norms().astype(S.dtype), u[where].astype(S.dtype), columns.v.astype(S.dtype), root)
    if known:
        first, last = np.searchsorted(columns.ids, [start + where.start, start + where.stop])
        S[columns.ids[first:last] - start - where.start, np.arange(first, last)] = 0
    return S


class Job(NamedTuple):
    """The rows that are compared, and how."""

    rows: Rows
    root: bool
    known: bool  # are they the rows behind the columns? Then their numbers are the same, and their values have been checked


Use = Callable[[Array, Array], Any]  # what to do with a tile: (its rows of the result, the tile) -> share


def _block(start: int, raw: Any, u: Array, out: Array, job: Job, columns: Columns, use: Use, since: int = 0) -> Any:
    """One block of rows against some columns, tile by tile. Blocks before `since` are passed over."""
    if start < since:
        return 0.0
    block, centers = block_of(start, raw, job.rows, columns.centers, job.known)
    columns = columns._replace(centers=centers)
    shares = (use(out[w], _tile(start, block, w, u, columns, job.root, job.known)) for w in tiles(block, len(columns.ids)))
    return sum(shares, start=0.0)


def _add_product(out: Array, S: Array, B: Array) -> float:
    out += S @ B
    return 0.0


def fill(out: Array, S: Array, where: slice) -> float:
    out[:, where] = S
    return 0.0


def _add_moments(out: Array, S: Array) -> float:
    out[:, 0] += S.sum(axis=1)
    out[:, 1] += np.einsum("ij,ij->i", S, S)
    return 0.0


def _transposed(out: Array, S: Array) -> Array:
    return (S.T @ out).astype(np.float64)


def _add_sums(out: Array, S: Array) -> Array:
    """Along the rows; and, as a share, along the columns."""
    out += S @ np.ones(S.shape[1], S.dtype)
    return (np.ones(len(S), S.dtype) @ S).astype(np.float64)


class KernelAffinity:
    """exp(-|x - y|^2 u_x u_y) of rows, or without the square, u being one over their scales."""

    is_stored = False
    parts = ("rows", "among", "u", "root", "neighbor", "least")  # which a file has to hold

    def __init__(self, rows: Rows, u: Array, root: bool = False, neighbor: int = 0, least: float = 0.0) -> None:
        """`neighbor`: that of a row which gives its scale; 0 where all have the same. `least`: what a scale is at least."""
        self.rows, self.root, self.neighbor, self.least = small_blocks(rows), root, neighbor, least
        self.among = self.rows if neighbor else None  # whose neighbours give new rows their scales
        noise = float(np.finfo(rows.dtype).eps) * max(rows.map_blocks(_reach_block), default=0.0)  # in a squared distance
        if (np.sqrt(noise) if root else noise) * float(u.max()) ** 2 > DIGITS:
            self.rows = self.rows.with_dtype(np.dtype(np.float64))
        self.u = u.astype(self.rows.dtype)

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def dtype(self) -> np.dtype:
        return self.rows.dtype

    def part(self, ids: Array) -> KernelAffinity:
        """Of some of the rows, on the scales that they have among all."""
        some = copy(self)
        some.rows, some.u = self.rows.materialize(ids, 1), self.u[ids]
        return some

    def scale(self, new: Rows) -> Array:
        """One over the scales of new rows."""
        if self.among is None:
            return np.full(len(new), self.u[0])
        return inverse_scales(nearest(new, self.among, self.neighbor, known=False)[0], self.least)

    def columns(self, ids: Array, like: Rows | None = None) -> Columns:
        """Columns for these rows, or for others that are laid out in another way."""
        rows = self.rows
        raw = rows.source.read(int(ids[0]), int(ids[-1]) + 1) if ids[-1] - ids[0] + 1 == len(ids) else rows.source.take(ids)
        wide = is_sparse(raw) and len(ids) > rows.block_rows and len(ids) * rows.d > COLUMN_NUMBERS
        centers = prepare_sparse(rows.convert(raw).X) if wide else prepare(like or rows, dense_rows(rows, raw))
        return Columns(ids, centers, self.u[ids])

    def chunks(self, ids: Array | None = None, like: Rows | None = None) -> Iterator[tuple[Columns, slice]]:
        """Columns, as many at a time as a tile is wide, with their places among `ids` (or among all)."""
        spans = self.rows.spans if ids is None else [Span(0, len(ids), self.rows.block_rows)]
        for where in (block for span in spans for block in span.blocks()):
            yield self.columns(np.arange(where.start, where.stop) if ids is None else ids[where], like), where

    def _each(self, out: Array, columns: Columns, use: Use, since: int = 0) -> Iterator[Any]:
        """Shares of all blocks of these rows."""
        job = Job(self.rows, self.root, True)
        return self.rows.map_raw_blocks(_block, job, columns, use, since, per_row=(self.u, out))

    def product(self, B: Array, ids: Array | None = None) -> Array:
        """A[:, ids] B, or A B."""
        out, B = np.zeros((self.n, B.shape[1]), self.dtype), np.ascontiguousarray(B, self.dtype)
        for columns, where in self.chunks(ids):
            deque(self._each(out, columns, partial(_add_product, B=B[where])), 0)
        return out

    def picked(self, B: Array, ids: Array) -> Array:
        """A[ids] B."""
        shares = (sum(self._each(B, columns, _transposed)) for columns, _ in self.chunks(ids))
        return np.concatenate(list(shares))

    def against(self, new: Rows, B: Array, u: Array | None = None) -> Array:
        """The product of new rows' affinities to these rows with B. `u`: one over their scales, if these are known."""
        out, B = np.zeros((len(new), B.shape[1])), np.ascontiguousarray(B, self.dtype)
        u = self.scale(new) if u is None else u
        for columns, where in self.chunks(None, new):
            deque(self.compare(new, u, columns, out, partial(_add_product, B=B[where])), 0)
        return out

    def compare(self, new: Rows, u: Array, columns: Columns, out: Array, use: Use) -> Iterator[Any]:
        """Shares of all blocks of new rows."""
        new = small_blocks(new).with_dtype(self.dtype)
        return new.map_raw_blocks(_block, Job(new, self.root, False), columns, use, per_row=(u, out))

    def degrees(self) -> Array:
        """Sums of the rows of A, float64. A is symmetric: half of it will do."""
        out, starts = np.zeros(self.n), self.rows.starts
        for columns, where in self.chunks():
            for start, share in zip(starts, self._each(out, columns, _add_sums, where.start), strict=True):
                if start > where.start:
                    out[where] += share
        return out

    def column_moments(self, ids: Array) -> tuple[Array, Array]:
        """Sums of the rows of A[:, ids], and of their squares."""
        out = np.zeros((self.n, 2))
        for columns, _ in self.chunks(ids):
            deque(self._each(out, columns, _add_moments), 0)
        return out[:, 0], out[:, 1]

    def dense(self) -> Array:
        """A in memory."""
        out = np.empty((self.n, self.n), self.dtype)
        for columns, where in self.chunks():
            deque(self._each(out, columns, partial(fill, where=where)), 0)
        return out

    def block(self, ids: Array) -> Array:
        """A[ids, ids]."""
        return self.part(ids).dense()


def _reach_block(block: Block) -> float:
    return float(block.squared_norms().max(initial=0))


def least_scale(near: Array) -> float:
    """For equal rows, which have no scale: a thousandth of what is usual among the rows of the fit."""
    far = np.sqrt(near[:, -1])
    return 1e-3 * (float(np.median(far[far > 0])) if (far > 0).any() else 1.0)


def inverse_scales(near: Array, least: float) -> Array:
    """One over the distances from the last of each row's neighbours."""
    return np.asarray(1 / np.maximum(np.sqrt(near[:, -1]), least))


def choose_sigma(rows: Rows, k: int, seed: int) -> float:
    """How far from a row the nearer half of its cluster reaches, if clusters are of one size: the median of a sample."""
    n = min(len(rows), SAMPLE)
    ids = np.sort(generator(seed, 1 << 40).choice(len(rows), n, replace=False))
    X: Any = rows.convert(rows.source.take(ids)).X.astype(np.float64)  # sparse rows stay sparse
    inner = (X @ X.T).toarray() if is_sparse(X) else X @ X.T
    norms2 = inner.diagonal().copy()
    sums = norms2[:, None] + norms2
    far = np.where(sums - 2 * inner > NOISE * sums, sums - 2 * inner, 0)
    nth = min(max(n // (SHARE * k), FEWEST), n - 1)
    near = np.partition(far, nth, axis=1)[:, nth]
    scale = float(np.median(near))
    if not scale:
        scale = float(np.median(far[far > 0])) if far.any() else 1.0
    return float(np.sqrt(scale))
