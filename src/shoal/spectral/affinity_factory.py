"""The affinities by their names, made ready for some rows: what a fit multiplies by, and what new rows are compared with."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..data.rows import Rows
from ..data.types import Array
from ..fit.schema import FLAG, MAX_EXPONENT, NOTHING, Below, Number, OneOf, Parts, RowsSpec, count, floats
from ..fit.schema import Choice as Among
from . import graph
from .affinity import KernelAffinity, choose_sigma, inverse_scales, least_scale
from .laplacian import Affinity
from .neighbors import approximate, nearest

KERNELS = ("rbf", "rbf-norm", "self-tuning")
KINDS = (*KERNELS, "knn", "precomputed")
NEIGHBORS = {"knn": 10, "self-tuning": 7}
LEAST = 1e-15  # a scale, in the rows' frame: one over its square is still a float32


class Choice(NamedTuple):
    """What the user asks for."""

    affinity: str
    sigma: float | None
    n_neighbors: int | None
    neighbors: str


class Reach(Protocol):
    """New rows, as seen from those of the fit."""

    def against(self, new: Rows, B: Array) -> Array: ...


class Kind(NamedTuple):
    """An affinity for some rows."""

    affinity: Affinity
    reach: Reach
    sigma: float | None  # as the user knows it
    remedy: str  # if rows are like no other


class Neighbors:
    """New rows of a graph of neighbours are like their nearest rows of the fit."""

    parts = ("rows", "count")

    def __init__(self, rows: Rows, count: int) -> None:
        self.rows, self.count = rows, count

    def against(self, new: Rows, B: Array) -> Array:
        who = nearest(new, self.rows, self.count, known=False)[1]
        return np.asarray(B[who].sum(axis=1))


class Given:
    """New rows of a precomputed affinity hold their affinities to the rows of the fit, which were scaled."""

    parts = ("exponent",)

    def __init__(self, exponent: int) -> None:
        self.exponent = exponent

    def against(self, new: Rows, B: Array) -> Array:
        out = np.empty((len(new), B.shape[1]))
        deque(new.map_raw_blocks(_given_block, B, self.exponent, per_row=(out,)), 0)
        return out


def _given_block(start: int, raw: Any, out: Array, B: Array, exponent: int) -> None:
    graph.check_block(start, raw)
    out[:] = graph.scaled(raw, exponent) @ B


_scales = {"u": floats("b", low=0), "root": FLAG, "least": Number(0)}
KERNEL = OneOf(
    (
        Parts(KernelAffinity, {"rows": RowsSpec("b", "d"), "among": NOTHING, "neighbor": Among((0,)), **_scales}),
        Parts(KernelAffinity, {"rows": RowsSpec("b", "d"), "among": RowsSpec("a", "d"), "neighbor": Below("a"), **_scales}),
    )
)
NEIGHBOR_ROWS = Parts(Neighbors, {"rows": RowsSpec("b", "d"), "count": Below("b")})
GIVEN = Parts(Given, {"exponent": count(-MAX_EXPONENT, MAX_EXPONENT)})


def kernel(rows: Rows, choice: Choice, k: int, seed: int) -> tuple[KernelAffinity, float | None]:
    """An affinity that is computed by the column, and its sigma."""
    if choice.affinity == "self-tuning":
        count = neighbors_of(choice, len(rows))
        near, _ = nearest(rows, rows, count, known=True) if count else (np.ones((len(rows), 1)), None)
        least = least_scale(near)
        return KernelAffinity(rows, inverse_scales(near, least), False, count, least), None
    root, e = choice.affinity == "rbf-norm", rows.frame.exponent
    if choice.sigma is None:
        length = choose_sigma(rows, k, seed)
        public = float(np.ldexp(length, -e))
        public, scale = (float(np.sqrt(public)), float(np.sqrt(length))) if root else (public, length)
    else:  # sigma^2 divides distances or their squares; all rows are alike if the scale leaves the range
        public = float(choice.sigma)
        scale = public * 2.0 ** (e / 2) * (1.0 if root else 2.0 ** (e / 2))
    u = 1 / max(scale, LEAST)
    return KernelAffinity(rows, np.full(len(rows), u), root), public


def neighbors_of(choice: Choice, n: int) -> int:
    """How many neighbours a row has; no more than there are other rows."""
    return min(choice.n_neighbors or NEIGHBORS[choice.affinity], n - 1)


def find(rows: Rows, choice: Choice, k: int, seed: int) -> Kind:
    if choice.affinity == "precomputed":
        affinity, exponent = graph.precomputed(rows)
        return Kind(affinity, Given(exponent), None, "drop such rows, or give them affinities")
    if choice.affinity == "knn":
        count = neighbors_of(choice, len(rows))
        exact = choice.neighbors == "exact" or rows.is_sparse
        who = nearest(rows, rows, count, known=True)[1] if exact else approximate(rows, count, seed)
        return Kind(graph.neighbor_graph(rows, who), Neighbors(rows, max(count, 1)), None, "ask for more neighbours")
    computed, sigma = kernel(rows, choice, k, seed)
    what = f"sigma={sigma:.3g} is too small for them: raise it, or leave it at None" if sigma else "ask for more neighbours"
    return Kind(computed, computed, sigma, what)
