"""Measurement: each library runs alone, in its own process, in turn; results are medians.

Energies are recomputed here in float64, whatever the libraries say.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np
from joblib import cpu_count
from scipy import sparse

from .adapters import ADAPTERS
from .child import status
from .problems import dense

Array = np.ndarray[Any, Any]
Answer = dict[str, Any]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
SAMPLE_SECONDS = 0.005


def environment() -> dict[str, str]:
    """Return the environment of child processes: the same module path and number of threads for every library.

    Idle OpenMP threads sleep, so that they take no time from the next library.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "OMP_WAIT_POLICY": "passive", **dict.fromkeys(THREADS, str(cpu_count()))}


def busy(seconds: float = 0.1) -> float:
    """Return the fraction of CPU time used by other processes while this process sleeps."""
    seen = []
    for pause in (seconds, 0.0):
        try:
            with open("/proc/stat") as lines:
                times = [int(word) for word in lines.readline().split()[1:9]]
        except OSError:
            return 0.0
        seen.append((sum(times), times[3] + times[4]))
        time.sleep(pause)
    (total0, idle0), (total1, idle1) = seen
    return 1 - (idle1 - idle0) / max(total1 - total0, 1)


def energy(X: Any, C: Array) -> float:
    """Return the sum of squared distances to the nearest centroid, as (x - c)^2 in float64, in blocks of rows.

    Sparse rows have too many columns for that. They are of unit length, so |x|^2 - 2xc + |c|^2 loses no digits.
    """
    C = np.asarray(C, np.float64)
    half = (C * C).sum(axis=1) / 2
    total = 0.0
    step = max(1, (1 << 23) // (len(C) if hasattr(X, "indptr") else max(X.shape[1], len(C))))
    for a in range(0, X.shape[0], step):
        if hasattr(X, "indptr"):
            rows = X[a : a + step].astype(np.float64)
            total += float((rows.data**2).sum() + 2 * (half - rows @ C.T).min(axis=1).sum())
            continue
        block = dense(X[a : a + step]).astype(np.float64)
        nearest = (half - block @ C.T).argmin(axis=1)
        total += float(((block - C[nearest]) ** 2).sum())
    return total


class Worker:
    """A child process that runs tasks for one library."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
            start_new_session=True,
        )

    def ask(self, task: dict[str, Any]) -> Answer:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            print(json.dumps(task), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"its process ended with code {self.process.wait()}"}
        return json.loads(line)  # type: ignore[no-any-return]

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Watch:
    """Sample the anonymous memory of a process (not backed by a file) while a task runs."""

    def __init__(self, pid: int) -> None:
        self.pid, self.samples = pid, [(0.0, 0)]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self.over.wait(SAMPLE_SECONDS):
            self.samples.append((time.monotonic(), status(self.pid).get("RssAnon", 0)))

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def peak(self, started: float, ended: float) -> int:
        return max((size for at, size in self.samples if started <= at <= ended), default=0)


class Lab:
    """A run: settings, scratch folder, processes and skipped problems."""

    def __init__(self, repeats: int = 3, quick: bool = False) -> None:
        self.repeats, self.quick = (1 if quick else repeats), quick
        self.left_out: list[str] = []
        self.others: list[float] = []
        self.failures = 0
        self.workers: dict[str, Worker] = {}
        self.scratch = tempfile.TemporaryDirectory(prefix="shoal-bench-")
        self.folder = Path(self.scratch.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()
        self.scratch.cleanup()

    def dismiss(self) -> None:
        """End the processes that were kept for further tasks."""
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def leave_out(self, line: str, failed: bool = False) -> None:
        self.say(f"skipped: {line}")
        self.left_out.append(line)
        self.failures += failed

    def share(self, name: str, X: Any) -> str:
        """Write a file for the child processes."""
        if hasattr(X, "indptr"):
            path = self.folder / f"{name}.npz"
            sparse.save_npz(path, X, compressed=False)
        else:
            path = self.folder / f"{name}.npy"
            np.save(path, X)
        return str(path)

    def present(self, libraries: Sequence[str]) -> list[str]:
        """Return the libraries that are installed."""
        absent = [name for name in libraries if ADAPTERS[name].missing()]
        for name in absent:
            self.leave_out(f"{name}: {ADAPTERS[name].package} is not installed")
        return [name for name in libraries if name not in absent]

    def ask_again(self, package: str, task: dict[str, Any]) -> Answer:
        """Run a task in the process of the package, which stays for further tasks. Errors are for the caller to report."""
        if not self.quick:
            time.sleep(0.05)  # until the BLAS threads of this process stop spinning
            self.others.append(busy(0.05))
        worker = self.workers.get(package)
        if worker is None:
            worker = self.workers[package] = Worker()
        answer = worker.ask(task)
        if worker.process.poll() is not None:
            self.workers.pop(package).close()
        return answer

    def ask(self, task: dict[str, Any], watch: bool = False) -> Answer:
        """Run a task in its own process. A quick run, whose times do not count, reuses one process per package."""
        package = ADAPTERS[task["library"]].package if task["library"] in ADAPTERS else "shoal"
        if not self.quick:
            time.sleep(0.3)  # until the BLAS threads of this process stop spinning
        before = 0.0 if self.quick else busy()
        worker = self.workers.get(package) or Worker()
        if self.quick:
            self.workers[package] = worker
        else:
            self.others.append(before)
        try:
            if not watch:
                answer = worker.ask(task)
            else:
                with Watch(worker.process.pid) as seen:
                    answer = worker.ask(task)
                if "error" not in answer:
                    answer["most"] = seen.peak(answer["started"], answer["ended"])
        finally:
            if not self.quick:
                worker.close()
        if "error" in answer:
            self.workers.pop(package, worker).close()
            self.leave_out(f"{task['library']}: {answer['error']}", failed=True)
        return answer

    def rounds(
        self, libraries: Sequence[str], task_of: Callable[[str, dict[str, list[Answer]]], dict[str, Any]], repeats: int
    ) -> dict[str, list[Answer]]:
        """Run every library in turn, in several rounds, each of which begins with another library.

        A task may depend on the answers so far. A library that fails is left out from then on.
        """
        answers: dict[str, list[Answer]] = {name: [] for name in libraries}
        for turn in range(repeats):
            at = turn % max(len(libraries), 1)
            for name in [*libraries[at:], *libraries[:at]]:
                if name not in answers:
                    continue
                answer = self.ask(task_of(name, answers))
                if "error" in answer:
                    del answers[name]
                    continue
                answers[name].append(answer)
                self.say(f"  round {turn + 1}: {name} {_seconds(answer)}")
        return answers


def _seconds(answer: Answer) -> str:
    return ", ".join(f"{run['wall']:.3f} s" for run in answer.get("runs", [answer]))


def each(answers: list[Answer], what: str) -> list[float]:
    """Return the time of each repeat: a whole fit, or one iteration if fits of two lengths were made."""
    if len(answers[0]["runs"]) == 1:
        return [answer["runs"][0][what] for answer in answers]
    pairs = [answer["runs"] for answer in answers]
    return [(long[what] - short[what]) / (long["n_iter"] - short["n_iter"]) for short, long in pairs]


def middle(answers: list[Answer], what: str) -> float:
    return float(median(each(answers, what)))
