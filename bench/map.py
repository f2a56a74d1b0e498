"""Suite `map`: time at equal energy against the fastest of all settings of all peers, each with its own start and sampling."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.papers.data import Missing

from . import problems
from .ladders import OURS, PEERS, ROUGH, RUNGS, Contender, Ladder, Point, algorithms, climb_all, fastest
from .map_figures import Race, figures_of, limit_of, rows_of
from .map_page import summary
from .measure import Answer, Lab, energy
from .problems import start_of
from .results import Entry
from .suites import entry_of

MEASURE = (
    "Whole fits, each library with its own start and sampling; energies over all rows by float64. A ratio is the time of the "
    "fastest setting of any peer whose energy is at most ours (within 1e-4), over our time: above 1, Shoal is faster. The "
    "settings of a peer are numbers of steps a factor of sqrt(2) apart, of which those are fitted that bisection asks for. "
    "Algorithms run from the same start to tol=1e-4. Medians over seeds."
)
MAX_PROBLEM_SECONDS = 45.0  # a further seed is started only if it is expected to end within this time
MAX_REPEATED_SECONDS = 5.0  # the fits that are compared are made twice if they are shorter; ours before and after the peers'
ALGORITHM_PATIENCE = 1.1  # multiple of the fastest algorithm's time after which another one is stopped
LLOYD_PATIENCE = 5.0  # the same for plain Lloyd, whose time is reported
QUICK_STEPS = 8
MAX_ITER = 300  # of our fits, their default


class Field:
    """One problem: its rows and the contenders that apply, each in a process of its package."""

    def __init__(self, lab: Lab, name: str, X: Any, k: int) -> None:
        self.lab, self.name, self.X, self.k = lab, name, X, k
        self.files = [lab.share(f"{name}-rows", X)]
        self.rows = self.files[0]
        self.curves: dict[str, list[list[float]]] = {}
        self.finished = True
        self.shortest: dict[str, float] = {}  # seconds of each peer's shortest fit with the last seed

    def close(self) -> None:
        for path in self.files:
            Path(path).unlink()

    def ask(self, contender: Contender, steps: int, seed: int, **more: Any) -> Point | None:
        """Return one fit, or None, with a note, if the library fails."""
        out = str(self.lab.folder / "centers.npy")
        task = {"do": "rung", "contender": contender.name, "rows": self.rows, "k": self.k, "seed": seed, "steps": steps}
        answer: Answer = self.lab.ask_again(contender.package, {**task, **more, "warm": not self.lab.quick, "out": out})
        if "error" in answer:
            self.lab.leave_out(f"{contender.name}: {answer['error']}", failed=contender.package == "shoal")
            return None
        point = Point(steps, answer["wall"], energy(self.X, np.load(out)), answer["n_iter"] < steps)
        self.finished = answer["finished"]
        self.curves[contender.name] = answer["curve"] or [*self.curves.get(contender.name, []), [*point[1:3]]]
        self.lab.say(
            f"  {seed}: {contender.name}, {answer['n_iter']} of {steps} steps: {point.seconds:.3g} s {point.energy:.6g}"
        )
        return point

    def race(self, seed: int) -> Race | None:
        """Run all contenders with one seed; None if one of ours fails."""
        self.curves = {}
        ours = {contender.name: self.ask(contender, MAX_ITER, seed) for contender in OURS}
        there = {name: point for name, point in ours.items() if point is not None}
        if len(there) < len(OURS):
            return None
        ladders = self._peers(seed, there)
        for contender in OURS:
            if there[contender.name].seconds <= MAX_REPEATED_SECONDS and not self.lab.quick:
                again = self.ask(contender, MAX_ITER, seed)
                if again is not None:
                    first = there[contender.name]
                    there[contender.name] = first._replace(seconds=(first.seconds + again.seconds) / 2)
        mine = {"cluster": [[*there["cluster"][1:3]]], "KMeans": self.curves["KMeans"]}
        for contender in ROUGH if seed == 0 and not self.lab.quick else []:
            point = self.ask(contender, MAX_ITER, seed)
            mine["cluster"] += [[point.seconds, point.energy]] if point is not None else []
        seconds, stopped = self._algorithms(seed)
        if not {"auto", "lloyd"} <= set(seconds):
            return None
        return Race(there, ladders, seconds, stopped, {name: sorted(curve) for name, curve in mine.items()})

    def _peers(self, seed: int, ours: dict[str, Point]) -> dict[str, Ladder]:
        n, is_sparse = self.X.shape[0], hasattr(self.X, "indptr")
        most = QUICK_STEPS if self.lab.quick else RUNGS[-1]
        peers = [contender for contender in PEERS if contender.fits(n, self.k, is_sparse)]
        peers = [*peers[seed % len(peers) :], *peers[: seed % len(peers)]]

        def run_of(contender: Contender) -> Callable[[int], Point | None]:
            return lambda steps: self.ask(contender, steps, seed)

        ladders = {
            contender.name: Ladder(run_of(contender), most, self.shortest.get(contender.name, 0.0)) for contender in peers
        }
        climb_all(ladders, [(point.energy, limit_of(point)) for point in ours.values()])
        winners = {fastest(ladders, point.energy) for point in ours.values()}
        for name, point in sorted(winner for winner in winners if winner is not None):
            if point.seconds <= MAX_REPEATED_SECONDS and not self.lab.quick:
                ladders[name].repeat(point)
        self.shortest = {name: ladder.shortest() for name, ladder in ladders.items()}
        return ladders

    def _algorithms(self, seed: int) -> tuple[dict[str, float], frozenset[str]]:
        """Time every algorithm from the same start; return seconds and the names of those stopped as slower than another."""
        start = self.lab.share(f"{self.name}-start{seed}", start_of(self.X, self.k, seed))
        self.files.append(start)
        seconds: dict[str, float] = {}
        stopped = set[str]()
        tried = [contender for contender in algorithms() if contender.name != "projected" or not hasattr(self.X, "indptr")]
        for contender in tried[:2] if self.lab.quick else tried:
            patience = LLOYD_PATIENCE if contender.name == "lloyd" else ALGORITHM_PATIENCE
            limit = {"limit": patience * min(seconds.values())} if seconds else {}
            point = self.ask(contender, QUICK_STEPS if self.lab.quick else MAX_ITER, seed, start=start, **limit)
            if point is not None:
                seconds[contender.name] = point.seconds
                stopped |= set() if self.finished else {contender.name}
        if "auto" in seconds:
            self._confirm(seconds, stopped, start, seed)
        return seconds, frozenset(stopped)

    def _confirm(self, seconds: dict[str, float], stopped: set[str], start: str, seed: int) -> None:
        """Repeat "auto" and the fastest algorithm, the two whose ratio is reported, unless they take long; keep the shorter."""
        by_name = {contender.name: contender for contender in algorithms()}
        single = [name for name in seconds if name not in stopped and name != "auto"]
        for name in ("auto", *sorted(single, key=lambda name: seconds[name])[:1]):
            if seconds[name] <= MAX_REPEATED_SECONDS and not self.lab.quick:
                point = self.ask(by_name[name], MAX_ITER, seed, start=start)
                if point is not None:
                    seconds[name] = min(seconds[name], point.seconds)


def selected(lab: Lab, only: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield name, set and number of clusters of the problems whose name contains a word of `only`, or is one."""
    sets = problems.MAP_TINY if lab.quick else problems.MAP
    names = {f"{name}-k{k}": (name, k) for name in sets for k in ((20,) if lab.quick else problems.MAP_CLUSTERS)}
    for name, (data, k) in names.items():
        if not only or any(word == name or (word not in names and word in name) for word in only):
            yield name, data, k


