"""Estimate the memory of a fit, part by part (see `execution.memory`), and its time, from a short trial."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..data.sizes import format_size
from .errors import ResourceLimitError
from .estimators import make_estimator
from .methods import INITIALIZATIONS, REGISTRY
from .settings import FitSettings

if TYPE_CHECKING:
    from ..execution.memory import Workload

MAX_TRIAL_ROWS = 20_000  # enough for a stable timing of one step
MAX_TRIAL_BYTES = 1 << 27  # for the centroids of a trial, and for its rows: a file may have any number of columns
FLOAT64_BYTES = 8
# Kernels of several methods and of quality measures, and memory that fits have freed but the system has not reused.
PROGRAM_BYTES_OF_SEVERAL_FITS = 3e7


def memory_limit(settings: FitSettings) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which the library keeps to the memory limit of the settings, if there is one."""
    from ..execution.memory_limit import MemoryLimit

    return contextlib.nullcontext() if settings.memory is None else MemoryLimit(settings.memory)


def bytes_by_part(rows: Any, settings: FitSettings, n_threads: int | None, assume_float64: bool = False) -> dict[str, float]:
    """Return the estimated memory of a fit in bytes, by purpose.

    Standardized float32 rows may need float64, which is known only after they were read; `assume_float64` plans for that.
    """
    from ..execution.memory import estimate_parts

    # Only these settings affect the estimate. Centroids in a file need not be read for it.
    init = settings.init if settings.init in INITIALIZATIONS else None
    relevant = FitSettings(method=settings.method, clusters=settings.clusters, extra=settings.extra, init=init)
    load = workload(rows, settings, assume_float64)
    return estimate_parts(make_estimator(relevant), load, n_threads or _default_threads())


def workload(rows: Any, settings: FitSettings, assume_float64: bool = False) -> Workload:
    """Return the workload of the rows, standardized if the settings say so."""
    from ..execution.memory import Workload

    load = Workload.of(rows)
    if settings.standardize:  # scaled rows are read in the dtype of the computation
        itemsize = FLOAT64_BYTES if assume_float64 and rows.dtype.kind == "f" else load.itemsize
        load = load._replace(raw_itemsize=itemsize, itemsize=itemsize)
    return load


def limit_threads(rows: Any, settings: FitSettings) -> FitSettings:
    """Return the settings with as many threads as the memory limit allows. Raise if one thread exceeds it."""
    return limit_threads_of_all(rows, [settings])[0]


def limit_threads_of_all(rows: Any, fits: Sequence[FitSettings], extra: float = 0.0) -> list[FitSettings]:
    """Return the settings of several fits, each with as many threads as the memory limit allows.

    The fits share all settings but method and clusters. `threads` stays None where the default number fits. `extra` bytes are
    needed in addition to each fit.

    Raises
    ------
    ResourceLimitError
        If one of the fits exceeds the limit with a single thread. The limit recommended is enough for all of them.
    """
    from ..execution.memory import check_machine

    shared = fits[0]
    limit = math.inf if shared.memory is None else shared.memory
    plans = [threads_within(rows, fit, limit - extra) for fit in fits]
    needed, method, k = max(
        (sum(parts.values()) + extra, fit.method, fit.clusters) for (_, parts), fit in zip(plans, fits, strict=True)
    )
    description = f"{method} with {k:,} clusters of {rows.shape[0]:,} rows"
    if shared.memory is None:
        if shared.engine != "dask":
            check_machine(description, needed)
        return list(fits)
    if needed > limit:
        if shared.standardize:
            needed = max(needed, *(extra + sum(bytes_by_part(rows, fit, 1, assume_float64=True).values()) for fit in fits))
        remedy = _suggest_remedy(rows, replace(shared, clusters=k), needed, can_change_method=len(fits) == 1)
        raise ResourceLimitError(
            f"--memory {format_size(limit)} is too low: {description} takes about {format_size(needed)}: {remedy}."
        )
    default = _default_threads()
    return [
        replace(fit, threads=n_threads if fit.threads is not None or n_threads < default else None)
        for fit, (n_threads, _) in zip(fits, plans, strict=True)
    ]


def threads_within(rows: Any, settings: FitSettings, limit: float) -> tuple[int, dict[str, float]]:
    """Return the largest number of threads that keeps the fit below the limit, at least 1, and its memory by purpose."""
    n_threads = settings.threads or _default_threads()
    parts = bytes_by_part(rows, settings, n_threads)
    while sum(parts.values()) > limit and n_threads > 1:
        n_threads -= 1
        parts = bytes_by_part(rows, settings, n_threads)
    return n_threads, parts


def _suggest_remedy(rows: Any, settings: FitSettings, needed: float, can_change_method: bool) -> str:
    """Return advice for a fit that exceeds the memory limit: a higher limit, or a method that needs less."""
    advice = f"allow {format_size(1.01 * needed)}"
    for method in ("lloyd", "minibatch") if can_change_method else ():
        other = replace(settings, method=method, extra={})
        if sum(bytes_by_part(rows, other, 1).values()) <= (settings.memory or math.inf):
            return f"{advice} or choose --method {method}"
    return advice


def _default_threads() -> int:
    from ..execution.threads import default_threads

    return default_threads()


def estimate_seconds(rows: Any, settings: FitSettings) -> float | None:
    """Estimate the time of a fit from one Lloyd step on some of the rows.

    Return None for methods that a Lloyd step says nothing about, and for centroids too large for a trial.
    """
    import numpy as np

    import shoal

    k, n_passes = settings.clusters, REGISTRY[settings.method].n_passes
    if n_passes is None or k > rows.shape[0] or FLOAT64_BYTES * k * rows.shape[1] > MAX_TRIAL_BYTES:
        return None
    n, d = rows.shape
    n_trial = min(n, max(min(MAX_TRIAL_ROWS, MAX_TRIAL_BYTES // (FLOAT64_BYTES * max(d, 1))), k))
    started = time.perf_counter()
    X = rows.read(0, n_trial)
    read_seconds_per_row = (time.perf_counter() - started) / n_trial
    C = rows.take(np.linspace(0, n - 1, k).astype(np.int64))
    C = C.toarray() if hasattr(C, "toarray") else C
    step_ends: list[float] = []

    def record_time(record: dict[str, Any]) -> None:
        step_ends.append(record["seconds"])

    threads = settings.threads
    model = shoal.KMeans(k, init=C, algorithm="lloyd", max_iter=3, tol=0, n_threads=threads, callback=record_time)
    model.fit(X)
    step_seconds_per_row = min(np.diff(step_ends, prepend=0.0)) / n_trial
    return float(n * max(read_seconds_per_row, step_seconds_per_row) * n_passes)


def check_clusters(n_clusters: int, n_rows: int) -> None:
    """Raise a usage error if there are more clusters than rows."""
    if n_clusters > n_rows:
        raise click.UsageError(f"-k {n_clusters}: there are only {n_rows:,} rows: use -k {n_rows} or fewer.")
