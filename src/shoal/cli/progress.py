"""Report the progress of a fit on stderr: as a bar, as plain lines, as JSON lines, or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

from .errors import echo_stderr, live_consoles
from .output import to_jsonable

SECONDS_BETWEEN_LINES = 1.0  # plain lines only; keeps logs short


def format_step(record: dict[str, Any], rate: float, seconds_left: float | None) -> str:
    """Return one line that describes a step."""
    value = record.get("energy", record.get("objective"))
    parts = [f"step {record.get('step', 0)}"]
    if record.get("level"):
        parts = [f"level {record['level']} of {record['levels']}: {record['clusters']:,} clusters"]
    if value is not None and math.isfinite(value):
        parts.append(f"{'energy' if 'energy' in record else 'objective'} {value:.6g}")
    if record.get("batch"):
        parts.append(f"batch {record['batch']:,}")
    if rate > 0:
        parts.append(f"{rate:,.0f} rows/s")
    if seconds_left is not None:
        parts.append(f"{max(seconds_left, 0):.0f} s left")
    return ", ".join(parts)


class ProgressReporter:
    """Base class, which prints nothing. `on_step` is the callback of a fit; it always returns False, so it never stops it."""

    def __init__(self, budget: float | None = None) -> None:
        self.budget, self.started = budget, time.monotonic()
        self.last = self.last_line = -math.inf

    def status(self, text: str, **facts: float) -> None:
        """Report the current activity; `facts` appear in JSON output only."""

    def on_step(self, record: dict[str, Any]) -> bool:
        now = time.monotonic()
        took = now - (self.last if self.last > 0 else self.started)
        self.last = now
        rate = record.get("rows", 0) / took if took > 0 else 0.0
        self.show(record, rate, None if self.budget is None else self.budget - (now - self.started))
        return False

    def show(self, record: dict[str, Any], rate: float, seconds_left: float | None) -> None:
        """Report one step."""


class TextProgress(ProgressReporter):
    """Plain lines."""

    def status(self, text: str, **facts: float) -> None:
        echo_stderr(text)

    def show(self, record: dict[str, Any], rate: float, seconds_left: float | None) -> None:
        if self.last - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = self.last
            echo_stderr(format_step(record, rate, seconds_left))


class JsonProgress(ProgressReporter):
    """One JSON document per line."""

    def status(self, text: str, **facts: float) -> None:
        echo_stderr(json.dumps({"doing": text, **facts}))

    def show(self, record: dict[str, Any], rate: float, seconds_left: float | None) -> None:
        facts = {**record, "rows_per_second": rate, **({} if seconds_left is None else {"seconds_left": seconds_left})}
        echo_stderr(json.dumps(to_jsonable(facts)))


class BarProgress(ProgressReporter):
    """Progress bar of rich. It shows the share of the time limit; without a limit it is indeterminate."""

    def __init__(self, budget: float | None = None) -> None:
        super().__init__(budget)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(10), TextColumn("{task.description}", markup=False))  # fits into 80 characters
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task("", total=budget)

    def status(self, text: str, **facts: float) -> None:
        self.bar.update(self.task, description=text)

    def show(self, record: dict[str, Any], rate: float, seconds_left: float | None) -> None:
        done = None if seconds_left is None or self.budget is None else self.budget - seconds_left
        self.bar.update(self.task, completed=done, description=format_step(record, rate, seconds_left))


@contextlib.contextmanager
def progress_reporter(kind: str, quiet: bool, budget: float | None = None) -> Iterator[ProgressReporter]:
    """Yield the reporter that --progress and --quiet select. `budget` is the time limit in seconds."""
    if kind == "auto":
        kind = "bar" if sys.stderr.isatty() else "plain"
    if quiet or kind == "none":
        yield ProgressReporter(budget)
    elif kind == "bar":
        bar = BarProgress(budget)
        with bar.bar:
            live_consoles.append(bar.bar.console)
            try:
                yield bar
            finally:
                live_consoles.pop()
    else:
        yield {"plain": TextProgress, "json": JsonProgress}[kind](budget)
