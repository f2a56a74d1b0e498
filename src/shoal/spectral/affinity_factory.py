"""Make the affinity that the parameters of an estimator name, for the rows of a fit and for new rows."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from ..data.rows import Rows
from ..data.types import Array
from ..fit.schema import MAX_EXPONENT, NOTHING, Below, Choice, Number, OneOf, Parts, RowsSpec, count, floats
from . import graph
from .affinity import KernelAffinity, estimate_sigma, inverse_neighbor_scales, min_neighbor_scale
from .laplacian import Affinity
from .neighbors import approximate_neighbors, nearest_rows

KernelName = Literal["rbf", "self-tuning"]
AffinityName = Literal["rbf", "self-tuning", "knn", "precomputed"]
KERNELS = ("rbf", "self-tuning")  # affinities that are computed by the column
AFFINITIES = (*KERNELS, "knn", "precomputed")
DEFAULT_NEIGHBORS = {"knn": 10, "self-tuning": 7}
MIN_SCALE = 1e-15  # scale in the frame of the rows whose inverse square is still a float32


class AffinityParameters(NamedTuple):
    """Parameters of an estimator that concern the affinity."""

    affinity: str
    sigma: float | None = None
    n_neighbors: int | None = None
    neighbors: str = "exact"


class OutOfSampleAffinity(Protocol):
    """Affinities of new rows to the rows of the fit."""

    def out_of_sample_product(self, new: Rows, B: Array) -> Array:
        """Return the product of the affinities of new rows to the rows of the fit with B."""


class FittedAffinity(NamedTuple):
    """An affinity for the rows of a fit."""

    affinity: Affinity
    out_of_sample: OutOfSampleAffinity
    sigma: float | None  # in the units of X
    remedy: str  # advice if rows are isolated, as the end of a sentence


class NeighborAffinity:
    """Affinities of new rows in a neighbor graph: 1 for their nearest rows of the fit, 0 for others."""

    parts = ("rows", "n_neighbors")  # attributes that model files hold

    def __init__(self, rows: Rows, n_neighbors: int) -> None:
        self.rows, self.n_neighbors = rows, n_neighbors

    def out_of_sample_product(self, new: Rows, B: Array) -> Array:
        """Return the product of the affinities of new rows to the rows of the fit with B."""
        neighbors = nearest_rows(new, self.rows, self.n_neighbors, same_rows=False)[1]
        return np.asarray(B[neighbors].sum(axis=1))


class PrecomputedAffinity:
    """Affinities of new rows that the rows hold themselves, scaled as those of the fit were."""

    parts = ("exponent",)  # attributes that model files hold

    def __init__(self, exponent: int) -> None:
        self.exponent = exponent

    def out_of_sample_product(self, new: Rows, B: Array) -> Array:
        """Return the product of the affinities of new rows to the rows of the fit with B."""
        out = np.empty((len(new), B.shape[1]))
        deque(new.map_raw_blocks(_precomputed_block, B, self.exponent, per_row=(out,)), 0)
        return out


def _precomputed_block(start: int, raw: Any, out: Array, B: Array, exponent: int) -> None:
    graph.check_affinities(start, raw)
    out[:] = graph.scale_by_power(raw, exponent) @ B


_SCALES = {"inverse_scales": floats("b", low=0), "min_scale": Number(0)}
_ROWS = {"rows": RowsSpec("b", "d"), **_SCALES}
KERNEL_SPEC = OneOf(
    (
        Parts(KernelAffinity, {**_ROWS, "neighbor_rows": NOTHING, "neighbor": Choice((0,))}),
        Parts(KernelAffinity, {**_ROWS, "neighbor_rows": RowsSpec("a", "d"), "neighbor": Below("a")}),
    )
)
NEIGHBOR_SPEC = Parts(NeighborAffinity, {"rows": RowsSpec("b", "d"), "n_neighbors": Below("b")})
PRECOMPUTED_SPEC = Parts(PrecomputedAffinity, {"exponent": count(-MAX_EXPONENT, MAX_EXPONENT)})


def make_kernel_affinity(rows: Rows, parameters: AffinityParameters, k: int, seed: int) -> tuple[KernelAffinity, float | None]:
    """Return an affinity that is computed by the column, and its sigma in the units of X."""
    if parameters.affinity == "self-tuning":
        neighbor = resolve_n_neighbors(parameters, len(rows))
        distances2 = nearest_rows(rows, rows, neighbor, same_rows=True)[0] if neighbor else np.ones((len(rows), 1))
        min_scale = min_neighbor_scale(distances2)
        return KernelAffinity(rows, inverse_neighbor_scales(distances2, min_scale), neighbor, min_scale), None
    exponent = rows.frame.exponent
    if parameters.sigma is None:
        scale = estimate_sigma(rows, k, seed)
        sigma = float(np.ldexp(scale, -exponent))
    else:  # a scale beyond the range of floats gives all pairs of rows the same affinity
        sigma = float(parameters.sigma)
        scale = sigma * 2.0 ** (exponent / 2) * 2.0 ** (exponent / 2)
    return KernelAffinity(rows, np.full(len(rows), 1 / max(scale, MIN_SCALE))), sigma


def resolve_n_neighbors(parameters: AffinityParameters, n: int) -> int:
    """Return the number of neighbors of a row, at most the number of other rows."""
    return min(parameters.n_neighbors or DEFAULT_NEIGHBORS[parameters.affinity], n - 1)


def make_affinity(rows: Rows, parameters: AffinityParameters, k: int, seed: int) -> FittedAffinity:
    """Return the affinity that the parameters name."""
    if parameters.affinity == "precomputed":
        affinity, exponent = graph.precomputed_graph(rows)
        return FittedAffinity(affinity, PrecomputedAffinity(exponent), None, "drop such rows, or give them affinities")
    if parameters.affinity == "knn":
        n_neighbors = resolve_n_neighbors(parameters, len(rows))
        if parameters.neighbors == "exact" or rows.is_sparse:
            neighbors = nearest_rows(rows, rows, n_neighbors, same_rows=True)[1]
        else:
            neighbors = approximate_neighbors(rows, n_neighbors, seed)
        new_affinity = NeighborAffinity(rows, max(n_neighbors, 1))
        return FittedAffinity(graph.neighbor_graph(rows, neighbors), new_affinity, None, "ask for more neighbors")
    kernel, sigma = make_kernel_affinity(rows, parameters, k, seed)
    remedy = f"sigma={sigma:.3g} is too small for them: raise it, or leave it at None" if sigma else "ask for more neighbors"
    return FittedAffinity(kernel, kernel, sigma, remedy)
