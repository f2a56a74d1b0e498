"""`shoal demo`: cluster handwritten digits by their pen strokes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from .errors import reporting_data_errors
from .options import SEED, debug_option, force_option, json_option
from .output import check_output_file, format_count, reporting_write_errors, show


@click.command(short_help="Cluster handwritten digits that ship with Shoal.")
@click.option("-k", "--clusters", type=click.IntRange(1, 10_992), default=10, show_default=True, help="Number of clusters.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random number generator.")
@click.option("-o", "--output", type=click.Path(), help="Write a report to this HTML file.")
@force_option
@json_option
@debug_option
def demo(clusters: int, seed: int, output: str | None, force: bool, as_json: bool) -> None:
    """Cluster 10,992 handwritten digits that ship with Shoal."""
    path = None if output is None else Path(output)
    if path is not None:
        check_output_file(path, force)
    if not as_json:
        click.echo("Clustering handwritten digits (the first run compiles for a few seconds)", err=True)
    with reporting_data_errors():
        result = run(clusters, seed, path)
    show(result, as_json, lines(result))


def run(k: int, seed: int, report: Path | None) -> dict[str, Any]:
    """Cluster the digits, write a report if a file for it is given, and return the result."""
    import numpy as np

    from .. import cluster, metrics
    from ..datasets import load_pendigits

    X, y = load_pendigits()
    before = time.perf_counter()
    cluster(X[:1000], 2, random_state=0)  # compiles the kernels, or loads them
    started = time.perf_counter()
    model = cluster(X, k, random_state=seed)
    ended = time.perf_counter()
    if report is not None:
        _write_report(report, model, X, seed)
    return {
        "data": "pendigits",
        "rows": X.shape[0],
        "columns": X.shape[1],
        "clusters": k,
        "seed": seed,
        "energy": model.inertia_,
        "steps": model.n_iter_,
        "stopped": model.stop_reason_,
        "seconds": ended - started,
        "seconds_to_compile": started - before,
        "accuracy": metrics.accuracy(y, model.labels_),
        "nmi": float(metrics.normalized_mutual_info_score(y, model.labels_)),
        "summary": model.summary_,
        "sizes": np.bincount(model.labels_, minlength=k).tolist(),
        "report": None if report is None else str(report),
    }


def _write_report(path: Path, model: Any, X: Any, seed: int) -> None:
    """Write a report on the digits."""
    from ..report import Options, Origin, gather, write_fit

    names = [f"{axis}{i}" for i in range(8) for axis in "xy"]  # eight points of the pen
    origin = Origin(title=f"Handwritten digits: {model.n_clusters} clusters", command="shoal demo", data="pendigits")
    with reporting_write_errors(path):
        write_fit(path, gather(model, X, Options(columns=names, seed=seed), origin))


def lines(result: dict[str, Any]) -> dict[str, object]:
    """Return the result as lines of text, by label."""
    return {
        "data": f"{result['data']}, {result['rows']:,} rows x {result['columns']} columns",
        "clusters": f"{result['clusters']}, seed {result['seed']}",
        "energy": f"{result['energy']:,.2f} after {format_count(result['steps'], 'step')}",
        "time": f"{result['seconds']:.3f} s, after {result['seconds_to_compile']:.1f} s to compile or load the kernels",
        "agreement with digits": f"accuracy {result['accuracy']:.3f}, NMI {result['nmi']:.3f}",
        "summary": result["summary"],
        "cluster sizes": _sizes(sorted(result["sizes"], reverse=True)),
        **({"report": result["report"]} if result.get("report") else {}),
        "next": "shoal inspect FILE, with a table or an array of yours",
    }


def _sizes(sizes: list[int]) -> str:
    """Return the sizes as text; only the largest and smallest if there are many."""
    shown: list[object] = [*sizes] if len(sizes) <= 20 else [*sizes[:10], "...", *sizes[-5:]]
    return " ".join(map(str, shown))
