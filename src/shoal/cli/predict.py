"""`shoal predict`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .engine import check_engine, engine_options, running_engine
from .options import DATA, THREADS, force_option, rows_options, watch_options
from .settings import EngineSettings, RowSettings


@click.command(short_help="Assign new rows to the clusters of a model.")
@click.argument("model", type=DATA)
@click.argument("data", type=DATA)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="File for the labels: .npy, or .parquet for identifiers and labels.",
)
@click.option("--threads", type=THREADS, help="Number of threads.")
@rows_options
@engine_options
@force_option
@watch_options
def predict(
    model: str,
    data: str,
    output: str,
    threads: int | None,
    force: bool,
    progress: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Assign the rows of DATA to the clusters of a MODEL written by `shoal fit`.

    MODEL is a model file, or the folder of a fit.

    Example: shoal predict out new.npy -o labels.npy
    """
    from .data import find_model
    from .output import check_output_file, require_parquet, show, write_labels
    from .progress import progress_reporter

    model = find_model(model)
    engine = EngineSettings(options.pop("engine"), options.pop("scheduler"), options.pop("workers"))
    settings = RowSettings(**options)
    path = Path(output)
    if path.suffix not in (".npy", ".parquet"):
        raise click.UsageError(f"{path}: must end in .npy or .parquet.")
    if path.suffix == ".parquet":
        require_parquet()
    elif settings.id_column is not None:
        raise click.UsageError(f"{path}: an npy file cannot hold identifiers: name a .parquet file.")
    check_engine(engine)
    check_output_file(path, force, model, data)
    with progress_reporter(progress, quiet) as reporter:
        reporter.status("assigning labels")
        with running_engine(engine):
            rows, labels, k = _predict_labels(model, data, threads, settings)
        write_labels(path, labels, rows.id_column)
    import numpy as np

    sizes = np.bincount(labels, minlength=k)
    result = {"model": model, "data": data, "rows": len(labels), "clusters": k, "sizes": sizes, "labels": str(path)}
    used = int(np.count_nonzero(sizes))
    show(result, as_json, {"rows": f"{len(labels):,}", "clusters": f"{used:,} of {k:,} are not empty", "labels": path})


def _predict_labels(model: str, data: str, threads: int | None, settings: RowSettings) -> tuple[Any, Any, int]:
    """Return the rows, their labels and the number of clusters."""
    import shoal

    from ..formats.readers import option_applies
    from .errors import RejectedFileError, reporting_data_errors, reporting_open_errors

    with reporting_open_errors(model):
        fitted = shoal.load(model)
    if not hasattr(fitted, "predict"):
        raise RejectedFileError(
            f"{model}: holds a {type(fitted).__name__}, which cannot assign labels: name a model written by `shoal fit`."
        )
    inner = getattr(fitted, "estimator_", fitted)
    if threads is not None:
        inner.n_threads = threads
    if option_applies("n_features", Path(data)):  # svmlight files do not store trailing empty columns
        settings = replace(settings, n_features=getattr(fitted, "n_features_in_", None))
    rows = _open_columns(data, settings, getattr(fitted, "feature_names_in_", None))
    try:
        with reporting_data_errors():
            return rows, fitted.predict(rows), len(getattr(inner, "kmeans_", inner).cluster_centers_)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise RejectedFileError(
            f"{model}: cannot assign labels ({type(error).__name__}: {error}): fit the model again."
        ) from error


def _open_columns(data: str, settings: RowSettings, known: Any) -> Any:
    """Open the columns of the model by name, in its order; open all columns if the model or the file has no names."""
    from .data import open_data
    from .errors import InvalidDataError

    if known is None or settings.columns is not None:
        return open_data(data, settings)
    try:
        rows = open_data(data, replace(settings, columns=list(known)))
    except InvalidDataError:
        rows = open_data(data, settings)
        if rows.feature_names is not None:
            raise
        return rows
    # In a file without names, a name such as "7" has selected column number 7.
    return open_data(data, settings) if rows.feature_names is None else rows
