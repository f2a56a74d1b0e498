"""`shoal fit`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from .engine import check_distributable_method, check_engine, engine_options, running_engine
from .methods import method_option, set_option
from .options import COUNT, DATA, ImageShape, fit_options, force_option, rows_options, watch_options
from .settings import EngineSettings, FitSettings


@click.command(short_help="Cluster the rows of a file.")
@click.argument("data", type=DATA)
@click.option("-k", "--clusters", type=COUNT, required=True, help="Number of clusters.")
@click.option("-o", "--output", type=click.Path(), required=True, metavar="FOLDER", help="Folder for the output files.")
@method_option
@set_option
@fit_options
@engine_options
@rows_options
@click.option("--text-column", type=str, help="Text column to show next to rows in the report.")
@click.option("--image", type=ImageShape(), help="Show rows as images of this shape in the report, such as 28x28.")
@click.option("--join", is_flag=True, help="Write the whole table with the labels, not the identifiers alone.")
@click.option("--no-report", "report", flag_value=False, default=True, type=bool, help="Do not write a report.")
@force_option
@watch_options
def fit(data: str, output: str, force: bool, progress: str, quiet: bool, as_json: bool, **options: Any) -> None:
    """Cluster the rows of DATA and write the model, labels, history and a report to a folder.

    DATA is a file or a folder of files. A fit that was stopped can be continued with `shoal resume`.

    Example: shoal fit rows.npy -k 100 -o out
    """
    from . import estimators, run
    from .data import check_image, is_small, open_data
    from .folder import check_output_folder, lock_folder
    from .labels import check_join, check_labels_path, labels_file
    from .methods import INITIALIZATIONS, parse_assignments
    from .output import show
    from .plan import check_clusters, limit_threads
    from .progress import progress_reporter
    from .results import summary_lines

    engine = EngineSettings(options["engine"], options.pop("scheduler"), options.pop("workers"))
    settings = FitSettings(**{**options, "extra": parse_assignments(options["extra"])})
    folder = Path(output)
    check_engine(engine)
    inputs = [data] if settings.init is None or settings.init in INITIALIZATIONS else [data, settings.init]
    check_output_folder(folder, force, *inputs)
    is_early = is_small(data)
    if not is_early:
        check_distributable_method(estimators.make_estimator(settings), settings.method, engine)
    messages = list[str]()
    with progress_reporter(progress, quiet, settings.time) as reporter:
        reporter.status("opening the data")
        with run.record_warnings(messages):
            rows = open_data(data, settings)
        if is_early:  # errors in the data come first, since the checks of the method need slow imports
            check_distributable_method(estimators.make_estimator(settings), settings.method, engine)
        if settings.join:
            check_join(rows, data)
        check_labels_path(folder / labels_file(rows, data, settings.join), False)
        check_image(rows, settings.image)
        check_clusters(settings.clusters, rows.shape[0])
        settings = limit_threads(rows, settings)
        if settings.time is not None:
            reporter.status("compiling, or loading compiled code")
            estimators.compile_kernels(rows, settings)
        with lock_folder(folder):
            check_output_folder(folder, force, *inputs)  # again: another process may have written before the lock
            command = shlex.join(["shoal", *sys.argv[1:]])
            with run.start_run(folder, data, settings, command) as record, running_engine(engine):
                result = run.run_fit(folder, record, rows, reporter, engine, messages)
    show(result, as_json, summary_lines(result))
