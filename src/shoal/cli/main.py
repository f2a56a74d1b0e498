"""The command `shoal`. Results go to stdout, all else to stderr.

Exit codes: 0 done, 1 internal error, 2 usage, 3 bad data, 4 no memory or disk, 5 model or checkpoint rejected, 130 and 143
after SIGINT and SIGTERM. An error is one line; `--debug` adds the traceback. Whatever is slow to import is imported by the
command that needs it, when it runs.
"""

from __future__ import annotations

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
from .errors import USAGE, as_typed, complain, explain
from .export import export
from .fit import fit
from .inspect import inspect
from .options import Settings, debug_option
from .predict import predict
from .reproduce import reproduce
from .resume import resume
from .stopping import Interrupted, stopping
from .sweep import sweep


class InOrder(click.Group):
    """Commands as they were named, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shoal")
@debug_option
@click.pass_context
def shoal(context: click.Context) -> None:
    """Clustering for data too big, too wide or too slow for the usual tools."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(USAGE)


for command in (fit, predict, inspect, compare, sweep, resume, export, demo, reproduce):
    shoal.add_command(command)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    complain(f"warning: {as_typed(str(message))}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the caller: no file opened later may take its number
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115, open to the end
    with stopping() as stopper, warnings.catch_warnings():
        warnings.showwarning = _show_warning
        code = _run(arguments, Settings(stopper=stopper))
    try:
        sys.stdout.flush()
    except OSError:  # told above; Python must not try again on its way out
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if stopper.number:  # who is in a hurry does not wait for Python to tidy up
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _run(arguments: Sequence[str] | None, settings: Settings) -> int:
    try:
        return shoal.main(arguments, "shoal", standalone_mode=False, obj=settings) or 0
    except (Exception, Interrupted, KeyboardInterrupt) as error:
        cause = (error.__cause__ or error) if isinstance(error, click.Abort) else error  # which click puts in its place
        code = explain(settings.stopper.error() if isinstance(cause, Interrupted | KeyboardInterrupt) else cause)
        if settings.debug:
            traceback.print_exception(error)
        return code
