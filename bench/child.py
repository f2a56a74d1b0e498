"""Child process that runs one library: reads tasks and writes results as lines of JSON.

Rows are loaded and the library is warmed up on a few of them before the clock starts.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse

from .adapters import ADAPTERS, SEEDERS, labeller, restart
from .ladders import CONTENDERS
from .machine import bandwidth, sgemm
from .problems import dense

WARM_ROWS, WARM_PAIRS, WARM_STEPS = 2000, 1_200_000, 30  # fewest rows and row-centroid pairs, and iterations, of a warm-up
WARM_RUNG_STEPS = 8  # iterations of the warm-up of a ladder
MAX_SHORT_SECONDS, MAX_SHORT_RUNS = 0.3, 3  # seconds of all runs up to which, and how often, a short fit is repeated


def _load(path: str) -> Any:
    if path.endswith(".npz"):
        return sparse.csr_array(sparse.load_npz(path))
    return np.array(np.load(path, mmap_mode="r"))


def _warm(library: str, X: Any, k: int) -> None:
    """Import the library, compile its code and start its threads, by a fit to the first rows.

    The steps suffice for methods that switch to another algorithm once few rows change their cluster.
    """
    head = X[: max(WARM_ROWS, 2 * k, WARM_PAIRS // k)]
    ADAPTERS[library].fit(head, dense(head[:k]).copy(), WARM_STEPS, 0.0)


def _timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    gc.collect()
    started, cpu = time.monotonic(), time.process_time()
    out = work()
    ended = time.monotonic()
    return out, {"wall": ended - started, "cpu": time.process_time() - cpu, "started": started, "ended": ended}


def fit(task: dict[str, Any]) -> dict[str, Any]:
    """Run fits of the given numbers of iterations (or other efforts) in turn and write their centroids to a file."""
    library = task["library"]
    X, C0 = _load(task["rows"]), np.load(task["start"])
    _warm(library, X, len(C0))
    if len(task["iters"]) > 1:  # times are differences of fits: an untimed fit first allocates the memory
        ADAPTERS[library].fit(X, C0, task["iters"][0], task["tol"])
    runs, centers = [], []
    for iters in task["iters"]:
        found, times = _timed(partial(ADAPTERS[library].fit, X, C0, iters, task["tol"]))
        runs.append(
            {
                **times,
                "asked": iters,
                "n_iter": int(found.n_iter),
                "energy": float(found.energy),
                "distances": int(found.distances),
                "ran": found.ran,
            }
        )
        centers.append(found.centers)
    np.save(task["out"], np.stack(centers))
    return {"runs": runs}


class Held:
    """Rows of the last problem, and the contenders that were warmed up on it."""

    def __init__(self) -> None:
        self.path, self.X, self.warm = "", None, set[str]()

    def rows(self, path: str) -> Any:
        if path != self.path:
            self.path, self.X, self.warm = path, None, set()  # frees the old rows first
            self.X = _load(path)
        return self.X


HELD = Held()


def rung(task: dict[str, Any]) -> dict[str, Any]:
    """Run one fit of a ladder, short ones several times, and write its centroids to a file; seconds are the shortest."""
    name, k = task["contender"], task["k"]
    contender, X = CONTENDERS[name], HELD.rows(task["rows"])
    start = np.load(task["start"]) if task.get("start") else None
    limit = {"limit": task["limit"]} if task.get("limit") else {}
    if name not in HELD.warm and task["warm"]:
        contender.fit(X[: max(WARM_ROWS, 2 * k, WARM_PAIRS // k)], k, 0, min(task["steps"], WARM_RUNG_STEPS), start)
        HELD.warm.add(name)
    walls: list[float] = []
    while not walls or (len(walls) < MAX_SHORT_RUNS and sum(walls) < MAX_SHORT_SECONDS):
        found, times = _timed(lambda: contender.fit(X, k, task["seed"], task["steps"], start, **limit))
        walls.append(times["wall"])
    np.save(task["out"], found.centers)
    return {"wall": min(walls), "n_iter": int(found.n_iter), "finished": found.finished, "curve": found.curve}


def machine(task: dict[str, Any]) -> dict[str, Any]:
    """Measure the matrix products and the memory bandwidth of this machine."""
    return {"sgemm": sgemm(task.get("size", 2048)), "bandwidth": bandwidth(task.get("megabytes", 512))}


def seed(task: dict[str, Any]) -> dict[str, Any]:
    X = _load(task["rows"])
    ready = SEEDERS[task["library"]]
    ready(X[: 4 * task["k"]], min(task["k"], 20), 0)()
    centers, times = _timed(ready(X, task["k"], task["seed"]))
    np.save(task["out"], centers)
    return times


def predict(task: dict[str, Any]) -> dict[str, Any]:
    found = labeller(task["library"], _load(task["rows"]), np.load(task["start"]))
    found()
    return {"seconds": [_timed(found)[1]["wall"] for _ in range(5)]}


def restarts(task: dict[str, Any]) -> dict[str, Any]:
    X = _load(task["rows"])
    restart(task["library"], X[: 4 * task["k"]], task["k"], 1, 0)
    found, times = _timed(lambda: restart(task["library"], X, task["k"], task["n_init"], task["seed"]))
    np.save(task["out"], found.centers)
    return times


def labels(task: dict[str, Any]) -> dict[str, Any]:
    """Fit an estimator given by name and write its labels to a file."""
    X = _load(task["rows"])
    make = getattr(import_module("shoal" if task["library"] == "shoal" else "sklearn.cluster"), task["method"])
    make(**task["options"]).fit(X[:WARM_ROWS])
    model, times = _timed(lambda: make(**task["options"]).fit(X))
    np.save(task["out"], model.labels_)
    history = getattr(model, "history_", [])
    return {
        **times,
        "peak": status("self")["VmHWM"],
        **{key: sum(r[key] for r in history) for key in ("columns", "flops") if history},
    }


def memory(task: dict[str, Any]) -> dict[str, Any]:
    """Fit memory-mapped rows. The parent samples the memory between `started` and `ended`."""
    X, C0 = np.load(task["rows"], mmap_mode="r"), np.load(task["start"])
    _warm(task["library"], X, len(C0))  # Numba compiles separate code for read-only rows
    gc.collect()
    before = status("self")
    found, times = _timed(lambda: ADAPTERS[task["library"]].fit(X, C0, task["iters"], 0.0))
    return {**times, "ran": found.ran, "before": before["RssAnon"], "peak": status("self")["VmHWM"]}


def status(process: int | str) -> dict[str, int]:
    """Return the memory of a process in bytes, from Linux /proc."""
    with open(f"/proc/{process}/status") as lines:
        pairs = (line.split(":", 1) for line in lines if line.startswith(("Vm", "Rss")))
        return {key: int(value.split()[0]) * 1024 for key, value in pairs}


TASKS = {task.__name__: task for task in (fit, rung, machine, seed, predict, labels, restarts, memory)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to stderr
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        task = json.loads(line)
        try:
            answer = TASKS[task["do"]](task)
        except Exception as error:  # libraries may raise anything
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
