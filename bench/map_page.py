"""Page of `bench map`: geometric means and worst problems, a table, and a picture of energy over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.report.axes import HEIGHT, WIDTH
from shoal.report.draw import Line, colour, lines

from .results import Entry, as_table, made_text, ratio_text

PICTURED = ("mnist-k50", "gloss-k200", "sift-k1000", "covtype-k50", "noise16-k200", "wordnet-k50")
PICTURE_FILE = "map.svg"
SHOWN = {  # lines of the picture: the name of each and the contenders of which it is the lower envelope
    "cluster": ("cluster",),
    "KMeans": ("KMeans",),
    "scikit-learn": ("sklearn-k-means++", "sklearn-random"),
    "scikit-learn mini-batch": ("sklearn-minibatch",),
    "scikit-learn-intelex": ("sklearnex-k-means++", "sklearnex-random"),
    "faiss": ("faiss-64", "faiss-256", "faiss-all"),
    "superkmeans": ("superkmeans", "superkmeans-sampled", "superkmeans-hierarchical"),
}
MIN_EXCESS_SHOWN = 6.0  # percent above the lowest energy up to which points are drawn, or
MAX_EXCESS_RATIO = 1.3  # this multiple of where ours end, if that is more
MAX_OTHERS = 0.1  # fraction of the CPUs that other programs may use
COLUMNS, LEGEND_HEIGHT, GAP, TITLE_HEIGHT = 2, 30, 16, 22
STYLE = (
    "text{fill:#555;font:12px sans-serif}.title{fill:#111;font-size:14px;font-weight:bold}.grid{stroke:#ddd}"
    ".axis{stroke:#555;fill:none}.line{fill:none;stroke-width:2;stroke-linejoin:round}.dots{stroke-width:5;stroke-linecap:round}"
)


def _figure(entry: Entry, of: str) -> Entry:
    return next((figure for figure in entry["figures"] if figure.get("of") == of), {})


def _ratios(entries: Sequence[Entry], of: str) -> dict[str, float]:
    """Return the ratios of problems that have one, by problem."""
    found = {entry["problem"]: _figure(entry, of) for entry in entries}
    return {
        name: figure.get("ratio", figure.get("value")) for name, figure in found.items() if "ratio" in figure or of == "auto"
    }


def _line(what: str, ratios: dict[str, float], note: str) -> list[str]:
    """Return a line of the summary: geometric mean and worst problem."""
    if not ratios:
        return [what, "", "", note]
    worst = min(ratios, key=lambda name: ratios[name])
    mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
    return [what, ratio_text(mean), f"{ratio_text(ratios[worst])}, {worst}", note]


def _below(ratios: dict[str, float], limit: float = 1.0) -> int:
    return sum(ratio < limit for ratio in ratios.values())


def summary(entries: Sequence[Entry]) -> str:
    """Return the geometric means and the worst problems as a Markdown table."""
    rows = []
    for of in ("cluster", "KMeans"):
        ratios = _ratios(entries, of)
        bounds = sum(_figure(entry, of)["at least"] for entry in entries)
        note = f"{_below(ratios)} of {len(entries)} below 1; {bounds} lower bounds; no peer in {len(entries) - len(ratios)}"
        rows.append(_line(f"`{of}`: speed at equal energy, against the fastest peer", ratios, note))
    speeds = {name: 1 / over for name, over in _ratios(entries, "auto").items()}
    note = f"{_below(speeds, 1 / 1.1)} of {len(speeds)} more than 10% slower"
    rows.append(_line('`algorithm="auto"`: speed against the best single algorithm', speeds, note))
    lloyd = _ratios([entry for entry in entries if entry["k"] >= 200], "lloyd")
    note = f"{_below(lloyd)} of {len(lloyd)} below 1"
    rows.append(_line("the same, against plain Lloyd, 200 clusters or more", lloyd, note))
    return as_table(["figure", "geometric mean", "worst problem", "problems"], rows)


def table(entries: Sequence[Entry]) -> str:
    """Return the ratios of every problem as a Markdown table."""
    rows = []
    for entry in entries:
        cells = [entry["problem"], entry["shape"], str(entry["seeds"])]
        for of in ("cluster", "KMeans"):
            figure = _figure(entry, of)
            over = "over " * figure["at least"]
            cells += [over + ratio_text(figure["ratio"]), figure["by"]] if "ratio" in figure else [figure["by"], ""]
        auto = _figure(entry, "auto")
        rows.append([*cells, f"{'at most ' * auto['at most']}{auto['value']:.2f} ({auto['by']})"])
    head = [
        "problem",
        "rows x columns",
        "seeds",
        "`cluster`",
        "fastest peer",
        "`KMeans`",
        "fastest peer",
        "auto / best algorithm",
    ]
    return as_table(head, rows)


def page(entries: Sequence[Entry]) -> str:
    """Return the generated part of docs/speed.md."""
    loaded = sum((entry["others"] or 0) > MAX_OTHERS for entry in entries)
    warning = f"In {loaded} of {len(entries)} problems other programs used more than {MAX_OTHERS:.0%} of the machine: "
    warning += "their ratios are not reliable."
    picture = f"![Energy over time](../bench/results/{PICTURE_FILE})"
    return "\n\n".join(
        [*[warning] * bool(loaded), summary(entries), picture, table(entries), made_text([*entries], versions=True)]
    )


def _curve(entry: Entry, contenders: Sequence[str]) -> list[Any]:
    """Return the points of the first seed's lower envelope: seconds and energy, the energy decreasing."""
    rows = [row for row in entry["rows"] if row.get("library") in contenders]
    points = sorted(point[:2] for row in rows for point in row["repeats"][0])
    lowest = np.minimum.accumulate([energy for _, energy in points])
    return [point for i, point in enumerate(points) if i == 0 or point[1] < lowest[i - 1]]


