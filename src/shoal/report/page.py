"""Facts as one HTML file under 2 MB: no other file, no request, no script or style but those whose hashes it names."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import __version__
from ..data.atomic_write import atomic_write
from ..metrics import knee
from . import words
from .draw import Line, bars, colour, lines, picture, scatter, thinned
from .facts import Cluster, Facts, Origin, Point, Trial, versions

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

LIMIT = 2_000_000  # bytes
SHOWN = (500, 200, 100, 50, 20, 5, 0)  # clusters, or rows of a table: as many as the limit leaves room for
NAMED = 60  # centres on the map
TOLD = 40  # points in the table below a chart
SERIES, NOTES = 40, 50  # lines in a chart, warnings: no more


class Table(NamedTuple):
    """What a chart shows, for those who would rather read it."""

    head: list[str]
    rows: list[list[str]]


class Figure(NamedTuple):
    title: str
    drawing: Markup
    caption: str
    table: Table | None = None


@cache
def environment() -> Environment:
    """Where templates are found: whatever they print is escaped and cleaned."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def safe(value: Any) -> Any:
        """Whatever a template prints that is not markup of ours."""
        return value if isinstance(value, Markup) else words.clean(value)

    loader = PackageLoader("shoal.report")
    env = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=safe
    )
    env.filters.update(clip=words.clean, number=words.number, seconds=words.seconds, percent=words.percent)
    env.filters["ended"] = lambda reason: words.ENDS.get(reason, reason)
    env.globals.update(many=words.many, version_line=f"Shoal {__version__}")
    for name in ("css", "js"):
        text = files("shoal.report").joinpath("templates", f"report.{name}").read_text("utf-8")
        digest = hashlib.sha256(text.encode()).digest()
        env.globals[name] = Markup(text)
        env.globals[f"{name}_hash"] = Markup(f"'sha256-{base64.b64encode(digest).decode()}'")
    return env


def write_page(path: str | Path, render: Callable[[int], str]) -> None:
    """What `render(most)` gives, with as much of everything as there is room for."""
    page = b""
    for most in SHOWN:
        page = render(most).encode()
        if len(page) < LIMIT:
            break
    with atomic_write(Path(path)) as file:
        file.write(page)


def write_fit(path: str | Path, facts: Facts) -> None:
    """A report of one fit."""
    write_page(path, lambda most: fit_page(facts, most))


def write_compare(path: str | Path, trials: Sequence[Trial], origin: Origin = Origin()) -> None:
    """A report of several methods on the same rows from the same start."""
    write_page(path, lambda most: compare_page(list(trials), origin, most))


def write_sweep(path: str | Path, points: Sequence[Point], origin: Origin = Origin()) -> None:
    """A report of several numbers of clusters on the same rows."""
    write_page(path, lambda most: sweep_page(sorted(points, key=lambda point: point.k), origin, most))


def fit_page(facts: Facts, most: int) -> str:
    shown = facts.clusters[:most]
    return (
        environment()
        .get_template("fit.html")
        .render(
            title=facts.origin.title or f"{facts.method}, {words.many(facts.k, 'cluster')}",
            verdict=words.verdict(facts),
            notes=words.notes(facts)[:NOTES],
            origin=facts.origin,
            facts=facts,
            left=[_map(facts, shown), _sizes(facts)],
            right=_curves("fit", [_trial(facts)], facts.curve.measure, facts.energy),
            clusters=[_shown(cluster, facts) for cluster in shown],
            pictures=_pictures(shown),
            most=max(int(facts.sizes.max()), 1),
        )
    )


def compare_page(trials: list[Trial], origin: Origin, most: int) -> str:
    least = min((trial.energy for trial in trials if np.isfinite(trial.energy)), default=float("nan"))
    order = np.argsort([trial.energy for trial in trials], kind="stable")  # what is not known comes last
    figures = _curves("compare", trials[: min(most, SERIES)], trials[0].curve.measure if trials else "energy", None)
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=origin.title or f"{words.many(len(trials), 'method')} compared",
            verdict=words.winner(trials),
            notes=[],
            origin=origin._replace(versions=origin.versions or versions()),
            figures=figures,
            trials=[(trials[i], colour(i), words.above(trials[i].energy, least)) for i in order[:most]],
            total=len(trials),
        )
    )


