"""Errors as the command line tells them: one line on stderr that says what, where and how to mend it, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

import click

from ..exceptions import InvalidModelError

INTERNAL, USAGE, BAD_DATA, NO_ROOM, REJECTED = 1, 2, 3, 4, 5
FLAGS = r"\b(columns|id_column|text_column|array|header|delimiter|zero_based|scratch)=(?=[\s,.]|$)"  # as `open_rows` has them
SWITCHES = {
    **{"header=True": "--header", "header=False": "--no-header"},
    **{"zero_based=True": "--zero-based", "zero_based=False": "--one-based"},
}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BadData(click.ClickException):
    """The data can't be used."""

    exit_code = BAD_DATA


class NoRoom(click.ClickException):
    """Memory or disk would not do."""

    exit_code = NO_ROOM


class Gone(NoRoom):
    """The workers of a fit are gone. It can go on with others."""


class Turned(click.ClickException):
    """A model, a checkpoint or the notes of a run that can't be trusted."""

    exit_code = REJECTED


class Signalled(click.ClickException):
    """Stopped from outside, in order."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number  # type: ignore[misc]


@contextlib.contextmanager
def reading_data() -> Iterator[None]:
    """What the library refuses at its door is the data's fault, not a bug."""
    try:
        yield
    except (ValueError, EOFError) as error:
        kind = Turned if isinstance(error, InvalidModelError) else BadData
        raise kind(as_typed(str(error))) from error


def as_typed(message: str) -> str:
    """Say what `open_rows` calls by the names of its parameters by those of the options."""
    for name, option in SWITCHES.items():
        message = re.sub(rf"\b{name}\b", option, message)
    return re.sub(FLAGS, lambda found: f"--{found[1].replace('_', '-')}", message)


@contextlib.contextmanager
def opening(path: object) -> Iterator[None]:
    """The same, where a file is opened: it may be out of reach, or need a package that is not there."""
    try:
        with reading_data():
            yield
    except ImportError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        if error.errno in FULL:
            raise
        raise BadData(f"{path}: can't be read ({error.strerror or error}): check the file and who may read it.") from error


def one_line(text: object) -> str:
    """Text that can't break the line or steer the terminal."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)


def say(text: str) -> None:
    """On stderr; if nobody listens there, the work goes on."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def complain(text: object) -> None:
    say(f"shoal: {one_line(text)}")


def explain(error: BaseException) -> int:
    """Say what went wrong; return the exit code."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "shoal"
        complain(f"{error.format_message()} (see {command} --help)")
        return USAGE
    if isinstance(error, click.ClickException):
        complain(error.format_message())
        return error.exit_code
    full = isinstance(error, OSError) and error.errno in FULL
    if full or isinstance(error, MemoryError):
        complain(f"out of {'disk' if full else 'memory'}: {str(error) or 'free some and run again'}")
        return NO_ROOM
    if isinstance(error, OSError) and error.filename is not None:
        complain(f"{error.filename}: {error.strerror or error}: check the disk and who may read and write there")
        return NO_ROOM
    complain(f"internal error: {type(error).__name__}: {error} (--debug shows where)")
    return INTERNAL
