"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from ..data.sizes import parse_size
from .stopping import SignalHandler

Command = TypeVar("Command", bound=Callable[..., Any])

SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MAX_INT64 = 2**63 - 1
# Limits of --time (seconds) and --memory (bytes). `shoal resume` rejects a run.json with other values.
MIN_SECONDS, MAX_SECONDS, MIN_BYTES, MAX_BYTES = 1e-9, 1e18, 1.0, 1e18
MAX_COLUMNS = 1_000_000  # in one range of --columns; each column is a number in memory and in run.json
MAX_THREADS = 1024  # limit of the library (fit.parameters), repeated here because importing it is slow


@dataclass
class CommandContext:
    """State that every command shares; click passes it as `obj`."""

    debug: bool = False
    signals: SignalHandler = field(default_factory=SignalHandler)


def current_context() -> CommandContext:
    """Return the context of the running command."""
    return click.get_current_context().ensure_object(CommandContext)


class IntegerRange(click.IntRange):
    """Integer within limits. Messages and help call it an integer, not an "integer range"."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(super().convert(value, param, ctx))
        if number > MAX_INT64:
            self.fail(f"{str(value)[:40]!r} is larger than 2^63 - 1: use a smaller number.", param, ctx)
        return number


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Positive time in seconds, or with a unit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)\s*", str(value))
        unit = math.nan if match is None else SECONDS.get(match[2].lower(), math.nan)
        seconds = math.nan if match is None else float(match[1]) * unit
        if not MIN_SECONDS <= seconds <= MAX_SECONDS:  # True for NaN
            self.fail(f"{str(value)[:40]!r} is not a valid time: use for example 90s, 5m or 2h.", param, ctx)
        return seconds


class Size(click.ParamType):  # type: ignore[type-arg]
    """Positive number of bytes, or of a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            size = parse_size(value)
        except ValueError:
            size = math.nan
        if not MIN_BYTES <= size <= MAX_BYTES:  # True for NaN
            self.fail(f"{str(value)[:40]!r} is not a valid size: use for example 512MB, 2GB or 1GiB.", param, ctx)
        return size


class ImageShape(click.ParamType):  # type: ignore[type-arg]
    """Height x width, or height x width x channels."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not isinstance(value, str):
            return tuple(value)
        if not re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){1,2}", value):
            self.fail(f"{value!r} is not an image shape: use for example 28x28 or 32x32x3.", param, ctx)
        return tuple(map(int, value.split("x")))


class ColumnList(click.ParamType):  # type: ignore[type-arg]
    """Comma-separated column names or numbers; 2:5 means 2,3,4. A number refers to the column of that name, if there is one."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str | int]:
        if not isinstance(value, str):
            return list(value)
        columns: list[str | int] = []
        for item in filter(None, (part.strip() for part in value.split(","))):
            span = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", item)
            if span and int(span[2]) - int(span[1]) > MAX_COLUMNS:
                self.fail(f"{item!r} has more than {MAX_COLUMNS:,} columns: omit the option to use all.", param, ctx)
            if span and int(span[2]) <= int(span[1]):
                self.fail(f"{item!r} contains no column: the end of a range is not included, use for example 2:5.", param, ctx)
            columns += range(int(span[1]), int(span[2])) if span else [item]
        if not columns:
            self.fail(f"{value!r} contains no column: give comma-separated names or numbers.", param, ctx)
        return columns


TIME, SIZE = Duration(), Size()
COUNT = IntegerRange(1)
THREADS = IntegerRange(1, MAX_THREADS)
SEED = IntegerRange(0, 2**32 - 1)


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(CommandContext).debug = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, is_eager=True, callback=_set_debug, help="Show the traceback of an error."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
force_option = click.option("--force", is_flag=True, help="Overwrite existing output.")


def combine_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator that adds all the options, in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


DATA = click.Path(exists=True, readable=True)
rows_options = combine_options(
    click.option(
        "--columns", type=ColumnList(), help="Columns to use: comma-separated names or zero-based numbers (2:5 means 2,3,4)."
    ),
    click.option("--id-column", type=str, help="Column with row identifiers; it is not clustered."),
    click.option("--limit-rows", type=COUNT, help="Read only the first rows, at most this many."),
    click.option("--array", type=str, help="Name of the array in an npz, HDF5 or Zarr file."),
    click.option("--header/--no-header", default=None, help="Whether the first line of a CSV file holds column names."),
    click.option("--delimiter", type=str, help="Field delimiter of a CSV file."),
    click.option("--zero-based/--one-based", default=None, help="Numbering of columns in an svmlight file."),
    click.option("--scratch", type=click.Path(exists=True, file_okay=False), help="Folder for temporary files."),
)
fit_options = combine_options(
    click.option(
        "--init",
        default=None,
        help="Initialization: k-means++, k-means||, afk-mc2, random, or a file with centroids (data or a model).",
    ),
    click.option(
        "--metric",
        type=click.Choice(["euclidean", "cosine"]),
        default="euclidean",
        show_default=True,
        help="Distance between rows and centroids.",
    ),
    click.option("--standardize", is_flag=True, help="Scale every column to mean 0 and variance 1 first."),
    click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random number generator."),
    click.option("--time", type=TIME, help="Time limit, such as 90s, 5m or 2h. The best result so far is kept."),
    click.option("--memory", type=SIZE, help="Memory limit, such as 512MB or 2GB. The command fails at once if it is too low."),
    click.option("--threads", type=THREADS, help="Number of threads. The result does not depend on it."),
)
watch_options = combine_options(
    click.option(
        "--progress",
        type=click.Choice(["auto", "bar", "plain", "json", "none"]),
        default="auto",
        show_default=True,
        help="Progress on stderr. auto: a bar on a terminal, plain lines elsewhere.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Do not show progress."),
    json_option,
    debug_option,
)
