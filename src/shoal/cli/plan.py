"""What a fit will take: memory, by its parts (see `core.memory`), and time, by a trial on some of the rows."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from .errors import NoRoom
from .methods import METHODS, SEEDINGS, estimator
from .output import size

TRIAL = 20_000  # rows
MAX_TRIAL_BYTES = 1 << 27  # of the centres of a trial, and of its rows: files can state any width
PASSES = {"auto": 3, "minibatch": 3, "online": 10}  # over all rows, of which most methods need about 30
USUAL = 30
WIDEST = 8  # bytes of a number that is worked on
NOTHING_ELSE: Mapping[str, Any] = MappingProxyType({})


def limited(settings: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """What is done in here keeps below the limit on memory, if there is one."""
    from ..execution.memory import MemoryLimit

    limit = settings.get("memory")
    return contextlib.nullcontext() if limit is None else MemoryLimit(limit)


def parts(
    rows: Any, method: str, k: int, threads: int | None, settings: Mapping[str, Any] = NOTHING_ELSE, is_sure: bool = False
) -> dict[str, float]:
    """Bytes, by what they are for. Of the settings, those count that a plan depends on.

    Whether standardized floats need float64 is not known before they are read: `is_sure` plans for that.
    """
    from ..execution.memory import Workload, parts_of

    init = settings.get("init")
    given = {"extra": settings.get("extra", {}), "init": init if init in SEEDINGS else None}
    load = Workload.of(rows)
    if settings.get("standardize"):  # rows are read as they are worked on
        wide = WIDEST if is_sure and rows.dtype.kind == "f" else load.wide
        load = load._replace(itemsize=wide, wide=wide)
    return parts_of(estimator(method, k, given), load, threads or _default())


def check_memory(rows: Any, settings: dict[str, Any]) -> None:
    """Refuse at once what can't keep below the limit, and say what would; fewer threads, if that is enough."""
    [settings["threads"]] = threads_for(rows, [(settings["method"], settings["clusters"])], settings)


def threads_for(rows: Any, fits: Sequence[tuple[str, int]], settings: Mapping[str, Any]) -> list[int | None]:
    """Threads by which each of several fits (method, clusters) keeps below the limit; None for as many as usual.

    If one of them can't, all are refused, and the limit that is recommended is enough for all.
    """
    from ..execution.memory import check_machine

    limit = settings.get("memory")
    plans = [threads_within(rows, *fit, settings["threads"], math.inf if limit is None else limit, settings) for fit in fits]
    needed, method, k = max((sum(plan.values()), *fit) for (_, plan), fit in zip(plans, fits, strict=True))
    what = f"{method} with {k:,} clusters of {rows.shape[0]:,} rows"
    if limit is None:
        if settings.get("engine") != "dask":
            check_machine(what, needed)
        return [settings["threads"]] * len(fits)
    if needed > limit:
        if settings.get("standardize"):
            needed = max(needed, *(sum(parts(rows, *fit, 1, settings, is_sure=True).values()) for fit in fits))
        ways = _instead(rows, {**settings, "clusters": k}, needed, len(fits) == 1)
        raise NoRoom(f"--memory {size(limit)} is too little: {what} takes about {size(needed)}: {ways}.")
    return [count if settings["threads"] is not None or count < _default() else None for count, _ in plans]


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


def _instead(rows: Any, settings: Mapping[str, Any], needed: float, is_free: bool) -> str:
    """What would fit; another method, too, if the user is free to choose one."""
    ways, others = [f"allow {size(1.01 * needed)}"], {**settings, "extra": {}}
    for method in ("lloyd", "minibatch") if is_free else ():
        if sum(parts(rows, method, settings["clusters"], 1, others).values()) <= settings["memory"]:
            ways.append(f"or choose --method {method}")
            break
    return " ".join(ways)


def _default() -> int:
    from ..execution.threads import default_threads

    return default_threads()


def estimate_seconds(rows: Any, method: str, k: int, threads: int | None) -> float | None:
    """By one step of Lloyd's on some rows; None for methods that this tells nothing about, and for very large centres."""
    import numpy as np

    import shoal

    if not METHODS[method][0].endswith("KMeans") or k > rows.shape[0] or 8 * k * rows.shape[1] > MAX_TRIAL_BYTES:
        return None
    n, d = rows.shape
    m = min(n, max(min(TRIAL, MAX_TRIAL_BYTES // (8 * max(d, 1))), k))
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
