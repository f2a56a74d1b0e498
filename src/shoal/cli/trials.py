"""Functions that `compare` and `sweep` share: common initial centroids, timed fits and the header of the report."""

from __future__ import annotations

import datetime
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .data import fingerprint, scale_warning
from .errors import print_error, reporting_data_errors, reporting_open_errors
from .estimators import make_estimator, resolve_init
from .progress import ProgressReporter
from .settings import FitSettings


def standardize_rows(rows: Any, data: str, settings: FitSettings) -> Any:
    """Return the rows, with standardized columns if the settings say so; warn if they should be."""
    if not settings.standardize:
        if warning := scale_warning(rows, settings):
            print_error(f"warning: {warning}")
        return rows
    from ..data.scaling import Scaled, scaled_dtype
    from ..fit.standardized import scales_of

    with reporting_open_errors(data):
        scales = scales_of(rows, None, settings.threads)
        return Scaled(rows, scales, scaled_dtype(rows, scales))


def initial_centers(rows: Any, settings: FitSettings) -> Any:
    """Return initial centroids for several fits of the same rows: those that `KMeans` starts from with this seed.

    The rows are standardized already, if they have to be. A time limit of the settings ends the initialization early.
    """
    import numpy as np

    from ..data.cancellation import now
    from ..data.frame import Frame
    from ..data.rows import Rows
    from ..data.statistics import enter_frame
    from ..data.validation import check_centers
    from ..execution.deadline import NO_DEADLINE, Deadline
    from ..execution.threads import on_threads
    from ..fit.input import check_rows
    from ..fit.random_streams import generator
    from ..kmeans.init import REFINING_INITIALIZERS

    deadline = NO_DEADLINE if settings.time is None else Deadline(now() + settings.time)
    init = resolve_init(replace(settings, init=settings.init or "k-means++"), rows.feature_names, rows.shape[1])
    with reporting_data_errors():
        source = check_rows(None, rows, reset=True)
        if not isinstance(init, str):
            return check_centers(init, settings.clusters, source.shape[1])
        with on_threads(Rows.of(source, None, Frame.of(settings.metric)), settings.threads) as opened:
            opened, _ = enter_frame(opened)
            C = REFINING_INITIALIZERS.methods[init](opened, settings.clusters, generator(settings.seed, 0), deadline)
            return opened.frame.out_of(np.ascontiguousarray(C, opened.dtype), opened.dtype)


def timed_fit(rows: Any, centers: Any, settings: FitSettings, progress: ProgressReporter) -> tuple[Any, float]:
    """Fit a model from the given initial centroids. Return it and the seconds that the fit took."""
    plain = replace(settings, clusters=len(centers), init=None, extra={}, standardize=False)
    model = make_estimator(plain, init=centers, callback=progress.on_step)
    started = time.perf_counter()
    with reporting_data_errors():
        model.fit(rows)
    return model, time.perf_counter() - started


def report_origin(data: str, title: str, seed: int) -> Any:
    """Return the origin of a report: the command, the data and the date."""
    from ..report import Origin

    with reporting_open_errors(data):
        data_fingerprint = fingerprint(data)
    return Origin(
        title=f"{Path(data).name}: {title}",
        command=shlex.join(["shoal", *sys.argv[1:]]),
        seed=seed,
        data=str(Path(data).absolute()),
        fingerprint=data_fingerprint,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
