"""`shoal sweep`."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from .errors import reporting_data_errors
from .methods import comparable_method_option
from .options import DATA, fit_options, force_option, rows_options, watch_options
from .settings import FitSettings

MAX_FULL_RANGE = 30  # ranges up to this length, if no step is given, are tried completely
COARSE_COUNTS = 16  # values of k tried in a longer range, geometrically spaced
REFINED_COUNTS = 14  # further values of k tried around the knee
MIN_SAMPLE_ROWS = 20_000  # sample for the silhouette and for initial centroids
INIT_STEPS = 10  # k-means steps on the sample that refine initial centroids
INIT_TIME_SHARE, MIN_FIT_TIME_SHARE = 0.5, 0.25  # shares of a time limit: most for initial centroids, least for the fit
SILHOUETTE_PRODUCTS_PER_SECOND = 2.5e8  # of a time limit: about a quarter of the limit on two cores
MIN_SILHOUETTE_ROWS = 1000  # however short the time limit is
MAX_COUNTS = 10_000  # numbers of clusters in one range


class CountRange(NamedTuple):
    """Numbers of clusters to try."""

    counts: list[int]
    coarse: bool = False  # True if values were skipped, so that the range around the knee is refined


class CountRangeType(click.ParamType):  # type: ignore[type-arg]
    """2:20 (every k), 10:200 (geometrically spaced), 10:200:10 (with a step), or 5,10,20."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CountRange:
        match = re.fullmatch(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})(?::([1-9][0-9]{0,8}))?", value)
        if match:
            low, high = int(match[1]), int(match[2])
            if low < high and match[3]:
                counts = range(low, high + 1, int(match[3]))
                if len(counts) > MAX_COUNTS:
                    self.fail(f"{value!r} has {len(counts):,} values, more than {MAX_COUNTS:,}: use a larger step.", param, ctx)
                return CountRange(list(counts))
            if low < high < low + MAX_FULL_RANGE:
                return CountRange(list(range(low, high + 1)))
            if low < high:
                ratio = (high / low) ** (1 / (COARSE_COUNTS - 1))
                return CountRange(sorted({round(low * ratio**i) for i in range(COARSE_COUNTS)}), True)
        elif re.fullmatch(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*", value):
            return CountRange(sorted(set(map(int, value.split(",")))))
        self.fail(f"{value!r} is not a valid range: use for example 10:200, 10:200:10 or 5,10,20.", param, ctx)


@click.command(short_help="Try several numbers of clusters.")
@click.argument("data", type=DATA)
@click.option("-k", "--clusters", type=CountRangeType(), required=True, help="Numbers of clusters: 2:20, 10:200:10 or 5,10,20.")
@comparable_method_option
@click.option("-o", "--output", type=click.Path(), help="Write a report to this HTML file.")
@fit_options
@rows_options
@force_option
@watch_options
def sweep(
    data: str, clusters: CountRange, output: str | None, force: bool, progress: str, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Try several numbers of clusters; show the energy and simplified silhouette of each, and the knee, if there is one.

    In ranges of up to 30 values every k is tried; in longer ranges some, and then more around the knee. A time limit (--time)
    applies to each k separately, and includes its initial centroids. The silhouette is then that of fewer rows. Each k takes
    some passes over a sample of the rows in addition.

    Example: shoal sweep rows.npy -k 2:20 -o sweep.html
    """
    from ..report import words
    from .data import open_data
    from .output import check_output_file, echo_stdout, reporting_write_errors, show, show_table
    from .plan import check_clusters, limit_threads_of_all, memory_limit
    from .progress import progress_reporter
    from .trials import report_origin, standardize_rows

    settings = FitSettings(**options)
    _check_init(settings, clusters)
    path = None if output is None else Path(output)
    if path is not None:
        check_output_file(path, force, data)
    with progress_reporter(progress, quiet) as reporter, memory_limit(settings):
        rows = open_data(data, settings)
        check_clusters(clusters.counts[-1], rows.shape[0])
        fits = limit_threads_of_all(
            rows, [replace(settings, clusters=k) for k in clusters.counts], _bytes_beside_fit(rows, clusters, settings)
        )
        rows = standardize_rows(rows, data, settings)
        points = _fit_all(rows, clusters, min(fits, key=lambda fit: fit.threads or math.inf), reporter)
        knee = _find_knee(points)
        if path is not None:
            from ..report import write_sweep

            with reporting_write_errors(path):
                write_sweep(path, points, report_origin(data, "how many clusters?", settings.seed))
    if as_json:
        result = {"data": data, "rows": rows.shape[0], "method": settings.method, "points": [p._asdict() for p in points]}
        show({**result, "knee": knee, "knee_between": words.between(points, knee), "report": output}, True, {})
        return
    scores = ["" if p.silhouette is None else f"{p.silhouette:.3f}" for p in points]
    cells = [
        [p.k, f"{p.energy:.6g}", score, f"{p.seconds:.2f}", words.ENDS.get(p.stopped, p.stopped)]
        for p, score in zip(points, scores, strict=True)
    ]
    show_table(["k", "energy", "silhouette", "seconds", "ended"], cells)
    written = "" if output is None else f"report: {output}"
    for line in filter(None, (words.place(points, knee), words.unfinished(points), written)):
        echo_stdout(line)


def _check_init(settings: FitSettings, clusters: CountRange) -> None:
    """Raise a usage error if initial centroids from a file are to be used for several numbers of clusters."""
    from .methods import INITIALIZATIONS

    if settings.init is not None and settings.init not in INITIALIZATIONS and len(clusters.counts) > 1:
        raise click.UsageError(
            f"--init {settings.init}: a file of centroids has one number of clusters, and -k has several: "
            f"use a single value of -k, or one of {', '.join(INITIALIZATIONS)}."
        )


def _find_knee(points: list[Any]) -> int | None:
    """Return the k at the knee of the energy curve, or None."""
    import numpy as np

    from ..metrics import knee

    finite = [p for p in points if np.isfinite(p.energy)]
    return knee([p.k for p in finite], [p.energy for p in finite])


def _counts_near_knee(points: list[Any]) -> list[int]:
    """Return values of k around the knee that were not tried: all of them, or evenly spaced ones if there are many."""
    import numpy as np

    from ..report.words import between

    low, high = between(points, _find_knee(points)) or (0, 0)
    counts = np.linspace(low + 1, high - 1, min(REFINED_COUNTS, max(high - low - 1, 0))).round().astype(int)
    return sorted(set(counts.tolist()) - {p.k for p in points})


class FittedCenters(NamedTuple):
    """Centroids of a fit, from which a fit with more clusters can start."""

    centers: Any
    errors: Any  # distance (cosine) or squared distance of each sample row to its nearest centroid


def _fit_all(rows: Any, span: CountRange, settings: FitSettings, progress: Any) -> list[Any]:
    """Fit every k of the range in increasing order, then further values around the knee if the range is coarse."""
    import numpy as np

    from ..metrics import simplified_silhouette
    from ..report import Point
    from .estimators import compile_kernels
    from .trials import timed_fit

    rng, n = np.random.default_rng(settings.seed), rows.shape[0]
    with reporting_data_errors():
        sample = rows.take(np.sort(rng.choice(n, min(n, _sample_size(rows, span, settings)), replace=False)))
    if settings.time is not None:
        progress.status("compiling, or loading compiled code")
        for method in dict.fromkeys(["exact", settings.method]):
            compile_kernels(rows, replace(settings, method=method, clusters=span.counts[-1]))
    points: list[Any] = []
    fitted: dict[int, FittedCenters] = {}

    def fit_one(k: int) -> None:
        progress.status(f"k = {k:,}")
        started = time.perf_counter()
        previous = max((fewer for fewer in fitted if fewer < k), default=0)
        centers = _initial_centers(sample, rows.feature_names, fitted.get(previous), replace(settings, clusters=k), rng)
        model, seconds = timed_fit(rows, centers, _with_remaining_time(settings, started), progress)
        C, threads = model.cluster_centers_, settings.threads
        some = _silhouette_rows(sample, k, settings.time)
        silhouette = simplified_silhouette(some, C, metric=settings.metric, n_threads=threads) if k > 1 else None
        points.append(Point(k, float(model.inertia_), silhouette, seconds, model.stop_reason_))
        if not span.coarse:
            fitted.clear()
        fitted[k] = FittedCenters(C, _sample_errors(model, sample))

    for k in span.counts:
        fit_one(k)
    for k in _counts_near_knee(points) if span.coarse else []:
        fit_one(k)
    return sorted(points, key=lambda point: point.k)


def _with_remaining_time(settings: FitSettings, started: float) -> FitSettings:
    """Return the settings with what is left of a time limit that started at this time."""
    if settings.time is None:
        return settings
    remaining = started + settings.time - time.perf_counter()
    return replace(settings, time=max(remaining, MIN_FIT_TIME_SHARE * settings.time))


def _silhouette_rows(sample: Any, k: int, seconds: float | None) -> Any:
    """Return the sample, or with a time limit so many of its rows that their silhouettes take a part of it."""
    import numpy as np

    n, d = sample.shape
    if seconds is None:
        return sample
    count = max(MIN_SILHOUETTE_ROWS, int(seconds * SILHOUETTE_PRODUCTS_PER_SECOND / (k * d)))
    return sample if count >= n else sample[np.linspace(0, n - 1, count).astype(np.int64)]


def _sample_size(rows: Any, span: CountRange, settings: FitSettings) -> int:
    """Return the number of sample rows that fits into the memory limit, at least one for each cluster."""
    k = span.counts[-1]
    wanted = max(MIN_SAMPLE_ROWS, 10 * k)
    if settings.memory is None:
        return wanted
    low, high = k, wanted + 1
    while high - low > 1:
        half = (low + high) // 2
        fits = _bytes_with_sample(rows, span, replace(settings, clusters=k), half) <= settings.memory
        low, high = (half, high) if fits else (low, half)
    return low


def _bytes_beside_fit(rows: Any, span: CountRange, settings: FitSettings) -> float:
    """Return the bytes that the sweep needs in addition to the plan of its largest fit, with the smallest possible sample."""
    from .plan import PROGRAM_BYTES_OF_SEVERAL_FITS, bytes_by_part

    largest = replace(settings, clusters=span.counts[-1], threads=1)
    more = _bytes_with_sample(rows, span, largest, largest.clusters) - sum(bytes_by_part(rows, largest, 1).values())
    return max(more, PROGRAM_BYTES_OF_SEVERAL_FITS)


def _bytes_with_sample(rows: Any, span: CountRange, settings: FitSettings, count: int) -> float:
    """Return the bytes of a fit of all rows, or of one of the sample if it needs more, with a sample of so many rows.

    The fit of all rows starts from given centroids. Standardized rows are float64 in the worst case.
    """
    from ..execution.memory import estimate_parts
    from .estimators import make_estimator
    from .plan import PROGRAM_BYTES_OF_SEVERAL_FITS, bytes_by_part, workload

    load, count = workload(rows, settings, assume_float64=True), min(count, rows.shape[0])
    sample_bytes = count * (load.row or load.d * float(load.itemsize))
    center_bytes = sum(span.counts) * load.d * 8.0 if span.coarse else 0.0  # centroids that later fits start from
    needed = bytes_by_part(rows, settings, settings.threads or 1)
    short = make_estimator(FitSettings(method="exact", clusters=settings.clusters))
    sample_load = load._replace(n=count, held=load.held + sample_bytes)
    in_init = sum(estimate_parts(short, sample_load, 1).values())
    return (
        PROGRAM_BYTES_OF_SEVERAL_FITS
        + center_bytes
        + max(sum(needed.values()) - needed.get("start", 0.0) + sample_bytes, in_init)
    )


def _initial_centers(
    sample: Any, names: Sequence[str] | None, previous: FittedCenters | None, settings: FitSettings, rng: Any
) -> Any:
    """Return the better of two initializations after a few steps on the sample, whose columns have these names.

    One is independent; the other adds sample rows to the centroids of a fit with fewer clusters.
    """
    import numpy as np

    from .estimators import make_estimator

    seconds = None if settings.time is None else settings.time * INIT_TIME_SHARE / (1 if previous is None else 2)
    short = replace(settings, method="exact", time=seconds, standardize=False, extra={"max_iter": INIT_STEPS})
    models = [make_estimator(short, names, sample.shape[1])]
    if previous is not None:
        C, added = previous.centers, _draw_rows(previous, sample, settings.clusters - len(previous.centers), rng)
        models.append(make_estimator(replace(short, init=None), init=np.concatenate([C, added.astype(C.dtype)])))
    with reporting_data_errors(), warnings.catch_warnings(action="ignore"):
        return min((model.fit(sample) for model in models), key=lambda model: model.inertia_).cluster_centers_


def _sample_errors(model: Any, sample: Any) -> Any:
    """Return the distance (cosine) or squared distance of each sample row to its nearest centroid."""
    import numpy as np

    from ..execution.threads import on_threads
    from ..fit.centroid_model import nearest_distances_block

    errors = np.empty(sample.shape[0])
    with warnings.catch_warnings(action="ignore"):  # that the sample has no column names
        rows, centers = model._rows(sample)
        with on_threads(rows, model.n_threads) as rows:
            rows.for_each_raw(nearest_distances_block, rows, centers, per_row=(errors,))
    return errors ** (1 if model.metric == "cosine" else 2)


def _draw_rows(previous: FittedCenters, sample: Any, count: int, rng: Any) -> Any:
    """Draw sample rows with probability proportional to their errors, as k-means++ does."""
    import numpy as np

    errors = previous.errors
    probabilities = errors / errors.sum() if np.count_nonzero(errors) >= count else None
    drawn = sample[rng.choice(sample.shape[0], count, replace=sample.shape[0] < count, p=probabilities)]
    return drawn.toarray() if hasattr(drawn, "toarray") else drawn
