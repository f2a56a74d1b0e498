"""Build the estimator for the settings of a command."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .errors import InvalidDataError, RejectedFileError, reporting_data_errors, reporting_open_errors
from .methods import INITIALIZATIONS, REGISTRY
from .settings import FitSettings, RowSettings

RESERVED_PARAMETERS = ("n_clusters", "verbose", "callback")  # set by the commands themselves, not by --set
OPTION_OF_PARAMETER = {"time_budget": "--time", "init": "--init", "metric": "--metric"}
MAX_WARM_UP_ROWS = 1000  # enough to compile every kernel; more would only take longer
MAX_WARM_UP_VALUES = 1 << 20  # limits the rows for wide data (8 MB of float64)


def make_estimator(
    settings: FitSettings, feature_names: Sequence[str] | None = None, n_features: int | None = None, **parameters: Any
) -> Any:
    """Return an unfitted estimator for the settings.

    Parameters
    ----------
    settings : FitSettings
        Settings of the fit.
    feature_names : sequence of str, optional
        Column names of the rows. Centroids read from a file are put into this order.
    n_features : int, optional
        Number of columns of the rows. Without it, the estimator cannot be fitted if centroids are in a file: they are not
        read.
    **parameters
        Further estimator parameters, which take precedence over the settings. A callback should be a function, not a
        bound method: `clone` would copy the object that the method belongs to.

    Raises
    ------
    click.UsageError
        If the estimator does not accept one of the settings.
    """
    import shoal

    from ..formats.options import nearest_name

    spec = REGISTRY[settings.method]
    cls = getattr(shoal, spec.estimator)
    accepted = inspect.signature(cls).parameters
    values = {
        "init": resolve_init(settings, feature_names, n_features),
        "metric": None if settings.metric == "euclidean" else settings.metric,
        "time_budget": settings.time,
        "n_threads": settings.threads,
        "random_state": settings.seed,
        **settings.extra,
        **parameters,
    }
    values = {name: value for name, value in values.items() if value is not None}
    for name in values:
        if name not in accepted or (name in RESERVED_PARAMETERS and name in settings.extra):
            option = OPTION_OF_PARAMETER.get(name, f"--set {name}")
            known = [other for other in accepted if other not in RESERVED_PARAMETERS]
            near = "" if name in accepted else nearest_name(name, known)
            raise click.UsageError(
                f"{option} is not supported by --method {settings.method}{near}: `shoal methods {settings.method}` lists its "
                "parameters."
            )
    model = cls(settings.clusters, **{**spec.options, **values})
    try:
        model._validate_params()
    except (ValueError, TypeError, OverflowError) as error:
        raise click.UsageError(str(error)) from error
    _check_max_clusters(model, settings)
    return shoal.Standardized(model) if settings.standardize else model


def _check_max_clusters(model: Any, settings: FitSettings) -> None:
    """Raise a usage error if a parameter of the method, such as the number of landmarks, allows fewer clusters."""
    name, k = REGISTRY[settings.method].max_clusters, settings.clusters
    if name is not None and k > (most := getattr(model, name)):
        raise click.UsageError(
            f"--method {settings.method} with {name}={most} finds at most {most:,} clusters, not {k:,}: "
            f"use -k {most} or fewer, or --set {name}={k} or more."
        )


def compile_kernels(rows: Any, settings: FitSettings) -> None:
    """Fit synthetic rows once, so that compilation does not count towards the time limit of the real fit.

    Dask workers compile their own kernels; nothing is done for them here.
    """
    if settings.engine == "dask":
        return
    sample = _synthetic_rows(rows)
    init = settings.init if settings.init in INITIALIZATIONS else None
    clusters = min(settings.clusters, max(2, sample.shape[0] // 10))
    model = make_estimator(replace(settings, clusters=clusters, init=init, time=None, extra={}, standardize=False))
    short_fit = {"n_init": 1, "max_iter": 3}
    model.set_params(**{name: value for name, value in short_fit.items() if name in model.get_params()})
    with reporting_data_errors(), warnings.catch_warnings(action="ignore"):
        model.fit(sample)


def _synthetic_rows(rows: Any) -> Any:
    """Return a few random rows of the same dtype, layout and width.

    Real rows are not used because reading them from a compressed file would decompress it once more.
    """
    import numpy as np
    from scipy import sparse

    rng, d = np.random.default_rng(0), rows.shape[1]
    n = max(4, min(MAX_WARM_UP_ROWS, MAX_WARM_UP_VALUES // d))
    if not sparse.issparse(rows.read(0, 0)):
        return rng.integers(1, 100, (n, d)).astype(rows.dtype)
    n_stored = min(d, 8)  # per row, in distinct columns
    values, columns = rng.integers(1, 100, n * n_stored).astype(rows.dtype), np.arange(n * n_stored) % d
    return sparse.csr_array((values, columns, np.arange(n + 1) * n_stored), shape=(n, d))


def resolve_init(settings: FitSettings, feature_names: Sequence[str] | None, n_features: int | None) -> Any:
    """Return the name of an initialization, or the centroids stored in the file that `--init` names.

    Without the number of columns of the rows, centroids in a data file are not read, but their number is checked.
    """
    init = settings.init
    if init is None or init in INITIALIZATIONS:
        return init
    if not Path(init).exists():
        raise click.BadParameter(f"{init!r} is neither a file nor one of {', '.join(INITIALIZATIONS)}.", param_hint="--init")
    if settings.standardize:
        raise click.UsageError(
            f"--init {init}: centroids from a file are not in standardized units: remove --init or --standardize."
        )
    import numpy as np

    import shoal

    from .data import is_model, open_data

    if not is_model(init):
        rows = open_data(init, RowSettings())
        k, d = rows.shape
        if k != settings.clusters or n_features not in (None, d):  # before sparse rows become dense
            columns = "" if n_features is None else f" of {n_features:,} columns"
            raise InvalidDataError(
                f"{init}: holds {k:,} centroids of {d:,} columns, expected {settings.clusters:,}{columns}: use a file with "
                "one row for each cluster and the columns of the data."
            )
        with reporting_open_errors(init):
            centers = rows if n_features is None else np.asarray(rows)
            return _reorder_columns(init, centers, rows.feature_names, feature_names)
    with reporting_open_errors(init):
        model = shoal.load(init)
    if not hasattr(model, "cluster_centers_"):
        raise RejectedFileError(f"{init}: holds a {type(model).__name__}, which has no centroids: name another model.")
    return _reorder_columns(init, model.cluster_centers_, getattr(model, "feature_names_in_", None), feature_names)


def _reorder_columns(path: str, centers: Any, names: Any, wanted: Sequence[str] | None) -> Any:
    """Return the centroids with their columns in the order of the rows, where both have column names."""
    if names is None or wanted is None or list(names) == list(wanted):
        return centers
    if len(set(wanted)) < len(wanted) or sorted(names) != sorted(wanted):
        shown, expected = (", ".join(list(part)[:5]) + ", ..." * (len(part) > 5) for part in (names, wanted))
        raise InvalidDataError(
            f"{path}: has columns {shown}, but the rows have {expected}: use centroids with the columns of the rows."
        )
    return centers[:, [list(names).index(name) for name in wanted]]
