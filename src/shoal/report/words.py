"""Formatting of numbers and text, and the sentences that summarize results.

All text from the user passes through `clean` before it is printed or rendered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .facts import Facts, Point, Trait, Trial

JOINERS = "\u200c\u200d"  # not printable, but part of some scripts and emoji
STOP_PHRASES = {  # stop reason -> how a sentence about the fit continues
    "converged": "converged",
    "max_iter": "reached the maximum number of iterations before convergence",
    "time_budget": "reached its time limit before convergence",
    "quality": "reached the requested quality",
    "callback": "was stopped by a callback",
}
SPACES = {"standardized": " in standardized columns", "codes": " in binary codes", "embedding": " in the embedding"}
SMALL_SHARE = 0.05  # of the median size of clusters; smaller ones are reported as possible outliers
MANY_TIMES = 3.0  # from which a value is given as a multiple of the average
MAX_NAMED = 3  # columns named in a sentence
MAX_EQUAL_PERCENT = 0.01  # energies that differ by less are reported as the same
ENDS = {"quality": "quality reached", "max_iter": "iteration limit", "time_budget": "time limit"}  # stop reasons in tables


def clean(text: object, max_length: int = 2000) -> str:
    """Return text as one line of limited length, with control and bidirectional formatting characters escaped."""
    line = " ".join(str(text)[: 4 * max_length].split())
    line = line if len(line) <= max_length else line[: max_length - 1] + "…"
    return "".join(c if c.isprintable() or c in JOINERS else f"\\x{ord(c):02x}" for c in line)


def number(value: float | None, digits: int = 4) -> str:
    """Format a number with this many significant digits; infinities and missing values as symbols."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    magnitude = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M")):
        if unit <= magnitude < 1e12:
            return f"{value / unit:.{digits}g}{name}".replace("-", "−")
    if 1000 <= magnitude < 1e6:
        places = 0 if value == int(value) else max(0, digits - len(str(int(magnitude))))
        return f"{value:,.{places}f}".replace("-", "−")
    return _typeset(f"{value:.{digits}g}")


def fixed(value: float | None, places: int = 2) -> str:
    """Format a score with this many decimals, so that scores line up in a table; missing and infinite ones as symbols."""
    return number(value) if value is None or not math.isfinite(value) else f"{value:.{places}f}".replace("-", "−")


def _typeset(text: str) -> str:
    """Replace hyphens by minus signs and shorten exponents."""
    return text.replace("-", "−").replace("e+0", "e").replace("e+", "e").replace("e−0", "e−")


def short(value: float) -> str:
    """Format a tick label of a logarithmic axis."""
    if 1e3 <= abs(value) < 1e6:
        return f"{value / 1e3:.4g}k".replace("-", "−")
    return number(value)


def ticks(values: Sequence[float], step: float) -> list[str]:
    """Format the tick labels of a linear axis, in a common unit and with enough digits to distinguish adjacent labels."""
    largest = max(map(abs, values))
    if not 1e-3 <= largest < 1e12:
        digits = math.floor(math.log10(largest or step)) - math.floor(math.log10(step) + 1e-9)
        return [_typeset(f"{value:.{max(digits, 0)}e}") if value else "0" for value in values]
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    fits = ((unit, name) for unit, name in units if largest >= max(unit, 1e4) and step >= 0.01 * unit)
    unit, name = next(fits, (1.0, ""))
    places = max(0, -math.floor(math.log10(step / unit) + 1e-9))
    return [_typeset(f"{value / unit:,.{places}f}{name}") if value else "0" for value in values]


