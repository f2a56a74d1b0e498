"""`shoal resume`."""

from __future__ import annotations

from pathlib import Path

import click

from .options import COUNT, TIME, watch_options


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--time", type=TIME, help="Another limit on time, from now on.")
@click.option("--threads", type=COUNT, help="Threads to use from now on.")
@watch_options
def resume(folder: str, time: float | None, threads: int | None, progress: str, quiet: bool, as_json: bool) -> None:
    """Go on with a fit that was stopped or killed. It ends with the result it would have had."""
    from . import run
    from .folder import locked, read_notes, tidy
    from .output import show
    from .progress import watching

    place = Path(folder)
    read_notes(place)  # before anything is put there
    with locked(place):
        notes = read_notes(place)
        notes["settings"] |= {name: value for name, value in (("time", time), ("threads", threads)) if value is not None}
        if notes.get("status") == "done":
            click.echo("Nothing is left to do.", err=True)
            result = notes["result"]
        else:
            tidy(place)
            with watching(progress, quiet, notes["settings"].get("time")) as watch:
                result = run.carry_out(place, notes, run.reopen(notes), watch)
    show(result, as_json, run.lines(result))
