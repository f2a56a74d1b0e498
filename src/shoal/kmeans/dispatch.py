"""Ways to label the rows, by name, and which of them "auto" takes. All find the same labels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from ..data.rows import Rows
from ..execution.memory_limit import UNLIMITED, MemoryPlan
from ..fit import partition
from ..fit.partition import Assign, Partition, StepStats
from . import bounded, lloyd, projected

BOUNDED = ("hamerly", "elkan", "yinyang", "exponion")
ALGORITHMS: dict[str, Assign] = {
    "lloyd": lloyd.assign,
    "projected": projected.assign,
    **{name: partial(bounded.assign, algorithm=name) for name in BOUNDED},
}


WORTHWHILE = 1000  # multiplications a row, centres times columns, from which on bounds pay
RESTLESS = 0.05  # share of the rows that must move for plain steps to be faster than bounds
HEAVY = 1 << 20  # rows times centres from which on it is worth to find directions: that costs as much as they do in a step
CROWD = 512  # centres for which heads pay even if rows are labelled but once
MEMORY = {True: 1 / 16, False: 3 / 4}  # what bounds may take, as a share of X: less if X is a memory map


def memory(algorithm: str, n: int, d: int, k: int, wide: int) -> dict[str, float]:
    """Bytes that the bounds of an algorithm take, whether there is room for them or not; "auto" asks first."""
    if algorithm == "projected":
        dtype = np.dtype(f"f{wide}")
        return {"bounds": projected.memory(n, d, k, dtype), "directions": projected.directions_memory(n, d, dtype)}
    return bounded.memory(algorithm, n, k) if algorithm in BOUNDED else {}


def choose_algorithm(rows: Rows, k: int, memory_plan: MemoryPlan = UNLIMITED) -> str:
    """What "auto" runs; `python -m bench algorithms` shows why."""
    if rows.is_sparse or k * rows.d < WORTHWHILE:
        return "lloyd"
    size = len(rows) * rows.d * rows.dtype.itemsize
    room = memory_plan.spare(max(size * MEMORY[rows.source.is_map], 1 << 25))
    needed: float = projected.memory(len(rows), rows.d, k, rows.dtype)
    if memory_plan.is_limited:
        needed += projected.directions_memory(len(rows), rows.d, rows.dtype)
    return "projected" if needed <= room else "lloyd"


def assign_auto(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
    """Bounds; but plain steps while many rows move and there are no heads, which alone make open bounds cheap."""
    bounds: projected.Bounds | None = state.bounds
    headless = rows.d <= projected.IDENTITY if bounds is None else bounds.heads.size == 0
    if not headless and bounds is None and len(rows) * len(state.centers) < HEAVY:
        return partition.label_all(rows, state), None
    if not headless or state.n_reassigned <= RESTLESS * len(rows):
        return projected.assign(rows, state)
    if bounds is not None:
        bounds.forget(slice(None))
    return partition.label_all(rows, state), bounds


def assign_once(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
    """For rows that are to be labelled this once: heads only where they pay at once."""
    if rows.is_distributed or rows.is_sparse or rows.d <= projected.WHOLE or len(state.centers) < CROWD:
        return partition.label_all(rows, state), None
    return projected.assign(rows, state)


def final_assign(rows: Rows, state: Partition, assign: Assign) -> tuple[Iterable[StepStats], Any]:
    """Label the rows by the final centroids: with bounds, if there are any."""
    return (assign_once if state.bounds is None else assign)(rows, state)


def select_algorithm(rows: Rows, k: int, algorithm: str, memory_plan: MemoryPlan = UNLIMITED) -> tuple[str, Assign]:
    """The algorithm's name, where it was "auto", and how it labels."""
    if algorithm == "projected" and rows.is_sparse:
        raise ValueError("algorithm='projected' needs dense rows: use 'auto' or 'yinyang' for sparse X.")
    if rows.is_distributed:  # bounds would travel with the rows' labels, and the labels are the same without them
        return "lloyd", lloyd.assign
    if algorithm != "auto":
        return algorithm, ALGORITHMS[algorithm]
    name = choose_algorithm(rows, k, memory_plan)
    return name, assign_auto if name == "projected" else lloyd.assign