def seconds(value: float | None) -> str:
    """Format a duration, given in seconds."""
    if value is None or not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def count_noun(count: int, noun: str) -> str:
    """Format a count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def separation(silhouette: float) -> str:
    """Describe how well clusters with this silhouette are separated."""
    levels = (
        (0.7, "well separated"),
        (0.5, "mostly separated"),
        (0.25, "partly overlapping"),
        (0.1, "strongly overlapping"),
    )
    return next((words for minimum, words in levels if silhouette >= minimum), "not separated")


def verdict(facts: Facts) -> str:
    """Return a one-sentence summary of a clustering."""
    sizes = facts.sizes[facts.sizes > 0]
    words = f"{count_noun(len(sizes), 'cluster')} in {count_noun(facts.n, 'row')} of {count_noun(facts.d, 'column')}"
    if len(sizes) > 1:
        words += f", with {int(sizes.min()):,} to {count_noun(int(sizes.max()), 'row')} per cluster"
    if facts.stopped:
        words += f"; {facts.method} {STOP_PHRASES.get(facts.stopped, facts.stopped)}"
        words += f" after {count_noun(facts.steps, 'iteration')}" if facts.steps else ""
        elapsed = max([*facts.curve.seconds[-1:], facts.origin.seconds or 0.0])  # a resumed fit has the longer curve
        words += f" and {seconds(elapsed)}" if elapsed else ""
    if facts.quality.silhouette is not None:
        words += f"; the clusters are {separation(facts.quality.silhouette)} (silhouette {facts.quality.silhouette:.2f}"
        words += f" of {count_noun(facts.quality.sample, 'row')}{SPACES.get(facts.map.space, '')}"
        words += f", almost only by {_named(facts.dominant)})" if facts.dominant else ")"
    return words + "."


def _named(columns: Sequence[str]) -> str:
    """Return the names of a few columns as text."""
    return " and ".join(clean(name, 40) for name in columns[:MAX_NAMED]) + " and others" * (len(columns) > MAX_NAMED)


def column_value(value: float, is_share: bool) -> str:
    """Format a mean of a column; that of zeros and ones is a share of the rows."""
    return f"{100 * value:.0f}%" if is_share and math.isfinite(value) else number(value)


def contrast(trait: Trait) -> str:
    """Say how a cluster differs from all rows in one column, in the units of the column."""
    value, mean = trait.value, trait.mean
    shown = column_value(value, trait.is_share)
    if trait.is_share:
        return f"{shown}, overall {column_value(mean, True)}"
    if not (mean > 0 and value >= 0 and math.isfinite(value)):
        return f"{shown}, overall {number(mean)}"
    if value >= MANY_TIMES * mean:
        return f"{shown}, {number(value / mean, 2)} times the average"
    change = 100 * (value / mean - 1)
    if abs(change) < 1:
        return f"{shown}, overall {number(mean)}"
    return f"{shown}, {abs(change):.0f}% {'above' if change > 0 else 'below'} average"


def notes(facts: Facts) -> list[str]:
    """Return the warnings of a report: those of the fit, then those that the results call for."""
    warnings = list(facts.warnings)
    empty, single = int((facts.sizes == 0).sum()), int((facts.sizes == 1).sum())
    if facts.stopped in ("max_iter", "time_budget"):
        warnings.append(f"The fit {STOP_PHRASES[facts.stopped]}. More iterations or time may lower the energy.")
    if empty:
        warnings.append(
            f"{empty:,} of {count_noun(facts.k, 'cluster')} {'is' if empty == 1 else 'are'} empty. Consider fewer clusters."
        )
    if single:
        warnings.append(f"{count_noun(single, 'cluster')} with a single row: possible outliers.")
    small = int(((facts.sizes > 1) & (facts.sizes < SMALL_SHARE * np.median(facts.sizes))).sum())
    if small:
        warnings.append(
            f"{count_noun(small, 'cluster')} {'is' if small == 1 else 'are'} far smaller than the others, below "
            f"{100 * SMALL_SHARE:.0f}% of the median size: possible outliers."
        )
    if facts.dominant and not any("of the variance" in warning for warning in warnings):
        plural = len(facts.dominant) > 1
        warnings.append(
            f"{_named(facts.dominant)} {'make' if plural else 'makes'} up most of the variance, so the clusters follow almost "
            "nothing else. Standardize the columns to give all of them the same weight."
        )
    if facts.map.space == "embedding" and facts.quality.silhouette is not None:
        warnings.append("The silhouette was computed in the embedding, where clusters are farther apart than in the columns.")
    if facts.k > 1 and facts.sizes.max() > 0.9 * facts.n:
        share = f"{100 * facts.sizes.max() / facts.n:.0f}%"
        warnings.append(
            f"One cluster holds {share} of the rows. Check for outliers and for columns on a much larger scale than the others."
        )
    if facts.quality.silhouette is not None and facts.quality.silhouette < 0.1:
        warnings.append(
            "Most rows are about as close to the next centroid as to their own. Treat the clusters as a summary, not as groups."
        )
    if facts.map.shares.any() and facts.map.shares.sum() < 0.3:
        share = f"{100 * facts.map.shares.sum():.0f}%"
        warnings.append(
            f"The map shows {share} of the variance. Clusters that overlap on it may be separated in other directions."
        )
    return list(dict.fromkeys(warnings))


def above(energy: float, lowest: float) -> float:
    """Return the excess of an energy over the lowest one, in percent."""
    if not lowest:
        return 0.0 if energy == lowest else energy * math.inf
    return 100 * (energy / lowest - 1)


def percent(value: float) -> str:
    """Format a signed percentage."""
    return f"{value:+,.2f}%" if math.isfinite(value) else number(value)


def summarize_comparison(trials: list[Trial]) -> str:
    """Name the method with the lowest energy, and the fastest one within 1% of it."""
    finished = [trial for trial in trials if math.isfinite(trial.energy)]
    if not finished:
        return "No method produced a result."
    best = min(finished, key=lambda trial: trial.energy)
    close = [trial for trial in finished if trial.energy <= 1.01 * best.energy]
    fastest = min(close, key=lambda trial: trial.seconds)
    words = f"{clean(best.name, 80)} reached the lowest energy, {number(best.energy)}, in {seconds(best.seconds)}"
    if fastest is not best and fastest.seconds > 0:
        excess = above(fastest.energy, best.energy)
        reached = f"came within {excess:.2g}% of it" if excess >= MAX_EQUAL_PERCENT else "reached the same energy"
        speedup = f"{best.seconds / fastest.seconds:.3g} times as fast"
        words += f"; {clean(fastest.name, 80)} {reached} in {seconds(fastest.seconds)}, {speedup}"
    return words + "."


def between(points: Sequence[Point], knee: int | None) -> tuple[int, int] | None:
    """Return the neighbours of the knee among the tested k; None if there is no knee or no untested k between them."""
    if knee is None:
        return None
    low = max((point.k for point in points if point.k < knee), default=knee)
    high = min((point.k for point in points if point.k > knee), default=knee)
    return (low, high) if high - low > 2 else None


def place(points: Sequence[Point], knee: int | None) -> str:
    """Describe the position of the knee and its uncertainty."""
    gap = between(points, knee)
    words = "no clear knee" if knee is None else f"knee at k = {knee:,}"
    return words + ("" if gap is None else f", or else between {gap[0]:,} and {gap[1]:,}, where not every k was tried")


def unfinished(points: Sequence[Point]) -> str:
    """Return a warning that some energies are too high because fits reached their time limit; empty if none did."""
    count = sum(point.stopped == "time_budget" for point in points)
    return f"{count:,} of {len(points):,} fits reached their time limit, so the knee may be wrong." if count else ""


def summarize_sweep(points: list[Point], knee: int | None) -> str:
    """Return a summary of a sweep: the knee and the k with the highest silhouette."""
    if not points:
        return "No number of clusters was tested."
    words = f"The energy has a {place(points, knee)}: it falls steeply before the knee and slowly after it."
    if knee is None:
        words = f"There is {place(points, knee)}: the energy falls at a steady rate and does not suggest a number of clusters."
    words += f" {unfinished(points)}".rstrip()
    scored = [point for point in points if point.silhouette is not None and np.isfinite(point.silhouette)]
    if scored:
        best = max(scored, key=lambda point: point.silhouette or 0.0)
        words += f" The silhouette is highest at k = {best.k} ({best.silhouette:.2f})."
    return words
