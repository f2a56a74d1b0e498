"""How much memory a fit may take: the limit that a user sets, a plan of what it needs, and what that leaves.

The plan adds up what was measured, of processes that had done nothing else: the program and its compiled kernels, the blocks
that threads work on, and what each method holds for all rows (its `_memory`) and for its centres (`_center_arrays`). What a fit
can do without (bounds, rows at hand) takes what is left.
"""

from __future__ import annotations

import math
import os
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..data.rows import PARTITION, Rows, rows_in_a_block, working_dtype
from ..data.scoped import Scoped
from ..data.sizes import format_size, parse_size
from ..data.source import Source
from ..data.types import is_sparse
from .threads import default_threads

LIMIT: ContextVar[float | None] = ContextVar("limit", default=None)  # bytes, of the fits that are about to begin

PROGRAM = 3.0e8  # bytes of Python, its packages and the compiled kernels

SCORES = 8e6  # of a thread, beside its block

UNPACKING = 1.3e8  # packed files: two batches, and what their package holds on to

FAR_TOO_MUCH = 2.0  # times the memory of the machine


class MemoryLimit(Scoped):
    """Keep the fits in a `with` block below a limit, or refuse them before they begin.

    Parameters
    ----------
    limit : int or str
        Of the whole process, its packages included: bytes, or a number with a unit such as "512MB", "2GB" or "1GiB".

    Notes
    -----
    A fit that would take more, by what was measured of its method, raises a MemoryError that says how much it would take and
    how many rows would fit; one that needs fewer threads for it uses fewer. Bounds and batches take what is left. Rows must
    come from a file (`open_rows`): those in memory are the caller's, and count as part of the limit. It holds for the
    thread that entered it, and for `fit`, not for `predict`, which takes no more than blocks. Of limits within each other
    the least holds.

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
    MemoryError: A limit of 64 MB is too little: KMeans on 1,000 rows takes about 324 MB: allow 328 MB.
    """

    _variable = LIMIT

    def __init__(self, limit: Any) -> None:
        self.limit = parse_size(limit)

    def _setting(self) -> float:
        outer = LIMIT.get()
        return self.limit if outer is None else min(self.limit, outer)


class Workload(NamedTuple):
    """What a plan needs to know of the rows."""

    n: int
    d: int
    itemsize: int  # bytes of a number as it is read
    wide: int  # and as it is worked on
    row: float  # bytes of a sparse row; 0 where rows are dense
    held: float  # bytes that the source keeps in memory
    fixed: float  # bytes that reading takes, however many rows there are
    has_weights: bool

    @classmethod
    def of(cls, source: Source, has_weights: bool = False) -> Workload:
        row = max(float(source.row_bytes), 8.0) if is_sparse(source.read(0, 0)) else 0.0
        fixed = (source.fingerprint() is not None) * UNPACKING + source.unpacking
        wide, held = working_dtype(source.dtype).itemsize, float(source.held_bytes)
        return cls(*source.shape, source.dtype.itemsize, wide, row, held, fixed, has_weights)

    def first(self, n: int) -> Workload:
        """Of the first n rows alone."""
        return self._replace(n=n, held=self.held * n / self.n)

    @property
    def numbers(self) -> int:
        """In a row, or about as many as a sparse one takes the room of."""
        return math.ceil(self.row / self.wide) if self.row else self.d

    @property
    def block(self) -> int:
        return min(self.n, rows_in_a_block(self.d, self.row > 0))

    @property
    def block_bytes(self) -> float:
        """Of a block as it is read, as it is worked on, and of what is computed for each of its rows."""
        return self.block * (max(3.5 * self.row + 64, 512) if self.row else self.d * (self.itemsize + 2.0 * self.wide))

    def share_bytes(self, k: int, dense: bool) -> float:
        """Of what one block adds to the sums: a row may leave one cluster and join another."""
        full = 8.0 * k * self.d
        if self.row and not dense:
            full = min(1.5 * full, 3 * self.row * self.block)
        return max(full if dense or self.row else min(full, 16.0 * self.block * self.d), 24.0 * self.d)