def sweep_page(points: list[Point], origin: Origin, most: int) -> str:
    good = [point for point in points if np.isfinite(point.energy)]
    k, energies = np.array([p.k for p in good], float), np.array([p.energy for p in good])
    found = knee(k, energies) if len(good) else None
    known = [p for p in good if p.silhouette is not None and np.isfinite(p.silhouette)]
    scores = Line("silhouette", np.array([p.k for p in known], float), np.array([p.silhouette for p in known], float))
    best = max(known, key=lambda p: p.silhouette or 0.0).k if known else None
    energy = lines("sweep-energy", "Energy over k", [Line("energy", k, energies)], "clusters, k", "energy", mark=found)
    where = f"The dashed line is the knee, k = {found:,}." if found else "There is no clear knee."
    figures = [Figure("Energy", energy, f"Of all rows. {where}")]
    if known:
        drawing = lines("sweep-silhouette", "Silhouette over k", [scores], "clusters, k", "simplified silhouette", mark=best)
        figures.append(Figure("Simplified silhouette", drawing, f"The higher, the farther apart. Highest at k = {best}."))
    return (
        environment()
        .get_template("sweep.html")
        .render(
            title=origin.title or (f"From {points[0].k} to {points[-1].k} clusters" if points else "How many clusters?"),
            verdict=words.advice(good, found),
            notes=[],
            origin=origin._replace(versions=origin.versions or versions()),
            figures=figures,
            points=[points[i] for i in thinned(len(points), most)],
            total=len(points),
            knee=found,
            best=best,
        )
    )


def _trial(facts: Facts) -> Trial:
    """The fit as one of several trials would be."""
    last = facts.curve.seconds[-1] if len(facts.curve.seconds) else 0.0
    return Trial(facts.method, facts.curve, facts.energy or float("nan"), float(last))


def _curves(key: str, trials: list[Trial], measure: str, level: float | None) -> list[Figure]:
    """The measure against time, and against rows visited where that is known."""
    figures = []
    note = f"As the method saw it: {measure} before each step; of its batches, where it works on batches."
    note += " A line that comes in from above started there."
    note += " The dashed line is the energy of all rows in the end." if level is not None and measure == "energy" else ""
    for name, what in (("seconds", "seconds"), ("visited", "rows visited")):
        series = [
            Line(t.name, getattr(t.curve, name), t.curve.values)
            for t in trials
            if len(getattr(t.curve, name)) == len(t.curve.values)
        ]
        series = [line for line in series if len(line.x)]
        if not series:
            continue
        title = f"{measure.capitalize()} against {'time' if name == 'seconds' else what}"
        drawing = lines(f"{key}-{name}", title, series, what, measure, level if measure == "energy" else None)
        figures.append(Figure(title, drawing, note if name == "seconds" else "", _points(series, what, measure)))
    return figures


def _points(series: list[Line], x: str, y: str) -> Table:
    share = max(2, TOLD // len(series))
    rows = [
        [line.name, words.number(float(line.x[i]), 6), words.number(float(line.y[i]), 6)]
        for line in series
        for i in thinned(len(line.x), share)
    ]
    return Table(["method", x, y], rows)


def _sizes(facts: Facts) -> Figure:
    sizes = np.sort(facts.sizes)[::-1]
    drawing = bars("sizes", "Cluster sizes", sizes, "clusters, the largest first", "rows")
    shown = thinned(len(sizes), TOLD)
    rows = [[f"{i + 1:,}", f"{sizes[i]:,}"] for i in shown]
    median = f"Half of the clusters have {int(np.median(sizes)):,} rows or more."
    return Figure("Cluster sizes", drawing, median, Table(["rank", "rows"], rows))


def _map(facts: Facts, shown: list[Cluster]) -> Figure:
    names = [cluster.number for cluster in shown[:NAMED] if cluster.size]
    shares = [f", {share:.1%} of the variance" if share > 0 else "" for share in facts.map.shares.tolist()]
    axes = f"first principal direction{shares[0]}", f"second principal direction{shares[1]}"
    drawing = scatter("map", "Map of a sample of the rows", facts.map.points, facts.map.labels, names, axes)
    spaces = {"rows": "", "standardized": " of the standardized columns", "codes": " of their codes"}
    space = spaces.get(facts.map.space, " of their embedding")
    caption = f"{words.many(len(facts.map.points), 'row')} drawn at random, along the two directions{space} of most spread."
    caption += " Numbers are those of the clusters" + ("" if facts.k <= len(names) else f", of the {len(names)} largest")
    caption += "; where two would lie on each other, that of the larger one."
    return Figure("Map", drawing, caption)


class Shown(NamedTuple):
    """A cluster as a row of the table."""

    cluster: Cluster
    share: float
    colour: str


def _shown(cluster: Cluster, facts: Facts) -> Shown:
    return Shown(cluster, 100 * cluster.size / facts.n, colour(cluster.number))


def _pictures(clusters: list[Cluster]) -> dict[tuple[int, int], str]:
    """By the number of the cluster and that of the row, -1 for the centre. All centres have one scale, and so have all rows."""
    of_centers = {(c.number, -1): c.picture for c in clusters if c.picture is not None}
    of_rows = {(c.number, row.number): row.picture for c in clusters for row in c.nearest if row.picture is not None}
    found = {}
    for some in (of_centers, of_rows):
        low = min((float(p.min()) for p in some.values()), default=0.0)
        high = max((float(p.max()) for p in some.values()), default=1.0)
        found.update({key: picture(values, low, high) for key, values in some.items()})
    return found
