"""`shoal fit`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from .engine import check_engine, check_method, engine_options, working
from .methods import method_option, set_option
from .options import COUNT, DATA, Picture, fit_options, force_option, rows_options, watch_options


@click.command()
@click.argument("data", type=DATA)
@click.option("-k", "--clusters", type=COUNT, required=True, help="How many clusters.")
@click.option("-o", "--output", type=click.Path(), required=True, metavar="FOLDER", help="Where the files go.")
@method_option
@set_option
@fit_options
@engine_options
@rows_options
@click.option("--text-column", type=str, help="A column of text that the report shows beside rows.")
@click.option("--image", type=Picture(), help="Shape of the pictures that rows are, for the report: 28x28.")
@click.option("--no-report", "report", flag_value=False, default=True, type=bool, help="Write no report.")
@force_option
@watch_options
def fit(data: str, output: str, force: bool, progress: str, quiet: bool, as_json: bool, **settings: Any) -> None:
    """Cluster the rows of DATA. Model, labels, history and a report go into a folder."""
    from . import run
    from .data import check_image, open_data
    from .folder import check, locked
    from .methods import SEEDINGS, assignments, estimator, warm
    from .output import need_parquet, show
    from .plan import check_clusters, check_memory
    from .progress import watching

    settings["extra"] = assignments(settings["extra"])
    folder = Path(output)
    check_engine(settings)
    inputs = [data] if settings["init"] in (None, *SEEDINGS) else [data, settings["init"]]
    check(folder, force, *inputs)
    if settings["id_column"] is not None:
        need_parquet()
    check_method(estimator(settings["method"], settings["clusters"], settings), settings)
    with watching(progress, quiet, settings["time"]) as watch:
        watch.note("opening the data")
        rows = open_data(data, settings)
        check_image(rows, settings["image"])
        check_clusters(settings["clusters"], rows.shape[0])
        check_memory(rows, settings)
        if settings["time"] is not None:
            watch.note("loading the program's parts, or compiling them if this is the first time")
            warm(settings["method"], rows, settings)
        with locked(folder):
            check(folder, force, *inputs)  # once more, now that nobody else can put anything there
            with run.begun(folder, data, settings, shlex.join(["shoal", *sys.argv[1:]])) as notes, working(settings):
                result = run.carry_out(folder, notes, rows, watch, settings)
    show(result, as_json, run.lines(result))
