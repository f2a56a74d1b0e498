"""`shoal compare`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .methods import COMPARABLE_METHODS, REGISTRY
from .options import COUNT, DATA, fit_options, force_option, rows_options, watch_options
from .settings import FitSettings


@click.command(short_help="Compare the energy and time of several methods.")
@click.argument("data", type=DATA)
@click.option("-k", "--clusters", type=COUNT, required=True, help="Number of clusters.")
@click.option("--methods", required=True, metavar="A,B,C", help=f"Comma-separated methods: {', '.join(COMPARABLE_METHODS)}.")
@click.option("-o", "--output", type=click.Path(), help="Write a report to this HTML file.")
@fit_options
@rows_options
@force_option
@watch_options
def compare(
    data: str,
    clusters: int,
    methods: str,
    output: str | None,
    force: bool,
    progress: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare the energy and time of several methods on the same rows, from the same initial centroids.

    A time limit (--time) applies to the initial centroids and then to each method separately.

    Example: shoal compare rows.npy -k 100 --methods exact,minibatch -o compare.html
    """
    from ..report import words
    from .data import open_data
    from .estimators import compile_kernels
    from .output import check_output_file, echo_stdout, reporting_write_errors, show, show_table
    from .plan import PROGRAM_BYTES_OF_SEVERAL_FITS, check_clusters, limit_threads_of_all, memory_limit
    from .progress import progress_reporter
    from .trials import initial_centers, report_origin, standardize_rows, timed_fit

    settings = FitSettings(clusters=clusters, **options)
    names = _parse_methods(methods)
    path = None if output is None else Path(output)
    if path is not None:
        check_output_file(path, force, data)
    with progress_reporter(progress, quiet) as reporter, memory_limit(settings):
        rows = open_data(data, settings)
        check_clusters(clusters, rows.shape[0])
        label_bytes = 4.0 * rows.shape[0] * (len(names) - 1)  # of the models before
        extra = PROGRAM_BYTES_OF_SEVERAL_FITS + label_bytes
        fits = limit_threads_of_all(rows, [replace(settings, method=name) for name in names], extra)
        rows = standardize_rows(rows, data, settings)
        reporter.status("compiling, or loading compiled code")
        for fit in fits:
            compile_kernels(rows, fit)
        reporter.status("initializing the centroids")
        centers = initial_centers(rows, min(fits, key=lambda fit: fit.threads or math.inf))
        runs = []
        for fit in fits:
            reporter.status(f"fitting {fit.method}")
            runs.append((fit.method, *timed_fit(rows, centers, fit, reporter)))
        if path is not None:
            from ..report import Curve, Trial, write_compare

            trials = [Trial(n, Curve.of(m.history_), m.inertia_, s, m.n_iter_, m.stop_reason_) for n, m, s in runs]
            with reporting_write_errors(path):
                write_compare(path, trials, report_origin(data, f"{len(names)} methods", settings.seed))
    results = [
        {"method": n, "energy": m.inertia_, "seconds": s, "steps": m.n_iter_, "stopped": m.stop_reason_} for n, m, s in runs
    ]
    if as_json:
        show({"data": data, "rows": rows.shape[0], "clusters": clusters, "methods": results, "report": output}, True, {})
        return
    least = min((t["energy"] for t in results if math.isfinite(t["energy"])), default=math.nan)
    above = [words.percent(words.above(t["energy"], least)) for t in results]
    cells = [
        [t["method"], f"{t['energy']:.6g}", more, f"{t['seconds']:.2f}", t["steps"], words.ENDS.get(t["stopped"], t["stopped"])]
        for t, more in zip(results, above, strict=True)
    ]
    show_table(["method", "energy", "above best", "seconds", "steps", "ended"], cells)
    if output is not None:
        echo_stdout(f"report: {output}")


def _parse_methods(text: str) -> list[str]:
    """Return the method names without duplicates. Raise if one is unknown or cannot be compared."""
    names = list(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    for name in names:
        if name not in COMPARABLE_METHODS:
            reason = "cannot be compared by k-means energy" if name in REGISTRY else "is not a method"
            raise click.BadParameter(f"{name!r} {reason}: use {', '.join(COMPARABLE_METHODS)}.", param_hint="--methods")
    if not names:
        raise click.BadParameter("contains no method.", param_hint="--methods")
    return names
