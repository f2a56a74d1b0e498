"""A random sample of the rows in memory, to learn a code from, and its principal directions."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from ..data.pca import signed
from ..data.rows import Rows
from ..data.statistics import check_values
from ..data.types import Array, is_sparse

MIN_RELATIVE_WEIGHT = 2.0**-50  # smallest weight relative to the largest: float64 sums would lose smaller ones
FLOAT64_ROWS = 512  # rows converted to float64 at a time, which limits the memory
MIN_VARIANCE_GROWTH = 1.05  # subspace iteration stops if the variance along the directions grows by a smaller factor


class Centered(NamedTuple):
    """Centered rows (A - b) * scale. Sparse rows stay sparse because b is not subtracted."""

    A: Any  # (m, d)
    weights: Array  # (m) float64, of the order of 1
    b: Array | None = None  # (d); None for dense rows, which are centered
    scale: float = 1.0  # rows were divided by it, so that no square overflows or underflows

    def take(self, rows: Array | slice) -> Self:
        """Return some of the rows."""
        return self._replace(A=self.A[rows], weights=self.weights[rows])

    def along(self, W: Array) -> Array:
        """Return (A - b) @ W."""
        products: Array = self.A @ W
        return products if self.b is None else np.subtract(products, self.b @ W)

    def along_exactly(self, W: Array) -> Array:
        """Return `along` computed in float64, so that equal rows have equal products whatever their position."""
        W64, starts = W.astype(np.float64), range(0, self.A.shape[0], FLOAT64_ROWS)
        return np.concatenate([self.take(slice(a, a + FLOAT64_ROWS)).along(W64).astype(W.dtype) for a in starts])

    def back(self, D: Array) -> Array:
        """Return (A - b).T @ D."""
        sums: Array = self.A.T @ D
        return sums if self.b is None else np.subtract(sums, np.outer(self.b, D.sum(axis=0)))

    def weighted(self, D: Array) -> Array:
        """Return the rows of D times their weights."""
        product: Array = D * self.weights[:, None].astype(D.dtype)
        return product

    def variance(self) -> float:
        """Return the weighted mean of the squared norms of the rows."""
        squares = self.A.multiply(self.A).sum(axis=1) if is_sparse(self.A) else np.einsum("ij,ij->i", self.A, self.A)
        b = np.zeros(1) if self.b is None else self.b.astype(np.float64)
        return float(np.average(np.asarray(squares).ravel(), weights=self.weights) - b @ b)


class Sample(NamedTuple):
    """Rows in the units of X, or scaled to unit length for the cosine metric."""

    raw: Any  # (m, d)
    weights: Array  # (m) float64, of the order of 1
    mean: Array  # (d) float64

    def centered(self, dtype: Any = np.float32) -> Centered:
        """Return the rows centered and divided by their largest absolute entry."""
        power, largest = 1.0, max(float(self.raw.max()), -float(self.raw.min()))
        if largest:  # a power of two rounds nothing, and makes room for the subtraction of entries near the limit of floats
            power = 2.0 ** (int(np.frexp(max(largest, 1e-300))[1]) - 1)
        if is_sparse(self.raw):
            A, b = self.raw.astype(np.float64) / power, self.mean / power
        else:
            A, b = np.divide(self.raw, power, dtype=np.promote_types(self.raw.dtype, dtype)), None
            np.subtract(A, self.mean / power, out=A, casting="same_kind")
        scale = float(max(A.max(), -A.min())) or 1.0
        if power > 1 and scale > np.finfo(np.float64).max / power:
            raise ValueError("The range of X exceeds that of float64: scale X down, for example by 0.5.")
        A /= scale
        b = None if b is None else (b / scale).astype(dtype)
        return Centered(A.astype(dtype, copy=False), self.weights, b, scale * power)


def draw(rows: Rows, size: int, rng: np.random.Generator) -> Sample:
    """Draw `size` of the rows of positive weight without replacement, or return all of them if there are not more."""
    weighted_rows = np.flatnonzero(rows.weights > 0) if rows.has_weights else None
    n = len(rows) if weighted_rows is None else len(weighted_rows)
    ids = np.sort(rng.choice(n, size, replace=False, shuffle=False)) if n > size else np.arange(n)
    ids = ids if weighted_rows is None else weighted_rows[ids]
    raw, unit = rows.source.take(ids), rows.frame.unit
    try:
        check_values(0, raw, unit)
    except ValueError:
        for i in map(int, ids):  # find the row of X, for the message
            check_values(i, rows.source.read(i, i + 1), unit)
    if unit:
        raw = rows.convert(raw).X
    weights = np.maximum(rows.weights[ids], MIN_RELATIVE_WEIGHT * rows.weights[ids].max())
    weights = np.ldexp(weights, -int(np.rint(np.log2(weights.mean()))))  # by a power of two, so that tied votes stay tied
    shares = weights / weights.sum()
    pieces = [slice(a, a + FLOAT64_ROWS) for a in range(0, len(ids), FLOAT64_ROWS)]
    mean = sum((np.asarray(shares[piece] @ raw[piece], np.float64) for piece in pieces), np.zeros(rows.d))
    return Sample(raw, weights, mean)


def principal(rows: Centered, count: int, rng: np.random.Generator) -> Array:
    """Return leading principal directions (d, count), by subspace iteration. Their signs are normalized."""
    d = rows.A.shape[1]
    P, variance = rows.along(rng.standard_normal((d, min(d, count + 8)), rows.A.dtype)), 0.0
    while True:
        Q = np.linalg.qr(rows.back(rows.weighted(P)))[0]
        P = rows.along(Q)
        previous, variance = variance, float(np.vdot(P, rows.weighted(P)))
        if not variance > MIN_VARIANCE_GROWTH * previous:
            break
    return signed(Q @ np.linalg.eigh(P.T @ rows.weighted(P))[1][:, ::-1][:, :count])
