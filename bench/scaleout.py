"""Dask: overhead relative to threads, comparison with other libraries, and killed workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from .costs import costs, spent
from .dask_workers import clouds, held, workers
from .equal import counts, kills
from .measure import Lab, busy
from .results import Entry
from .rivals import peers, spark
from .suites import entry_of
from .wrong import wrong

FIRST_STEPS, STEPS = 2, 8  # untypical first steps, and all steps
CPU = "CPU seconds"  # per step, averaged over all steps


class Setting(NamedTuple):
    problem: str
    rows: int
    columns: int
    clusters: int
    partitions: int
    workers: int = 4


TINY = Setting("overhead", 4_000, 16, 8, 8, 2)
SETTINGS = [
    Setting("overhead", 786_432, 128, 1500, 64),  # partitions of three blocks; more than a second of work on two cores
    Setting("overhead, many partitions", 638_976, 128, 500, 156),  # partitions of one block
    Setting("overhead, large answers", 16_384, 8_192, 128, 32),  # 8 MB per answer, and little computation
]


def scaleout(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Dask workers compared with threads and with other libraries, and workers killed at random moments."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        lab.leave_out("scaleout: dask is not installed")
        return
    for check in (overhead, costs, wrong, counts, peers, spark, kills):
        if not only or check.__name__ in only:
            yield from check(lab)


def overhead(lab: Lab) -> Iterator[Entry]:
    """Compare steps of Lloyd's algorithm on workers and on threads, on the same cores."""
    for setting in [TINY] if lab.quick else SETTINGS:
        lab.say(setting.problem)
        rows = _compare_with_threads(lab, setting)
        what, n, d, k, chunks, count = setting
        ratio = rows[1]["seconds a step"] / rows[0]["seconds a step"]
        limit = {"limit": 1.25} if setting is SETTINGS[0] else {}
        figures = [
            {"what": "a step on workers, as so many times that of threads", "value": ratio, **limit},
            {"what": "the same in CPU time, of all processes", "value": rows[1][CPU] / rows[0][CPU]},
        ]
        where = f"{n:,} x {d} float32, k={k}, {chunks} partitions held by {count} workers"
        yield entry_of(lab, what, f"{where}; steps of Lloyd's from the same start. Medians.", rows, figures)


def _compare_with_threads(lab: Lab, setting: Setting) -> list[Entry]:
    """Measure the time of steps on threads and on workers, and what `plan` needs to predict the latter."""
    import shoal

    _, n, d, k, chunks, count = setting
    X = clouds(n, d, k)
    start = X[:: n // k][:k].copy()

    def fit(rows: Any, steps: int) -> tuple[float, Any]:
        before = spent(client).sum()
        model = shoal.KMeans(k, init=start, algorithm="lloyd", max_iter=steps, tol=0).fit(rows)
        return float(spent(client).sum() - before), model

    took: dict[str, list[Entry]] = {"threads": [], "dask": []}
    with workers(count) as client, shoal.Engine(client):
        sides = {"threads": X, "dask": held(client, X, chunks)}
        for rows in sides.values():  # compile or load the kernels, and send the rows to the workers
            fit(rows, 1)
        for _ in range(lab.repeats):
            for name, rows in sides.items():
                lab.others.append(busy())
                cpu, model = fit(rows, STEPS)
                seconds = np.diff([0.0, *(step["seconds"] for step in model.history_)])
                each = {"seconds of the first": float(seconds[0]), "seconds a step": float(np.median(seconds[FIRST_STEPS:]))}
                took[name].append({**each, CPU: cpu / len(seconds)})
                lab.say(f"  {name}: " + ", ".join(f"{key} {value:.3f}" for key, value in took[name][-1].items()))
    history = model.history_
    rows = [{"engine": name, **{key: median(one[key] for one in all_of) for key in all_of[0]}} for name, all_of in took.items()]
    rows[1] |= {"tasks": history[-1]["tasks"], "MB of the first": history[0]["bytes"] / 1e6}
    rows[1] |= {"MB a step": float(np.mean([step["bytes"] for step in history[FIRST_STEPS:]])) / 1e6}
    rows[1] |= {"moving": float(np.mean([step["reassigned"] for step in history[FIRST_STEPS:]])) / n, **setting._asdict()}
    del rows[1]["problem"]
    return rows
