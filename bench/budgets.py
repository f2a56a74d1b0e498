"""Measure by how much each method overruns its time budget.

`python -m bench.budgets [METHOD ...] [--out FILE]` fits every method (or the named ones) to dense and to sparse rows, for few
and many clusters and several budgets, fresh and resumed from a checkpoint, and prints one JSON line per fit. A first fit of
each kind compiles the kernels and is not timed. A fit that runs `MAX_OVERRUN` seconds over its budget is killed. "predict" is
the time to label the rows, which every fit needs: compare "seconds" with the budget and with it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

ROWS, COLUMNS, SPARSE_COLUMNS, NONZEROS_PER_ROW = 30_000, 50, 1000, 10
CLUSTERS, BUDGETS = (10, 3000, 20_000), (0.1, 1.0, 5.0)
SPECTRAL_ROWS, SPECTRAL_CLUSTERS = 10_000, (10, 200)  # fewer, because these methods compute an eigenvector per cluster
MAX_OVERRUN = 40.0  # seconds
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "KMeans": ("KMeans", {}),
    "KMeans lloyd": ("KMeans", {"algorithm": "lloyd"}),
    "KMeans yinyang": ("KMeans", {"algorithm": "yinyang"}),
    "KMeans random": ("KMeans", {"init": "random"}),
    "KMeans k-means||": ("KMeans", {"init": "k-means||"}),
    "KMeans afk-mc2": ("KMeans", {"init": "afk-mc2"}),
    "KMeans n_init=3": ("KMeans", {"n_init": 3}),
    "NestedKMeans": ("NestedKMeans", {}),
    "MiniBatchKMeans": ("MiniBatchKMeans", {}),
    "OnlineKMeans": ("OnlineKMeans", {}),
    "GradientKMeans batch": ("GradientKMeans", {"mode": "batch"}),
    "GradientKMeans online": ("GradientKMeans", {"mode": "online"}),
    "VarianceReducedKMeans": ("VarianceReducedKMeans", {}),
    "SphericalMixture": ("SphericalMixture", {}),
    "BinaryKMeans": ("BinaryKMeans", {}),
    "CompressedKMeans": ("CompressedKMeans", {}),
    "MiniBatchSpectral": ("MiniBatchSpectral", {}),
    "PowerSpectral": ("PowerSpectral", {}),
}


def make_rows(layout: str, n: int) -> Any:
    """Return n rows, dense or sparse."""
    import numpy as np
    from scipy import sparse

    rng = np.random.default_rng(0)
    if layout == "dense":
        means = rng.normal(size=(500, COLUMNS)) * 2
        return (means[rng.integers(500, size=n)] + rng.normal(size=(n, COLUMNS))).astype(np.float32)
    columns = np.sort(rng.integers(SPARSE_COLUMNS, size=(n, NONZEROS_PER_ROW)), axis=1).ravel()
    values = rng.random(NONZEROS_PER_ROW * n).astype(np.float32) + 0.5
    X = sparse.csr_array((values, columns, np.arange(0, NONZEROS_PER_ROW * n + 1, NONZEROS_PER_ROW)), shape=(n, SPARSE_COLUMNS))
    X.sum_duplicates()
    return X


def cases(method: str) -> list[tuple[int, float, bool]]:
    """Return the cases of a method: number of clusters, budget, and whether to resume from a checkpoint."""
    clusters = SPECTRAL_CLUSTERS if "Spectral" in method else CLUSTERS
    fresh = [(k, budget, False) for k in clusters for budget in BUDGETS]
    return [*fresh, *((clusters[1], budget, True) for budget in BUDGETS[:2])]


class Killed(BaseException):
    """Simulates the death of the process."""


def kill(record: dict[str, Any]) -> None:
    """Raise Killed: a callback that ends a fit after its first step."""
    raise Killed


def work(method: str, layout: str, skip: int) -> None:
    """Run the cases after the first `skip` in this process; print one line per case."""
    import shoal

    name, options = METHODS[method]
    cls = getattr(shoal, name)
    warnings.simplefilter("ignore")
    X = make_rows(layout, SPECTRAL_ROWS if "Spectral" in method else ROWS)
    for k in (10, 150):
        for budget in (None, 0.5):
            cls(k, random_state=0, max_iter=3, time_budget=budget, **options).fit(X[:3000])
    if "Spectral" not in method:
        cls(1000, random_state=0, max_iter=3, time_budget=3.0, **options).fit(X[:5000])
    for k, budget, resumed in cases(method)[skip:]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "checkpoint.npz")
            if resumed:
                model = cls(k, random_state=0, callback=kill, **options)
                if "init" in model.get_params() and "Spectral" not in method and "init" not in options:
                    model.set_params(init="random", n_init=1)
                try:
                    with shoal.Checkpoint(file, every=0):
                        model.fit(X)
                except Killed:
                    pass
                model = model.set_params(time_budget=budget, callback=None)
            else:
                model = cls(k, random_state=0, time_budget=budget, **options)
            print(json.dumps(["begin", budget]), flush=True)
            wall, cpu = time.perf_counter(), time.process_time()
            with shoal.Checkpoint(file, every=60):
                model.fit(X)
            took = time.perf_counter() - wall, time.process_time() - cpu
            wall = time.perf_counter()
            model.predict(X)
            record = {
                "method": method,
                "layout": layout,
                "clusters": k,
                "budget": budget,
                "resumed": resumed,
                "seconds": round(took[0], 2),
                "cpu": round(took[1], 2),
                "predict": round(time.perf_counter() - wall, 2),
                "steps": model.n_iter_,
                "reason": model.stop_reason_,
            }
            print(json.dumps(record), flush=True)


def watch(method: str, layout: str, skip: int) -> tuple[list[dict[str, Any]], int]:
    """Return the records of one process and the number of completed cases. A case that takes too long is killed."""
    command = [sys.executable, "-m", "bench.budgets", method, "--layout", layout, "--skip", str(skip)]
    records: list[dict[str, Any]] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    limit, pending, lines = 600.0, b"", list[bytes]()
    while True:
        ready = select.select([process.stdout], [], [], limit)[0]
        chunk = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if not chunk:
            break
        *lines, pending = (pending + chunk).split(b"\n")
        for record in map(json.loads, lines):
            if isinstance(record, dict):
                records.append(record)
                limit = 600.0
            else:
                limit = record[1] + MAX_OVERRUN
    if ready:
        if process.wait():
            assert process.stderr is not None
            raise RuntimeError(process.stderr.read().decode())
        return records, skip + len(records)
    process.kill()
    process.wait()
    k, budget, resumed = cases(method)[skip + len(records)]
    late = {"method": method, "layout": layout, "clusters": k, "budget": budget, "resumed": resumed, "seconds": None}
    return [*records, late], skip + len(records) + 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--layout")
    parser.add_argument("--skip", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.skip is not None:
        work(given.methods[0], given.layout, given.skip)
        return
    for method in given.methods or METHODS:
        for layout in [given.layout] if given.layout else ["dense", "sparse"]:
            done = 0
            while done < len(cases(method)):
                records, done = watch(method, layout, done)
                for record in records:
                    line = json.dumps(record)
                    print(line, flush=True)
                    if given.out is not None:
                        with given.out.open("a") as file:
                            file.write(line + "\n")


if __name__ == "__main__":
    main()
