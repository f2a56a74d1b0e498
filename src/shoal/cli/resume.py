"""`shoal resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .engine import ENGINE, check_engine, engine_options, working
from .options import COUNT, TIME, watch_options


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--time", type=TIME, help="Another limit on time, from now on.")
@click.option("--threads", type=COUNT, help="Threads to use from now on.")
@engine_options
@watch_options
def resume(folder: str, progress: str, quiet: bool, as_json: bool, **changed: Any) -> None:
    """Go on with a fit that was stopped or killed. It ends with the result it would have had."""
    from . import run
    from .folder import locked, read_notes, tidy
    from .methods import warm
    from .output import show
    from .progress import watching

    place = Path(folder)
    read_notes(place)  # before anything is put there
    with locked(place):
        notes = read_notes(place)
        _change(notes["settings"], changed)
        if notes.get("status") == "done":
            click.echo("Nothing is left to do.", err=True)
            result = notes["result"]
        else:
            tidy(place)
            with watching(progress, quiet, notes["settings"].get("time")) as watch:
                rows = run.reopen(notes)
                if notes["settings"].get("time") is not None:
                    watch.note("loading the program's parts, or compiling them if this is the first time")
                    warm(notes["settings"]["method"], rows, notes["settings"])
                with working(notes["settings"]):
                    result = run.carry_out(place, notes, rows, watch)
    show(result, as_json, run.lines(result))


def _change(settings: dict[str, Any], given: dict[str, Any]) -> None:
    """What another run may do otherwise: the result is the same on any engine. One that is named stands for itself."""
    check = any(given[name] is not None for name in ENGINE)
    if check:
        settings |= {name: None for name in ENGINE if name != "engine" or given["engine"] is not None}
    settings |= {name: value for name, value in given.items() if value is not None}
    if check:
        check_engine(settings)
