"""The command `shoal`. Results go to stdout, everything else to stderr.

Exit codes: 0 success, 1 internal error, 2 usage error, 3 invalid data, 4 out of memory or disk space, 5 model or checkpoint
rejected, 130 and 143 after SIGINT and SIGTERM. An error is one line; `--debug` adds the traceback. Slow imports are made by
the command that needs them, when it runs.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import click

from .. import __version__
from .compare import compare
from .demo import demo
from .errors import USAGE, print_error, report_error, with_option_names
from .export import export
from .fit import fit
from .inspect import inspect
from .options import CommandContext, debug_option
from .predict import predict
from .reproduce import reproduce
from .resume import resume
from .stopping import Interrupted, handle_signals
from .sweep import sweep


class OrderedGroup(click.Group):
    """Group that lists commands in the order they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=OrderedGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shoal")
@debug_option
@click.pass_context
def shoal(context: click.Context) -> None:
    """Cluster large data sets: in memory, on disk, or on a Dask cluster."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(USAGE)


for command in (fit, predict, inspect, compare, sweep, resume, export, demo, reproduce):
    shoal.add_command(command)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_error(f"warning: {with_option_names(str(message))}")


def _prepare_streams() -> None:
    """Replace standard streams that the caller closed, and let no text fail to be printed."""
    for number in range(3):  # a file opened later must not get the descriptor of a standard stream
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115, open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names may have characters that its encoding does not have
        sys.stdout.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its exit code."""
    _prepare_streams()
    with handle_signals() as signals, warnings.catch_warnings():
        warnings.showwarning = _show_warning
        code = _run(arguments, CommandContext(signals=signals))
    try:
        sys.stdout.flush()
    except OSError:  # ignored; Python must not try to flush again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if signals.number:  # exit at once, without the cleanup of the interpreter
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _run(arguments: Sequence[str] | None, context: CommandContext) -> int:
    try:
        return shoal.main(arguments, "shoal", standalone_mode=False, obj=context) or 0
    except (Exception, Interrupted, KeyboardInterrupt) as error:
        # click raises Abort in place of a KeyboardInterrupt
        cause = (error.__cause__ or error) if isinstance(error, click.Abort) else error
        code = report_error(context.signals.to_error() if isinstance(cause, Interrupted | KeyboardInterrupt) else cause)
        if context.debug:
            traceback.print_exception(error)
        return code
