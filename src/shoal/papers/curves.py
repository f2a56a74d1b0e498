"""Trajectories of fits: centroids after each step, and averages of curves over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data.types import Array
from ..fit.environment import FitEnvironment
from ..metrics import energy

MIN_TIME_RATIO = 1.1  # ratio of the times of successive records, so that long fits do not fill the memory


class Trajectory(NamedTuple):
    """Centroids after some steps of a fit, including the last."""

    seconds: Array  # (t): since the start of the first step
    steps: Array  # (t)
    centers: list[Array]

    def energies(self, X: Any) -> Array:
        """Return the mean energy per row of X, which may differ from the rows of the fit, for each record."""
        return np.array([energy(X, C) / X.shape[0] for C in self.centers])


class _TrajectoryRecorder:
    """Observer of a fit that records its centroids after every step, or at times that grow by the factor `time_ratio`."""

    def __init__(self, every: bool, time_ratio: float) -> None:
        self.every, self.time_ratio, self.next = every, time_ratio, 0.0
        self.seen: list[tuple[float, int, Array]] = []

    def __call__(self, record: dict[str, Any], state: Any) -> None:
        """Record the centroids if the next record is due."""
        if self.every or record["seconds"] >= self.next:
            self.next = self.time_ratio * record["seconds"]
            self.seen.append((record["seconds"], record["step"], state.centers.copy()))


def record_trajectory(model: Any, X: Any, every: bool = False, time_ratio: float = MIN_TIME_RATIO) -> Trajectory:
    """Fit the model and return its centroids after every step, or at times that grow by the factor `time_ratio`."""
    recorder = _TrajectoryRecorder(every, time_ratio)
    model._fit(X, None, FitEnvironment.current(None, X)._replace(observers=(recorder,)))
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
