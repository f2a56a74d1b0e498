"""Numbers and findings as people read them, and text that can do no harm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .facts import Facts, Point, Trial

JOINERS = "\u200c\u200d"  # which some scripts and pictures are written with
STOPPED = {
    "converged": "converged",
    "max_iter": "stopped at the most steps allowed, not converged",
    "time_budget": "stopped when time was up, not converged",
    "quality": "stopped when it was good enough",
    "callback": "was stopped by a callback",
}
SAME = 0.01  # percent; what differs by less is told as the same
ENDS = {"quality": "good enough", "max_iter": "most steps", "time_budget": "out of time"}  # the same in short


def clean(text: object, most: int = 2000) -> str:
    """One line, of so many characters at most, in which nothing steers a terminal, a parser or the direction of writing."""
    line = " ".join(str(text)[: 4 * most].split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(c if c.isprintable() or c in JOINERS else f"\\x{ord(c):02x}" for c in line)


def number(value: float | None, digits: int = 4) -> str:
    """With so many digits; as a word where it is none."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M")):
        if unit <= size < 1e12:
            return f"{value / unit:.{digits}g}{name}".replace("-", "−")
    if 1000 <= size < 1e6:
        places = 0 if value == int(value) else max(0, digits - len(str(int(size))))
        return f"{value:,.{places}f}".replace("-", "−")
    return _typeset(f"{value:.{digits}g}")


def _typeset(text: str) -> str:
    return text.replace("-", "−").replace("e+0", "e").replace("e+", "e").replace("e−0", "e−")


def short(value: float) -> str:
    """For an axis of powers."""
    if 1e3 <= abs(value) < 1e6:
        return f"{value / 1e3:.4g}k".replace("-", "−")
    return number(value)


def ticks(values: Sequence[float], step: float) -> list[str]:
    """For an axis of equal steps: all in one unit, with the digits that tell each from the next."""
    most = max(map(abs, values))
    if not 1e-3 <= most < 1e12:
        digits = math.floor(math.log10(most or step)) - math.floor(math.log10(step) + 1e-9)
        return [_typeset(f"{value:.{max(digits, 0)}e}") if value else "0" for value in values]
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    fits = ((unit, name) for unit, name in units if most >= max(unit, 1e4) and step >= 0.01 * unit)
    unit, name = next(fits, (1.0, ""))
    places = max(0, -math.floor(math.log10(step / unit) + 1e-9))
    return [_typeset(f"{value / unit:,.{places}f}{name}") if value else "0" for value in values]


def seconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def apartness(silhouette: float) -> str:
    """What a silhouette means, roughly."""
    steps = ((0.7, "well apart"), (0.5, "mostly apart"), (0.25, "overlapping in part"), (0.1, "hardly apart"))
    return next(
        (words for least, words in steps if silhouette >= least), "not apart: rows lie about as near to the next centre"
    )


def verdict(facts: Facts) -> str:
    """The clustering in a sentence."""
    filled = facts.sizes[facts.sizes > 0]
    words = f"{many(len(filled), 'cluster')} of {many(facts.n, 'row')} and {many(facts.d, 'column')}"
    words += f", from {many(int(filled.min()), 'row')} to {int(filled.max()):,} each"
    if facts.stopped:
        words += f"; {facts.method} {STOPPED.get(facts.stopped, facts.stopped)}"
        words += f" after {many(facts.steps, 'step')}" if facts.steps else ""
        took = [*facts.curve.seconds[-1:], facts.origin.seconds or 0.0]  # the former is longer where a fit was gone on with
        words += f" and {seconds(max(took))}" if max(took) else ""
    if facts.quality.silhouette is not None:
        words += f"; the clusters are {apartness(facts.quality.silhouette)} (silhouette {facts.quality.silhouette:.2f})"
    return words + "."


