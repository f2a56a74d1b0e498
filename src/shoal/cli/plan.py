"""What a fit will take: memory, by its parts (see `core.memory`), and time, by a trial on some of the rows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from .errors import NoRoom
from .methods import METHODS, SEEDINGS, estimator
from .output import size

TRIAL = 20_000  # rows
MAX_TRIAL_BYTES = 1 << 27  # of the centres of a trial: sparse files can state any width
PASSES = {"auto": 3, "minibatch": 3, "online": 10}  # over all rows, of which most methods need about 30
USUAL = 30
NOTHING_ELSE: Mapping[str, Any] = MappingProxyType({})


def limited(settings: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """What is done in here keeps below the limit on memory, if there is one."""
    from ..core.memory import MemoryLimit

    limit = settings.get("memory")
    return contextlib.nullcontext() if limit is None else MemoryLimit(limit)


def parts(rows: Any, method: str, k: int, threads: int | None, settings: Mapping[str, Any] = NOTHING_ELSE) -> dict[str, float]:
    """Bytes, by what they are for. Of the settings, those count that a plan depends on."""
    from ..core.memory import Workload, parts_of

    init = settings.get("init")
    given = {"extra": settings.get("extra", {}), "init": init if init in SEEDINGS else None}
    load = Workload.of(rows)
    if settings.get("standardize"):  # rows are read as they are worked on
        load = load._replace(itemsize=load.wide)
    return parts_of(estimator(method, k, given), load, threads or _default())


def check_memory(rows: Any, settings: dict[str, Any]) -> None:
    """Refuse at once what can't keep below the limit, and say what would; fewer threads, if that is enough."""
    limit = settings.get("memory")
    if limit is None:
        return
    k, method = settings["clusters"], settings["method"]
    threads, plan = threads_within(rows, method, k, settings["threads"], limit, settings)
    needed = sum(plan.values())
    if needed > limit:
        raise NoRoom(
            f"--memory {size(limit)} is too little: {method} with {k:,} clusters of {rows.shape[0]:,} rows takes about "
            f"{size(needed)}: {_instead(rows, settings, needed)}."
        )
    if settings["threads"] is not None or threads < _default():
        settings["threads"] = threads


def threads_within(
    rows: Any, method: str, k: int, threads: int | None, limit: float, settings: Mapping[str, Any] = NOTHING_ELSE
) -> tuple[int, dict[str, float]]:
    """As many threads as keep below the limit, or one; and what the fit takes by them."""
    count = threads or _default()
    plan = parts(rows, method, k, count, settings)
    while sum(plan.values()) > limit and count > 1:
        count -= 1
        plan = parts(rows, method, k, count, settings)
    return count, plan


def _instead(rows: Any, settings: Mapping[str, Any], needed: float) -> str:
    """What would fit."""
    ways, others = [f"allow {size(1.01 * needed)}"], {**settings, "extra": {}}
    for method in ("lloyd", "minibatch"):
        if sum(parts(rows, method, settings["clusters"], 1, others).values()) <= settings["memory"]:
            ways.append(f"or choose --method {method}")
            break
    return " ".join(ways)


def _default() -> int:
    from ..core.threads import default_threads

    return default_threads()


def estimate_seconds(rows: Any, method: str, k: int, threads: int | None) -> float | None:
    """By one step of Lloyd's on some rows; None for methods that this tells nothing about, and for very large centres."""
    import numpy as np

    import shoal

    if not METHODS[method][0].endswith("KMeans") or k > rows.shape[0] or 8 * k * rows.shape[1] > MAX_TRIAL_BYTES:
        return None
    n = rows.shape[0]
    m = min(n, max(TRIAL, k))
    begun = time.perf_counter()
    X = rows.read(0, m)
    reading = (time.perf_counter() - begun) / m
    C = rows.take(np.linspace(0, n - 1, k).astype(np.int64))
    C = C.toarray() if hasattr(C, "toarray") else C
    steps: list[float] = []

    def watch(record: dict[str, Any]) -> None:
        steps.append(record["seconds"])

    model = shoal.KMeans(k, init=C, algorithm="lloyd", max_iter=3, tol=0, n_threads=threads, callback=watch)
    model.fit(X)
    step = min(np.diff(steps, prepend=0.0)) / m
    return float(n * max(reading, step) * PASSES.get(method, USUAL))


def check_clusters(k: int, n: int) -> None:
    if k > n:
        raise click.UsageError(f"-k {k:,} clusters of {n:,} rows can't be: ask for fewer.")
