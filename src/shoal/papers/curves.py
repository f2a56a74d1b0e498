"""How fits go: where the centres are after each step, and what curves of several seeds have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data.types import Array
from ..fit.checkpoint import CHECKPOINT_STORE, FitProgress
from ..metrics import energy

APART = 1.1  # of two looks at a long fit, the later one is so many times as late


class Trail(NamedTuple):
    """Centres after some steps of a fit, the last among them."""

    seconds: Array  # (t): since the first step began
    steps: Array  # (t)
    centers: list[Array]

    def without_bounds(self) -> Trail:
        """Without the centres: those of sparse rows are wide, and of 20 seeds more than a machine holds."""
        return self._replace(centers=[])

    def energies(self, X: Any) -> Array:
        """Of rows that need not be those of the fit, in the mean."""
        return np.array([energy(X, C) / X.shape[0] for C in self.centers])


class _Follower:
    """Looks at a fit from where checkpoints do."""

    def __init__(self, every: bool, apart: float) -> None:
        self.every, self.apart, self.next = every, apart, 0.0
        self.seen: list[tuple[float, int, Array]] = []

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        return None

    def offer(self, progress: FitProgress) -> None:
        starts = progress.pages.get("starts")
        if starts is None or not starts.run.history:  # it has not begun to step
            return
        run = starts.run
        last = run.history[-1]
        if self.every or last["seconds"] >= self.next:
            self.next = self.apart * last["seconds"]
            self.seen.append((last["seconds"], last["step"], run.state.centers.copy()))

    def refuse(self, name: str) -> None:
        """Nothing was kept."""

    def told(self) -> str:
        return ""


@contextlib.contextmanager
def _watched_by(follower: _Follower) -> Iterator[None]:
    token = CHECKPOINT_STORE.set(follower)
    try:
        yield
    finally:
        CHECKPOINT_STORE.reset(token)


def update_sequential(model: Any, X: Any, every: bool = False, apart: float = APART) -> Trail:
    """Fit the model and see where its centres were: after every step, or ever more seldom."""
    follower = _Follower(every, apart)
    with _watched_by(follower):
        model.fit(X)
    last = model.history_[-1]
    seen = [(s, t, model._frame.out_of(C, np.dtype(np.float64))) for s, t, C in follower.seen if t < last["step"]]
    seen.append((last["seconds"], last["step"], model.cluster_centers_))
    seconds, steps, centers = zip(*seen, strict=True)
    return Trail(np.array(seconds), np.array(steps), list(centers))


def at(times: Array, seconds: Array, values: Array) -> Array:
    """What was reached by each time: the value of the last look before it; NaN before the first."""
    place = np.searchsorted(seconds, times, "right") - 1
    return np.where(place >= 0, values[np.maximum(place, 0)], np.nan)


def soonest(seconds: Array, values: Array, goal: float) -> float:
    """When a curve first is down at the goal, on a straight line between two looks; infinite if never."""
    there = np.flatnonzero(values <= goal)
    if not len(there):
        return np.inf
    i = int(there[0])
    if i == 0:
        return float(seconds[0])
    return float(np.interp(-goal, -values[[i - 1, i]], seconds[[i - 1, i]]))


def over_seeds(curves: Sequence[Array]) -> tuple[Array, Array]:
    """Mean and standard deviation, where all are known."""
    stack = np.array(curves)
    return stack.mean(axis=0), stack.std(axis=0)


def first_rows(X: Any, k: int, seed: int) -> Array:
    """k distinct rows, as they come in a shuffled order: where fits start."""
    order = np.random.default_rng(seed).permutation(X.shape[0])[: 20 * k]
    rows = X[order].toarray() if hasattr(X, "toarray") else np.asarray(X[order])
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])[:k]
    return np.ascontiguousarray(rows[first])
