"""Charts as inline SVG (lines, bars, scatter plots) and images as PNG data URLs, without a plotting library.

Colours of series are SVG attributes. All other styling is in the style sheet, which has a light and a dark theme.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

from ..data.types import Array
from .axes import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH, Axis, Frame, axis
from .words import clean

MAX_LINE_POINTS = 400  # points drawn per line; more would not be visible at the width of a chart
MAX_MARKERS = 40  # points of all lines together, up to which each one gets a marker
# First points are cut off if they stretch the axis to CUT_RATIO times the range of at least MIN_REMAINING other values.
MIN_REMAINING, CUT_RATIO = 4, 4.0
MAX_IMAGE_SIDE = 64  # pixels; larger images are downsampled


def colour(i: int) -> str:
    """Return the i-th colour of an unlimited palette, legible on white and black.

    Hues advance by the golden angle in OKLCH space, so that neighbours differ; lightness alternates every three colours.
    """
    hue = math.radians((250 + 137.508 * i) % 360)
    light, chroma = (0.64, 0.55, 0.72)[i // 3 % 3], 0.15
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    cone = [light + 0.3963377774 * a + 0.2158037573 * b, light - 0.1055613458 * a - 0.0638541728 * b]
    cone = [value**3 for value in (*cone, light - 0.0894841775 * a - 1.2914855480 * b)]
    mix = ((4.0767416621, -3.3077115913, 0.2309699292), (-1.2684380046, 2.6097574011, -0.3413193965))
    mix = (*mix, (-0.0041960863, -0.7034186147, 1.7076147010))  # type: ignore[assignment]
    linear = [min(max(sum(m * c for m, c in zip(line, cone, strict=True)), 0), 1) for line in mix]
    gamma = [12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in linear]
    return "#" + "".join(f"{round(255 * v):02x}" for v in gamma)


class Line(NamedTuple):
    """Series of a line chart."""

    name: str
    x: Array
    y: Array
    spread: Array | None = None  # half-height of the band around the line


def svg(key: str, title: str, about: str, inside: str, height: int = HEIGHT) -> Markup:
    """Return an SVG element with a title and a description for screen readers."""
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{key}-t {key}-d">'
    words = f'<title id="{key}-t">{escape(clean(title))}</title><desc id="{key}-d">{escape(clean(about))}</desc>'
    return Markup(head + words + inside + "</svg>")


def thinned(n: int, max_points: int = MAX_LINE_POINTS) -> Array:
    """Return the indices of at most `max_points` of n points, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, max_points)).round().astype(int)) if n else np.empty(0, int)


def _drawable(line: Line) -> Line:
    """Return the finite points of a line, thinned."""
    finite = np.flatnonzero(np.isfinite(line.x) & np.isfinite(line.y))
    shown = finite[thinned(len(finite))]
    return Line(line.name, line.x[shown], line.y[shown], None if line.spread is None else line.spread[shown])


def _without_outlying_starts(series: Sequence[Line], ys: Array) -> Array:
    """Return the values that the axis covers: without first points so high that the other values would look constant."""
    rest = np.setdiff1d(ys, [line.y[0] for line in series if len(line.y)])
    if len(rest) < MIN_REMAINING or ys.max() - rest.min() < CUT_RATIO * (rest.max() - rest.min()):
        return ys
    return np.append(rest, rest.max() + 0.25 * (rest.max() - rest.min()))


def lines(
    key: str, title: str, series: Sequence[Line], x: str, y: str, level: float | None = None, mark: float | None = None
) -> Markup:
    """Draw a line chart.

    `level` adds a horizontal reference line, `mark` a vertical one. The x axis of a single line starts at zero. First points
    far above all others are cut off.
    """
    series = [_drawable(line) for line in series]
    xs, ys = (np.concatenate([getattr(line, name) for line in series] or [np.empty(0)]) for name in "xy")
    ys = np.concatenate([ys, *(_edges(line) for line in series)])
    if level is not None and math.isfinite(level):
        ys = np.append(ys, level)
    frame = Frame(axis(x, xs, zero=len(series) == 1), axis(y, _without_outlying_starts(series, ys)))
    inside = frame.draw()
    if level is not None and math.isfinite(level):
        ends = frame.at(np.array([frame.x.low, frame.x.high]), np.array([level, level]))
        inside += f'<path class="level" d="M{ends[0]}L{ends[1]}"/>'
    if mark is not None:
        ends = frame.at(np.array([mark, mark]), np.array([frame.y.low, frame.y.high]))
        inside += f'<path class="mark" d="M{ends[0]}L{ends[1]}"/>'
    for i, line in enumerate(series):
        places = frame.at(line.x, line.y)
        inside += _band(frame, line, colour(i))
        name = escape(clean(line.name, 80))
        inside += (
            f'<path class="line" stroke="{colour(i)}" d="M{"L".join(places)}"><title>{name}</title></path>' if places else ""
        )
        if len(places) * len(series) <= MAX_MARKERS:
            inside += f'<path class="dots" stroke="{colour(i)}" d="{"".join(f"M{p}h0" for p in places)}"/>'
    about = f"{y} over {x}, {len(series)} line{'s' * (len(series) != 1)}"
    return svg(key, title, about, inside) + legend([line.name for line in series])


