"""Render reports as single HTML files under 2 MB.

A page loads nothing, and its Content-Security-Policy allows only its own style sheet and script, by their hashes.
"""

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
from .draw import Line, bars, cluster_bars, colour, lines, picture, scatter, thinned
from .facts import Cluster, Facts, Origin, Point, Trial, versions

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

MAX_PAGE_BYTES = 2_000_000  # bytes per page, so that it opens quickly and can be sent by mail
ROW_LIMITS = (500, 200, 100, 50, 20, 5, 0)  # table rows per page, tried in this order until the page is below the limit
MAX_MAP_LABELS = 60  # cluster numbers on the map; more would cover the points
MAX_TABLE_POINTS = 40  # rows of the table below a chart
MAX_LINES = 40  # in a chart
MAX_NAMED_BARS = 20  # bars that have room for the number of their cluster
MAX_COMPARED = 12  # clusters whose columns are compared side by side
MAX_WARNINGS = 50  # on a page


class Table(NamedTuple):
    """Values of a chart as a table."""

    head: list[str]
    rows: list[list[str]]


class Figure(NamedTuple):
    """Chart with its title, caption and values."""

    title: str
    drawing: Markup
    caption: str
    table: Table | None = None


@cache
def environment() -> Environment:
    """Return the template environment. All values that templates print are cleaned and escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def safe(value: Any) -> Any:
        """Clean a value, unless it is markup created by this package."""
        return value if isinstance(value, Markup) else words.clean(value)

    loader = PackageLoader("shoal.report")
    env = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=safe
    )
    env.filters.update(clip=words.clean, number=words.number, fixed=words.fixed, seconds=words.seconds, percent=words.percent)
    env.filters.update(contrast=words.contrast, column_value=words.column_value)
    env.filters["ended"] = lambda reason: words.ENDS.get(reason, reason)
    env.globals.update(many=words.count_noun, version_line=f"Shoal {__version__}")
    for name in ("css", "js"):
        text = files("shoal.report").joinpath("templates", f"report.{name}").read_text("utf-8")
        digest = hashlib.sha256(text.encode()).digest()
        env.globals[name] = Markup(text)
        env.globals[f"{name}_hash"] = Markup(f"'sha256-{base64.b64encode(digest).decode()}'")
    return env


def write_page(path: str | Path, render: Callable[[int], str]) -> None:
    """Write `render(max_rows)` to a file, with as many table rows as fit on a page."""
    page = b""
    for max_rows in ROW_LIMITS:
        page = render(max_rows).encode()
        if len(page) < MAX_PAGE_BYTES:
            break
    with atomic_write(Path(path)) as file:
        file.write(page)


def write_fit(path: str | Path, facts: Facts) -> None:
    """Write a report on one fit.

    Parameters
    ----------
    path : str or Path
        HTML file to write. An existing file is replaced.
    facts : Facts
        Facts from `gather`.
    """
    write_page(path, lambda max_rows: fit_page(facts, max_rows))


def write_compare(path: str | Path, trials: Sequence[Trial], origin: Origin = Origin()) -> None:
    """Write a report that compares several methods on the same rows and initial centroids.

    Parameters
    ----------
    path : str or Path
        HTML file to write. An existing file is replaced.
    trials : sequence of Trial
        Result of each method.
    origin : Origin, default=Origin()
        Provenance of the results.
    """
    write_page(path, lambda max_rows: compare_page(list(trials), origin, max_rows))


def write_sweep(path: str | Path, points: Sequence[Point], origin: Origin = Origin()) -> None:
    """Write a report that compares several numbers of clusters on the same rows.

    Parameters
    ----------
    path : str or Path
        HTML file to write. An existing file is replaced.
    points : sequence of Point
        Result for each number of clusters, in any order.
    origin : Origin, default=Origin()
        Provenance of the results.
    """
    write_page(path, lambda max_rows: sweep_page(sorted(points, key=lambda point: point.k), origin, max_rows))


def fit_page(facts: Facts, max_rows: int) -> str:
    """Render a report on one fit."""
    shown = facts.clusters[:max_rows]
    return (
        environment()
        .get_template("fit.html")
        .render(
            title=facts.origin.title or f"{facts.method}, {words.count_noun(facts.k, 'cluster')}",
            verdict=words.verdict(facts),
            notes=words.notes(facts)[:MAX_WARNINGS],
            origin=facts.origin,
            facts=facts,
            left=[_map_figure(facts, shown), _size_figure(facts)],
            right=_curve_figures("fit", [_as_trial(facts)], facts.curve.measure, facts.energy),
            clusters=[_table_row(cluster, facts) for cluster in shown],
            pictures=_encode_pictures(shown),
            largest=max(int(facts.sizes.max()), 1),
            columns=facts.columns,
            compared=[_table_row(cluster, facts) for cluster in shown[:MAX_COMPARED]],
            heat=heat,
        )
    )


def heat(z_score: float) -> str:
    """Return the class of a cell of the heat map, from h-3 to h3; cells near the mean of all rows have no colour."""
    level = round(min(max(z_score, -3.0), 3.0)) if np.isfinite(z_score) else 0
    return f"h{level}" if level else "h0"


def compare_page(trials: list[Trial], origin: Origin, max_rows: int) -> str:
    """Render a comparison of methods, sorted by energy."""
    lowest = min((trial.energy for trial in trials if np.isfinite(trial.energy)), default=float("nan"))
    order = np.argsort([trial.energy for trial in trials], kind="stable")  # NaN comes last
    figures = _curve_figures(
        "compare", trials[: min(max_rows, MAX_LINES)], trials[0].curve.measure if trials else "energy", None
    )
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=origin.title or f"{words.count_noun(len(trials), 'method')} compared",
            verdict=words.summarize_comparison(trials),
            notes=[],
            origin=origin._replace(versions=origin.versions or versions()),
            figures=figures,
            trials=[(trials[i], colour(i), words.above(trials[i].energy, lowest)) for i in order[:max_rows]],
            total=len(trials),
        )
    )


def sweep_page(points: list[Point], origin: Origin, max_rows: int) -> str:
    """Render a comparison of numbers of clusters, which are sorted."""
    finished = [point for point in points if np.isfinite(point.energy)]
    k, energies = np.array([p.k for p in finished], float), np.array([p.energy for p in finished])
    found = knee(k, energies) if len(finished) else None
    scored = [p for p in finished if p.silhouette is not None and np.isfinite(p.silhouette)]
    scores = Line("silhouette", np.array([p.k for p in scored], float), np.array([p.silhouette for p in scored], float))
    best = max(scored, key=lambda p: p.silhouette or 0.0).k if scored else None
    energy = lines(
        "sweep-energy",
        "Energy by number of clusters",
        [Line("energy", k, energies)],
        "number of clusters k",
        "energy",
        mark=found,
    )
    knee_text = f"The dashed line marks the knee, k = {found:,}." if found else "There is no clear knee."
    figures = [Figure("Energy", energy, f"Energy (inertia) over all rows. {knee_text}")]
    if scored:
        drawing = lines(
            "sweep-silhouette",
            "Silhouette by number of clusters",
            [scores],
            "number of clusters k",
            "simplified silhouette",
            mark=best,
        )
        figures.append(
            Figure("Simplified silhouette", drawing, f"Higher values mean better separated clusters. Highest at k = {best}.")
        )
    return (
        environment()
        .get_template("sweep.html")
        .render(
            title=origin.title or (f"{points[0].k} to {points[-1].k} clusters" if points else "Number of clusters"),
            verdict=words.summarize_sweep(finished, found),
            notes=[],
            origin=origin._replace(versions=origin.versions or versions()),
            figures=figures,
            points=[points[i] for i in thinned(len(points), max_rows)],
            total=len(points),
            knee=found,
            best=best,
        )
    )


def _as_trial(facts: Facts) -> Trial:
    """Return a fit as a trial, to draw its curve with the code for comparisons."""
    last = facts.curve.seconds[-1] if len(facts.curve.seconds) else 0.0
    return Trial(facts.method, facts.curve, facts.energy or float("nan"), float(last))


def _curve_figures(key: str, trials: list[Trial], measure: str, level: float | None) -> list[Figure]:
    """Return charts of the objective over time and, if recorded, over rows processed."""
    figures = []
    note = f"{measure.capitalize()} at the start of each iteration; of the current batch for methods that use batches."
    note += " Lines that enter from the top start above the visible range."
    note += " The dashed line is the final energy over all rows." if level is not None and measure == "energy" else ""
    for name, x_name in (("seconds", "seconds"), ("visited", "rows processed")):
        series = [
            Line(t.name, getattr(t.curve, name), t.curve.values)
            for t in trials
            if len(getattr(t.curve, name)) == len(t.curve.values)
        ]
        series = [line for line in series if len(line.x)]
        if not series:
            continue
        title = f"{measure.capitalize()} over {'time' if name == 'seconds' else x_name}"
        drawing = lines(f"{key}-{name}", title, series, x_name, measure, level if measure == "energy" else None)
        figures.append(Figure(title, drawing, note if name == "seconds" else "", _point_table(series, x_name, measure)))
    return figures


def _point_table(series: list[Line], x: str, y: str) -> Table:
    """Return the points of all lines as a table, thinned."""
    n_points = max(2, MAX_TABLE_POINTS // len(series))
    rows = [
        [line.name, words.number(float(line.x[i]), 6), words.number(float(line.y[i]), 6)]
        for line in series
        for i in thinned(len(line.x), n_points)
    ]
    return Table(["method", x, y], rows)


def _size_figure(facts: Facts) -> Figure:
    """Return the bar chart of cluster sizes."""
    order = np.argsort(-facts.sizes, kind="stable")
    sizes = facts.sizes[order]
    if len(sizes) <= MAX_NAMED_BARS:
        drawing = cluster_bars("sizes", "Cluster sizes", sizes, order.tolist(), "rows")
    else:
        drawing = bars("sizes", "Cluster sizes", sizes, "clusters, largest first", "rows")
    rows = [[f"{order[i]}", f"{sizes[i]:,}"] for i in thinned(len(sizes), MAX_TABLE_POINTS)]
    median = f"Median cluster size: {words.count_noun(int(np.median(sizes)), 'row')}."
    return Figure("Cluster sizes", drawing, median, Table(["cluster", "rows"], rows))


def _map_figure(facts: Facts, shown: list[Cluster]) -> Figure:
    """Return the scatter plot of the sample."""
    names = [cluster.number for cluster in shown[:MAX_MAP_LABELS] if cluster.size]
    shares = [f" ({share:.1%} of the variance)" if share > 0 else "" for share in facts.map.shares.tolist()]
    axes = f"principal component 1{shares[0]}", f"principal component 2{shares[1]}"
    drawing = scatter("map", "Map of sampled rows", facts.map.points, facts.map.labels, names, axes)
    spaces = {"rows": "", "standardized": " of the standardized columns", "codes": " of the binary codes"}
    space = spaces.get(facts.map.space, " of the embedding")
    sample = words.count_noun(len(facts.map.points), "row")
    caption = f"{sample} sampled at random, projected onto the first two principal components{space}."
    caption += " Labels are cluster numbers" + ("" if facts.k <= len(names) else f" of the {len(names)} largest clusters")
    caption += "; where two labels would overlap, only the larger cluster is labelled."
    return Figure("Map", drawing, caption)


class ClusterTableRow(NamedTuple):
    """Row of the cluster table."""

    cluster: Cluster
    share: float  # percent of all rows
    colour: str


def _table_row(cluster: Cluster, facts: Facts) -> ClusterTableRow:
    """Return a cluster as a row of the cluster table."""
    return ClusterTableRow(cluster, 100 * cluster.size / facts.n, colour(cluster.number))


def _encode_pictures(clusters: list[Cluster]) -> dict[tuple[int, int], str]:
    """Return the images as data URLs, by cluster number and row number, which is -1 for centroids.

    All centroids share one grey scale, and so do all rows, so that images can be compared.
    """
    of_centers = {(c.number, -1): c.picture for c in clusters if c.picture is not None}
    of_rows = {(c.number, row.number): row.picture for c in clusters for row in c.nearest if row.picture is not None}
    encoded = {}
    for group in (of_centers, of_rows):
        low = min((float(p.min()) for p in group.values()), default=0.0)
        high = max((float(p.max()) for p in group.values()), default=1.0)
        encoded.update({key: picture(values, low, high) for key, values in group.items()})
    return encoded
