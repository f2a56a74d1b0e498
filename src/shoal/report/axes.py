"""Axes that people can read, on a wide page and on a narrow one, and where on a drawing values are."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from markupsafe import escape

from ..data.types import Array
from .words import clean, short, ticks

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 40, 14, 36, 54  # at the left at least so much, and more if the labels need it
LETTER = 11  # width of one, where the page is narrow and writing is large
WIDE = 50.0  # a ratio from which on a logarithm shows more
HUGE = 1e300  # differences of what is larger have no number


class Axis(NamedTuple):
    name: str
    low: float
    high: float
    log: bool = False

    def place(self, values: Array) -> Array:
        """From 0 to 1."""
        if self.log:
            return np.asarray((np.log(values) - math.log(self.low)) / (math.log(self.high) - math.log(self.low)))
        return np.asarray((values - self.low) / (self.high - self.low))

    def ticks(self) -> list[float]:
        return list(self.labels())

    def labels(self) -> dict[float, str]:
        """What to write where."""
        if self.log and self.high / self.low >= 5:
            return {tick: short(tick) for tick in _log_ticks(self.low, self.high)}
        step = _step(self.high - self.low, 5)
        first = math.ceil(self.low / step - 1e-9)
        places = [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return dict(zip(places, ticks(places, step), strict=True))


def _step(width: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, about a part of the width."""
    size = 10.0 ** math.floor(math.log10(width / count))
    return next((size * m for m in (1, 2, 5) if width / (size * m) <= count), size * 10)


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 2 else (1,)
    every = max(1, (last - first) // 6)
    found = [m * 10.0**p for p in range(first, last + 1, every) for m in digits]
    return [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def axis(name: str, values: Array, zero: bool = False) -> Axis:
    """One that all values have room on."""
    values = values[np.abs(values) <= HUGE]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low > 0 and high / low > WIDE:
        return Axis(name, low, high, True)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if high else (0.0, 1.0)
    return Axis(name, low, high)


class Frame(NamedTuple):
    """Where on the page values are."""

    x: Axis
    y: Axis

    @property
    def left(self) -> float:
        """Where the plot begins: the labels before it have room at any size of the page."""
        return max(LEFT, 9 + LETTER * max(map(len, self.y.labels().values())))

    def at(self, x: Array, y: Array) -> list[str]:
        a, b = self.x.place(np.asarray(x, float)), self.y.place(np.asarray(y, float))
        if len(b) > 1 and b[0] > 1 > b[1]:  # a line comes in from above
            a[0], b[0] = a[0] + (a[1] - a[0]) * (b[0] - 1) / (b[0] - b[1]), 1
        left = self.left + (WIDTH - self.left - RIGHT) * np.clip(a, 0, 1)
        top = TOP + (HEIGHT - TOP - BOTTOM) * (1 - np.clip(b, 0, 1))
        return [f"{a:.5g} {b:.5g}" for a, b in zip(left, top, strict=True)]

    def draw(self) -> str:
        """Grid, labels and names: that of the upright axis above it, where it has room."""
        parts = []
        left, bottom, right = self.left, HEIGHT - BOTTOM, WIDTH - RIGHT
        for tick, label in self.x.labels().items():
            a = left + (right - left) * float(self.x.place(np.array(tick)))
            inside = min(a, WIDTH - LETTER * len(label) / 2)
            parts.append(f'<path class="grid" d="M{a:.5g} {TOP}V{bottom}"/>')
            parts.append(f'<text x="{inside:.5g}" y="{bottom + 22}" text-anchor="middle">{label}</text>')
        for tick, label in self.y.labels().items():
            b = TOP + (bottom - TOP) * (1 - float(self.y.place(np.array(tick))))
            parts.append(f'<path class="grid" d="M{left:.5g} {b:.5g}H{right}"/>')
            parts.append(f'<text x="{left - 7:.5g}" y="{b + 4:.5g}" text-anchor="end">{label}</text>')
        parts.append(f'<path class="axis" d="M{left:.5g} {TOP}V{bottom}H{right}"/>')
        names = [escape(clean(a.name, 60) + (", logarithmic" if a.log else "")) for a in (self.x, self.y)]
        parts.append(f'<text class="name" x="{(left + right) / 2:.5g}" y="{HEIGHT - 8}" text-anchor="middle">{names[0]}</text>')
        parts.append(f'<text class="name" x="2" y="15">{names[1]}</text>')
        return "".join(parts)
