"""Exceptions and exit codes of the command line. Each error is one line on stderr: what failed, where, and the remedy."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import click

from ..exceptions import InvalidModelError
from ..formats.errors import DISK_FULL

INTERNAL, USAGE, BAD_DATA, NO_ROOM, REJECTED = 1, 2, 3, 4, 5  # exit codes; NO_ROOM: out of memory or disk space
# Parameters of `open_rows` as its messages write them ("header="), and the options of the command line for them.
PARAMETERS = r"\b(columns|id_column|text_column|array|header|delimiter|zero_based|scratch)=(?=[\s,.]|$)"
SWITCHES = {
    **{"header=True": "--header", "header=False": "--no-header"},
    **{"zero_based=True": "--zero-based", "zero_based=False": "--one-based"},
}


class InvalidDataError(click.ClickException):
    """The data cannot be read or clustered."""

    exit_code = BAD_DATA


class ResourceLimitError(click.ClickException):
    """There is not enough memory or disk space."""

    exit_code = NO_ROOM


class WorkersLostError(ResourceLimitError):
    """All workers of a fit were lost. The fit can be resumed on others."""


class RejectedFileError(click.ClickException):
    """A model, a checkpoint or a run record is damaged or does not belong to this run."""

    exit_code = REJECTED


class StoppedBySignalError(click.ClickException):
    """The command was stopped by a signal."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number  # type: ignore[misc]


@contextlib.contextmanager
def reporting_data_errors() -> Iterator[None]:
    """Turn validation errors of the library into errors of the command line."""
    try:
        yield
    except (ValueError, EOFError) as error:
        error_type = RejectedFileError if isinstance(error, InvalidModelError) else InvalidDataError
        raise error_type(with_option_names(str(error))) from error


def with_option_names(message: str) -> str:
    """Replace parameter names of `open_rows` in a message by the names of the command-line options."""
    for name, option in SWITCHES.items():
        message = re.sub(rf"\b{name}\b", option, message)
    return re.sub(PARAMETERS, lambda match: f"--{match[1].replace('_', '-')}", message)


@contextlib.contextmanager
def reporting_open_errors(path: object) -> Iterator[None]:
    """Like `reporting_data_errors`, and also report files that cannot be read and packages that are not installed."""
    try:
        with reporting_data_errors():
            yield
    except ImportError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        reason = error.strerror or error
        raise InvalidDataError(f"{path}: cannot be read ({reason}): check that it exists and its permissions.") from error


def one_line(text: object) -> str:
    """Return the text on one line, with control characters escaped so that they cannot affect the terminal."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)


def echo_stderr(text: str) -> None:
    """Print to stderr. Ignore errors, such as a closed pipe: they must not end a fit."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def print_error(text: object) -> None:
    """Print one line to stderr, prefixed by the name of the program."""
    echo_stderr(f"shoal: {one_line(text)}")


def report_error(error: BaseException) -> int:
    """Print the error to stderr and return the exit code."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "shoal"
        print_error(f"{error.format_message()} (see {command} --help)")
        return USAGE
    if isinstance(error, click.ClickException):
        print_error(error.format_message())
        return error.exit_code
    is_disk_full = isinstance(error, OSError) and error.errno in DISK_FULL
    if is_disk_full or isinstance(error, MemoryError):
        resource = "disk space" if is_disk_full else "memory"
        print_error(f"out of {resource}: {str(error) or 'free some and run the command again'}")
        return NO_ROOM
    if isinstance(error, OSError) and error.filename is not None:
        print_error(f"{error.filename}: {error.strerror or error}: check the disk and the permissions")
        return NO_ROOM
    print_error(f"internal error: {type(error).__name__}: {error} (use --debug for the traceback)")
    return INTERNAL
