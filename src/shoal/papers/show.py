"""Reports on papers as an HTML page: reproduced figures and tables next to the published results, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..report.draw import Line, lines, ranking, thinned
from ..report.facts import Origin, versions
from ..report.page import Figure, Table, environment, write_page
from ..report.words import count_noun, number
from . import machine
from .claims import FAILS, HOLDS, PARTLY, UNDECIDED, UNTRIED
from .claims import document as verdict_document
from .run import Gallery, Grid, Report, Shown

CLASS = {HOLDS: "good", PARTLY: "partly", FAILS: "bad", UNDECIDED: "open", UNTRIED: "open"}  # classes in the style sheet
POINTS = 20  # rows per line in the table below a figure


def chart(
    key: str, title: str, series: Sequence[Line], x: str, y: str, published: str, caption: str = "", level: float | None = None
) -> Shown:
    """Return a line chart with a table of its points."""
    rows = []
    for line in series:
        spread = np.full(len(line.x), np.nan) if line.spread is None else line.spread
        places = thinned(len(line.x), POINTS)
        rows += [[line.name, *(number(float(v[i]), 4) for v in (line.x, line.y, spread))] for i in places]
    table = Table(["line", x, y, "standard deviation"], rows)
    return Shown(Figure(title, lines(key, title, series, x, y, level), caption, table), published)


def ranks(key: str, title: str, found: Mapping[str, Sequence[float]], x: str, published: str, caption: str = "") -> Shown:
    """Return a bar chart of the mean and the standard deviation for each name."""
    means, spreads = (np.array([f(values) for values in found.values()]) for f in (np.mean, np.std))
    return Shown(Figure(title, ranking(key, title, list(found), means, spreads, x), caption), published)


def averaged(count: int, of: str = "seed") -> str:
    """Describe how the lines of a figure were averaged."""
    return f"one {of}" if count == 1 else f"mean over {count_noun(count, of)}, bands show one standard deviation"


def grid(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], published: str, caption: str = "") -> Shown:
    """Return a table, with numbers in three significant digits."""
    cells = [[number(cell, 3) if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    return Shown(Grid(title, list(head), cells, caption), published)


def gallery(title: str, lines: list[tuple[str, list[str]]], published: str, caption: str = "") -> Shown:
    """Return rows of images, each row with its description."""
    return Shown(Gallery(title, lines, caption), published)


def summary(reports: Sequence[Report]) -> str:
    """Return a one-sentence summary of all verdicts."""
    words = [verdict.word for report in reports for verdict in report.verdicts]
    said = {
        HOLDS: "hold",
        PARTLY: "hold in part",
        FAILS: "do not hold here",
        UNDECIDED: "are undecided",
        UNTRIED: "were not tested",
    }
    counts = ", ".join(f"{words.count(word)} {said[word] if words.count(word) > 1 else word}" for word in said if word in words)
    return f"{count_noun(len(words), 'claim')} of {count_noun(len(reports), 'paper')}: {counts}."


def write(path: Path, reports: Sequence[Report], origin: Origin) -> None:
    """Write the page. The tables below the figures are left out if the page would exceed its size limit."""

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
    """Return the content of `claims.json`."""
    papers = [
        {
            "paper": r.paper.key,
            "title": r.paper.title,
            "notes": r.notes,
            "claims": [verdict_document(verdict) for verdict in r.verdicts],
        }
        for r in reports
    ]
    about = {"format": "shoal claims", "version": 1, "effort": effort, "command": origin.command, "date": origin.date}
    return {**about, "versions": versions(), "machine": machine.describe(), "papers": papers}
