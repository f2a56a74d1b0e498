"""Some of the rows, in memory, to learn a code from, and the directions in which they spread most."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from ..data.pca import signed
from ..data.rows import Rows
from ..data.statistics import check_values
from ..data.types import Array, is_sparse

LIGHTEST = 2.0**-50  # of the heaviest: rows that weigh less would have no say at all
PART = 512  # rows to turn into float64 at a time: all would take long, and memory
GROWTH = 1.05  # directions are found when another sweep does not make the variance along them larger by as much


class Centered(NamedTuple):
    """Rows less their mean, but for their scale: A - b. Sparse ones would not stay sparse without b."""

    A: Any  # (m, d)
    weights: Array  # (m) float64, of about 1
    b: Array | None = None  # (d)
    scale: float = 1.0  # what they were divided by, so that no square leaves the range

    def take(self, rows: Array | slice) -> Self:
        return self._replace(A=self.A[rows], weights=self.weights[rows])

    def along(self, W: Array) -> Array:
        """Their products with the columns of W."""
        products: Array = self.A @ W
        return products if self.b is None else np.subtract(products, self.b @ W)

    def along_exactly(self, W: Array) -> Array:
        """The same, by way of float64: equal rows have equal products, wherever they stand."""
        exact, parts = W.astype(np.float64), range(0, self.A.shape[0], PART)
        return np.concatenate([self.take(slice(a, a + PART)).along(exact).astype(W.dtype) for a in parts])

    def back(self, D: Array) -> Array:
        """Their sum, each times a row of D: the transpose of `along`."""
        sums: Array = self.A.T @ D
        return sums if self.b is None else np.subtract(sums, np.outer(self.b, D.sum(axis=0)))

    def weighted(self, D: Array) -> Array:
        times: Array = D * self.weights[:, None].astype(D.dtype)
        return times

    def variance(self) -> float:
        """The mean of their squared lengths."""
        squares = self.A.multiply(self.A).sum(axis=1) if is_sparse(self.A) else np.einsum("ij,ij->i", self.A, self.A)
        b = np.zeros(1) if self.b is None else self.b.astype(np.float64)
        return float(np.average(np.asarray(squares).ravel(), weights=self.weights) - b @ b)


class Sample(NamedTuple):
    """Rows as they come, or scaled to unit length where the frame says so."""

    raw: Any  # (m, d)
    weights: Array  # (m) float64, of about 1
    mean: Array  # (d) float64

    def centered(self, dtype: Any = np.float32, scaled: bool = True) -> Centered:
        half, reach = 1.0, max(float(self.raw.max()), -float(self.raw.min()))
        if scaled and reach:  # halves of what floats can hold just so, and powers of two, so that nothing is rounded
            half = 2.0 ** (int(np.frexp(max(reach, 1e-300))[1]) - 1)
        if is_sparse(self.raw):
            A, b = self.raw.astype(np.float64) / half, self.mean / half
        else:
            wide = np.promote_types(self.raw.dtype, dtype)
            A, b = np.divide(self.raw, half, dtype=wide), None
            np.subtract(A, self.mean / half, out=A, casting="same_kind")
        scale = (float(max(A.max(), -A.min())) or 1.0) if scaled else 1.0
        if half > 1 and scale > np.finfo(np.float64).max / half:
            raise ValueError("X spreads wider than float64 can hold: scale it down, for instance by half.")
        A /= scale
        b = None if b is None else (b / scale).astype(dtype)
        return Centered(A.astype(dtype, copy=False), self.weights, b, scale * half)


def draw(rows: Rows, size: int, rng: np.random.Generator) -> Sample:
    """So many of the rows that have a weight, or all."""
    heavy = np.flatnonzero(rows.weights > 0) if rows.has_weights else None
    n = len(rows) if heavy is None else len(heavy)
    ids = np.sort(rng.choice(n, size, replace=False, shuffle=False)) if n > size else np.arange(n)
    ids = ids if heavy is None else heavy[ids]
    raw, unit = rows.source.take(ids), rows.frame.unit
    try:
        check_values(0, raw, unit)
    except ValueError:
        for i in map(int, ids):  # which row of X it is
            check_values(i, rows.source.read(i, i + 1), unit)
    if unit:
        raw = rows.convert(raw).X
    weights = np.maximum(rows.weights[ids], LIGHTEST * rows.weights[ids].max())
    weights = np.ldexp(weights, -int(np.rint(np.log2(weights.mean()))))  # by a power of two: votes that tie still do
    shares = weights / weights.sum()
    parts = range(0, len(ids), PART)
    mean = sum((np.asarray(shares[a : a + PART] @ raw[a : a + PART], np.float64) for a in parts), np.zeros(rows.d))
    return Sample(raw, weights, mean)


def principal(rows: Centered, count: int, rng: np.random.Generator) -> Array:
    """(d, count): orthonormal leading directions, by subspace iteration. Their signs do not hang on rounding."""
    d = rows.A.shape[1]
    P, held = rows.along(rng.standard_normal((d, min(d, count + 8)), rows.A.dtype)), 0.0
    while True:
        Q = np.linalg.qr(rows.back(rows.weighted(P)))[0]
        P = rows.along(Q)
        before, held = held, float(np.vdot(P, rows.weighted(P)))
        if not held > GROWTH * before:
            break
    return signed(Q @ np.linalg.eigh(P.T @ rows.weighted(P))[1][:, ::-1][:, :count])
