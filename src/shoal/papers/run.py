"""Run the experiments of papers one after the other, within an effort, and report progress."""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from ..report.page import Figure
from .claims import Claim, Value, Verdict, judge
from .data import Rows, Shelf

Option = TypeVar("Option")
ReportProgress = Callable[[str, float, float], None]

MAX_HALF_WIDTH = 64  # characters that fit into half the width of a page; wider tables take the full width
MEASUREMENT_DECIMALS = 12  # decimals of a measurement; further digits are rounding errors
MIN_ELAPSED_FRACTION = 0.05  # fraction of the work after which the remaining time is extrapolated from the elapsed time


class Effort(NamedTuple):
    """Limits on the size of an experiment."""

    name: str
    rows: int | None  # maximum number of rows per data set
    seeds: int | None  # maximum number of seeds
    seconds: float | None  # time after which an experiment starts no further seed
    clock: Callable[[], float] = time.monotonic  # clock for `seconds`


TINY = Effort("tiny", 600, 2, 1.0)  # for tests
QUICK = Effort("quick", 60_000, 20, 15.0)
FULL = Effort("full", None, None, None, time.process_time)  # CPU time, so that other processes do not affect results


class Grid(NamedTuple):
    """Table of a paper, with reproduced values next to the published ones."""

    title: str
    head: list[str]
    rows: list[list[str]]
    caption: str = ""

    @property
    def is_full_width(self) -> bool:
        """Whether the table needs the full width of the page."""
        return sum(max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)) > MAX_HALF_WIDTH


class Gallery(NamedTuple):
    """Rows of images, as data URLs."""

    title: str
    lines: list[tuple[str, list[str]]]
    caption: str = ""


class Shown(NamedTuple):
    """Figure, table or gallery, with a description of the published one."""

    what: Figure | Grid | Gallery
    published: str


class Finding(NamedTuple):
    """Result of an experiment."""

    shown: list[Shown]
    measured: dict[str, Any]  # numbers, or lists of one per seed


class Experiment(NamedTuple):
    """Experiment of a paper."""

    name: str
    seconds: tuple[float, float]  # expected duration of a quick and of a full run
    run: Callable[[Run], Finding]


class Paper(NamedTuple):
    """Paper with its claims and experiments."""

    key: str
    title: str
    reference: str
    about: str
    claims: tuple[Claim, ...]
    experiments: tuple[Experiment, ...]
    data: tuple[str, ...] = ()  # names of the data sets that the experiments may load


class Report(NamedTuple):
    """Results of the experiments of a paper."""

    paper: Paper
    shown: list[Shown]
    verdicts: list[Verdict]
    notes: list[str]  # on substituted data and reduced experiments


