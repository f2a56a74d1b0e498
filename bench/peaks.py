"""Peak memory of every method under the limit that Shoal itself recommends, by layout and shape of the rows.

Each fit runs in a process of its own: it asks for the limit with one that is far too small, fits under the limit that the
refusal names, and tells its largest resident size.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .bigfile import write_parquet
from .child import status
from .measure import Lab, busy, environment
from .results import Entry
from .suites import entry_of

MB = 1e6
OVER = 1.10  # times the limit that a peak may be
LAYOUTS = ("dense", "npy", "parquet", "sparse", "npz")  # the first and the fourth in memory
SPARSE = ("sparse", "npz")
PAIRWISE = ("spectral-exact", "spectral-power", "spectral")  # methods whose time grows with the square of the rows
STORED = 30  # values in a sparse row


class Shape(NamedTuple):
    """Rows of a problem, dense or sparse."""

    n: int
    d: int
    k: int


# name -> (dense, sparse)
SHAPES = {
    "many": (Shape(1_000_000, 16, 20), Shape(500_000, 2_000, 20)),
    "wide": (Shape(2_000, 20_000, 50), Shape(20_000, 50_000, 100)),
    "empty": (Shape(2_000, 20_000, 50), Shape(20_000, 50_000, 100)),  # all centres start from one row
    "pairs": (Shape(3_000, 300, 10), Shape(3_000, 3_000, 10)),  # for methods that compare all rows with each other
}


def write(folder: Path, name: str, layout: str) -> Path:
    """The rows of a problem as a file; those in memory are read from it."""
    n, d, k = SHAPES[name][layout in SPARSE]
    rng = np.random.default_rng(0)
    stem = "wide" if name == "empty" else name
    path = folder / f"{stem}-{'npz' if layout in SPARSE else 'npy'}.{'npz' if layout in SPARSE else 'npy'}"
    if layout in SPARSE and not path.exists():
        lengths = rng.integers(1, 2 * STORED, n)
        columns = rng.integers(0, d, lengths.sum(), dtype=np.int32)
        values = rng.standard_normal(lengths.sum(), dtype=np.float32)
        X = sparse.csr_array((values, columns, np.r_[0, lengths.cumsum()]), shape=(n, d))
        X.sum_duplicates()
        sparse.save_npz(path, X, compressed=False)
    elif not path.exists():
        C = rng.standard_normal((k, d), dtype=np.float32)
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        for a in range(0, n, 10_000):
            m = min(10_000, n - a)
            rows[a : a + m] = C[rng.integers(k, size=m)] + rng.standard_normal((m, d), dtype=np.float32)
    if layout == "parquet" and not (packed := path.with_suffix(".parquet")).exists():
        write_parquet(packed, np.load(path, mmap_mode="r"))
    return path.with_suffix(".parquet") if layout == "parquet" else path


def child(task: dict[str, Any]) -> dict[str, Any]:
    """One fit under the limit that its refusal names."""
    import shoal
    from shoal.cli.methods import METHODS

    warnings.simplefilter("ignore")
    name, options = METHODS[task["method"]]
    cls, k = getattr(shoal, name), task["k"]
    rows: Any = shoal.open_rows(task["path"])
    if task["layout"] == "dense":
        rows = np.load(task["path"])
    elif task["layout"] == "sparse":
        rows = sparse.csr_array(sparse.load_npz(task["path"]))
    model = cls(k, random_state=0, **options)
    quick: dict[str, Any] = {"n_init": 1, "max_iter": 3}
    if task["start"] == "one row":
        quick["init"] = _copies_of_one_row
    takes = model.get_params()
    model.set_params(**{key: value for key, value in quick.items() if key in takes})
    try:
        with shoal.MemoryLimit("1MB"):
            model.fit(rows)
    except MemoryError as refusal:
        told = str(refusal)
    found = re.search(r"allow (.*?B)\b", told)
    assert found is not None, told
    limit = shoal.MemoryLimit(found[1])
    before = status("self")["VmHWM"]
    try:
        with limit:
            model.fit(rows)
    except MemoryError as refusal:
        return {"limit MB": limit.limit / MB, "peak MB": 0.0, "refused": str(refusal)}
    return {"limit MB": limit.limit / MB, "peak MB": status("self")["VmHWM"] / MB, "before MB": before / MB}


def _copies_of_one_row(X: Any, k: int, random_state: Any) -> Any:
    row = X.read(0, 1) if hasattr(X, "read") else X[:1]
    row = row.toarray() if sparse.issparse(row) else np.asarray(row)
    return np.repeat(row, k, axis=0)


def ask(folder: Path, method: str, layout: str, shape: str, timeout: float | None = None) -> dict[str, Any]:
    """Limit and peak of one fit, in a process of its own. Kernels should have been compiled before."""
    path = write(folder, shape, layout)
    start = "one row" if shape == "empty" else ""
    task = {"method": method, "layout": layout, "path": str(path), "k": SHAPES[shape][layout in SPARSE].k, "start": start}
    code = "import json, sys; from bench.peaks import child; print(json.dumps(child(json.loads(sys.argv[1]))))"
    command = [sys.executable, "-c", code, json.dumps(task)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=timeout)
    told: dict[str, Any] = {"method": method, "layout": layout, "rows": shape}
    if done.returncode:
        return {**told, "failed": done.stderr.strip().splitlines()[-1]}
    told |= json.loads(done.stdout.splitlines()[-1])
    return {**told, "ratio": told["peak MB"] / told["limit MB"]}


def cases() -> Iterator[tuple[str, str, str]]:
    """Method, layout and shape of every fit."""
    from shoal.cli.methods import METHODS

    for method in METHODS:
        for shape in SHAPES:
            if (method in PAIRWISE) != (shape == "pairs") or (shape == "empty" and method.startswith(("spectral", "binary"))):
                continue
            for layout in LAYOUTS:
                if (method == "projected" and layout in SPARSE) or (method == "binary"):
                    continue
                yield method, layout, shape


def peaks(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Peak memory of every method, layout and shape under the limit that Shoal recommends."""
    table = []
    for method, layout, shape in cases():
        if lab.quick and (method, layout, shape) not in QUICK:
            continue
        if only and not any(word in f"{method}, {layout}, {shape}" for word in only):
            continue
        lab.others.append(busy())
        ask(lab.folder, method, layout, shape)  # compiles its kernels
        table.append(ask(lab.folder, method, layout, shape))
        lab.say("  " + ", ".join(f"{key} {value}" for key, value in table[-1].items()))
    worst = max(row.get("ratio", 9.0) for row in table)
    figures = [{"what": "largest peak, as a share of the limit", "value": worst, "limit": OVER}]
    yield entry_of(lab, "peaks", "Largest resident size of a process that fits under the recommended limit.", table, figures)


QUICK = [("lloyd", "npy", "pairs")]
