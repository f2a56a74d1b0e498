"""Who does the work of a command: threads of this process, or workers of dask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import click

from .errors import Gone
from .options import COUNT, together
from .options import settings as current

ENGINE = ("engine", "scheduler", "workers")
engine_options = together(
    click.option("--engine", type=click.Choice(["threads", "dask"]), help="Who works on the rows; threads, unless it is said."),
    click.option("--scheduler", type=str, metavar="ADDRESS", help="Of a dask cluster whose workers find DATA under its path."),
    click.option("--workers", type=COUNT, help="How many dask workers to start on this machine instead."),
)


def check_engine(settings: Mapping[str, Any]) -> None:
    """Before anything is opened."""
    engine, scheduler, workers = (settings.get(name) for name in ENGINE)
    if engine != "dask":
        for name in ("scheduler", "workers"):
            if settings.get(name) is not None:
                raise click.UsageError(f"--{name} {settings[name]} means nothing without --engine dask: say that, too.")
    elif (scheduler is None) == (workers is None):
        raise click.UsageError("--engine dask needs --scheduler ADDRESS or --workers COUNT, and not both: say which.")


def engine_words(settings: Mapping[str, Any]) -> list[str]:
    """The options by which the same engine is asked for again."""
    return [word for name in ENGINE if settings.get(name) is not None for word in (f"--{name}", str(settings[name]))]


def check_method(model: Any, settings: Mapping[str, Any]) -> None:
    """Before a cluster is asked for what it can't do."""
    from ..exceptions import NotDistributableError
    from ..execution.engine import check_distributable

    if settings.get("engine") == "dask":
        try:
            check_distributable(getattr(model, "estimator", model))
        except NotDistributableError as error:
            raise click.UsageError(f"--method {settings['method']} has no use for --engine dask: {error}") from error


@contextlib.contextmanager
def working(settings: Mapping[str, Any]) -> Iterator[None]:
    """What a command does in here is done by the engine that was asked for."""
    if settings.get("engine") != "dask":
        yield
        return
    from ..exceptions import ClusterLostError
    from ..execution.engine import Engine

    try:
        from ..distributed.cluster import client_of
    except ImportError as error:
        raise click.UsageError("--engine dask needs that package: pip install 'shoal[dask]'.") from error
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(client_of(settings.get("scheduler"), settings.get("workers") or 1))
        except ConnectionError as error:
            raise click.UsageError(str(error)) from error
        try:
            with Engine(client):
                yield
        except ClusterLostError as error:
            raise Gone(f"{error} {current().stopper.advice}".strip()) from error
