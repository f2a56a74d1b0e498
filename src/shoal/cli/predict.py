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
    help="File for the labels: .npy, or .csv or .parquet with identifiers, distances and second-best clusters.",
)
@click.option("--join", is_flag=True, help="Write the whole table with the labels, not the identifiers alone.")
@click.option("--threads", type=THREADS, help="Number of threads.")
@rows_options
@engine_options
@force_option
@watch_options
def predict(
    model: str,
    data: str,
    output: str,
    join: bool,
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
    from .labels import check_join, check_labels_path, write_labels
    from .output import check_output_file, show
    from .progress import progress_reporter

    model = find_model(model)
    engine = EngineSettings(options.pop("engine"), options.pop("scheduler"), options.pop("workers"))
    settings = RowSettings(**options)
    path = Path(output)
    check_labels_path(path, join or settings.id_column is not None)
    check_engine(engine)
    check_output_file(path, force, model, data)
    with progress_reporter(progress, quiet) as reporter:
        reporter.status("assigning labels")
        with running_engine(engine):
            fitted, rows, labels, k = _predict_labels(model, data, threads, settings)
        if join:
            check_join(rows, data)
        write_labels(path, fitted, rows, labels, join)
    import numpy as np

    sizes = np.bincount(labels, minlength=k)
    result = {"model": model, "data": data, "rows": len(labels), "clusters": k, "sizes": sizes, "labels": str(path)}
    result["left_out"] = left_out = rows.n_in_file - len(labels)
    used = int(np.count_nonzero(sizes))
    shown = f"{len(labels):,}" + f", and {left_out:,} with missing values, which were left out" * (left_out > 0)
    show(result, as_json, {"rows": shown, "clusters": f"{used:,} of {k:,} are not empty", "labels": path})


def _predict_labels(model: str, data: str, threads: int | None, settings: RowSettings) -> tuple[Any, Any, Any, int]:
    """Return the model, the rows, their labels and the number of clusters."""
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
    rows = _open_columns(data, settings, fitted)
    try:
        with reporting_data_errors():
            return fitted, rows, fitted.predict(rows), len(getattr(inner, "kmeans_", inner).cluster_centers_)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise RejectedFileError(
            f"{model}: cannot assign labels ({type(error).__name__}: {error}): fit the model again."
        ) from error


def _open_columns(data: str, settings: RowSettings, model: Any) -> Any:
    """Open the columns of the model by name, in its order; open all columns if the model or the file has no names."""
    from .data import open_data
    from .errors import InvalidDataError

    preprocessing, known = (getattr(model, name, None) for name in ("preprocessing_", "feature_names_in_"))
    if preprocessing is not None:
        _refuse_choices(settings)
        return open_data(data, replace(settings, preprocessing=preprocessing))
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


def _refuse_choices(settings: RowSettings) -> None:
    """Raise a usage error for options that choose features, which the model has chosen."""
    for name in ("columns", "exclude", "categorical", "dates"):
        if getattr(settings, name) is not None:
            raise click.UsageError(f"--{name}: the model was fitted to a table and chooses the columns by name: remove it.")
