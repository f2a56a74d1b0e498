"""The command `shoal`. Results go to stdout, all else to stderr.

Exit codes: 0 done, 1 internal error, 2 usage, 3 bad data, 4 no memory or disk, 130 interrupted. An error is one line;
`--debug` adds the traceback. Whatever is slow to import is imported by the command that needs it.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from .. import __version__

INTERNAL, USAGE, BAD_DATA, NO_ROOM, INTERRUPTED = 1, 2, 3, 4, 130


@dataclass
class Settings:
    """What holds for every command."""

    debug: bool = False


class BadData(click.ClickException):
    """The data can't be used. The message says what, where and how to mend it."""

    exit_code = BAD_DATA


@contextmanager
def reading_data() -> Iterator[None]:
    """What the library refuses at its door is the data's fault, not a bug."""
    try:
        yield
    except (ValueError, EOFError) as error:
        raise BadData(str(error)) from error


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).debug = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, is_eager=True, callback=_set_debug, help="Show tracebacks of errors."
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shoal")
@debug_option
@click.pass_context
def shoal(context: click.Context) -> None:
    """Clustering for data too big, too wide or too slow for the usual tools."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(USAGE)


@shoal.command()
@click.option("-k", "--clusters", type=click.IntRange(1, 10_992), default=10, show_default=True, help="How many clusters.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of the random numbers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@debug_option
def demo(clusters: int, seed: int, as_json: bool) -> None:
    """Cluster 10,992 handwritten digits, a data set that ships with Shoal."""
    if not as_json:
        click.echo("Clustering handwritten digits (the first run compiles for some seconds)", err=True)
    from . import demo as show

    with reading_data():
        result = show.run(clusters, seed)
    (show.print_json if as_json else show.print_table)(result)


def one_line(text: object) -> str:
    """Text that can't break the line or steer the terminal."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)


def _complain(text: object) -> None:
    click.echo(f"shoal: {one_line(text)}", err=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _complain(f"warning: {message}")


def _explain(error: BaseException) -> int:
    """Say what went wrong; return the exit code."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "shoal"
        _complain(f"{error.format_message()} (see {command} --help)")
        return USAGE
    if isinstance(error, click.ClickException):
        _complain(error.format_message())
        return error.exit_code
    if isinstance(error, click.Abort):
        _complain("interrupted")
        return INTERRUPTED
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or isinstance(error, MemoryError):
        _complain(f"out of {'disk' if full else 'memory'}: {str(error) or 'free some and run again'}")
        return NO_ROOM
    _complain(f"internal error: {type(error).__name__}: {error} (--debug shows where)")
    return INTERNAL


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the caller: no file opened later may take its number
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115, open to the end
    settings = Settings()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = shoal.main(arguments, "shoal", standalone_mode=False, obj=settings) or 0
            sys.stdout.flush()
        except (Exception, click.Abort) as error:
            code = _explain(error)
            if settings.debug:
                traceback.print_exception(error)
    try:
        sys.stdout.flush()
    except OSError:  # told above; Python must not try again on its way out
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
