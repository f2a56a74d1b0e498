"""`shoal inspect`."""

from __future__ import annotations

import math
from typing import Any

import click

from .methods import method_option
from .options import COUNT, DATA, SIZE, THREADS, debug_option, json_option, rows_options

NUMBERS = 1 << 21  # looked at together


@click.command()
@click.argument("path", type=DATA, metavar="DATA|MODEL")
@click.option("-k", "--clusters", type=COUNT, default=100, show_default=True, help="Plan a fit with so many clusters.")
@method_option
@click.option("--memory", type=SIZE, help="Say whether that fit keeps below: 512MB, 2GB.")
@click.option("--threads", type=THREADS, help="Threads that the fit may use.")
@rows_options
@json_option
@debug_option
def inspect(path: str, as_json: bool, **settings: Any) -> None:
    """Tell what DATA holds and what a fit would take, or of a MODEL."""
    from .data import is_model
    from .output import show

    if is_model(path):
        show(*_model(path, as_json))
    else:
        show(*_data(path, as_json, settings))


def _model(path: str, as_json: bool) -> tuple[dict[str, Any], bool, dict[str, object]]:
    import shoal

    from .errors import opening

    with opening(path):
        model = shoal.load(path)
    inner = getattr(model, "estimator_", model)
    if not hasattr(inner, "get_params"):
        facts = {"kind": "code", "path": path, "code": type(model).__name__, "bits": getattr(model, "n_bits", None)}
        return facts, as_json, {name: facts[name] for name in ("code", "bits") if facts[name] is not None}
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
    told = {name: value for name, value in result.items() if value is not None and name not in ("kind", "path", "parameters")}
    lines = {name: f"{value:,.7g}" if type(value) is float else value for name, value in told.items()}
    return result, as_json, {**lines, "parameters": ", ".join(f"{k}={v!r}"[:60] for k, v in parameters.items())}


def _data(path: str, as_json: bool, settings: dict[str, Any]) -> tuple[dict[str, Any], bool, dict[str, object]]:
    from .data import open_data, parse_size
    from .errors import opening
    from .output import size
    from .plan import estimate_seconds, threads_within

    rows = open_data(path, settings)
    with opening(path):
        seen = _look(rows)
    n, d = rows.shape
    k, method, threads = min(settings["clusters"], max(n, 1)), settings["method"], settings["threads"]
    limit = settings["memory"]
    threads, plan = threads_within(rows, method, k, threads, math.inf if limit is None else limit)
    clean = not seen["nan"] + seen["infinite"] and n
    seconds = estimate_seconds(rows, method, k, threads) if clean else None
    total = sum(plan.values())
    fit = {"clusters": k, "method": method, "bytes": total, "parts": plan, "seconds": seconds}
    if limit is not None:
        fit |= {"limit": limit, "fits": total <= limit, "threads": threads}
    names = rows.feature_names
    result = {
        "kind": "data",
        "path": path,
        "rows": n,
        "columns": d,
        "dtype": str(rows.dtype),
        "bytes": parse_size(path),
        **seen,
        "names": names,
        "fit": fit,
    }
    verdict = (
        "" if limit is None else f", {'below' if total <= limit else 'above'} the limit of {size(limit)} with {threads} threads"
    )
    return (
        result,
        as_json,
        {
            "rows": f"{n:,} x {d:,}, {rows.dtype}{', sparse' if seen['sparse'] else ''}, {size(result['bytes'])} on disk",
            **({"columns": ", ".join(names[:12]) + ", ..." * (len(names) > 12)} if names else {}),
            "values": f"{seen['nan']:,} NaN, {seen['infinite']:,} infinite, from {seen['least']} to {seen['largest']}",
            "a fit": f"{k:,} clusters by {method}",
            "memory": f"about {size(total)}{verdict}: " + ", ".join(f"{name} {size(part)}" for name, part in plan.items()),
            "time": "not known" if seconds is None else f"about {seconds:.2g} s",
        },
    )


def _look(rows: Any) -> dict[str, Any]:
    """One pass over the values."""
    import numpy as np

    n, d = rows.shape
    step, nan, infinite, low, high, thin = max(1, NUMBERS // max(d, 1)), 0, 0, np.inf, -np.inf, False
    for start in range(0, n, step):
        block = rows.read(start, min(start + step, n))
        thin = hasattr(block, "indptr")
        values = block.data if thin else np.asarray(block)
        if values.dtype.kind == "f":
            good = np.isfinite(values)
            if not good.all():
                missing = int(np.isnan(values).sum())
                nan, infinite = nan + missing, infinite + int(good.size - good.sum()) - missing
                values = values[good]
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    ends = {"least": low, "largest": high} if low <= high else {"least": None, "largest": None}
    return {"sparse": thin, "nan": nan, "infinite": infinite, **ends}
