"""Axes and tick labels of SVG charts, legible on wide and narrow pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from markupsafe import escape

from ..data.types import Array
from .words import clean, short, ticks

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 40, 14, 36, 54  # margins in SVG units; the left one grows with the labels
CHARACTER_WIDTH = 11  # SVG units, at the font size of narrow pages (18 units), the largest in use
MIN_LOG_RATIO = 50.0  # of the largest to the smallest value, for a logarithmic axis
MAX_VALUE = 1e300  # larger values are ignored, as their differences may overflow


class Axis(NamedTuple):
    """Linear or logarithmic axis from low to high."""

    name: str
    low: float
    high: float
    log: bool = False

    def place(self, values: Array) -> Array:
        """Map values to positions from 0 (low) to 1 (high)."""
        if self.log:
            return np.asarray((np.log(values) - math.log(self.low)) / (math.log(self.high) - math.log(self.low)))
        return np.asarray((values - self.low) / (self.high - self.low))

    def ticks(self) -> list[float]:
        """Return the values that have a tick."""
        return list(self.labels())

    def labels(self) -> dict[float, str]:
        """Return the tick labels, by value."""
        if self.log and self.high / self.low >= 5:
            return {tick: short(tick) for tick in _log_ticks(self.low, self.high)}
        step = _step(self.high - self.low, 5)
        first = math.ceil(self.low / step - 1e-9)
        places = [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return dict(zip(places, ticks(places, step), strict=True))


def _step(width: float, count: int) -> float:
    """Return a tick distance, 1, 2 or 5 times a power of ten, that gives at most about `count` ticks."""
    size = 10.0 ** math.floor(math.log10(width / count))
    return next((size * m for m in (1, 2, 5) if width / (size * m) <= count), size * 10)


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, and 2 and 5 times these on short axes."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 2 else (1,)
    every = max(1, (last - first) // 6)
    candidates = [m * 10.0**p for p in range(first, last + 1, every) for m in digits]
    return [tick for tick in candidates if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def axis(name: str, values: Array, zero: bool = False) -> Axis:
    """Return an axis that covers all values; with `zero`, also the value 0."""
    values = values[np.abs(values) <= MAX_VALUE]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low > 0 and high / low > MIN_LOG_RATIO:
        return Axis(name, low, high, True)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if high else (0.0, 1.0)
    return Axis(name, low, high)


class Frame(NamedTuple):
    """Plot area with a horizontal and a vertical axis."""

    x: Axis
    y: Axis

    @property
    def left(self) -> float:
        """Left edge of the plot area, with room for the labels at any page width."""
        return max(LEFT, 9 + CHARACTER_WIDTH * max(map(len, self.y.labels().values())))

    def at(self, x: Array, y: Array) -> list[str]:
        """Return SVG coordinates, clipped to the plot area."""
        a, b = self.x.place(np.asarray(x, float)), self.y.place(np.asarray(y, float))
        if len(b) > 1 and b[0] > 1 > b[1]:  # the line starts above the axis: begin where it crosses the edge
            a[0], b[0] = a[0] + (a[1] - a[0]) * (b[0] - 1) / (b[0] - b[1]), 1
        left = self.left + (WIDTH - self.left - RIGHT) * np.clip(a, 0, 1)
        top = TOP + (HEIGHT - TOP - BOTTOM) * (1 - np.clip(b, 0, 1))
        return [f"{a:.5g} {b:.5g}" for a, b in zip(left, top, strict=True)]

    def draw(self, names_below: Mapping[float, str] | None = None) -> str:
        """Return grid lines, tick labels and axis names. The name of the vertical axis is above it.

        `names_below` are labels of the horizontal axis, by value, in place of numbers; they have no grid lines.
        """
        parts = []
        left, bottom, right = self.left, HEIGHT - BOTTOM, WIDTH - RIGHT
        for tick, label in (self.x.labels() if names_below is None else names_below).items():
            a = left + (right - left) * float(self.x.place(np.array(tick)))
            inside = min(a, WIDTH - CHARACTER_WIDTH * len(label) / 2)
            if names_below is None:
                parts.append(f'<path class="grid" d="M{a:.5g} {TOP}V{bottom}"/>')
            parts.append(f'<text x="{inside:.5g}" y="{bottom + 22}" text-anchor="middle">{label}</text>')
        for tick, label in self.y.labels().items():
            b = TOP + (bottom - TOP) * (1 - float(self.y.place(np.array(tick))))
            parts.append(f'<path class="grid" d="M{left:.5g} {b:.5g}H{right}"/>')
            parts.append(f'<text x="{left - 7:.5g}" y="{b + 4:.5g}" text-anchor="end">{label}</text>')
        parts.append(f'<path class="axis" d="M{left:.5g} {TOP}V{bottom}H{right}"/>')
        names = [escape(clean(a.name, 60) + (" (log scale)" if a.log else "")) for a in (self.x, self.y)]
        parts.append(f'<text class="name" x="{(left + right) / 2:.5g}" y="{HEIGHT - 8}" text-anchor="middle">{names[0]}</text>')
        parts.append(f'<text class="name" x="2" y="15">{names[1]}</text>')
        return "".join(parts)
