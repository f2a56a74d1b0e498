"""Fault injection for files: kills, full disks, truncated files, flipped bits and malicious models. Counts, not times.

Results are numbers of failed cases, which must be zero. The tests try a tenth of each.
"""

from __future__ import annotations

import contextlib
import errno
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from . import failing
from .measure import Lab, environment
from .results import Entry
from .suites import entry_of

KILLS, CUTS, FLIPS = 200, 100, 10_000


def faults(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Number of harmful kills, full disks, truncated files, flipped bits and malicious models."""
    checks: dict[str, Callable[[Lab, int], Entry]] = {
        "kills": kills,
        "disks": disks,
        "cuts": cuts,
        "flips": flips,
        "hostile": hostile,
    }
    for name, check in checks.items():
        if not only or name in only:
            yield check(lab, 50 if lab.quick else 1)


def _entry(lab: Lab, name: str, measure: str, rows: list[Entry], bad: Sequence[str] = ("harmed",)) -> Entry:
    figures = [{"what": f"{row['case']}: {what}", "value": row[what], "limit": 0} for row in rows for what in bad]
    for row in rows:
        lab.say("  " + ", ".join(f"{key} {value}" for key, value in row.items()))
        lab.failures += any(row[what] for what in bad)
    return entry_of(lab, name, measure, rows, figures)


def kills(lab: Lab, less: int) -> Entry:
    """Kill fits (SIGKILL), half of them during a write, and resume each until it ends."""
    from tests.formats.crashes import MODELS

    names = ["KMeans", "MiniBatchSpectral"] if lab.quick else list(MODELS)
    command = [sys.executable, "-m", "tests.formats.crashes", str(-(-KILLS // less // len(names))), *names]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [
        {
            "case": t["estimator"],
            "lives": t["lives"],
            "resumed": t["resumed"],
            "ends": t["ends"],
            "harmed": 0 if t["same"] else 1,
        }
        for t in reports
    ]
    return _entry(lab, "kills", "kill -9 at random moments, half inside a write. Harmed: other bits in the end.", rows)


def _model(folder: Path) -> Path:
    import shoal

    X = np.random.default_rng(0).normal(size=(300, 4))
    shoal.save(shoal.KMeans(3, random_state=0).fit(X), folder / "model.npz")
    return folder / "model.npz"


def _checkpoint(folder: Path) -> tuple[Path, Callable[[], Any]]:
    """Return a checkpoint of an interrupted fit and a function that resumes it."""
    import shoal

    path, X = folder / "checkpoint.npz", np.random.default_rng(0).normal(size=(300, 4))

    def fit(**options: Any) -> None:
        with shoal.Checkpoint(path, every=0):
            shoal.KMeans(3, init=X[:3], tol=0, **options).fit(X)

    def stop(record: dict[str, Any]) -> None:
        if record["step"] == 3:
            raise InterruptedError

    with contextlib.suppress(InterruptedError), mock.patch("shoal.formats.checkpoint.SHARE", 1e9):
        fit(callback=stop)
    return path, fit


def disks(lab: Lab, less: int) -> Entry:
    """Make each system call of a write fail in three ways, for `save` and for all files of a fit."""
    rows = []
    for name, tries in (("save", failing.saves), ("fit", partial(failing.fits, quick=lab.quick))):
        for number in failing.ERRORS:
            tried, harmed = tries(lab.folder / _fresh(lab), number)
            rows.append({"case": f"{name}, {errno.errorcode[number]}", "tried": tried, "harmed": harmed})
    measure = (
        "Every call of a write fails once. Harmed: an old file is gone or broken, more is there than before, files of two runs "
        "are called a result, or a command ended with another exit code than 4."
    )
    return _entry(lab, "disks", measure, rows)


def _fresh(lab: Lab) -> str:
    name = f"faults-{time.monotonic_ns()}"
    (lab.folder / name).mkdir()
    return name


def cuts(lab: Lab, less: int) -> Entry:
    """Truncate files of every format at random positions and to zero bytes."""
    from shoal import open_rows
    from tests.formats import writers

    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    rows = []
    for name in [name for name in (*writers.DENSE, *writers.TEXT) if "." in name and name != "rows.zarr"]:
        path = lab.folder / _fresh(lab) / name
        {**writers.DENSE, **writers.TEXT}[name](path, X)
        data = path.read_bytes()
        with contextlib.suppress(ValueError):
            open_rows(path).read(0, 1)  # imports are not measured
        harmed = refused = 0
        places = [0, *np.random.default_rng(1).integers(0, len(data), CUTS // less).tolist()]
        for size in places:
            path.write_bytes(data[:size])
            tracemalloc.start()
            try:
                there = open_rows(path)
                there.read(0, len(there))
                harmed += name not in writers.TEXT and name != "rows.fvecs"  # truncated files of these formats can be valid
            except ValueError as error:
                refused += 1
                harmed += name not in str(error)
            harmed += tracemalloc.get_traced_memory()[1] > max(2 * len(data), 4e6)
            tracemalloc.stop()
        rows.append({"case": name, "tried": len(places), "refused": refused, "harmed": harmed})
    return _entry(lab, "cuts", "Harmed: read as if whole, an error without the file's name, or much memory.", rows)


def flips(lab: Lab, less: int) -> Entry:
    """Flip single bits of a model and of a checkpoint."""
    import shoal
    from shoal.exceptions import InvalidModelError

    model = _model(lab.folder / _fresh(lab))
    checkpoint, go_on = _checkpoint(lab.folder / _fresh(lab))
    rows = []
    for path, use in ((model, lambda: shoal.load(model)), (checkpoint, go_on)):
        data, rng, harmed, count = path.read_bytes(), np.random.default_rng(0), 0, FLIPS // 2 // less
        for place in rng.integers(0, 8 * len(data), count).tolist():
            changed = bytearray(data)
            changed[place // 8] ^= 1 << place % 8
            path.write_bytes(changed)
            try:
                use()
                harmed += 1
            except InvalidModelError:
                pass
        rows.append({"case": path.stem, "tried": count, "harmed": harmed})
    return _entry(lab, "flips", "Harmed: a changed file was taken.", rows)


def hostile(lab: Lab, less: int) -> Entry:
    """Load malicious models, each in a fresh process."""
    from tests.formats.test_models import HOSTILE, sealed

    code = (
        "import resource, sys, time, shoal\nfrom shoal.formats.models import load\n"
        "before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()\n"
        "try:\n    load(sys.argv[1])\n    print('loaded')\nexcept ValueError:\n    print('refused')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, time.monotonic() - began)"
    )
    rows = []
    for name, (manifest, members, _) in list(HOSTILE.items())[:: 10 if lab.quick else 1]:
        path = sealed(lab.folder / "hostile.npz", manifest, **members)
        command = [sys.executable, "-W", "ignore", "-c", code, str(path)]
        word, kilobytes, seconds = subprocess.run(
            command, env=environment(), stdout=subprocess.PIPE, text=True, check=True
        ).stdout.split()
        megabytes = int(kilobytes) / 1000
        harmed = int(word != "refused" or megabytes > 100 or float(seconds) > 2)
        rows.append({"case": name, "MB": round(megabytes, 1), "seconds": round(float(seconds), 2), "harmed": harmed})
    return _entry(lab, "hostile", "Harmed: loaded, or 100 MB or two seconds spent on it.", rows)
