"""Peak memory of every method under the memory limit that Shoal recommends, by layout and shape of the rows.

Each fit runs in its own process. It provokes the error that recommends a limit, fits under this limit, and reports the largest
resident size.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .bigfile import write_parquet, write_rows
from .child import status
from .measure import Lab, busy, environment
from .results import Entry
from .suites import entry_of

MB = 1e6
MAX_RATIO = 1.10  # of the peak to the limit
SPARSE = ("sparse", "npz")  # layouts; "dense" and "sparse" are arrays in memory
PAIRWISE = ("spectral-exact", "spectral-power", "spectral")  # methods whose time grows with the square of the rows
NONZEROS_PER_ROW = 30


class Shape(NamedTuple):
    """Rows, columns and clusters of a problem."""

    n: int
    d: int
    k: int


class Problem(NamedTuple):
    """Shapes and layouts of a problem."""

    dense: Shape
    sparse: Shape
    layouts: tuple[str, ...]
    one_row: bool = False  # initial centroids are copies of one row, so that all clusters but one are empty


PROBLEMS = {
    "many": Problem(Shape(1_000_000, 16, 20), Shape(500_000, 2_000, 20), ("npy", "parquet", "sparse")),
    "wide": Problem(Shape(2_000, 20_000, 50), Shape(20_000, 50_000, 100), ("dense", "parquet", "npz")),
    "empty": Problem(Shape(2_000, 20_000, 50), Shape(20_000, 50_000, 100), ("npy", "npz"), True),
    "pairs": Problem(Shape(3_000, 300, 10), Shape(3_000, 3_000, 10), ("dense", "npy", "parquet", "sparse", "npz")),
    "bits": Problem(Shape(500_000, 256, 20), Shape(0, 0, 0), ("dense", "npy")),
    "small": Problem(Shape(500, 8_000, 20), Shape(2_000, 60_000, 50), ()),  # for tests
    "small, empty": Problem(Shape(500, 8_000, 20), Shape(20_000, 30_000, 60), (), True),
}


def shape_of(problem: str, layout: str) -> Shape:
    return PROBLEMS[problem].sparse if layout in SPARSE else PROBLEMS[problem].dense


def write(folder: Path, problem: str, layout: str) -> Path:
    """Write the rows of a problem to a file; in-memory layouts are read from it."""
    shape, rng = shape_of(problem, layout), np.random.default_rng(0)
    path = folder / f"{'-'.join(map(str, shape))}.{'npz' if layout in SPARSE else 'npy'}"
    if path.exists():
        pass
    elif layout in SPARSE:
        lengths = rng.integers(1, 2 * NONZEROS_PER_ROW, shape.n)
        columns = rng.integers(0, shape.d, lengths.sum(), dtype=np.int32)
        values = rng.standard_normal(lengths.sum(), dtype=np.float32)
        X = sparse.csr_array((values, columns, np.r_[0, lengths.cumsum()]), shape=shape[:2])
        X.sum_duplicates()
        sparse.save_npz(path, X, compressed=False)
    elif problem == "bits":
        np.save(path, rng.random(shape[:2], np.float32) < 0.5)
    else:
        write_rows(path, *shape)
    if layout != "parquet":
        return path
    packed = path.with_suffix(".parquet")
    if not packed.exists():
        write_parquet(packed, np.load(path, mmap_mode="r"))
    return packed


def child(task: dict[str, Any]) -> dict[str, Any]:
    """Run one fit under the limit that its error message recommends."""
    import shoal
    from shoal.cli.methods import REGISTRY

    warnings.simplefilter("ignore")
    spec = REGISTRY[task["method"]]
    cls, k = getattr(shoal, spec.estimator), task["k"]
    rows: Any = shoal.open_rows(task["path"])
    if task["layout"] == "dense":
        rows = np.load(task["path"])
    elif task["layout"] == "sparse":
        rows = sparse.csr_array(sparse.load_npz(task["path"]))
    model = cls(k, random_state=0, **spec.options)
    quick: dict[str, Any] = {"n_init": 1, "max_iter": 3}
    if task["one row"]:
        quick["init"] = _copies_of_one_row
    takes = model.get_params()
    model.set_params(**{key: value for key, value in quick.items() if key in takes})
    try:
        with shoal.MemoryLimit("1MB"):
            model.fit(rows)
    except MemoryError as refusal:
        message = str(refusal)
    found = re.search(r"allow (.*?B)\b", message)
    assert found is not None, message
    limit = shoal.MemoryLimit(found[1])
    before = status("self")["VmHWM"]
    try:
        with limit:
            model.fit(rows)
    except MemoryError as refusal:
        raise AssertionError(f"The recommended limit is refused: {refusal}") from refusal
    return {"limit MB": limit.limit / MB, "before MB": before / MB, "peak MB": status("self")["VmHWM"] / MB}


def _copies_of_one_row(X: Any, k: int, random_state: Any) -> Any:
    row = X.read(0, 1) if hasattr(X, "read") else X[:1]
    row = row.toarray() if sparse.issparse(row) else np.asarray(row)
    return np.repeat(row, k, axis=0)


def ask(folder: Path, method: str, layout: str, problem: str) -> dict[str, Any]:
    """Return limit and peak of a fit in its own process; repeat the fit if kernels had to be compiled."""
    path, k = write(folder, problem, layout), shape_of(problem, layout).k
    task = {"method": method, "layout": layout, "path": str(path), "k": k, "one row": PROBLEMS[problem].one_row}
    code = "import json, sys; from bench.peaks import child; print(json.dumps(child(json.loads(sys.argv[1]))))"
    command = [sys.executable, "-c", code, json.dumps(task)]
    record: dict[str, Any] = {"method": method, "layout": layout, "rows": problem}
    for _ in range(2):
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            return {**record, "failed": done.stderr.strip().splitlines()[-1]}
        record |= json.loads(done.stdout.splitlines()[-1])
        record["ratio"] = record["peak MB"] / record["limit MB"]
        if record["ratio"] <= MAX_RATIO:
            break
    return record


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield method, layout and problem of every fit."""
    from shoal.cli.methods import REGISTRY

    for method in REGISTRY:
        if method == "binary":
            names = ["bits"]
        elif method in PAIRWISE:
            names = ["pairs"]
        else:
            names = ["many", "wide"] if method.startswith("spectral") else ["many", "wide", "empty"]
        for name in names:
            yield from ((method, layout, name) for layout in PROBLEMS[name].layouts if (method, layout) not in LEFT_OUT)


LEFT_OUT = [("projected", layout) for layout in SPARSE]  # layouts that are not supported
QUICK = ("lloyd", "npz", "small, empty")


def peaks(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Peak memory of every method, layout and shape under the recommended memory limit."""
    chosen = [case for case in ([QUICK] if lab.quick else cases()) if not only or case[0] in only]
    measure = (
        "Largest resident size of a process that fits under the limit that Shoal names when it is asked with one of 1 MB; "
        "three steps from one start."
    )
    for method, group in groupby(chosen, key=lambda case: case[0]):
        table = []
        for case in group:
            lab.others.append(busy())
            table.append(ask(lab.folder, *case))
            cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in table[-1].values())
            lab.say(f"  {', '.join(cells)}")
        worst = max(row.get("ratio", math.inf) for row in table)
        figures = [{"what": "largest peak, as a share of the limit", "value": worst, "limit": MAX_RATIO}]
        yield entry_of(lab, method, measure, table, figures)
