"""How far a fit has come, on stderr: a bar on a terminal, lines elsewhere, JSON for machines, or nothing."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

from .errors import say
from .output import plain

EVERY = 1.0  # seconds between lines


def words(record: dict[str, Any], rate: float, left: float | None) -> str:
    """A step in short."""
    value = record.get("energy", record.get("objective"))
    parts = [f"step {record.get('step', 0)}"]
    if value is not None and math.isfinite(value):
        parts.append(f"{'energy' if 'energy' in record else 'objective'} {value:.6g}")
    if record.get("batch"):
        parts.append(f"batch {record['batch']:,}")
    if rate > 0:
        parts.append(f"{rate:,.0f} rows/s")
    if left is not None:
        parts.append(f"{max(left, 0):.0f} s left")
    return ", ".join(parts)


class Watch:
    """Says nothing; what all others are. `step` is the callback of a fit and never ends it."""

    def __init__(self, budget: float | None = None) -> None:
        self.budget, self.begun = budget, time.monotonic()
        self.last = self.told = -math.inf

    def note(self, text: str, **facts: float) -> None:
        """What is being done now; facts are for machines."""

    def step(self, record: dict[str, Any]) -> bool:
        now = time.monotonic()
        took = now - (self.last if self.last > 0 else self.begun)
        self.last = now
        rate = record.get("rows", 0) / took if took > 0 else 0.0
        self.show(record, rate, None if self.budget is None else self.budget - (now - self.begun))
        return False

    def show(self, record: dict[str, Any], rate: float, left: float | None) -> None:
        """One step."""


class Lines(Watch):
    def note(self, text: str, **facts: float) -> None:
        say(text)

    def show(self, record: dict[str, Any], rate: float, left: float | None) -> None:
        if self.last - self.told >= EVERY:
            self.told = self.last
            say(words(record, rate, left))


class Documents(Watch):
    """One JSON document a line."""

    def note(self, text: str, **facts: float) -> None:
        say(json.dumps({"doing": text, **facts}))

    def show(self, record: dict[str, Any], rate: float, left: float | None) -> None:
        facts = {**record, "rows_per_second": rate, **({} if left is None else {"seconds_left": left})}
        say(json.dumps(plain(facts)))


class Bar(Watch):
    """Rich's, on a terminal. It fills as time runs out; without a limit on time it only moves."""

    def __init__(self, budget: float | None = None) -> None:
        super().__init__(budget)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(10), TextColumn("{task.description}", markup=False))  # 80 characters have room for no more
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task("", total=budget)

    def note(self, text: str, **facts: float) -> None:
        self.bar.update(self.task, description=text)

    def show(self, record: dict[str, Any], rate: float, left: float | None) -> None:
        done = None if left is None or self.budget is None else self.budget - left
        self.bar.update(self.task, completed=done, description=words(record, rate, left))


@contextlib.contextmanager
def watching(kind: str, quiet: bool, budget: float | None = None) -> Iterator[Watch]:
    if kind == "auto":
        kind = "bar" if sys.stderr.isatty() else "plain"
    if quiet or kind == "none":
        yield Watch(budget)
    elif kind == "bar":
        bar = Bar(budget)
        with bar.bar:
            yield bar
    else:
        yield {"plain": Lines, "json": Documents}[kind](budget)
