"""`shoal demo`: handwritten digits, clustered by their pen strokes."""

from __future__ import annotations

import time
from typing import Any

import click

from .errors import reading_data
from .options import SEED, debug_option, json_option
from .output import show


@click.command()
@click.option("-k", "--clusters", type=click.IntRange(1, 10_992), default=10, show_default=True, help="How many clusters.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the random numbers.")
@json_option
@debug_option
def demo(clusters: int, seed: int, as_json: bool) -> None:
    """Cluster 10,992 handwritten digits that ship with Shoal."""
    if not as_json:
        click.echo("Clustering handwritten digits (the first run compiles for some seconds)", err=True)
    with reading_data():
        result = run(clusters, seed)
    show(result, as_json, lines(result))


def run(k: int, seed: int) -> dict[str, Any]:
    """Cluster the digits; what there is to tell about it."""
    import numpy as np

    from .. import cluster, metrics
    from ..datasets import load_pendigits

    X, y = load_pendigits()
    before = time.perf_counter()
    cluster(X[:1000], 2, random_state=0)  # compiles the kernels, or loads them
    begun = time.perf_counter()
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
        "seconds": ended - begun,
        "seconds_to_compile": begun - before,
        "accuracy": metrics.accuracy(y, model.labels_),
        "nmi": float(metrics.normalized_mutual_info_score(y, model.labels_)),
        "summary": model.summary_,
        "sizes": np.bincount(model.labels_, minlength=k).tolist(),
    }


def lines(result: dict[str, Any]) -> dict[str, object]:
    """The same for people."""
    return {
        "data": f"{result['data']}, {result['rows']:,} rows x {result['columns']} columns",
        "clusters": f"{result['clusters']}, seed {result['seed']}",
        "energy": f"{result['energy']:,.2f} after {result['steps']} steps",
        "time": f"{result['seconds']:.3f} s, after {result['seconds_to_compile']:.1f} s to compile or load the kernels",
        "against the digits": f"accuracy {result['accuracy']:.3f}, NMI {result['nmi']:.3f}",
        "in short": result["summary"],
        "cluster sizes": _sizes(sorted(result["sizes"], reverse=True)),
    }


def _sizes(sizes: list[int]) -> str:
    """Largest first; of many, both ends."""
    shown: list[object] = [*sizes] if len(sizes) <= 20 else [*sizes[:10], "...", *sizes[-5:]]
    return " ".join(map(str, shown))
