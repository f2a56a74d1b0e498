"""`shoal demo`: cluster handwritten digits by their pen strokes."""

from __future__ import annotations

import time
from typing import Any

import click

from .errors import reporting_data_errors
from .options import SEED, debug_option, json_option
from .output import format_count, show


@click.command(short_help="Cluster handwritten digits that ship with Shoal.")
@click.option("-k", "--clusters", type=click.IntRange(1, 10_992), default=10, show_default=True, help="Number of clusters.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random number generator.")
@json_option
@debug_option
def demo(clusters: int, seed: int, as_json: bool) -> None:
    """Cluster 10,992 handwritten digits that ship with Shoal."""
    if not as_json:
        click.echo("Clustering handwritten digits (the first run compiles for a few seconds)", err=True)
    with reporting_data_errors():
        result = run(clusters, seed)
    show(result, as_json, lines(result))


def run(k: int, seed: int) -> dict[str, Any]:
    """Cluster the digits and return the result."""
    import numpy as np

    from .. import cluster, metrics
    from ..datasets import load_pendigits

    X, y = load_pendigits()
    before = time.perf_counter()
    cluster(X[:1000], 2, random_state=0)  # compiles the kernels, or loads them
    started = time.perf_counter()
    model = cluster(X, k, random_state=seed)
    ended = time.perf_counter()
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
    }


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
    }


def _sizes(sizes: list[int]) -> str:
    """Return the sizes as text; only the largest and smallest if there are many."""
    shown: list[object] = [*sizes] if len(sizes) <= 20 else [*sizes[:10], "...", *sizes[-5:]]
    return " ".join(map(str, shown))
