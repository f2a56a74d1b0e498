"""Label the rows by the final centroids, and compute the energy by which starts are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.cancellation import TimeUp, time_limit
from ..data.rows import Rows
from ..data.types import Array
from . import partition
from .loop import Limits, RunResult
from .partition import Assign, Partition

MAX_FILL_ROUNDS = 10  # attempts to give empty clusters a row; duplicates can leave some empty after any number of them

LabelAndCost = Callable[
    [Rows, Partition, Assign], tuple[Partition, float | None]
]  # labels rows; None if there is no energy yet
Publish = Callable[[Partition], Partition]  # rounds centroids to the values that the user will see


def published_centers(rows: Rows, centers: Array) -> Array:
    """Return centroids in the units of X, as values that the frame represents without further rounding."""
    public = rows.frame.out_of(centers, rows.dtype)
    return public if rows.frame.shift is None else rows.frame.out_of(rows.frame.into(public, rows.dtype), rows.dtype)


def round_as_published(rows: Rows, state: Partition) -> Partition:
    """Return the partition with centroids rounded to the values that the user will see."""
    if rows.frame.is_identity:  # no copy of centroids that have the dtype of the rows already
        return state._replace(centers=np.ascontiguousarray(state.centers, rows.dtype))
    return state._replace(centers=rows.frame.into(published_centers(rows, state.centers), rows.dtype))


def finalize(
    rows: Rows, result: RunResult, assign: Assign, publish: Publish, limits: Limits, skipped: list[str]
) -> tuple[RunResult, float]:
    """Return a run with labels of all rows by the published centroids, and its energy in the rows' frame.

    Labels of the last step are kept if they belong to the published centroids. Empty clusters get a row if there are enough
    distinct rows. What the time budget was too short for is added to `skipped`.
    """
    if result.info is None and not result.history:
        skipped.append("no step over the rows was completed")
    state, labels_are_final = last_partition(rows, result)
    labelled_by = state.centers if labels_are_final else None
    if _sums_have_rounded(rows, result, state):
        state, _ = partition.advance(rows, state._replace(moved=len(rows)), partition.keep_labels)
    state = publish(state)
    energy: float | None = None
    if labelled_by is None or not np.array_equal(state.centers, labelled_by):
        state, energy = label_and_fill(rows, state, assign, publish, limits, skipped)
    return with_energy(rows, result, state, energy)


def evaluate(rows: Rows, result: RunResult, assign: Assign) -> tuple[RunResult, float]:
    """Return a run that was finalized before, with its labels and energy computed again."""
    state, energy = partition.label_and_cost(rows, result.state, assign)
    return with_energy(rows, result, state, energy)


def last_partition(rows: Rows, result: RunResult) -> tuple[Partition, bool]:
    """Return the partition of the last step, and whether its labels are those of its centroids.

    They are if the step neither moved a centroid nor changed a label.
    """
    state: Any = getattr(result.state, "partition", result.state)
    if result.info is None or not isinstance(state, Partition) or len(state.labels) < len(rows):
        return partition.initial_partition(rows, state.centers), False
    return state, result.info.reassigned == result.info.shift == 0 and bool((state.labels >= 0).all())


def _sums_have_rounded(rows: Rows, result: RunResult, state: Partition) -> bool:
    """Return whether centroids are means whose sums were updated row by row since they were last computed from scratch."""
    return isinstance(result.state, Partition) and result.reason == "converged" and 0 < state.moved < len(rows)


def label_and_fill(
    rows: Rows,
    state: Partition,
    assign: Assign,
    publish: Publish,
    limits: Limits,
    skipped: list[str],
    label_and_cost: LabelAndCost = partition.label_and_cost,
) -> tuple[Partition, float | None]:
    """Label the rows, and give empty clusters a row. Centroids of the other clusters stay where they are."""
    state, energy = label_and_cost(rows, state, assign)
    for _ in range(MAX_FILL_ROUNDS):
        empty = partition.sizes(state.labels, len(state.centers), rows.weights) == 0
        if not empty.any():
            break
        labels = state.labels.copy()
        try:
            with time_limit(limits.step_end(0.0)):
                filled, info = partition.advance(rows, state._replace(moved=len(rows)), assign)
        except TimeUp:
            state = state._replace(labels=labels)
            skipped.append(f"{np.count_nonzero(empty):,} clusters stayed empty")
            break
        if info.reassigned == 0:
            break
        filled = filled._replace(centers=np.where(empty[:, None], filled.centers, state.centers))
        state, energy = label_and_cost(rows, publish(filled), assign)
    return state, energy


def with_energy(rows: Rows, result: RunResult, state: Partition, energy: float | None) -> tuple[RunResult, float]:
    """Return the run with the given partition, without bounds (the next start needs the memory), and its energy."""
    energy = partition.energy(rows, state) if energy is None else energy
    return result._replace(state=state._replace(bounds=None)), energy
