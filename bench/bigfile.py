"""Fits of a file larger than the memory limit: peak memory and time.

Each fit runs in its own process, which reports its largest resident size.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .child import status
from .measure import Lab, busy, environment
from .results import Entry
from .suites import entry_of

MB = 1e6
SHAPE, CLUSTERS, STEPS = (12_000_000, 128), 100, 5
ROWS_PER_WRITE = 100_000
LIMIT, MAX_PEAK = 512, 600  # MB
FORMAT_FRACTION = 6  # Parquet and checkpoints are tried on one part in so many of the rows


def write_rows(path: Path, n: int, d: int, k: int) -> None:
    """Write overlapping Gaussian clusters to an .npy file, in parts."""
    C = np.random.default_rng(0).standard_normal((k, d), dtype=np.float32)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, d)})
        for a in range(0, n, ROWS_PER_WRITE):
            rng = np.random.default_rng([1, a])
            X = rng.standard_normal((min(ROWS_PER_WRITE, n - a), d), dtype=np.float32)
            X += C[rng.integers(k, size=len(X))]
            file.write(X.tobytes())


def write_parquet(path: Path, rows: Any) -> None:
    """Write the rows as one list column, with pyarrow's default row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    d = rows.shape[1]
    with pq.ParquetWriter(path, pa.schema([("x", pa.list_(pa.float32(), d))])) as writer:
        for a in range(0, len(rows), ROWS_PER_WRITE):
            flat = pa.array(np.ascontiguousarray(rows[a : a + ROWS_PER_WRITE]).ravel())
            writer.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(flat, d)}))


def child(task: dict[str, Any]) -> dict[str, Any]:
    """Run one fit; kernels are loaded before the clock starts."""
    import shoal

    k, counted = task["k"], [0]
    start = np.load(task["start"])
    rows: Any = np.load(task["path"]) if task["memory"] else shoal.open_rows(task["path"])

    def make() -> Any:
        if task["method"] == "auto":
            return shoal.NestedKMeans(k, quality=0.01, random_state=0)
        init = "k-means++" if task["seeded"] else start
        return shoal.KMeans(k, init=init, algorithm="lloyd", max_iter=task["steps"], tol=task["tol"], random_state=0)

    make().fit(np.concatenate([start, start + 1]))
    if not task["memory"]:
        for name in ("read", "take"):
            _count(rows, name, counted)
    keeping = shoal.Checkpoint(task["keep"], every=5) if task["keep"] else contextlib.nullcontext()
    limit = shoal.MemoryLimit(f"{LIMIT}MB") if task["limit"] else contextlib.nullcontext()
    began, cpu = time.monotonic(), time.process_time()
    with keeping, limit:
        model = make().fit(rows)
    times = {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}
    result = {**times, "energy": model.inertia_, "steps": model.n_iter_, "reads": counted[0] / rows.shape[0]}
    return {**result, "peak MB": status("self")["VmHWM"] / MB, "stopped": model.stop_reason_}


def _count(rows: Any, name: str, counted: list[int]) -> None:
    """Count the rows that are read from the file."""
    inner = getattr(rows._rows, name)

    def watched(*args: Any) -> Any:
        block = inner(*args)
        counted[0] += block.shape[0]
        return block

    setattr(rows._rows, name, watched)


class Field:
    """The processes and files of the fits."""

    def __init__(self, lab: Lab, start: str) -> None:
        self.lab, self.start = lab, start

    def fit(self, name: str, rows: Path, k: int, **options: Any) -> dict[str, Any]:
        off = dict.fromkeys(("memory", "limit", "seeded"), False)
        defaults = {"method": "lloyd", "steps": STEPS, "tol": 0.0, "keep": "", **off}
        task = {"path": str(rows), **defaults, "start": self.start, "k": k, **options}
        self.lab.others.append(busy())
        code = "import json, sys; from bench.bigfile import child; print(json.dumps(child(json.loads(sys.argv[1]))))"
        command = [sys.executable, "-W", "ignore", "-c", code, json.dumps(task)]
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
        result = {"fit": name, **json.loads(done.stdout.splitlines()[-1])}
        self.lab.say(f"  {name}: {result['seconds']:.1f} s, peak {result['peak MB']:.0f} MB, read {result['reads']:.2f} times")
        return result

    def turns(self, path: Path, k: int, fits: dict[str, dict[str, Any]], repeats: int) -> dict[str, dict[str, Any]]:
        """Run the fits in turn, several times, and return median times."""
        every = [{name: self.fit(name, path, k, **options) for name, options in fits.items()} for _ in range(repeats)]
        times = ("seconds", "cpu")
        return {name: {**every[-1][name], **{t: median(turn[name][t] for turn in every) for t in times}} for name in fits}


