"""Options that several commands share, and what can be typed for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from .stopping import Stopper

Command = TypeVar("Command", bound=Callable[..., Any])

TIMES = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SIZES = {"": 1, "B": 1} | {f"{c}{end}": 10 ** (3 * i) for i, c in enumerate("KMGT", 1) for end in ("", "B")}
SIZES |= {f"{c}IB": 1 << (10 * i) for i, c in enumerate("KMGT", 1)}
MAX_COLUMNS = 1_000_000  # that one range of --columns may stand for: each becomes a number in memory and in run.json
MAX_THREADS = 1024  # as in the library (core.parameters), whose import takes long


@dataclass
class Settings:
    """What holds for every command."""

    debug: bool = False
    stopper: Stopper = field(default_factory=Stopper)


def settings() -> Settings:
    """Of the command that runs."""
    return click.get_current_context().ensure_object(Settings)


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A positive number with a unit."""

    def __init__(self, name: str, units: dict[str, float], example: str) -> None:
        self.name, self.units, self.example = name, units, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)\s*", value)
        units = {unit.lower(): size for unit, size in self.units.items()}
        if found is None or found[2].lower() not in units or not (number := float(found[1])) > 0:
            self.fail(f"{value!r} is no {self.name}: write one such as {self.example}.", param, ctx)
        return number * units[found[2].lower()]


class Picture(click.ParamType):  # type: ignore[type-arg]
    """Height x width, or height x width x 3."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not isinstance(value, str):
            return tuple(value)
        if not re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){1,2}", value):
            self.fail(f"{value!r} is no shape of a picture: write one such as 28x28 or 32x32x3.", param, ctx)
        return tuple(map(int, value.split("x")))


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names or numbers between commas; 2:5 stands for 2,3,4. A number is the name of a column, if one has that name."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str | int]:
        if not isinstance(value, str):
            return list(value)
        out: list[str | int] = []
        for item in filter(None, (part.strip() for part in value.split(","))):
            span = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", item)
            if span and int(span[2]) - int(span[1]) > MAX_COLUMNS:
                self.fail(f"{item!r} is more than {MAX_COLUMNS:,} columns: leave the option out for all.", param, ctx)
            out += range(int(span[1]), int(span[2])) if span else [item]
        if not out:
            self.fail(f"{value!r} names nothing: write names or numbers between commas.", param, ctx)
        return out


TIME = Quantity("time", TIMES, "90s, 5m or 2h")
SIZE = Quantity("size", dict(SIZES), "512MB, 2GB or 1GiB")
COUNT = click.IntRange(1)
THREADS = click.IntRange(1, MAX_THREADS)
SEED = click.IntRange(0, 2**32 - 1)


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).debug = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, is_eager=True, callback=_set_debug, help="Show tracebacks of errors."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
force_option = click.option("--force", is_flag=True, help="Replace what is there already.")


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


DATA = click.Path(exists=True, readable=True)
ROWS = ("columns", "id_column", "limit_rows", "array", "header", "delimiter", "zero_based", "scratch")
rows_options = together(
    click.option(
        "--columns", type=Names(), help="Columns to cluster by, between commas: names or numbers from 0 (2:5 is 2,3,4)."
    ),
    click.option("--id-column", type=str, help="A column that names the rows."),
    click.option("--limit-rows", type=COUNT, help="Only so many rows, from the first on."),
    click.option("--array", type=str, help="Which array of an npz, HDF5 or Zarr file."),
    click.option("--header/--no-header", default=None, help="Whether the first line of a CSV file names the columns."),
    click.option("--delimiter", type=str, help="Between the fields of a CSV file."),
    click.option("--zero-based/--one-based", default=None, help="Where the columns of an svmlight file begin to count."),
    click.option("--scratch", type=click.Path(exists=True, file_okay=False), help="Folder for scratch files."),
)
fit_options = together(
    click.option("--init", default=None, help="k-means++, k-means||, afk-mc2, random, or a file of centres (npy or a model)."),
    click.option("--metric", type=click.Choice(["euclidean", "cosine"]), default="euclidean", show_default=True),
    click.option("--standardize", is_flag=True, help="Give every column mean 0 and variance 1 first."),
    click.option("--seed", type=SEED, default=0, show_default=True, help="Of the random numbers."),
    click.option("--time", type=TIME, help="End the fit in time, with the best so far: 90s, 5m, 2h."),
    click.option("--memory", type=SIZE, help="Keep below: 512MB, 2GB. Refused at once if that can't be."),
    click.option("--threads", type=THREADS, help="Threads to use (the result does not depend on it)."),
)
watch_options = together(
    click.option(
        "--progress",
        type=click.Choice(["auto", "bar", "plain", "json", "none"]),
        default="auto",
        show_default=True,
        help="On stderr: a bar on a terminal, lines elsewhere; json for machines.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress."),
    json_option,
    debug_option,
)
