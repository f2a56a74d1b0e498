"""`shoal resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .engine import ENGINE, check_engine, engine_options, working
from .options import DATA, THREADS, TIME, watch_options

PATHS = ("data", "init", "scratch")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--time", type=TIME, help="Another limit on time, from now on.")
@click.option("--threads", type=THREADS, help="Threads to use from now on.")
@click.option("--data", type=DATA, help="Where the data are now, or which they are if the folder is somebody else's.")
@click.option("--init", type=DATA, help="The same for the file of centres that the fit began with.")
@click.option("--scratch", type=click.Path(exists=True, file_okay=False), help="Folder for scratch files.")
@engine_options
@watch_options
def resume(folder: str, progress: str, quiet: bool, as_json: bool, **given: Any) -> None:
    """Go on with a fit that was stopped or killed. It ends with the result it would have had.

    A folder that you did not make yourself, as this user on this machine, may name any path: its data have to be typed, by
    --data (and --init, if the fit began with a file of centres). A cluster has to be typed in any case, by --engine dask and
    --scheduler or --workers: its address is never taken from a folder.
    """
    from . import run
    from .folder import check_regular_files, locked, tidy
    from .methods import warm
    from .notes import read_notes, write_notes
    from .output import show
    from .progress import watching

    place = Path(folder)
    check_regular_files(place)
    read_notes(place)  # before anything is put there
    with locked(place):
        notes, own = read_notes(place)
        if notes["status"] == "done":
            click.echo("Nothing is left to do.", err=True)
            result = notes["result"]
        else:
            cluster = _cluster(notes["settings"], given)
            _use_typed_paths(place, notes, own, given)
            tidy(place)
            with watching(progress, quiet, notes["settings"]["time"]) as watch:
                rows = run.reopen(notes)
                if not own:  # now that all paths in them were typed, they are this user's
                    write_notes(place, notes)
                if notes["settings"]["time"] is not None:
                    watch.note("loading the program's parts, or compiling them if this is the first time")
                    warm(notes["settings"]["method"], rows, notes["settings"])
                with working(cluster):
                    result = run.carry_out(place, notes, rows, watch, cluster)
    show(result, as_json, run.lines(result))


def _cluster(settings: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The engine that was typed; notes of a run only say whether it had a cluster. The result is the same on any engine."""
    cluster = {name: given[name] for name in ENGINE}
    check_engine(cluster)
    if settings["engine"] == "dask" and cluster["engine"] is None:
        raise click.UsageError(
            "The fit had a Dask cluster, whose address is not kept: say --engine dask with --scheduler ADDRESS or "
            "--workers COUNT, or --engine threads to go on without one."
        )
    settings |= {name: given[name] for name in ("engine", "time", "threads") if given[name] is not None}
    return cluster


def _use_typed_paths(place: Path, notes: dict[str, Any], own: bool, given: dict[str, Any]) -> None:
    """Put typed paths into the notes. Of a stranger's notes no other path is used."""
    from .methods import SEEDINGS

    settings = notes["settings"]
    named = {"data": notes["data"], "init": settings["init"] if settings["init"] not in SEEDINGS else None}
    if given["init"] is not None and named["init"] is None:
        raise click.UsageError(f"--init {given['init']}: the fit did not begin with a file of centres: leave it out.")
    missing = [name for name, path in named.items() if path is not None and given[name] is None]
    if missing and not own:
        paths = ", ".join(f"--{name} for {named[name]}" for name in missing)
        raise click.UsageError(
            f"{place}: its notes were not signed by you on this machine, and their paths are not used: say which files they "
            f"are, by {paths}."
        )
    if not own:
        settings["scratch"] = None
    typed = {name: str(Path(given[name]).absolute()) for name in PATHS if given[name] is not None}
    notes["data"] = typed.pop("data", notes["data"])
    settings |= typed