def _edges(line: Line) -> Array:
    """Return the limits of the band of a line; a lower limit below zero is ignored, as the axis may be logarithmic."""
    if line.spread is None:
        return np.empty(0)
    spread = np.nan_to_num(line.spread)
    low = np.where((line.y > 0) & (line.y <= spread), line.y, line.y - spread)
    return np.concatenate([low, line.y + spread])


def _band(frame: Frame, line: Line, fill: str) -> str:
    """Draw the band around a line."""
    if line.spread is None or not len(line.x):
        return ""
    edges = [np.nan_to_num(line.y + side * line.spread, nan=0.0) for side in (-1, 1)]
    edges = [np.clip(edge, frame.y.low, frame.y.high) for edge in edges]  # a logarithmic axis has no values below its lower end
    around = [*frame.at(line.x, edges[0]), *frame.at(line.x, edges[1])[::-1]]
    return f'<path class="band" fill="{fill}" d="M{"L".join(around)}z"/>'


def legend(names: Sequence[str]) -> Markup:
    """Return the legend of a chart; empty for a single line."""
    if len(names) < 2:
        return Markup("")
    swatch = '<svg viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" rx="3" fill="{}"/></svg>'
    items = (f"<li>{swatch.format(colour(i))}<bdi>{escape(clean(name, 80))}</bdi></li>" for i, name in enumerate(names))
    return Markup(f'<ul class="legend">{"".join(items)}</ul>')


def bars(key: str, title: str, values: Array, x: str, y: str) -> Markup:
    """Draw a bar chart of values in the given order, thinned if there are many."""
    shown = thinned(len(values))
    frame = Frame(Axis(x, 0.0, float(max(len(values), 1))), axis(y, values.astype(float), zero=True))
    left = frame.left
    width = (WIDTH - left - RIGHT) / max(len(shown), 1)
    gap = min(4.0, 0.2 * width)
    tops = frame.y.place(values[shown].astype(float)) * (HEIGHT - TOP - BOTTOM)
    base = HEIGHT - BOTTOM
    path = "".join(
        f"M{left + i * width + gap / 2:.5g} {base}v{-h:.5g}h{width - gap:.4g}V{base}z" for i, h in enumerate(tops) if h > 0
    )
    return svg(key, title, f"{y} over {x}, {len(values)} bars", frame.draw() + f'<path class="bars" d="{path}"/>')


def cluster_bars(key: str, title: str, values: Array, clusters: Sequence[int], y: str) -> Markup:
    """Draw a bar for each cluster, with its number and in its colour."""
    frame = Frame(Axis("cluster", 0.0, float(len(values))), axis(y, values.astype(float), zero=True))
    width, base = (WIDTH - frame.left - RIGHT) / len(values), HEIGHT - BOTTOM
    heights = frame.y.place(values.astype(float)) * (base - TOP)
    drawn = "".join(
        f'<path fill="{colour(j)}" d="M{frame.left + (i + 0.1) * width:.5g} {base}v{-h:.5g}h{0.8 * width:.5g}V{base}z">'
        f"<title>Cluster {j}: {value:,}</title></path>"
        for i, (j, h, value) in enumerate(zip(clusters, heights, values.tolist(), strict=True))
    )
    names = {i + 0.5: str(j) for i, j in enumerate(clusters)}
    return svg(key, title, f"{y} of {len(values)} clusters", frame.draw(names) + drawn)


