"""Algorithms that assign rows to centroids, by name, and the choice that "auto" makes. All return the same labels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np

from ..data.rows import Rows
from ..execution.memory_limit import UNLIMITED, MemoryPlan
from ..fit import partition
from ..fit.partition import Assign, Partition, StepStats
from ..kernels import tiles
from . import bounded, lloyd, projected

Algorithm = Literal["auto", "lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected"]
BOUNDED = ("hamerly", "elkan", "yinyang", "exponion")
ALGORITHMS: dict[str, Assign] = {
    "lloyd": lloyd.assign,
    "projected": projected.assign,
    **{name: partial(bounded.assign, algorithm=name) for name in BOUNDED},
}

# The thresholds below only affect speed; `python -m bench algorithms` measures both sides of each.
MIN_PRODUCTS_FOR_BOUNDS = 1000  # multiplications per row and step, k * d, below which updating bounds costs more than it saves
MIN_PRODUCTS_FOR_BOUNDS_IN_A_PACK = 5000  # the same if all centroids are in one pack, where comparing them is cheap
MIN_PAIRS_FOR_HEADS = 1 << 20  # row-centroid pairs, n * k, below which finding the basis of the heads costs as much as a step
MIN_CENTERS_FOR_ONE_PASS = 512  # centroids from which on heads pay even if rows are assigned only once
MAX_BOUNDS_SHARE = {True: 1 / 16, False: 1 / 4}  # bytes of bounds relative to those of X, if X is a memory map and otherwise
MIN_BOUNDS_ROOM = 1 << 25  # bytes that bounds may always take, however small X is


def memory(algorithm: str, n: int, d: int, k: int, itemsize: int) -> dict[str, float]:
    """Return the bytes that the bounds of an algorithm take, by purpose."""
    if algorithm == "projected":
        dtype = np.dtype(f"f{itemsize}")
        return {"bounds": projected.memory(n, d, k, dtype), "directions": projected.directions_memory(n, d, dtype)}
    return bounded.memory(algorithm, n, k) if algorithm in BOUNDED else {}


def choose_algorithm(rows: Rows, k: int, memory_plan: MemoryPlan = UNLIMITED) -> str:
    """Return the algorithm that "auto" stands for: "projected" if bounds pay and fit into memory, else "lloyd"."""
    least = MIN_PRODUCTS_FOR_BOUNDS_IN_A_PACK if k <= tiles.lanes(rows.dtype) else MIN_PRODUCTS_FOR_BOUNDS
    if rows.is_sparse or k * rows.d < least:
        return "lloyd"
    size = len(rows) * rows.d * rows.dtype.itemsize
    room = memory_plan.spare(max(size * MAX_BOUNDS_SHARE[rows.source.is_map], MIN_BOUNDS_ROOM))
    needed: float = projected.memory(len(rows), rows.d, k, rows.dtype)
    if memory_plan.is_limited:
        needed += projected.directions_memory(len(rows), rows.d, rows.dtype)
    return "projected" if needed <= room else "lloyd"


def assign_auto(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
    """Assign rows with projected bounds; without bounds while they would not pay.

    With heads, rows that the bounds do not decide are cheap. Without heads they are not, so bounds are used only once the
    centroids have settled a little.
    """
    bounds: projected.ProjectedBounds | None = state.bounds
    reassigned = state.n_reassigned / len(rows)
    if bounds is None:
        tries_heads = rows.d >= projected.MIN_COLUMNS_FOR_HEADS and len(rows) * len(state.centers) >= MIN_PAIRS_FOR_HEADS
        if not tries_heads and reassigned > projected.MAX_REASSIGNED_AT_START:
            return partition.label_all(rows, state), None
        bounds = projected.initial_bounds(rows, state)
    if not bounds.n_steps:
        bounds = projected.try_heads(rows, state.centers, bounds)
        if not bounds.with_heads and reassigned > bounds.start_below:
            return partition.label_all(rows, state), bounds
    elif bounds.n_steps > 1 and not bounds.with_heads and not projected.pays(rows, state):
        bounds.reset(slice(None))
        return partition.label_all(rows, state), bounds._replace(n_steps=0, start_below=reassigned / 2)
    return projected.assign(rows, state._replace(bounds=bounds))


def assign_once(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
    """Assign rows in a single pass, with heads only if they pay within that pass."""
    if (
        rows.is_distributed
        or rows.is_sparse
        or rows.d <= projected.MAX_NARROW_COLUMNS
        or len(state.centers) < MIN_CENTERS_FOR_ONE_PASS
    ):
        return partition.label_all(rows, state), None
    return projected.assign(rows, state)


def final_assign(rows: Rows, state: Partition, assign: Assign) -> tuple[Iterable[StepStats], Any]:
    """Assign rows to the final centroids: with `assign` if the state has bounds, else in a single pass."""
    return (assign_once if state.bounds is None else assign)(rows, state)


def select_algorithm(rows: Rows, k: int, algorithm: str, memory_plan: MemoryPlan = UNLIMITED) -> tuple[str, Assign]:
    """Return the name of the algorithm to run, with "auto" resolved, and its assign function."""
    if algorithm == "projected" and rows.is_sparse:
        raise ValueError("algorithm='projected' needs dense rows: use 'auto' or 'yinyang' for sparse X.")
    if rows.is_distributed:  # bounds would be sent with the labels of the rows in every step, and labels do not depend on them
        return "lloyd", lloyd.assign
    if algorithm != "auto":
        return algorithm, ALGORITHMS[algorithm]
    name = choose_algorithm(rows, k, memory_plan)
    return name, assign_auto if name == "projected" else lloyd.assign