def plan(model: Any, source: Source, n_threads: int | None = None, has_weights: bool = False) -> dict[str, float]:
    """Bytes that a fit of the model needs, by what they are for."""
    return parts_of(model, Workload.of(source, has_weights), n_threads or default_threads())


def parts_of(model: Any, load: Workload, n_threads: int) -> dict[str, float]:
    """The plan for rows that are described by a workload."""
    n, d, k, in_flight = load.n, load.d, model.n_clusters, n_threads + 2
    blocks = min(PARTITION, -(-n // load.block))  # whose sums are added up before they go to those of all rows
    double, single = model._center_arrays
    init = getattr(model, "init", None)
    share = load.share_bytes(0 if init is None else k, model._dense_shares)
    own = {
        "centres": k * d * (8.0 * double + load.wide * single),
        "sums of blocks": share * (in_flight + model._dense_shares * n_threads) + 2 * min(12.0 * k * d, blocks * share),
        **model._memory(load),
    }
    start = model._init_memory(load)
    parts = {
        "program": PROGRAM + load.fixed,
        "rows in memory": load.held + 8.0 * n * load.has_weights,
        "blocks": in_flight * (load.block_bytes + SCORES),
        **own,
        "start": max(start - sum(own.values()), 0.0),  # what it takes is gone when the others come
    }
    plans = [parts, *(parts_of(inner, load, n_threads) for inner in model._fits_before())]
    return {name: size for name, size in max(plans, key=lambda plan: sum(plan.values())).items() if size}


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
    if plan.limit is None or load.wide == rows.dtype.itemsize:
        return plan
    n_threads, needed = _threads_within(model, load._replace(wide=rows.dtype.itemsize), plan.n_threads, plan.limit)
    return MemoryPlan(n_threads, plan.limit, needed)


def _threads_within(model: Any, load: Workload, n_threads: int, limit: float) -> tuple[int, float]:
    """As many threads as keep below the limit, and the bytes that the fit takes by them; refused if not even one does."""
    while (needed := sum(parts_of(model, load, n_threads).values())) > limit and n_threads > 1:
        n_threads -= 1
    if needed > limit:
        raise MemoryError(_refusal(model, load, limit, needed))
    return n_threads, needed


def check_fit(model: Any, source: Source, has_weights: bool) -> None:
    """Refuse a fit that this machine can't do, by far."""
    if not source.is_distributed and not getattr(model, "store", False):  # elsewhere; with better advice of its own
        needed = sum(plan(model, source, 1, has_weights).values())
        check_machine(f"{type(model).__name__} on {source.shape[0]:,} rows", needed)


def check_machine(what: str, needed: float) -> None:
    """Refuse what this machine can't do, by far: otherwise the system ends the process, or others, without a word.

    Plans are made for limits, and rather high: what is planned to take a little more than there is may do.
    """
    if needed > FAR_TOO_MUCH * (there := machine_bytes()):
        raise MemoryError(
            f"{what} takes about {format_size(needed)}, but this machine has {format_size(there)}: take fewer rows, columns or "
            "clusters, or another method."
        )


def machine_bytes() -> float:
    """Memory of this machine; infinite where it can't be found out."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return math.inf


def rows_that_fit(model: Any, load: Workload, limit: float) -> int:
    """How many of the rows one thread can take: by halves, since some methods need more than so many bytes each."""
    few, many = 0, load.n
    while many - few > 1:
        half = (few + many) // 2
        few, many = (half, many) if sum(parts_of(model, load.first(half), 1).values()) <= limit else (few, half)
    return few


def _refusal(model: Any, load: Workload, limit: float, needed: float) -> str:
    few = rows_that_fit(model, load, limit)
    ways = f"allow {format_size(1.01 * needed)}" + (f", or take {few:,} of the rows" if few >= model.n_clusters else "")
    what = f"{type(model).__name__} on {load.n:,} rows takes about {format_size(needed)}"
    return f"A limit of {format_size(limit)} is too little: {what}: {ways}."
