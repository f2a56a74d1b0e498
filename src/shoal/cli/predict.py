"""`shoal predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .engine import check_engine, engine_options, working
from .options import DATA, THREADS, force_option, rows_options, watch_options


@click.command()
@click.argument("model", type=DATA)
@click.argument("data", type=DATA)
@click.option("-o", "--output", type=click.Path(), required=True, help="Labels: npy, or parquet for ids and labels.")
@click.option("--threads", type=THREADS, help="Threads to use.")
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
    **settings: Any,
) -> None:
    """Label the rows of DATA by a MODEL that `shoal fit` wrote."""
    from .output import need_parquet, refuse, show, write_labels
    from .progress import watching

    path = Path(output)
    if path.suffix not in (".npy", ".parquet"):
        raise click.UsageError(f"{path}: ends in neither .npy nor .parquet: name a file that does.")
    if path.suffix == ".parquet":
        need_parquet()
    elif settings["id_column"] is not None:
        raise click.UsageError(f"{path}: npy has no room for ids: name a file that ends in .parquet.")
    check_engine(settings)
    refuse(path, force, model, data)
    with watching(progress, quiet) as watch:
        watch.note("labelling the rows")
        with working(settings):
            rows, labels, k = _label(model, data, threads, settings)
        write_labels(path, labels, rows.id_column)
    import numpy as np

    sizes = np.bincount(labels, minlength=k)
    result = {"model": model, "data": data, "rows": len(labels), "clusters": k, "sizes": sizes, "labels": str(path)}
    used = int(np.count_nonzero(sizes))
    show(result, as_json, {"rows": f"{len(labels):,}", "clusters": f"{used:,} of {k:,} have rows", "labels": path})


def _label(model: str, data: str, threads: int | None, settings: dict[str, Any]) -> tuple[Any, Any, int]:
    import shoal

    from ..formats.files import is_for
    from .errors import Turned, opening, reading_data

    with opening(model):
        fitted = shoal.load(model)
    if not hasattr(fitted, "predict"):
        raise Turned(f"{model}: holds a {type(fitted).__name__}, which labels no rows: name a model of `shoal fit`.")
    inner = getattr(fitted, "estimator_", fitted)
    if threads is not None:
        inner.n_threads = threads
    if is_for("n_features", Path(data)):  # svmlight files do not tell of columns that are empty at their end
        settings = {**settings, "n_features": getattr(fitted, "n_features_in_", None)}
    rows = _open(data, settings, getattr(fitted, "feature_names_in_", None))
    try:
        with reading_data():
            return rows, fitted.predict(rows), len(getattr(inner, "kmeans_", inner).cluster_centers_)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise Turned(f"{model}: can't label rows ({type(error).__name__}: {error}): fit it anew.") from error


def _open(data: str, settings: dict[str, Any], known: Any) -> Any:
    """The columns that the model knows, whatever else is there and in whatever order; all, if they have no names."""
    from .data import open_data
    from .errors import BadData

    if known is None or settings["columns"] is not None:
        return open_data(data, settings)
    try:
        rows = open_data(data, {**settings, "columns": list(known)})
    except BadData:
        rows = open_data(data, settings)
        if rows.feature_names is not None:
            raise
        return rows
    return open_data(data, settings) if rows.feature_names is None else rows  # names in digits are no numbers of columns