def _chart(entry: Entry, number: int) -> str:
    """Draw energy over time for one problem."""
    curves = {name: np.array(_curve(entry, contenders)).reshape(-1, 2) for name, contenders in SHOWN.items()}
    ends = {name: curve[-1, 1] for name, curve in curves.items() if len(curve)}
    best = min(ends.values())
    shown = max(MIN_EXCESS_SHOWN, *(MAX_EXCESS_RATIO * 100 * (ends[name] / best - 1) for name in ("cluster", "KMeans")))
    series = []
    for name, curve in curves.items():
        excess = 100 * (curve[:, 1] / best - 1)
        near = excess <= shown
        series.append(Line(name, curve[near, 0], excess[near]))
    drawn = lines(f"map-{number}", entry["problem"], series, "seconds", "% above the lowest energy")
    return str(drawn).split("</svg>", 1)[0] + "</svg>"


def picture(entries: Sequence[Entry]) -> str:
    """Return an SVG file with a chart per pictured problem and one legend."""
    stored = {entry["problem"]: entry for entry in entries}
    charts = [stored[name] for name in PICTURED if name in stored]
    high = HEIGHT + TITLE_HEIGHT + GAP
    parts = []
    for i, entry in enumerate(charts):
        x, y = i % COLUMNS * (WIDTH + GAP), LEGEND_HEIGHT + i // COLUMNS * high
        title = f"{entry['problem']}: {entry['shape']}"
        parts.append(f'<text class="title" x="{x + 8}" y="{y + 14}">{title}</text>')
        place = f'<svg x="{x}" y="{y + TITLE_HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        parts.append(_chart(entry, i).replace("<svg ", place, 1))
    for i, name in enumerate(SHOWN):
        x = 8 + 180 * i
        parts.append(
            f'<rect x="{x}" y="8" width="12" height="12" rx="3" fill="{colour(i)}"/><text x="{x + 18}" y="18">{name}</text>'
        )
    width = COLUMNS * (WIDTH + GAP)
    height = LEGEND_HEIGHT + -(-len(charts) // COLUMNS) * high
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    ground = f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="white"/>'
    return f"{head}{ground}{''.join(parts)}</svg>\n"


def write_picture(folder: Path, read: Callable[[Path], list[Entry]]) -> None:
    """Draw the picture next to the tracked result."""
    if (folder / "map.json").exists():
        (folder / PICTURE_FILE).write_text(picture(read(folder / "map.json")))
