"""Exact k-means by projected lower bounds: the flagship for wide data and many centres. Our own.

Rotate once so that the leading directions carry most of the variance. With y the first coordinates of a row x and
rho = |x_rest| the norm of what they leave out, and z and r the same of a centre c,

    |x - c|^2  =  |y - z|^2 + |x_rest - c_rest|^2  >=  |y - z|^2 + (rho - r)^2,

an exact lower bound for the price of a few columns; rho rides along as one more column. Only centres whose bound is
below the distance to the row's present centre are computed in full. Two bounds are taken, a coarse one for every pair
and a fine one for what the coarse one leaves open.

Rows also keep Yinyang's bounds: one lower bound for each of a few groups of centres, made from the coarse bounds. A
row that is nearer to its centre than all of them allow is not looked at; other rows look at the open groups only.
Rows of up to `IDENTITY` columns are their own coordinates: then nothing is rotated or stored, and the bound is the
distance itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..core.blocks import Block, Centers, rounding
from ..core.directions import SAMPLE, basis_of, head_of
from ..core.grouping import gaps, group_centers
from ..core.partition import Found, Partition, unsettled
from ..core.rows import Rows
from ..core.types import Array
from ..kernels import dense

IDENTITY = 48  # columns up to which a row needs no projection
COARSE, FINE = 32, 48  # leading columns, with the norm of the rest as the last one of each
GROUP = 16  # centres a group, about
GROUPS = 24  # at most


class Bounds(NamedTuple):
    """What the rows remember, and how the centres are arranged."""

    anchor: Array  # (k, d): the centres to which the bounds refer
    upper: Array  # (n) float32
    lower: Array  # (n, groups) float32
    heads: Array  # (n, FINE), or (n, 0) where rows are their own
    basis: Array  # (d, FINE - 2), or (d, 0)
    order: Array  # (k) int32: the centres, group by group
    groups: Array  # (groups + 1): where each group starts in `order`

    def forget(self, row: int) -> None:
        self.upper[row], self.lower[row] = np.inf, -1


class Plan(NamedTuple):
    """What a block needs to know about the centres in this step."""

    centers: Centers
    Z: Array  # (k, h): heads in the order of the groups
    coarse: Array  # (k, c): the first of them times -2
    z2: Array  # (k): squared norms of the coarse ones
    basis: Array
    order: Array
    groups: Array
    group_of: Array  # (k) int32
    drift: Array  # (k)
    group_drift: Array  # (groups)
    gap: Array  # (k)
    anew: bool


def assign_block(
    block: Block, labels: Array, old: Array, weights: Array, upper: Array, lower: Array, heads: Array, plan: Plan
) -> Found:
    """One block's share of a step."""
    X, k, d = block.X, *plan.centers.C.shape
    if plan.basis.shape[1] and labels[0] < 0:
        heads[:] = head_of(X, plan.basis, COARSE)
    H = heads if heads.shape[1] else X
    width = plan.coarse.shape[1]
    norms2 = np.empty(len(X))
    dense.squared_norms(H[:, :width], norms2)
    slack = (2 * rounding(X.dtype, d) * (np.sqrt(norms2) + plan.centers.largest) ** 2).astype(X.dtype)
    scanned = 0
    if labels[0] < 0:  # a first guess: the least coarse bound
        guess = np.ascontiguousarray(H[:, :width])
        dense.two_best_narrow(guess, plan.coarse, plan.z2, labels, *np.empty((2, len(X)), X.dtype))
        labels[:] = plan.order[labels]
        scanned = len(X) * k
    lists = np.empty((len(plan.group_drift), len(X)), np.int32)
    lengths = np.empty(len(lists), np.int64)
    best = np.empty(len(X))
    order = np.empty(len(X), np.int32)
    dense.order_by_label(labels, np.empty(k + 1, np.int64), order)
    visited, computed = dense.test_rows(
        order, X, plan.centers.C, plan.drift, plan.group_drift, plan.gap, labels, upper, lower, best, lists, lengths
    )
    for g in np.flatnonzero(lengths):
        first, last = plan.groups[g : g + 2]
        scanned += int(lengths[g] * (last - first))
        computed += dense.screen(
            lists[g, : lengths[g]], g, first, last, plan.order, plan.group_of, H, plan.coarse, plan.z2, plan.Z,
            X, plan.centers.C, slack, labels, best, upper, lower,
        )  # fmt: skip
    return Found(block.moves(weights, old, labels, k, plan.anew), visited, computed + scanned * width // d)


def begin(rows: Rows, centers: Array) -> Bounds:
    """Find the directions and arrange the centres; the first step fills the rest in."""
    n, (k, d) = len(rows), centers.shape
    basis = np.empty((d, 0), rows.dtype)
    if d > IDENTITY:
        basis = basis_of(rows.take(np.linspace(0, n - 1, min(n, SAMPLE)).astype(int)), FINE - 2)
    order, groups = group_centers(centers, min(GROUPS, -(-k // GROUP)))
    return Bounds(
        centers,
        np.full(n, np.inf, np.float32),
        np.full((n, len(groups) - 1), -1, np.float32),
        np.empty((n, FINE if basis.shape[1] else 0), rows.dtype),
        basis,
        order.astype(np.int32),
        groups,
    )


def assign(rows: Rows, state: Partition) -> tuple[Iterable[Found], Bounds]:
    """The rows that can't be sure, against the groups they can't rule out."""
    b: Bounds = state.bounds or begin(rows, state.centers)
    C = state.centers
    Z = (head_of(C, b.basis, COARSE) if b.basis.shape[1] else C)[b.order]
    width = COARSE if b.basis.shape[1] else C.shape[1]
    coarse = np.ascontiguousarray(Z[:, :width])
    drift = np.linalg.norm(C.astype(np.float64) - b.anchor, axis=1)
    group_of = np.empty(len(C), np.int32)
    group_of[b.order] = np.searchsorted(b.groups, np.arange(len(C)), "right") - 1
    plan = Plan(
        centers=rows.prepare(C),
        Z=np.ascontiguousarray(Z),
        coarse=-2 * coarse,
        z2=np.einsum("ij,ij->i", coarse, coarse),
        basis=b.basis,
        order=b.order,
        groups=b.groups,
        group_of=group_of,
        drift=drift,
        group_drift=np.maximum.reduceat(drift[b.order], b.groups[:-1]),
        gap=gaps(C) if C.shape[1] <= 2 * IDENTITY else np.zeros(len(C)),
        anew=unsettled(state),
    )
    per_row = (state.labels, state.labels.copy(), rows.weights, b.upper, b.lower, b.heads)
    return rows.shares(assign_block, plan, per_row=per_row), b._replace(anchor=C)
