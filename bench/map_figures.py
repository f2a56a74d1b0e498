"""Results of `bench map` for one problem: ratios and times from the races of all seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from .ladders import Ladder, Point, fastest
from .results import Entry

MAX_TIME_RATIO, MIN_LIMIT, MAX_LIMIT = 3.0, 0.3, 30.0  # a peer has this multiple of our time, and seconds within these bounds
MAX_CURVE_POINTS, DIGITS = 30, 7  # of the curves that are stored
REACHED = ("cluster", "KMeans")


class Race(NamedTuple):
    """Results of one seed."""

    ours: dict[str, Point]
    peers: dict[str, Ladder]
    algorithms: dict[str, float]  # seconds, at least
    stopped: frozenset[str]  # algorithms that were stopped because they were slower than another one
    curves: dict[str, list[list[float]]]  # of ours: seconds and energy


def limit_of(ours: Point) -> float:
    """Return the seconds that a fit of a peer may take."""
    return min(max(MAX_TIME_RATIO * ours.seconds, MIN_LIMIT), MAX_LIMIT)


def ratio_of(race: Race, name: str) -> tuple[float, bool, str]:
    """Return the ratio of the fastest peer's time to ours, whether it is only a lower bound, and this peer and its setting.

    The ratio is infinite if no peer reaches our energy, and a bound if one might, were it given more time.
    """
    ours = race.ours[name]
    best = fastest(race.peers, ours.energy)
    if best is not None:
        return best[1].seconds / ours.seconds, False, f"{best[0]}, {best[1].steps} steps"
    if any(ours.energy in ladder.cut for ladder in race.peers.values()):
        return limit_of(ours) / ours.seconds, True, f"no peer within {limit_of(ours):.2g} s"
    return math.inf, False, "no peer reaches it"


def figures_of(races: Sequence[Race]) -> list[Entry]:
    """Return the figures of a problem. Of an even number of seeds, the lower median of the ratios is reported."""
    figures: list[Entry] = []
    for name in REACHED:
        ordered = sorted(ratio_of(race, name) for race in races)
        ratio, bound, by = ordered[(len(ordered) - 1) // 2]
        what = f"{'at least: ' * bound}{name} against the fastest peer at its energy"
        value = {"ratio": ratio} if math.isfinite(ratio) else {"value": by}
        figures.append({"what": what, "of": name, "by": by, "at least": bound, **value})
    return [*figures, *_algorithm_figures(races)]


def _single(race: Race) -> str:
    """Return the name of the fastest algorithm; one that was stopped counts with the time it had taken by then."""
    return min(set(race.algorithms) - {"auto"}, key=lambda name: race.algorithms[name])


def _algorithm_figures(races: Sequence[Race]) -> list[Entry]:
    """Return the ratios of "auto" to the fastest algorithm and to plain Lloyd."""
    over = sorted(
        ((race.algorithms["auto"] / race.algorithms[_single(race)], race) for race in races), key=lambda pair: pair[0]
    )
    value, race = over[(len(over) - 1) // 2]
    bound = _single(race) in race.stopped
    what = f"{'at most: ' * bound}auto over the best single algorithm"
    single: Entry = {"what": what, "of": "auto", "by": _single(race), "at most": bound, "value": value, "limit": 1.1}
    bound = any("lloyd" in race.stopped for race in races)
    ratio = median(race.algorithms["lloyd"] / race.algorithms["auto"] for race in races)
    what = f"{'at least: ' * bound}auto against plain Lloyd"
    return [single, {"what": what, "of": "lloyd", "by": "lloyd", "at least": bound, "ratio": ratio}]


def _stored(curve: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return at most MAX_CURVE_POINTS points of a curve, rounded."""
    places = np.unique(np.geomspace(1, len(curve), MAX_CURVE_POINTS).round().astype(int)) - 1
    return [[float(f"{value:.{DIGITS}g}") for value in curve[i]] for i in places]


def rows_of(races: Sequence[Race]) -> list[Entry]:
    """Return the results per contender: ours, then peers with the time at our energies, then algorithms."""
    base = median(race.ours["cluster"].energy for race in races)
    rows: list[Entry] = []
    for name in REACHED:
        points = [race.ours[name] for race in races]
        row: Entry = {"library": name, "lowest energy / cluster's": median(p.energy for p in points) / base}
        row["seconds"] = median(p.seconds for p in points)
        rows.append({**row, "repeats": [_stored(race.curves[name]) for race in races]})
    for name in races[0].peers:
        ladders = [race.peers[name] for race in races if race.peers[name].points]
        if not ladders:
            continue
        low = median(min(point.energy for point in ladder.points.values()) for ladder in ladders)
        row = {"library": name, "lowest energy / cluster's": low / base}
        for ours in REACHED:
            reached = [race.peers[name].first_to(race.ours[ours].energy) for race in races]
            times = [point.seconds for point in reached if point is not None]
            row[f"seconds to {ours}'s"] = median(times) if len(times) > len(races) / 2 else None
        curves = [_stored(sorted([p.seconds, p.energy, p.steps] for p in ladder.points.values())) for ladder in ladders]
        rows.append({**row, "repeats": curves})
    for name in races[0].algorithms:
        times = [race.algorithms[name] for race in races if name in race.algorithms]
        note = "stopped as slower" if any(name in race.stopped for race in races) else None
        rows.append({"algorithm": name, "seconds": median(times), "note": note, "repeats": times})
    return rows
