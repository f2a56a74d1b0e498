"""Contenders of `bench map`: libraries with their own starts and samplings, and the search for their time at an energy.

A contender is a function fit(X, k, seed, steps, start). A ladder is its time and energy at several numbers of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from joblib import cpu_count

Array = np.ndarray[Any, Any]

RUNGS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 90, 128, 181, 256, 300)  # numbers of steps, a factor of sqrt(2) apart
STRIDE = 4  # rungs from one fit to the next on the way up, a factor of 4 in steps
FIRST = 1  # index of the first rung that is fitted: few steps, but more than set-up
ENERGY_TOLERANCE = 1e-4  # relative; energies within it count as equal
MAX_GAIN_RATIO = 4  # a ladder ends if the remaining difference of energies exceeds this multiple of its last improvement
SPARSE_PACKAGES = ("sklearn", "sklearnex", "shoal")  # packages that accept CSR rows


class Fit(NamedTuple):
    """Result of a fit."""

    centers: Array
    n_iter: int
    curve: Sequence[tuple[float, float]] = ()  # seconds and energy after each step, if the library records them
    finished: bool = True  # False if the fit was stopped because it took too long


@dataclass(frozen=True)
class Contender:
    """A library with one setting of everything but the number of steps."""

    name: str
    package: str
    fit: Callable[..., Fit]  # of X, k, seed, steps and start
    rows_per_centroid: float = math.inf  # size of the sample that it clusters
    min_clusters: int = 1

    def fits(self, n: int, k: int, is_sparse: bool) -> bool:
        """Return whether the setting applies, and differs from that for all rows."""
        if find_spec(self.package) is None or (is_sparse and self.package not in SPARSE_PACKAGES):
            return False
        sampled = self.rows_per_centroid < n / k or not math.isfinite(self.rows_per_centroid)
        return k >= self.min_clusters and sampled


def _cluster(X: Any, k: int, seed: int, steps: int, start: Array | None, quality: float = 0.01) -> Fit:
    from shoal import cluster

    model = cluster(X, k, quality=quality, random_state=seed, n_threads=cpu_count())
    return Fit(model.cluster_centers_, model.n_iter_)


def _kmeans(X: Any, k: int, seed: int, steps: int, start: Array | None) -> Fit:
    from shoal import KMeans

    started = time.perf_counter()
    model = KMeans(k, random_state=seed, max_iter=steps, n_threads=cpu_count()).fit(X)
    before = time.perf_counter() - started - model.history_[-1]["seconds"]
    curve = [(before + step["seconds"], step["energy"]) for step in model.history_]
    return Fit(model.cluster_centers_, model.n_iter_, curve)


def _algorithm(
    X: Any, k: int, seed: int, steps: int, start: Array | None, limit: float | None = None, algorithm: str = "auto"
) -> Fit:
    """Fit from the given centroids; stop after `limit` seconds."""
    from shoal import KMeans

    end = math.inf if limit is None else time.perf_counter() + limit
    options: dict[str, Any] = {"max_iter": steps, "algorithm": algorithm, "n_threads": cpu_count()}
    model = KMeans(k, init=start, callback=lambda record: time.perf_counter() > end, **options).fit(X)
    return Fit(model.cluster_centers_, model.n_iter_, finished=model.stop_reason_ != "callback")


def _sklearn(X: Any, k: int, seed: int, steps: int, start: Array | None, init: str, package: str = "sklearn") -> Fit:
    cls = import_module(f"{package}.cluster").KMeans
    model = cls(k, init=init, n_init=1, max_iter=steps, tol=0.0, random_state=seed).fit(X)
    if package == "sklearnex" and not hasattr(model, "_onedal_estimator"):
        raise RuntimeError("scikit-learn-intelex handed the fit to scikit-learn")
    return Fit(np.asarray(model.cluster_centers_), model.n_iter_)


def _minibatch(X: Any, k: int, seed: int, epochs: int, start: Array | None) -> Fit:
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(k, n_init=1, max_iter=epochs, max_no_improvement=None, random_state=seed).fit(X)
    return Fit(model.cluster_centers_, epochs)


def _faiss(X: Any, k: int, seed: int, steps: int, start: Array | None, per_centroid: float) -> Fit:
    faiss: Any = import_module("faiss")
    n, d = X.shape
    faiss.omp_set_num_threads(cpu_count())
    model = faiss.Clustering(d, k)
    model.niter, model.seed = steps, seed + 1
    model.min_points_per_centroid = 1
    model.max_points_per_centroid = int(min(per_centroid, n))
    model.train(X, faiss.IndexFlatL2(d))
    return Fit(faiss.vector_to_array(model.centroids).reshape(k, d), model.iteration_stats.size())


def _superkmeans(X: Any, k: int, seed: int, steps: int, start: Array | None, **options: Any) -> Fit:
    from superkmeans import SuperKMeans

    model = SuperKMeans(k, X.shape[1], seed=seed, n_threads=cpu_count(), **options)
    return Fit(model.train(X), steps)


def _superkmeans_flat(X: Any, k: int, seed: int, steps: int, start: Array | None, sampled: bool = False) -> Fit:
    rows = {} if sampled else {"sampling_fraction": 1.0, "max_points_per_cluster": len(X)}
    return _superkmeans(X, k, seed, steps, start, hierarchical=False, iters=steps, tol=0.0, early_termination=False, **rows)


def _superkmeans_hierarchical(X: Any, k: int, seed: int, steps: int, start: Array | None) -> Fit:
    """Fit with its default settings at one step; further steps refine the result on all clusters."""
    return _superkmeans(X, k, seed, steps, start, hierarchical=True, iters_refinement=steps - 1)


PEERS = [
    Contender("superkmeans", "superkmeans", _superkmeans_flat),
    Contender("superkmeans-sampled", "superkmeans", partial(_superkmeans_flat, sampled=True)),
    Contender("superkmeans-hierarchical", "superkmeans", _superkmeans_hierarchical, min_clusters=129),
    Contender("faiss-64", "faiss", partial(_faiss, per_centroid=64), 64),
    Contender("faiss-256", "faiss", partial(_faiss, per_centroid=256), 256),
    Contender("faiss-all", "faiss", partial(_faiss, per_centroid=math.inf)),
    Contender("sklearnex-k-means++", "sklearnex", partial(_sklearn, init="k-means++", package="sklearnex")),
    Contender("sklearnex-random", "sklearnex", partial(_sklearn, init="random", package="sklearnex")),
    Contender("sklearn-k-means++", "sklearn", partial(_sklearn, init="k-means++")),
    Contender("sklearn-random", "sklearn", partial(_sklearn, init="random")),
    Contender("sklearn-minibatch", "sklearn", _minibatch),
]
OURS = [Contender("cluster", "shoal", _cluster), Contender("KMeans", "shoal", _kmeans)]
ROUGH = [Contender(f"cluster-{q}", "shoal", partial(_cluster, quality=q)) for q in (0.2, 0.1, 0.05, 0.02)]


def algorithms() -> list[Contender]:
    """Return "auto" and every algorithm of `KMeans`, all from a given start."""
    from shoal.kmeans.dispatch import ALGORITHMS

    return [Contender(name, "shoal", partial(_algorithm, algorithm=name)) for name in ("auto", *ALGORITHMS)]


CONTENDERS = {contender.name: contender for contender in [*PEERS, *OURS, *ROUGH, *algorithms()]}


class Point(NamedTuple):
    """One fit of a ladder."""

    steps: int
    seconds: float
    energy: float
    converged: bool = False  # it made fewer steps than asked, so that more steps change nothing


class Ladder:
    """Fits of one contender to one problem with several numbers of steps, in search of the fewest that reach an energy."""

    def __init__(self, run: Callable[[int], Point | None], max_steps: int = RUNGS[-1], expected: float = 0.0) -> None:
        self.run, self.rungs = run, [steps for steps in RUNGS if steps <= max_steps]
        self.expected = expected  # seconds of the shortest fit, from an earlier seed
        self.points: dict[int, Point] = {}  # by index of the rung
        self.failed = False
        self.cut: set[float] = set()  # energies in search of which a fit was not tried because it would have taken too long

    def first_to(self, energy: float) -> Point | None:
        """Return the fastest fit whose energy is at most this one, up to the tolerance."""
        reached = [point for point in self.points.values() if point.energy <= energy * (1 + ENERGY_TOLERANCE)]
        return min(reached, key=lambda point: point.seconds, default=None)

    def shortest(self) -> float:
        """Return the seconds of the shortest fit so far."""
        return min((point.seconds for point in self.points.values()), default=self.expected)

    def predicted(self, index: int) -> float:
        """Return the expected seconds of a rung, linear in the number of steps."""
        known = sorted(self.points.values())
        slope = known[0].seconds / known[0].steps
        if len(known) > 1:
            slope = max((known[-1].seconds - known[0].seconds) / (known[-1].steps - known[0].steps), 0.0)
            nearest = max((point for point in known if point.steps <= self.rungs[index]), default=known[0])
            return nearest.seconds + slope * (self.rungs[index] - nearest.steps)
        return slope * self.rungs[index]

    def climb(self, energy: float, limit: float) -> None:
        """Find the fewest steps that reach an energy within `limit` seconds: up in large strides, then by bisection."""
        if not self.points and self.expected > limit:
            self.cut.add(energy)
            return
        if not self.points:
            self._fit(min(FIRST, len(self.rungs) - 1))
        while not self.failed and (index := self._next(energy, limit)) is not None:
            self._fit(index)

    def _fit(self, index: int) -> None:
        point = self.run(self.rungs[index])
        if point is None:
            self.failed = True
        else:
            self.points[index] = point

    def repeat(self, point: Point) -> None:
        """Run a fit once more; its time becomes the mean of both."""
        index = self.rungs.index(point.steps)
        again = self.run(point.steps)
        if again is not None:
            self.points[index] = point._replace(seconds=(point.seconds + again.seconds) / 2)

    def _next(self, energy: float, limit: float) -> int | None:
        """Return the index of the next rung to fit, or None if the search is over."""
        goal = energy * (1 + ENERGY_TOLERANCE)
        above = min((i for i, point in self.points.items() if point.energy <= goal), default=None)
        below = max((i for i, point in self.points.items() if point.energy > goal and (above is None or i < above)), default=-1)
        if above is not None:
            index = (below + above) // 2
        else:
            if self.points[below].converged or below == len(self.rungs) - 1 or self._stalls(below, goal):
                return None
            index = min(below + STRIDE, len(self.rungs) - 1)
        while index > below and self.predicted(index) > limit:
            index -= 1
        if index <= below and above is None:
            self.cut.add(energy)
        return index if index > below and index not in self.points else None

    def _stalls(self, last: int, goal: float) -> bool:
        """Return whether the energy decreases too slowly for the goal."""
        earlier = [i for i in self.points if i <= last - STRIDE]
        if not earlier:
            return False
        gain = self.points[max(earlier)].energy - self.points[last].energy
        return self.points[last].energy - goal > MAX_GAIN_RATIO * max(gain, 0.0)


def fastest(ladders: dict[str, Ladder], energy: float) -> tuple[str, Point] | None:
    """Return the lower envelope at an energy: the contender and the fit that reach it first."""
    found = [(name, point) for name, ladder in ladders.items() if (point := ladder.first_to(energy)) is not None]
    return min(found, key=lambda pair: pair[1].seconds, default=None)


def climb_all(ladders: dict[str, Ladder], goals: Sequence[tuple[float, float]]) -> None:
    """Let every ladder search for the goals (energy, seconds), and stop where it would be slower than the fastest so far.

    Ladders that reached the previous goal early go first, so that the others are stopped soon.
    """
    order = list(ladders)
    for energy, limit in sorted(goals, reverse=True):  # higher energies are reached earlier
        for name in order:
            best = fastest(ladders, energy)
            ladders[name].climb(energy, limit if best is None else min(limit, best[1].seconds))
        reached = {name: ladder.first_to(energy) for name, ladder in ladders.items()}
        times = {name: math.inf if point is None else point.seconds for name, point in reached.items()}
        order.sort(key=lambda name: times[name])
