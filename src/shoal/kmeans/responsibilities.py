"""Responsibilities and log-likelihood of a mixture of spherical Gaussians of equal weight and equal, fixed variance."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Block, Centers, rounding
from ..data.cancellation import pieces
from ..data.rows import Rows
from ..data.types import Array
from ..fit.centroid_model import near_block

FLOAT = np.dtype(np.float64)  # dtype of responsibilities, whatever that of the rows
MAX_RESPONSIBILITIES_PER_PIECE = 1 << 18  # computed together (2 MB); they should stay in the cache
MAX_EXPONENT_ERROR = 1e-8  # error of an exponent because of rounding; distances replace scores that may exceed it
UNDERFLOW = 750.0  # exp of minus this is zero in float64


class Density(NamedTuple):
    """Density of a Gaussian, for rows that the frame scales by 2^exponent."""

    variance: float  # of each column, in the units of X
    exponent: int

    def exponent_of(self, squares: Any) -> Any:
        """Divide squared distances of the frame by twice the variance. Overflow gives infinity, underflow zero."""
        digits, place = math.frexp(self.variance)
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(squares / (2 * digits), -(place + 2 * self.exponent))

    @property
    def rate(self) -> float:
        """The exponent per unit of squared distance. It is finite, so that a difference of zero gives an exponent of zero."""
        return min(float(self.exponent_of(1.0)), sys.float_info.max)

    def log_height(self, k: int, d: int) -> float:
        """Return the log of the density at a centroid, times the weight 1 / k of its component."""
        return -math.log(k) - d / 2 * (math.log(2 * math.pi) + math.log(self.variance))


class Responsibilities(NamedTuple):
    """Posterior probabilities of the centroids for m rows, and what their log-likelihood consists of."""

    parts: Array  # (m, k): probability of each centroid, given the row
    nearest: Array  # (m): squared distance to the nearest centroid
    others: Array  # (m): log of the total density relative to that of the nearest centroid, from 0 to log k

    def log_density(self, density: Density, d: int) -> Array:
        """Return the log-likelihood of each row."""
        return np.asarray(self.others - density.exponent_of(self.nearest) + density.log_height(self.parts.shape[1], d))


class MixtureSums(NamedTuple):
    """Sums over rows from which an EM step is computed. The sums of blocks add up."""

    sums: Array  # (k, d): sums of the rows weighted by responsibility; (0, 0) if only the likelihood is needed
    weight_sums: Array  # (k): sums of the weighted responsibilities
    energy: float  # weighted sum of squared distances to the nearest centroids
    others: float  # weighted sum of `Responsibilities.others`
    worst: tuple[float, int]  # largest squared distance of a row from its nearest centroid, and the number of that row

    def plus(self, other: MixtureSums) -> MixtureSums:
        """Return the sum of both. The arrays of `self` are overwritten."""
        np.add(self.sums, other.sums, out=self.sums)
        np.add(self.weight_sums, other.weight_sums, out=self.weight_sums)
        worst = max(self.worst, other.worst, key=lambda pair: pair[0])
        return self._replace(energy=self.energy + other.energy, others=self.others + other.others, worst=worst)


def responsibilities(block: Block, centers: Centers, density: Density) -> Responsibilities:
    """Compute responsibilities from differences of squared distances to the distance of the nearest centroid."""
    every, rate = np.arange(len(block)), density.rate
    G = block.scores(centers, slice(None))
    G += centers.norms2 - centers.z2  # scores are rounded down, to be bounds; undo that
    near = G.argmin(axis=1)
    G -= G[every, near][:, None]
    with np.errstate(over="ignore", under="ignore"):
        off = rounding(FLOAT, centers.C.shape[1]) * rate * (block.squared_norms() + centers.norms2.max())
        inexact = np.flatnonzero(off > MAX_EXPONENT_ERROR)
        if len(inexact):
            line, ids = np.nonzero(G[inexact] * rate <= UNDERFLOW + 2 * off[inexact, None])
            D = np.full((len(inexact), G.shape[1]), np.inf)
            D[line, ids] = block.pair_distances(inexact[line], ids, centers)
            near[inexact] = D.argmin(axis=1)
            G[inexact] = D - D.min(axis=1)[:, None]
        G *= -rate
        np.exp(G, out=G)
    total = G.sum(axis=1)
    G /= total[:, None]
    return Responsibilities(G, block.pair_distances(every, near, centers), np.log(total))


def in_pieces(block: Block, centers: Centers, density: Density) -> Iterator[tuple[slice, Block, Responsibilities]]:
    """Yield pieces of a block that fit into the cache, with their responsibilities."""
    step = max(1, MAX_RESPONSIBILITIES_PER_PIECE // len(centers.C))
    for here in pieces(len(block), step):
        part = block.take(here)
        yield here, part, responsibilities(part, centers, density)


def _zero_sums(C: Array, move: bool) -> MixtureSums:
    return MixtureSums(np.zeros(C.shape if move else (0, 0)), np.zeros(len(C)), 0.0, 0.0, (0.0, 0))


def _sum_block(start: int, raw: Any, weights: Array, rows: Rows, centers: Centers, density: Density, move: bool) -> MixtureSums:
    """Compute the sums of one block."""
    total = _zero_sums(centers.C, move)
    for here, part, soft in in_pieces(rows.convert(raw, FLOAT), centers, density):
        X: Any = part.X
        w = weights[here]
        R = np.multiply(soft.parts, w[:, None], out=soft.parts)
        far = np.where(w > 0, soft.nearest, 0)
        at = int(far.argmax())
        sums = R.T @ X if move else total.sums
        worst = float(far[at]), start + here.start + at
        total = total.plus(MixtureSums(sums, R.sum(axis=0), float(w @ far), float(w @ soft.others), worst))
    return total


def sum_responsibilities(rows: Rows, C: Array, density: Density, move: bool) -> MixtureSums:
    """Compute the sums over all rows. Without `move`, which takes half of the time, they give the likelihood only."""
    total = _zero_sums(C, move)
    for share in rows.map_raw_blocks(_sum_block, rows, rows.prepare(C), density, move, per_row=(rows.weights,)):
        total = total.plus(share)
    return total


def log_likelihood(total: MixtureSums, density: Density, k: int, d: int) -> float:
    """Return the weighted log-likelihood of the rows that were added up."""
    exponents = float(density.exponent_of(total.energy))
    return total.others - exponents + float(total.weight_sums.sum()) * density.log_height(k, d)


def responsibilities_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers, density: Density) -> None:
    """Write the responsibilities of the rows of one block to `out`."""
    for here, _, soft in in_pieces(*near_block(start, raw, rows, centers), density):
        out[here] = soft.parts


def log_density_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers, density: Density) -> None:
    """Write the log-likelihoods of the rows of one block to `out`."""
    for here, _, soft in in_pieces(*near_block(start, raw, rows, centers), density):
        out[here] = soft.log_density(density, rows.d)