def ranking(key: str, title: str, names: Sequence[str], values: Array, spreads: Array, x: str) -> Markup:
    """Draw horizontal bars, each with its name, value and error bar."""
    letter = 10.5  # width of a character on a narrow page
    left, high, room, first = round(letter * max(min(len(name), 24) for name in names)) + 12, 26, round(letter * 14), 6
    scale = (WIDTH - left - room) / max(float((values + spreads).max()), 1e-300)
    parts = []
    for i, (name, value, spread) in enumerate(zip(names, values, spreads, strict=True)):
        top, near, far = first + high * i, left + scale * max(value - spread, 0.0), left + scale * (value + spread)
        parts += [
            f'<text x="{left - 8}" y="{top + 15}" text-anchor="end">{escape(clean(name, 24))}</text>',
            f'<path class="bars" d="M{left} {top + 2}h{scale * value:.5g}v{high - 7}H{left}z"/>',
            f'<path class="axis" d="M{near:.5g} {top + high / 2 - 1.5}H{far:.5g}"/>',
            f'<text x="{far + 7:.5g}" y="{top + 15}">{value:.3f}{f" ± {spread:.3f}" if spread > 0 else ""}</text>',
        ]
    bottom = first + high * len(names)
    parts.append(f'<text class="name" x="{left}" y="{bottom + 16}">{escape(clean(x, 60))}</text>')
    return svg(key, title, f"{x} of {', '.join(names)}", "".join(parts), bottom + 24)


def scatter(key: str, title: str, points: Array, labels: Array, names: Sequence[int], axes: tuple[str, str]) -> Markup:
    """Draw a scatter plot of points coloured by label, with the labels in `names` at the means of their points.

    A label that would overlap an earlier one is left out; one that would overlap only on narrow pages is hidden there.
    """
    height, edge = 500, 36
    low, high = points.min(axis=0), points.max(axis=0)
    room = [WIDTH - edge, height - 2 * edge]
    scale = min(a / max(width, 1e-300) for a, width in zip(room, high - low, strict=True))
    places = (points - (low + high) / 2) * [scale, -scale] + [WIDTH / 2, height / 2]
    spots = [f"{a:.4g} {b:.4g}" for a, b in places]
    inside = numbers = ""
    for j in np.unique(labels):
        path = "".join(f"M{spots[i]}h0" for i in np.flatnonzero(labels == j))
        inside += f'<path class="points" data-cluster="{j}" stroke="{colour(int(j))}" d="{path}">'
        inside += f"<title>Cluster {j}</title></path>"
    means = {j: places[labels == j].mean(axis=0) for j in names if (labels == j).any()}
    large = _without_overlaps(means, 22)
    for j in _without_overlaps(means, 14, large):
        kind, (a, b) = "center" if j in large else "center close", means[j]
        numbers += f'<text class="{kind}" x="{a:.4g}" y="{b + 4:.4g}" text-anchor="middle">{j}</text>'
    x, y = (escape(clean(name, 60)) for name in axes)
    numbers += f'<text class="name" x="{WIDTH / 2}" y="{height - 6}" text-anchor="middle">{x}</text>'
    numbers += f'<text class="name" x="2" y="15">{y}</text>'
    about = f"{len(points)} rows as points, coloured by cluster, with cluster numbers at the cluster means"
    return svg(key, title, f"{about}; {axes[1]} over {axes[0]}", inside + numbers, height)


def _without_overlaps(means: Mapping[int, Array], size: float, placed: Sequence[int] = ()) -> list[int]:
    """Return the labels that, at this font size, overlap neither those in `placed` nor earlier ones."""
    chosen = list(placed)
    for j, place in means.items():
        wide = [0.3 * size * (len(str(i)) + len(str(j))) + 2 for i in chosen]
        if all((abs(place - means[i]) >= (w, size)).any() for i, w in zip(chosen, wide, strict=True)):
            chosen.append(j)
    return chosen


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Return a PNG chunk: length, type, data, checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def picture(values: Array, low: float, high: float) -> str:
    """Return an array of shape (height, width) or (height, width, 3) as a PNG data URL, downsampled by block means if large."""
    cells = max(1, math.ceil(max(values.shape[:2]) / MAX_IMAGE_SIDE))
    if cells > 1:
        h, w = (size - size % cells for size in values.shape[:2])
        rest = values.shape[2:]
        values = values[:h, :w].reshape(h // cells, cells, w // cells, cells, *rest).mean(axis=(1, 3))
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    scale = 255 / (high - low) if high > low else 0.0
    pixels = np.clip(np.nan_to_num((values - low) * scale), 0, 255).round().astype(np.uint8)
    height, width = pixels.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()