def notes(facts: Facts) -> list[str]:
    """What a reader should be warned of, the given warnings first."""
    found = list(facts.warnings)
    empty, single = int((facts.sizes == 0).sum()), int((facts.sizes == 1).sum())
    if facts.stopped in ("max_iter", "time_budget"):
        found.append(f"The fit {STOPPED[facts.stopped]}: more steps or time may lower the energy.")
    if empty:
        found.append(f"{many(empty, 'cluster')} of {facts.k:,} without rows: fewer clusters would do.")
    if single:
        found.append(f"{many(single, 'cluster')} of a single row: these may be outliers.")
    if facts.k > 1 and facts.sizes.max() > 0.9 * facts.n:
        share = f"{100 * facts.sizes.max() / facts.n:.0f}%"
        found.append(f"One cluster holds {share} of the rows: is one column much larger than the others, or are a few rows?")
    if facts.quality.silhouette is not None and facts.quality.silhouette < 0.1:
        found.append("Rows lie about as near to the next centre as to their own: take clusters as a summary, not as groups.")
    if facts.map.shares.any() and facts.map.shares.sum() < 0.3:
        share = f"{100 * facts.map.shares.sum():.0f}%"
        found.append(f"The map shows {share} of the spread: clusters that overlap there may lie apart in other directions.")
    return list(dict.fromkeys(found))


def above(energy: float, least: float) -> float:
    """In percent."""
    if not least:
        return 0.0 if energy == least else energy * math.inf
    return 100 * (energy / least - 1)


def percent(value: float) -> str:
    return f"{value:+,.2f}%" if math.isfinite(value) else number(value)


def winner(trials: list[Trial]) -> str:
    """Several methods in a sentence or two."""
    good = [trial for trial in trials if math.isfinite(trial.energy)]
    if not good:
        return "No method has ended."
    best = min(good, key=lambda trial: trial.energy)
    near = [trial for trial in good if trial.energy <= 1.01 * best.energy]
    fast = min(near, key=lambda trial: trial.seconds)
    words = f"{clean(best.name, 80)} reached the least energy, {number(best.energy)}, in {seconds(best.seconds)}"
    if fast is not best and fast.seconds > 0:
        more = above(fast.energy, best.energy)
        near_it = f"came within {more:.2g}% of it" if more >= SAME else "reached the same energy"
        words += (
            f"; {clean(fast.name, 80)} {near_it} in {seconds(fast.seconds)}, {best.seconds / fast.seconds:.3g} times as fast"
        )
    return words + "."


def between(points: Sequence[Point], knee: int | None) -> tuple[int, int] | None:
    """The numbers tried next to the knee, if it may be one that was not."""
    if knee is None:
        return None
    low = max((point.k for point in points if point.k < knee), default=knee)
    high = min((point.k for point in points if point.k > knee), default=knee)
    return (low, high) if high - low > 2 else None


def place(points: Sequence[Point], knee: int | None) -> str:
    """Where the knee is, as far as that is known."""
    gap = between(points, knee)
    words = "no clear knee" if knee is None else f"knee at k = {knee:,}"
    return words + ("" if gap is None else f", or else between {gap[0]:,} and {gap[1]:,}, where not every k was tried")


def unfinished(points: Sequence[Point]) -> str:
    """What to tell of fits whose energy may be too high for a knee; empty if all are done."""
    late = sum(point.stopped == "time_budget" for point in points)
    return f"This rests on unfinished fits: time was up in {late:,} of {len(points):,}." if late else ""


def advice(points: list[Point], knee: int | None) -> str:
    """A sweep in a sentence or two."""
    if not points:
        return "No number of clusters was tried."
    words = f"The energy has a {place(points, knee)}: up to there it falls steeply, after it does not."
    if knee is None:
        words = f"There is {place(points, knee)}: the energy falls about as steeply all the way, so it does not tell how many "
        words += "clusters there are."
    words += f" {unfinished(points)}".rstrip()
    known = [point for point in points if point.silhouette is not None and np.isfinite(point.silhouette)]
    if known:
        best = max(known, key=lambda point: point.silhouette or 0.0)
        words += f" The silhouette is highest at k = {best.k} ({best.silhouette:.2f})."
    return words
