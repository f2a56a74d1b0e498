"""Trajectories of fits: centroids after each step, and averages of curves over seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data.types import Array
from ..fit.checkpoint import CHECKPOINT_STORE, FitProgress
from ..metrics import energy

MIN_TIME_RATIO = 1.1  # ratio of the times of successive records, so that long fits do not fill the memory


class Trajectory(NamedTuple):
    """Centroids after some steps of a fit, including the last."""

    seconds: Array  # (t): since the start of the first step
    steps: Array  # (t)
    centers: list[Array]

    def without_centers(self) -> Trajectory:
        """Return the trajectory without its centroids, which would exceed the memory for 20 seeds of wide sparse rows."""
        return self._replace(centers=[])

    def energies(self, X: Any) -> Array:
        """Return the mean energy per row of X, which may differ from the rows of the fit, for each record."""
        return np.array([energy(X, C) / X.shape[0] for C in self.centers])


class _TrajectoryRecorder:
    """Checkpoint store that records the centroids of a fit instead of saving them."""

    def __init__(self, every: bool, time_ratio: float) -> None:
        self.every, self.time_ratio, self.next = every, time_ratio, 0.0
        self.seen: list[tuple[float, int, Array]] = []

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        """Return None: every fit starts from the beginning."""
        return None

    def offer(self, progress: FitProgress) -> None:
        """Record the centroids if the next record is due."""
        starts = progress.pages.get("starts")
        if starts is None or not starts.run.history:  # initialization
            return
        run = starts.run
        last = run.history[-1]
        if self.every or last["seconds"] >= self.next:
            self.next = self.time_ratio * last["seconds"]
            self.seen.append((last["seconds"], last["step"], run.state.centers.copy()))

    def refuse(self, name: str) -> None:
        """Do nothing, as there is no checkpoint to reject."""

    def told(self) -> str:
        """Return an empty description, as nothing is saved."""
        return ""


@contextlib.contextmanager
def _recording(recorder: _TrajectoryRecorder) -> Iterator[None]:
    """Use the recorder as the checkpoint store of all fits in this block."""
    token = CHECKPOINT_STORE.set(recorder)
    try:
        yield
    finally:
        CHECKPOINT_STORE.reset(token)


def record_trajectory(model: Any, X: Any, every: bool = False, time_ratio: float = MIN_TIME_RATIO) -> Trajectory:
    """Fit the model and return its centroids after every step, or at times that grow by the factor `time_ratio`."""
    recorder = _TrajectoryRecorder(every, time_ratio)
    with _recording(recorder):
        model.fit(X)
    last = model.history_[-1]
    seen = [(s, t, model._frame.out_of(C, np.dtype(np.float64))) for s, t, C in recorder.seen if t < last["step"]]
    seen.append((last["seconds"], last["step"], model.cluster_centers_))
    seconds, steps, centers = zip(*seen, strict=True)
    return Trajectory(np.array(seconds), np.array(steps), list(centers))


def at(times: Array, seconds: Array, values: Array) -> Array:
    """Return the value of the last record before each time; NaN before the first record."""
    place = np.searchsorted(seconds, times, "right") - 1
    return np.where(place >= 0, values[np.maximum(place, 0)], np.nan)


def soonest(seconds: Array, values: Array, goal: float) -> float:
    """Return the time at which a curve first reaches the goal, by linear interpolation; infinite if it never does."""
    there = np.flatnonzero(values <= goal)
    if not len(there):
        return np.inf
    i = int(there[0])
    if i == 0:
        return float(seconds[0])
    return float(np.interp(-goal, -values[[i - 1, i]], seconds[[i - 1, i]]))


def over_seeds(curves: Sequence[Array]) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of several curves; NaN where any curve is NaN."""
    stack = np.array(curves)
    return stack.mean(axis=0), stack.std(axis=0)


def first_rows(X: Any, k: int, seed: int) -> Array:
    """Return k distinct random rows as initial centroids."""
    order = np.random.default_rng(seed).permutation(X.shape[0])[: 20 * k]
    rows = X[order].toarray() if hasattr(X, "toarray") else np.asarray(X[order])
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])[:k]
    return np.ascontiguousarray(rows[first])
