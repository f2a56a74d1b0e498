"""Memory limits: the public context manager, and fits planned below a limit."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from ..data.rows import Rows
from ..data.scoped import Scoped
from ..data.sizes import format_size, parse_size
from ..exceptions import MemoryLimitError
from .memory import Workload, check_fit, estimate_parts
from .threads import default_threads

MEMORY_LIMIT: ContextVar[float | None] = ContextVar("memory_limit", default=None)  # bytes of the process, for the next fit


class MemoryLimit(Scoped):
    """Keep the memory of the process below a limit during the fits in a `with` block.

    Parameters
    ----------
    limit : int or str
        Limit of the whole process, including Python and its packages: bytes, or a number with a unit such as "512MB", "2GB" or
        "1GiB".

    Notes
    -----
    A fit that would need more, as estimated from measurements of its method, raises a `MemoryLimitError` before it starts. The
    message says how much it would need and how many rows would fit. A fit whose threads would need too much uses fewer
    threads. Optional data, such as distance bounds, takes what is left. Rows should come from a file (`open_rows`), since rows
    in memory count towards the limit. The limit applies to `fit` in the thread that entered the block; `predict` needs little
    memory. The lowest of nested limits applies.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> with shoal.MemoryLimit("512MB"):
    ...     model = shoal.KMeans(n_clusters=3, random_state=0).fit(X)
    >>> with shoal.MemoryLimit("64MB"):
    ...     shoal.KMeans(n_clusters=3).fit(X)
    Traceback (most recent call last):
    ...
    shoal.exceptions.MemoryLimitError: A limit of 64 MB is too little: KMeans on 1,000 rows takes about 325 MB: allow 328 MB.
    """

    _variable = MEMORY_LIMIT

    def __init__(self, limit: Any) -> None:
        self.limit = parse_size(limit)

    def _setting(self) -> float:
        outer = MEMORY_LIMIT.get()
        return self.limit if outer is None else min(self.limit, outer)


@dataclass(frozen=True)
class MemoryPlan:
    """Number of threads of a fit, and the memory that it may take beyond what it cannot do without."""

    n_threads: int
    limit: float | None = None  # bytes of the process; None without a limit
    needed: float = 0.0  # bytes that the fit cannot do without

    @property
    def is_limited(self) -> bool:
        """Whether the fit has a memory limit."""
        return self.limit is not None

    def spare(self, default: float) -> float:
        """Return the bytes that optional data may take: half of what the plan leaves, or the default without a limit."""
        return default if self.limit is None else (self.limit - self.needed) / 2


UNLIMITED = MemoryPlan(1)


def plan_fit(model: Any, rows: Rows, limit: float | None, outer: MemoryPlan | None = None) -> MemoryPlan:
    """Plan a fit below a memory limit with as many threads as possible, or raise if one thread needs too much.

    A fit inside another one is covered by the plan of the outer fit.
    """
    wanted = model.n_threads or default_threads()
    rows.source.prepare_multi_pass()
    if outer is not None and outer.is_limited:
        return replace(outer, n_threads=min(wanted, outer.n_threads))
    if limit is None:
        check_fit(model, rows.source, rows.has_weights)
        return MemoryPlan(wanted)
    n_threads, needed = _threads_within(model, Workload.of(rows.source, rows.has_weights), wanted, limit)
    return MemoryPlan(n_threads, limit, needed)


def plan_dtype(plan: MemoryPlan, model: Any, rows: Rows) -> MemoryPlan:
    """Return the plan for the dtype of the rows, which may be float64 where float32 was planned; raise if it is too large."""
    load = Workload.of(rows.source, rows.has_weights)
    if plan.limit is None or load.itemsize == rows.dtype.itemsize:
        return plan
    n_threads, needed = _threads_within(model, load._replace(itemsize=rows.dtype.itemsize), plan.n_threads, plan.limit)
    return MemoryPlan(n_threads, plan.limit, needed)


def _threads_within(model: Any, load: Workload, n_threads: int, limit: float) -> tuple[int, float]:
    """Return the largest number of threads that keeps a fit below the limit, and its bytes; raise if one is too many."""
    while (needed := sum(estimate_parts(model, load, n_threads).values())) > limit and n_threads > 1:
        n_threads -= 1
    if needed > limit:
        raise MemoryLimitError(_refusal(model, load, limit, needed))
    return n_threads, needed


def rows_that_fit(model: Any, load: Workload, limit: float) -> int:
    """Return how many of the rows one thread can fit, by bisection, since some methods need more than linear memory."""
    low, high = 0, load.n
    while high - low > 1:
        half = (low + high) // 2
        low, high = (half, high) if sum(estimate_parts(model, load.first(half), 1).values()) <= limit else (low, half)
    return low


def _refusal(model: Any, load: Workload, limit: float, needed: float) -> str:
    """Return the message for a fit that needs more than the limit."""
    n_fitting = rows_that_fit(model, load, limit)
    fewer_rows = f", or take {n_fitting:,} of the rows" if n_fitting >= model.n_clusters else ""
    what = f"{type(model).__name__} on {load.n:,} rows takes about {format_size(needed)}"
    return f"A limit of {format_size(limit)} is too little: {what}: allow {format_size(1.01 * needed)}{fewer_rows}."
