"""Select the engine of a command: threads of this process, or Dask workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from .errors import WorkersLostError
from .options import COUNT, combine_options, current_context
from .settings import EngineSettings

engine_options = combine_options(
    click.option("--engine", type=click.Choice(["threads", "dask"]), help="Engine that runs the work.  [default: threads]"),
    click.option(
        "--scheduler", type=str, metavar="ADDRESS", help="Scheduler of a Dask cluster whose workers can read DATA by its path."
    ),
    click.option("--workers", type=COUNT, metavar="COUNT", help="Start this many Dask workers on this machine."),
)


def check_engine(engine: EngineSettings) -> None:
    """Raise a usage error if the engine options contradict each other."""
    if engine.engine != "dask":
        for name, value in (("scheduler", engine.scheduler), ("workers", engine.workers)):
            if value is not None:
                raise click.UsageError(f"--{name} {value} has no effect without --engine dask: add it, or remove --{name}.")
    elif (engine.scheduler is None) == (engine.workers is None):
        raise click.UsageError("--engine dask needs either --scheduler ADDRESS or --workers COUNT, and not both.")


def check_distributable_method(model: Any, method: str, engine: EngineSettings) -> None:
    """Raise a usage error if the method cannot run on Dask workers but is asked to."""
    from ..exceptions import NotDistributableError
    from ..execution.engine import check_distributable

    if engine.engine == "dask":
        try:
            check_distributable(getattr(model, "estimator", model))
        except NotDistributableError as error:
            raise click.UsageError(f"--method {method} does not support --engine dask: {error}") from error


@contextlib.contextmanager
def running_engine(engine: EngineSettings) -> Iterator[None]:
    """Run the body on the selected engine. Connect to the Dask cluster, or start one, for as long as it takes."""
    if engine.engine != "dask":
        yield
        return
    from ..exceptions import ClusterLostError
    from ..execution.engine import Engine

    try:
        from ..distributed.cluster import client_of
    except ImportError as error:
        raise click.UsageError("--engine dask needs the dask package: pip install 'shoal[dask]'.") from error
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(client_of(engine.scheduler, engine.workers or 1))
        except ConnectionError as error:
            raise click.UsageError(str(error)) from error
        try:
            with Engine(client):
                yield
        except ClusterLostError as error:
            raise WorkersLostError(f"{error} {current_context().signals.resume_hint}".strip()) from error
