"""`shoal resume`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .engine import check_engine, engine_options, running_engine
from .options import DATA, THREADS, TIME, watch_options
from .run_record import RunRecord
from .settings import EngineSettings

PATHS = ("data", "init", "scratch")  # options that replace a stored path


@click.command(short_help="Continue a fit that was stopped or killed.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--time", type=TIME, help="New time limit, counted from now.")
@click.option("--threads", type=THREADS, help="New number of threads.")
@click.option("--data", type=DATA, help="Path of the data, if they were moved or if the folder was made by another user.")
@click.option("--init", type=DATA, help="Path of the file with initial centroids, in the same cases.")
@click.option("--scratch", type=click.Path(exists=True, file_okay=False), help="Folder for temporary files.")
@engine_options
@watch_options
def resume(folder: str, progress: str, quiet: bool, as_json: bool, **options: Any) -> None:
    """Continue a fit that was stopped or killed. The result is the same as without the interruption.

    Paths stored in a folder that another user or machine made are not trusted: name the data with --data, and the file of
    initial centroids with --init, if there is one. The address of a Dask cluster is never stored: name it with --engine dask
    and --scheduler or --workers.
    """
    from . import estimators, run
    from .folder import check_regular_files, lock_folder, remove_temporary_files
    from .output import show
    from .progress import progress_reporter
    from .results import summary_lines
    from .run_record import read_run_record, write_run_record

    place = Path(folder)
    check_regular_files(place)
    read_run_record(place)  # fails before the lock file is created
    with lock_folder(place):
        record, is_signed = read_run_record(place)
        if record["status"] == "done":
            click.echo("The fit is already complete.", err=True)
            result = record["result"]
        else:
            engine = _select_engine(record, options)
            _apply_paths(place, record, is_signed, options)
            remove_temporary_files(place)
            with progress_reporter(progress, quiet, record["settings"].time) as reporter:
                rows = run.reopen_rows(record)
                if not is_signed:  # all its paths now come from this command line, so it can be signed
                    write_run_record(place, record)
                if record["settings"].time is not None:
                    reporter.status("compiling, or loading compiled code")
                    estimators.compile_kernels(rows, record["settings"])
                with running_engine(engine):
                    result = run.run_fit(place, record, rows, reporter, engine)
    show(result, as_json, summary_lines(result))


def _select_engine(record: RunRecord, options: dict[str, Any]) -> EngineSettings:
    """Return the engine of the command line, and put new limits into the record. The result is the same on any engine."""
    engine = EngineSettings(options["engine"], options["scheduler"], options["workers"])
    check_engine(engine)
    if record["settings"].engine == "dask" and engine.engine is None:
        raise click.UsageError(
            "The fit used a Dask cluster, whose address is not stored: use --engine dask with --scheduler ADDRESS or "
            "--workers COUNT, or --engine threads to continue without a cluster."
        )
    changes = {name: options[name] for name in ("engine", "time", "threads") if options[name] is not None}
    record["settings"] = replace(record["settings"], **changes)
    return engine


def _apply_paths(place: Path, record: RunRecord, is_signed: bool, options: dict[str, Any]) -> None:
    """Put the paths of the command line into the record. No other path of an unsigned record is used."""
    from .methods import INITIALIZATIONS

    settings = record["settings"]
    stored = {"data": record["data"], "init": settings.init if settings.init not in INITIALIZATIONS else None}
    if options["init"] is not None and stored["init"] is None:
        raise click.UsageError(f"--init {options['init']}: the fit did not start from a file of centroids: remove it.")
    missing = [name for name, path in stored.items() if path is not None and options[name] is None]
    if missing and not is_signed:
        paths = ", ".join(f"--{name} for {stored[name]}" for name in missing)
        raise click.UsageError(
            f"{place}: its run record was not signed by you on this machine, so its paths are not used: give {paths}."
        )
    if not is_signed:
        settings = replace(settings, scratch=None)
    given = {name: str(Path(options[name]).absolute()) for name in PATHS if options[name] is not None}
    record["data"] = given.pop("data", record["data"])
    record["settings"] = replace(settings, **given)  # type: ignore[arg-type]