class Run:
    """Context of an experiment: effort, data sets, seeds and progress reports."""

    def __init__(self, effort: Effort, shelf: Shelf, report_progress: Callable[[float], None] = lambda share: None) -> None:
        self.effort, self.shelf, self.report_progress = effort, shelf, report_progress
        self.notes: list[str] = []
        self.experiment = ""  # name of the current experiment
        self.replaced: set[str] = set()  # data sets that were replaced by substitutes

    def of(self, tiny: Option, quick: Option, full: Option) -> Option:
        """Return the value for the current effort."""
        return {TINY.name: tiny, QUICK.name: quick, FULL.name: full}[self.effort.name]

    def load(self, name: str, rows: int | None = None) -> Rows:
        """Return a data set or its substitute, with at most `rows` rows and no more than the effort allows, and note both."""
        most = min((n for n in (rows, self.effort.rows) if n is not None), default=None)
        found = self.shelf.load(name, most)
        for note in found.notes:
            self.note(note)
        if found.n < found.whole:
            self.note(f"{self.experiment}: {found.n:,} of {found.whole:,} rows of {name}.")
        if found.replaced:
            self.replaced.add(re.sub("-(training|raw|frequent)$", "", name))  # the name in titles
        return found

    def named(self, text: str) -> str:
        """Mark substituted data sets in a title or the name of a measurement."""
        return re.sub("|".join([*map(re.escape, self.replaced), "(?!)"]), r"\g<0> (replaced)", text, flags=re.IGNORECASE)

    def note(self, text: str) -> None:
        """Add a note to the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    def seeds(self, wanted: int, every: bool = False, parts: int = 1) -> Iterator[int]:
        """Yield the seeds 0, 1, ..., up to `wanted`; at least one, and no further one that would exceed the time limit.

        With `every`, the limit of the effort on the number of seeds is ignored, for trials that take milliseconds. An
        experiment that asks for seeds several times gives each of its `parts` its share of the time. Iterate over the seeds
        lazily: the time is looked at before each of them.
        """
        started, most = self.effort.clock(), wanted if every else min(wanted, self.effort.seeds or wanted)
        for seed in range(most):
            if seed and self.effort.seconds is not None:
                spent = self.effort.clock() - started
                if (
                    spent * (1 + 1 / seed) > self.effort.seconds / parts
                ):  # assuming that another seed takes as long as the mean so far
                    self.note(f"{self.experiment}: {seed} of {wanted} seeds, due to the time limit.")
                    return
            self.report_progress(seed / most)
            yield seed


def _rounded(value: Any) -> Value:
    """Return a number, or those of all seeds, without digits that are rounding errors."""
    if np.ndim(value) == 0:
        return round(float(value), MEASUREMENT_DECIMALS)
    return [round(float(v), MEASUREMENT_DECIMALS) for v in value]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Give all methods one thread, so that times can be compared."""
    before = os.environ.get("LOKY_MAX_CPU_COUNT")
    os.environ["LOKY_MAX_CPU_COUNT"] = "1"
    try:
        with threadpool_limits(1):
            yield
    finally:
        if before is None:
            del os.environ["LOKY_MAX_CPU_COUNT"]
        else:
            os.environ["LOKY_MAX_CPU_COUNT"] = before


class Clock:
    """Progress over all experiments, weighted by their expected durations."""

    def __init__(self, total: float, report_progress: ReportProgress) -> None:
        self.total, self.report_progress = total, report_progress
        self.started, self.done = time.monotonic(), 0.0

    def report(self, name: str, weight: float, share: float) -> None:
        """Report that this fraction of an experiment is done, with an estimate of the remaining time."""
        now, spent = (self.done + share * weight) / self.total, time.monotonic() - self.started
        expected = spent / now if now > MIN_ELAPSED_FRACTION else max(self.total, spent)
        self.report_progress(name, now, (1 - now) * expected)


def run_papers(papers: Sequence[Paper], effort: Effort, shelf: Shelf, report_progress: ReportProgress) -> Iterator[Report]:
    """Run all experiments. Yield a report on the paper after each of its experiments; the last one is complete.

    `report_progress` is called with the name of the experiment, the fraction of all work done, and the estimated remaining
    seconds.
    """
    shelf.check(name for paper in papers for name in paper.data)  # fail before the first experiment, which may take hours
    full = effort.name == FULL.name
    clock = Clock(sum(e.seconds[full] for paper in papers for e in paper.experiments), report_progress)
    for paper in papers:
        run, shown, measured = Run(effort, shelf), list[Shown](), dict[str, Value]()
        for left, experiment in zip(range(len(paper.experiments))[::-1], paper.experiments, strict=True):
            weight = experiment.seconds[full]
            run.report_progress, run.experiment = (
                partial(clock.report, f"{paper.key}: {experiment.name}", weight),
                experiment.name,
            )
            run.report_progress(0.0)
            with one_thread(), warnings.catch_warnings():  # some experiments stop before convergence on purpose
                warnings.simplefilter("ignore")
                finding = experiment.run(run)
            shown += [one._replace(what=one.what._replace(title=run.named(one.what.title))) for one in finding.shown]
            measured |= {run.named(key): _rounded(value) for key, value in finding.measured.items()}
            clock.done += weight
            notes = [*run.notes, *([f"Experiments not yet run: {left}."] if left else [])]
            yield Report(paper, list(shown), [judge(claim, measured) for claim in paper.claims], notes)