def _loaded(lab: Lab, only: Sequence[str]) -> Iterator[tuple[str, Any, int, int]]:
    """Yield name, rows, number of clusters and number of all rows of the selected problems."""
    sets, last, X = {**problems.MAP, **problems.MAP_TINY}, "", None
    for name, data, k in selected(lab, only):
        if data != last:
            last, X = data, None
            try:
                X = sets[data]()
            except Missing as missing:
                lab.leave_out(f"{data}: {missing}")
        if X is None:
            continue
        wide = hasattr(X, "indptr") and k * X.shape[1] > problems.MAP_MAX_CENTER_ENTRIES
        if X.shape[0] < problems.MAP_ROWS_PER_CLUSTER * k or wide:
            lab.say(f"{name}: left out, {'too many columns' if wide else 'too few rows'} for {k} clusters")
            continue
        yield name, problems.map_rows(X, k), k, X.shape[0]


def speed_map(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Time at equal energy of `cluster` and `KMeans` against every setting of every peer; "auto" against each algorithm."""
    done: list[Entry] = []
    for name, X, k, n in _loaded(lab, only):
        lab.say(name)
        field, races, started = Field(lab, name, X, k), list[Race](), time.monotonic()
        try:
            for seed in range(lab.repeats):
                if races and (seed + 1) / seed * (time.monotonic() - started) > MAX_PROBLEM_SECONDS:
                    break
                race = field.race(seed)
                if race is None:
                    break
                races.append(race)
        finally:
            field.close()
        if not races:
            continue
        drawn = f" (drawn from {n:,})" if X.shape[0] < n else ""
        shape = f"{X.shape[0]:,} x {X.shape[1]}{drawn}"
        entry = entry_of(lab, name, MEASURE, rows_of(races), figures_of(races))
        lab.say(f"  {time.monotonic() - started:.0f} s")
        done.append({**entry, "shape": shape, "k": k, "seeds": len(races)})
        yield done[-1]
    lab.dismiss()
    lab.say(summary(done))
