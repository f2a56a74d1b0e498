"""Suites for memory, start-up time and very many rows."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .measure import Lab, busy, environment
from .problems import blobs, start_of, two_clouds
from .results import Entry
from .suites import entry_of

MB = 1e6
FIRST_FIT = """
import numpy
from {package} import KMeans
model = KMeans(8, n_init=1, random_state=0).fit(numpy.random.default_rng(0).random((1000, 16), dtype=numpy.float32))
"""
PREDICT = """
import numpy, shoal
shoal.load({model!r}).predict(numpy.random.default_rng(0).random((1000, 16), dtype=numpy.float32))
"""


def map_of_blobs(lab: Lab, n: int, d: int, k: int) -> dict[str, str]:
    """Write a file of rows and one of initial centroids; return their paths."""
    path = lab.folder / "map.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for seed, a in enumerate(range(0, n, 100_000)):
        rows[a : a + 100_000] = blobs(min(100_000, n - a), d, k, seed)
    rows.flush()
    return {"rows": str(path), "start": lab.share("start", start_of(rows[:100_000], k))}


def memory(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Memory that a fit of a memory map allocates."""
    if not Path("/proc/self/status").exists():
        lab.leave_out("memory: anonymous memory can only be read on Linux")
        return
    n, d, k = (20_000, 128, 20) if lab.quick else (2_000_000, 128, 100)
    files = map_of_blobs(lab, n, d, k)
    table = []
    for library in lab.present(["shoal", "shoal-lloyd", "sklearn", "faiss"]):
        answer = lab.ask({"do": "memory", "library": library, **files, "iters": 5}, watch=True)
        if "error" not in answer:
            extra = max(answer["most"] - answer["before"], 0) / MB
            row = {"library": library, "ran": answer["ran"], "extra MB": extra, "peak MB": answer["peak"] / MB}
            table.append({**row, "seconds": answer["wall"]})
            lab.say(f"  {library}: {extra:.0f} MB extra")
    Path(files["rows"]).unlink()
    measure = (
        f"A float32 memory map of {n * d * 4 / MB:.0f} MB, k={k}, 5 iterations. Extra: most anonymous memory during the fit, "
        "less what there was before it. Peak: largest resident size, which counts the pages of the map."
    )
    ours = [row for row in table if row["library"].startswith("shoal")]
    figures = [{"what": f"extra MB of {row['library']} ({row['ran']})", "value": row["extra MB"], "limit": 100} for row in ours]
    yield entry_of(lab, "memory-map", measure, table, figures)


def _process(arguments: Sequence[str], cache: str | None) -> tuple[float, float]:
    """Return the wall-clock and the CPU seconds of a fresh Python process."""
    env = environment() if cache is None else {**environment(), "NUMBA_CACHE_DIR": cache}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=env, check=True, start_new_session=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def startup(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Whole processes that fit or predict 1000 rows, and commands; a quick run is a single fit without compilation."""
    model, rows, fit = lab.folder / "model.npz", lab.folder / "rows.npy", FIRST_FIT.format(package="shoal")
    command = ["fit", str(rows), "-k", "10", "-o", str(lab.folder / "out"), "--force", "--quiet"]
    processes: dict[str, tuple[list[str], float | None]] = {  # arguments, and seconds that it may take
        "first fit, warm cache": (["-c", fit], 1.0),
        "predict with a loaded model": (["-c", PREDICT.format(model=str(model))], 0.6),
        "shoal fit of 40,000 x 6": (["-m", "shoal", *command], 2.5),
        "shoal inspect of a model": (["-m", "shoal", "inspect", str(model)], 1.0),
        "imports of numba and scikit-learn": (["-c", "import numba, scipy.sparse, sklearn.base"], None),
        "first fit of scikit-learn": (["-c", FIRST_FIT.format(package="sklearn.cluster")], None),
        "first fit, cold cache": (["-c", fit], 8.0),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in processes}
    if lab.quick:
        taken = {"first fit, warm cache": [_process(["-c", fit], os.environ.get("NUMBA_CACHE_DIR"))]}
    else:
        np.save(rows, np.random.default_rng(0).random((40_000, 6)))
        cache = str(lab.folder / "cache")
        _process(["-c", fit + f"\nimport shoal; shoal.save(model, {str(model)!r})"], cache)
        _process(processes["shoal fit of 40,000 x 6"][0], cache)
    for _ in range(0 if lab.quick else lab.repeats):
        lab.others.append(busy())
        for name, (arguments, _limit) in processes.items():
            with tempfile.TemporaryDirectory(dir=lab.folder) as empty:
                taken[name].append(_process(arguments, empty if "cold" in name else cache))
    table = []
    for name, times in taken.items():
        wall, cpu = np.median(times, axis=0)
        table.append({"process": name, "seconds": float(wall), "CPU seconds": float(cpu), "repeats": [t for t, _ in times]})
    figures = [
        {"what": f"seconds: {row['process']}", "value": row["seconds"], "limit": limit}
        for row in table
        if (limit := processes[row["process"]][1]) is not None
    ]
    yield entry_of(lab, "first-fit", "Seconds of a whole process, imports included. Medians.", table, figures)


def _truth(X: Any) -> tuple[Any, float]:
    """Return the means and the energy of two clusters in float64; even rows belong to the first."""
    step = 1 << 20  # even, so that even rows have even positions in a piece
    sums, counts = np.zeros((2, 2)), np.zeros(2)
    halves = [(i, slice(a + i, a + step, 2)) for a in range(0, len(X), step) for i in (0, 1)]
    for i, part in halves:
        sums[i] += X[part].sum(axis=0, dtype=np.float64)
        counts[i] += len(X[part])
    centers = sums / counts[:, None]
    return centers, sum(float(((X[part].astype(np.float64) - centers[i]) ** 2).sum()) for i, part in halves)


def many_rows(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Accuracy of centroids and energy on 60 million float32 rows in two clusters."""
    n = 6000 if lab.quick else 60_000_000
    X = two_clouds(n)
    centers, least = _truth(X)
    files = {"rows": lab.share("rows", X), "start": lab.share("start", np.array(X[:2]))}
    del X
    rows = []
    for library in lab.present(["shoal", "shoal-lloyd", "sklearn", "sklearnex", "faiss"]):
        out = str(lab.folder / "centers.npy")
        answer = lab.ask({"do": "fit", "library": library, **files, "iters": [10], "tol": 0.0, "out": out})
        if "error" not in answer:
            run = answer["runs"][0]
            off = float(np.abs(np.load(out) / centers - 1).max())
            wrong = abs(run["energy"] / least - 1)
            rows.append({"library": library, "centres off by": off, "reported sum off by": wrong, "seconds": run["wall"]})
            lab.say(f"  {library}: centres off by {off:.2g}")
    ours = [row for row in rows if row["library"].startswith("shoal")]
    figures = [
        {"what": f"{row['library']}: {what}", "value": row[what], "limit": 1e-6}
        for row in ours
        for what in ("centres off by", "reported sum off by")
    ]
    yield entry_of(lab, f"{n}-rows", f"Two clusters of {n // 2} float32 rows each; relative errors.", rows, figures)