def bigfile(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """A 6 GB file under a limit of 512 MB: memory, time relative to rows in memory, `auto`, Parquet and checkpoints."""
    (n, d), k = ((60_000, 16), 10) if lab.quick else (SHAPE, CLUSTERS)
    size = 4 * n * d
    if shutil.disk_usage(lab.folder).free < 2.5 * size:
        lab.leave_out(f"bigfile: no room for {2.5 * size / MB:.0f} MB in {lab.folder}")
        return
    path, part = lab.folder / "big.npy", lab.folder / "part.npy"
    write_rows(part, n // FORMAT_FRACTION, d, k)
    field = Field(lab, lab.share("start", np.load(part, mmap_mode="r")[:: n // FORMAT_FRACTION // k][:k]))
    if not only or "formats" in only:
        yield _formats(lab, field, part, k)
    part.unlink()
    checks = [check for check in (_limited, _auto) if not only or check.__name__[1:] in only]
    if checks:
        write_rows(path, n, d, k)
        lab.say(f"  {size / MB:.0f} MB written")
    for check in checks:
        yield check(lab, field, path, k, size)


def _limited(lab: Lab, field: Field, path: Path, k: int, size: int) -> Entry:
    """Measure Lloyd's algorithm, which reads the rows once per step."""
    fits: dict[str, dict[str, Any]] = {"file, limited": {"limit": True}, "in memory": {"memory": True}}
    took = field.turns(path, k, fits, min(lab.repeats, 2))
    ours, theirs = took["file, limited"], took["in memory"]
    figures = [
        {"what": f"peak MB under a limit of {LIMIT}", "value": ours["peak MB"], "limit": MAX_PEAK},
        {"what": "time, as so many times that in memory", "value": ours["seconds"] / theirs["seconds"], "limit": 1.3},
        {"what": "CPU time, as so many times that in memory", "value": ours["cpu"] / theirs["cpu"]},
        {"what": "energy less that in memory", "value": abs(ours["energy"] - theirs["energy"]), "limit": 0},
    ]
    measure = (
        f"{size / MB:.0f} MB of float32, k={k}, {STEPS} steps of Lloyd's from the same start, without the reading into memory."
    )
    return entry_of(lab, "limited", measure, list(took.values()), figures)


def _auto(lab: Lab, field: Field, path: Path, k: int, size: int) -> Entry:
    auto = field.fit("auto", path, k, method="auto", limit=True)
    lloyd = field.fit("lloyd", path, k, memory=True, steps=30, tol=1e-4, seeded=True)
    figures = [
        {"what": "auto's energy over Lloyd's", "value": auto["energy"] / lloyd["energy"], "limit": 1.01},
        {"what": "times that auto read the file", "value": auto["reads"], "limit": 3},
        {"what": f"peak MB of auto under a limit of {LIMIT}", "value": auto["peak MB"], "limit": MAX_PEAK},
    ]
    measure = f"{size / MB:.0f} MB of float32, k={k}: `auto`, and Lloyd's from k-means++ for 30 steps, or to the end."
    return entry_of(lab, "auto", measure, [auto, lloyd], figures)


def _formats(lab: Lab, field: Field, part: Path, k: int) -> Entry:
    fits: dict[str, dict[str, Any]] = {"npy": {}, "npy, checkpoints": {"keep": str(part.with_suffix(".kept"))}}
    try:
        write_parquet(part.with_suffix(".parquet"), np.load(part, mmap_mode="r"))
        fits["parquet"] = {"path": str(part.with_suffix(".parquet"))}
    except ImportError:
        lab.leave_out("parquet: pyarrow is not installed")
    took = field.turns(part, k, {name: {"steps": 4 * STEPS, **fit} for name, fit in fits.items()}, lab.repeats)
    plain = took["npy"]["seconds"]
    more = took["npy, checkpoints"]["seconds"] / plain - 1
    figures = [{"what": "share of the time for checkpoints", "value": more, "limit": 0.02}]
    if "parquet" in took:
        figures.append({"what": "Parquet's CPU time over npy's", "value": took["parquet"]["cpu"] / took["npy"]["cpu"]})
        figures.append({"what": "Parquet's time over npy's", "value": took["parquet"]["seconds"] / plain, "limit": 1.5})
    measure = f"A {FORMAT_FRACTION}th of the rows, k={k}, {4 * STEPS} steps of Lloyd's; a checkpoint every 5 seconds."
    return entry_of(lab, "formats", measure, list(took.values()), figures)
