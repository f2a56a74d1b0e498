"""What `shoal demo` does: handwritten digits, clustered by their pen strokes."""

from __future__ import annotations

import json
import time
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from .. import cluster, metrics
from ..datasets import load_pendigits


def run(k: int, seed: int) -> dict[str, Any]:
    """Cluster the digits; what there is to tell about it."""
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


def print_json(result: dict[str, Any]) -> None:
    click.echo(json.dumps(result))


def _sizes(sizes: list[int]) -> str:
    """Largest first; of many, both ends."""
    shown: list[object] = [*sizes] if len(sizes) <= 20 else [*sizes[:10], "...", *sizes[-5:]]
    return " ".join(map(str, shown))


def print_table(result: dict[str, Any]) -> None:
    """The same for people."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    for name, value in {
        "data": f"{result['data']}, {result['rows']:,} rows x {result['columns']} columns",
        "clusters": f"{result['clusters']}, seed {result['seed']}",
        "energy": f"{result['energy']:,.2f} after {result['steps']} steps, {result['stopped']}",
        "time": f"{result['seconds']:.3f} s, after {result['seconds_to_compile']:.1f} s to compile or load the kernels",
        "against the digits": f"accuracy {result['accuracy']:.3f}, NMI {result['nmi']:.3f}",
        "in short": result["summary"],
        "cluster sizes": _sizes(sorted(result["sizes"], reverse=True)),
    }.items():
        table.add_row(name, value)
    Console(highlight=False, markup=False).print(table)
