"""`shoal inspect`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import click

from ..data.sizes import format_size
from .methods import method_option, parse_assignments, set_option
from .options import COUNT, DATA, SIZE, THREADS, debug_option, json_option, rows_options
from .settings import FitSettings

DEFAULT_CLUSTERS = 100  # or the number of rows, if that is smaller
VALUES_PER_BLOCK = 1 << 21  # 16 MB of float64 at a time


@click.command(short_help="Describe data or a model; estimate memory and time of a fit.")
@click.argument("path", type=DATA, metavar="DATA|MODEL")
@click.option("-k", "--clusters", type=COUNT, help=f"Number of clusters of the planned fit.  [default: {DEFAULT_CLUSTERS}]")
@method_option
@set_option
@click.option("--memory", type=SIZE, help="Check the planned fit against this memory limit, such as 512MB or 2GB.")
@click.option("--threads", type=THREADS, help="Number of threads of the planned fit.")
@rows_options
@json_option
@debug_option
def inspect(path: str, clusters: int | None, as_json: bool, **options: Any) -> None:
    """Describe DATA and estimate the memory and time of a fit, or describe a MODEL (a file, or the folder of a fit)."""
    from .data import find_model, is_model
    from .inspect_table import describe_table, print_table
    from .output import echo_stdout, show

    path = find_model(path)
    if is_model(path):
        result, lines = _describe_model(path)
        show(result, as_json, lines)
        return
    settings = FitSettings(**{**options, "extra": parse_assignments(options["extra"])})
    table = describe_table(path, settings, clusters)
    if table is not None and not as_json:
        print_table(table)
    result = table or {}
    if table is None or not table["problem"]:
        result = _describe_data(path, settings, clusters) | result
        if table is not None and not as_json:
            echo_stdout("")
    show(result, as_json, _data_lines(result) if "fit" in result else {})


def _describe_model(path: str) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the facts about a model or a code, and the same as lines of text, by label."""
    import shoal

    from .errors import reporting_open_errors

    with reporting_open_errors(path):
        model = shoal.load(path)
    inner = getattr(model, "estimator_", model)
    if not hasattr(inner, "get_params"):
        facts = {"kind": "code", "path": path, "code": type(model).__name__, "bits": getattr(model, "n_bits", None)}
        return facts, {name: facts[name] for name in ("code", "bits") if facts[name] is not None}
    parameters = {name: value for name, value in inner.get_params().items() if name not in ("callback", "verbose")}
    result = {
        "kind": "model",
        "path": path,
        "estimator": type(inner).__name__,
        "clusters": parameters.get("n_clusters"),
        "columns": getattr(model, "n_features_in_", None),
        "rows": len(model.labels_) if hasattr(model, "labels_") else None,
        "energy": getattr(model, "inertia_", None),
        "steps": getattr(model, "n_iter_", None),
        "stopped": getattr(model, "stop_reason_", None),
        "standardized": inner is not model,
        "parameters": {name: repr(value) if hasattr(value, "shape") else value for name, value in parameters.items()},
    }
    shown = {name: value for name, value in result.items() if value is not None and name not in ("kind", "path", "parameters")}
    lines = {name: f"{value:,.7g}" if type(value) is float else value for name, value in shown.items()}
    return result, {**lines, "parameters": ", ".join(f"{k}={v!r}"[:60] for k, v in parameters.items())}


def _describe_data(path: str, settings: FitSettings, clusters: int | None) -> dict[str, Any]:
    """Return the facts about the rows, and the memory and time of the planned fit."""
    from .data import disk_bytes, open_data
    from .errors import reporting_open_errors
    from .plan import check_clusters

    rows = open_data(path, settings)
    n, d = rows.shape
    if clusters is not None:
        check_clusters(clusters, n)
    with reporting_open_errors(path):
        values = _scan_values(rows)
    is_valid = n > 0 and not values["nan"] + values["infinite"]
    return {
        "kind": "data",
        "path": path,
        "rows": n,
        "columns": d,
        "dtype": str(rows.dtype),
        "bytes": disk_bytes(path),
        **values,
        "names": rows.feature_names,
        "fit": _plan_fit(rows, replace(settings, clusters=clusters or min(DEFAULT_CLUSTERS, max(n, 1))), is_valid),
    }


def _plan_fit(rows: Any, settings: FitSettings, is_valid: bool) -> dict[str, Any]:
    """Return the estimated memory and time of a fit. Rows with NaN or infinite values cannot be timed."""
    from .plan import estimate_seconds, threads_within

    limit = settings.memory
    threads, parts = threads_within(rows, settings, math.inf if limit is None else limit)
    total = sum(parts.values())
    seconds = estimate_seconds(rows, replace(settings, threads=threads)) if is_valid else None
    fit = {"clusters": settings.clusters, "method": settings.method, "bytes": total, "parts": parts, "seconds": seconds}
    return fit if limit is None else {**fit, "limit": limit, "fits": total <= limit, "threads": threads}


def _data_lines(result: dict[str, Any]) -> dict[str, object]:
    """Return the facts about data as lines of text, by label."""
    from .output import format_count, format_estimate

    fit, names = result["fit"], result["names"]
    layout = f"{result['dtype']}{', sparse' * result['sparse']}"
    parts = ", ".join(f"{name} {format_size(part)}" for name, part in fit["parts"].items())
    is_empty = result["least"] is None
    value_range = "no finite ones" if is_empty else f"others from {result['least']:.6g} to {result['largest']:.6g}"
    comparison = ""
    if "limit" in fit:
        position = "below" if fit["fits"] else "above"
        threads = format_count(fit["threads"], "thread")
        comparison = f", {position} the limit of {format_size(fit['limit'])} with {threads}"
    return {
        "rows": f"{result['rows']:,} x {result['columns']:,}, {layout}, {format_size(result['bytes'])} on disk",
        **({"columns": ", ".join(names[:12]) + ", ..." * (len(names) > 12)} if names else {}),
        "values": f"{result['nan']:,} NaN, {result['infinite']:,} infinite, {value_range}",
        "planned fit": f"{fit['clusters']:,} clusters, method {fit['method']}",
        "memory": f"about {format_size(fit['bytes'])}{comparison}: {parts}",
        "time": "unknown" if fit["seconds"] is None else format_estimate(fit["seconds"]),
    }


def _scan_values(rows: Any) -> dict[str, Any]:
    """Return the number of NaN and infinite values, and the range of the others, in one pass."""
    import numpy as np

    n, d = rows.shape
    step, nan, infinite, low, high, is_sparse = max(1, VALUES_PER_BLOCK // max(d, 1)), 0, 0, np.inf, -np.inf, False
    for start in range(0, n, step):
        block = rows.read(start, min(start + step, n))
        is_sparse = hasattr(block, "indptr")
        values = block.data if is_sparse else np.asarray(block)
        if values.dtype.kind == "f":
            good = np.isfinite(values)
            if not good.all():
                missing = int(np.isnan(values).sum())
                nan, infinite = nan + missing, infinite + int(good.size - good.sum()) - missing
                values = values[good]
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    ends = {"least": low, "largest": high} if low <= high else {"least": None, "largest": None}
    return {"sparse": is_sparse, "nan": nan, "infinite": infinite, **ends}
