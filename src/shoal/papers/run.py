"""Experiments one after the other: how much effort to make, what was found, how long is left."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ..report.page import Figure
from .claims import Claim, Verdict, judge
from .data import Rows, Shelf

Value = TypeVar("Value")
Tell = Callable[[str, float, float], None]

HALF = 64  # characters in half the width of a page
TINIEST = 12  # digits behind the point: less is rounding
SURE = 0.05  # a share of the work from which on its pace tells how long the rest will take


class Effort(NamedTuple):
    """How much of an experiment to do."""

    name: str
    rows: int | None  # of a data set, at most
    seeds: int | None  # at most
    seconds: float | None  # after which no further seed of an experiment is begun
    clock: Callable[[], float] = time.monotonic  # that these are told by


TINY = Effort("tiny", 600, 2, 1.0)  # for tests
QUICK = Effort("quick", 60_000, 20, 20.0)
FULL = Effort("full", None, None, None, time.process_time)  # what it finds must not depend on what else the machine does


class Grid(NamedTuple):
    """A table of a paper, with ours beside its numbers."""

    title: str
    head: list[str]
    rows: list[list[str]]
    caption: str = ""

    @property
    def wide(self) -> bool:
        """Does it take more than half a page?"""
        return sum(max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)) > HALF


class Gallery(NamedTuple):
    """Lines of pictures, as data URLs."""

    title: str
    lines: list[tuple[str, list[str]]]
    caption: str = ""


class Shown(NamedTuple):
    """A figure, a table or pictures, and what the paper's own look like."""

    what: Figure | Grid | Gallery
    published: str


class Finding(NamedTuple):
    """What an experiment has found."""

    shown: list[Shown]
    measured: dict[str, float]


class Experiment(NamedTuple):
    name: str
    seconds: tuple[float, float]  # that it takes: quick, full
    run: Callable[[Run], Finding]


class Paper(NamedTuple):
    key: str
    title: str
    reference: str
    about: str
    claims: tuple[Claim, ...]
    experiments: tuple[Experiment, ...]
    data: tuple[str, ...] = ()  # sets that it may ask for


class Report(NamedTuple):
    """A paper, run again."""

    paper: Paper
    shown: list[Shown]
    verdicts: list[Verdict]
    notes: list[str]  # on data and on what was left out


class Run:
    """What an experiment is given: data, seeds as time allows, and somebody to tell how far it has come."""

    def __init__(self, effort: Effort, shelf: Shelf, tell: Callable[[float], None] = lambda share: None) -> None:
        self.effort, self.shelf, self.tell = effort, shelf, tell
        self.notes: list[str] = []
        self.experiment = ""  # the one under way
        self.replaced: set[str] = set()  # data sets that something else stands in for

    def of(self, tiny: Value, quick: Value, full: Value) -> Value:
        """By effort."""
        return {TINY.name: tiny, QUICK.name: quick, FULL.name: full}[self.effort.name]

    def load(self, name: str, rows: int | None = None) -> Rows:
        """A data set, or what stands in for it, which is noted; no more rows of it than the effort allows."""
        most = min((n for n in (rows, self.effort.rows) if n is not None), default=None)
        found = self.shelf.load(name, most)
        for note in found.notes:
            self.note(note)
        if found.n < found.whole:
            self.note(f"{self.experiment}: {found.n:,} of {found.whole:,} rows of {name}.")
        if found.replaced:
            self.replaced.add(name.removesuffix("-training"))  # as it is called in titles
        return found

    def named(self, text: str) -> str:
        """A title, or the name of a measurement, in which sets that were replaced are called so."""
        return re.sub("|".join([*map(re.escape, self.replaced), "(?!)"]), r"\g<0> (replaced)", text, flags=re.IGNORECASE)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def seeds(self, wanted: int) -> Iterator[int]:
        """0, 1, ..., as many as are wanted, one at least, and no further one when time is up."""
        begun, most = self.effort.clock(), min(wanted, self.effort.seeds or wanted)
        for seed in range(most):
            if seed and self.effort.seconds is not None:
                spent = self.effort.clock() - begun
                if spent * (1 + 1 / seed) > self.effort.seconds:  # another would take as long as those before
                    self.note(f"{self.experiment}: {seed} of {wanted} seeds, for lack of time.")
                    return
            self.tell(seed / most)
            yield seed


class Clock:
    """How far all experiments have come, by what they are expected to take."""

    def __init__(self, total: float, tell: Tell) -> None:
        self.total, self.tell = total, tell
        self.begun, self.done = time.monotonic(), 0.0

    def told(self, name: str, weight: float, share: float) -> None:
        """This share of an experiment is done. What is left takes as long, for its weight, as what was."""
        now, spent = (self.done + share * weight) / self.total, time.monotonic() - self.begun
        expected = spent / now if now > SURE else max(self.total, spent)
        self.tell(name, now, (1 - now) * expected)


def carry_out(papers: Sequence[Paper], effort: Effort, shelf: Shelf, tell: Tell) -> Iterator[Report]:
    """All experiments, paper by paper; a report on a paper comes after each of its experiments, and the last has all.

    `tell` hears which one runs, which share of all is done, and how many seconds are left.
    """
    shelf.check(name for paper in papers for name in paper.data)  # better now than after hours
    full = effort.name == FULL.name
    clock = Clock(sum(e.seconds[full] for paper in papers for e in paper.experiments), tell)
    for paper in papers:
        run, shown, measured = Run(effort, shelf), list[Shown](), dict[str, float]()
        for left, experiment in zip(range(len(paper.experiments))[::-1], paper.experiments, strict=True):
            weight = experiment.seconds[full]
            run.tell, run.experiment = partial(clock.told, f"{paper.key}: {experiment.name}", weight), experiment.name
            run.tell(0.0)
            with warnings.catch_warnings():  # papers drive methods to where they warn; what came of it is measured
                warnings.simplefilter("ignore")
                finding = experiment.run(run)
            shown += [one._replace(what=one.what._replace(title=run.named(one.what.title))) for one in finding.shown]
            measured |= {run.named(key): round(value, TINIEST) for key, value in finding.measured.items()}
            clock.done += weight
            notes = [*run.notes, *([f"Experiments that were still to come: {left}."] if left else [])]
            yield Report(paper, list(shown), [judge(claim, measured) for claim in paper.claims], notes)
