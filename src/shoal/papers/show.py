"""Reports on papers as a page: figures and tables as the papers have them, what was published beside them, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..report.draw import Line, lines, ranking, thinned
from ..report.facts import Origin, versions
from ..report.page import Figure, Table, environment, write_page
from ..report.words import many, number
from .claims import FAILS, HOLDS, PARTLY, UNTRIED
from .claims import document as told
from .run import Gallery, Grid, Report, Shown

CLASS = {HOLDS: "good", PARTLY: "partly", FAILS: "bad", UNTRIED: "open"}  # of the page's style
POINTS = 20  # of a line, in the table below its figure


def chart(
    key: str, title: str, series: Sequence[Line], x: str, y: str, published: str, caption: str = "", level: float | None = None
) -> Shown:
    """Lines, and their numbers below."""
    rows = []
    for line in series:
        spread = np.full(len(line.x), np.nan) if line.spread is None else line.spread
        places = thinned(len(line.x), POINTS)
        rows += [[line.name, *(number(float(v[i]), 4) for v in (line.x, line.y, spread))] for i in places]
    table = Table(["", x, y, "deviation"], rows)
    return Shown(Figure(title, lines(key, title, series, x, y, level), caption, table), published)


def ranks(key: str, title: str, found: Mapping[str, Sequence[float]], x: str, published: str, caption: str = "") -> Shown:
    """Bars: the mean of what was found for each name, and its deviation."""
    means, spreads = (np.array([f(values) for values in found.values()]) for f in (np.mean, np.std))
    return Shown(Figure(title, ranking(key, title, list(found), means, spreads, x), caption), published)


def averaged(count: int, of: str = "seed") -> str:
    """What the lines of a figure are."""
    return f"one {of}" if count == 1 else f"mean of {many(count, of)}, bands are a standard deviation"


def grid(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], published: str, caption: str = "") -> Shown:
    """A table; numbers with three digits."""
    cells = [[number(cell, 3) if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    return Shown(Grid(title, list(head), cells, caption), published)


def gallery(title: str, lines: list[tuple[str, list[str]]], published: str, caption: str = "") -> Shown:
    """Pictures, with what each line of them is."""
    return Shown(Gallery(title, lines, caption), published)


def summary(reports: Sequence[Report]) -> str:
    """In a sentence."""
    words = [verdict.word for report in reports for verdict in report.verdicts]
    said = {HOLDS: "hold", PARTLY: "hold in part", FAILS: "do not hold here", UNTRIED: "were not tried"}
    counts = ", ".join(f"{words.count(word)} {said[word] if words.count(word) > 1 else word}" for word in said if word in words)
    return f"{many(len(words), 'claim')} of {many(len(reports), 'paper')}: {counts}."


def write(path: Path, reports: Sequence[Report], origin: Origin) -> None:
    """The page. Where it would be too long, without the numbers below the figures."""

    def render(most: int) -> str:
        return (
            environment()
            .get_template("papers.html")
            .render(
                title=origin.title,
                verdict=summary(reports),
                notes=[],
                origin=origin._replace(versions=versions()),
                reports=reports,
                classes=CLASS,
                counts=lambda report: " / ".join(str([v.word for v in report.verdicts].count(word)) for word in CLASS),
                numbers=most > 200,
                kind=lambda shown: type(shown.what).__name__,
            )
        )

    write_page(path, render)


def document(reports: Sequence[Report], effort: str, origin: Origin) -> dict[str, Any]:
    """What `claims.json` holds."""
    papers = [
        {"paper": r.paper.key, "title": r.paper.title, "notes": r.notes, "claims": [told(verdict) for verdict in r.verdicts]}
        for r in reports
    ]
    about = {"format": "shoal claims", "version": 1, "effort": effort, "command": origin.command, "date": origin.date}
    return {**about, "versions": versions(), "papers": papers}
