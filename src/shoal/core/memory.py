"""How much memory a fit may take: the limit that a user sets, a plan of what it needs, and what that leaves.

The plan adds up what was measured, of processes that had done nothing else: the program and its compiled kernels, the blocks
that threads work on, and what each method holds for a row (its `_memory`). What a fit can do without (bounds, rows at hand)
takes what is left.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import Any, Self

from .rows import Rows, rows_in_a_block, working_dtype
from .seeding import sample_size
from .sources import FileSource, Source
from .threads import default_threads
from .types import is_sparse

LIMIT: ContextVar[float | None] = ContextVar("limit", default=None)  # bytes, of the fits that are about to begin
SPARE: ContextVar[float | None] = ContextVar("spare", default=None)  # of these, what the fit under way can do without

PROGRAM = 3.0e8  # bytes of Python, its packages and the compiled kernels
SCORES = 8e6  # of a thread, beside its block
UNPACKING = 1.3e8  # packed files: two batches, and what their package holds on to
PARALLEL = 44.0  # k-means||: of every row its number, its distance, whose it is, and while some are drawn three numbers more
UNITS = {"": 1.0, "B": 1.0} | {f"{c}{end}": 1e3**i for i, c in enumerate("KMGT", 1) for end in ("", "B")}
UNITS |= {f"{c}IB": 1024.0**i for i, c in enumerate("KMGT", 1)}


class MemoryLimit:
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
    thread that entered it, and for `fit`, not for `predict`, which takes no more than blocks.

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

    def __init__(self, limit: Any) -> None:
        self.limit = size_of(limit)
        self._tokens: list[Token[float | None]] = []  # it may be entered again before it is left

    def __enter__(self) -> Self:
        self._tokens.append(LIMIT.set(self.limit))
        return self

    def __exit__(self, *_: object) -> None:
        LIMIT.reset(self._tokens.pop())


def size_of(limit: Any) -> float:
    """Bytes."""
    text = f"{limit:f}" if isinstance(limit, float) else str(limit)
    told = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", text) if not isinstance(limit, bool) else None
    with contextlib.suppress(KeyError, ValueError):
        if told is not None and 0 < (size := float(told[1]) * UNITS[told[2].upper()]) < math.inf:
            return size
    raise ValueError(f"memory limit {limit!r} is no size: give a number of bytes, or one with a unit such as '512MB'.")


def in_words(size: float) -> str:
    """A size for people."""
    unit = max((i for i in range(5) if size >= 1e3**i), default=0)
    return f"{size / 1e3**unit:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"


def plan(model: Any, source: Source, n_threads: int | None = None) -> dict[str, float]:
    """Bytes that a fit of the model needs, by what they are for."""
    n, d = source.shape
    thin, wide = is_sparse(source.read(0, 0)), working_dtype(source.dtype).itemsize
    row = (
        2.0 * max(getattr(source, "row_bytes", 0), 256) if thin else d * (source.dtype.itemsize + 2.0 * wide)
    )  # as read, and as worked on
    block = min(n, rows_in_a_block(d, thin))
    k, threads = model.n_clusters, (n_threads or default_threads()) + 2
    packed = isinstance(source, FileSource) and source.fingerprint() is not None
    large = source.unpacking if isinstance(source, FileSource) else 0.0
    own = model._memory(n, d, wide)
    init = getattr(model, "init", None)
    drawn = PARALLEL * n if isinstance(init, str) and init == "k-means||" else 0.0
    start = min(n, sample_size(d, k)) * (row + 128.0) + drawn  # which is gone when the others come
    return {
        "program": PROGRAM + packed * UNPACKING + large,
        "blocks": threads * (block * row + SCORES),
        "centres": 6.0 * k * d * 8,
        **own,
        **({"start": start - sum(own.values())} if start > sum(own.values()) else {}),
    }


@contextlib.contextmanager
def planned(model: Any, rows: Rows) -> Iterator[None]:
    """A fit below the limit, if there is one: by fewer threads if need be, or not at all."""
    limit = LIMIT.get()
    if isinstance(rows.source, FileSource):
        rows.source.read_often()
    if limit is None:
        yield
        return
    while (needed := sum(plan(model, rows.source, rows.n_threads).values())) > limit and rows.n_threads > 1:
        rows.n_threads -= 1
    if needed > limit:
        raise MemoryError(_refusal(model, rows, limit, needed))
    token = SPARE.set(limit - needed)
    try:
        yield
    finally:
        SPARE.reset(token)


def _refusal(model: Any, rows: Rows, limit: float, needed: float) -> str:
    few, many = 0, len(rows)  # how many rows would fit: by halves, since some methods need more than so many bytes each
    others = needed - _own(model, rows, many)
    while many - few > 1:
        half = (few + many) // 2
        few, many = (half, many) if others + _own(model, rows, half) <= limit else (few, half)
    ways = f"allow {in_words(1.01 * needed)}" + (f", or take {few:,} of the rows" if few >= model.n_clusters else "")
    what = f"{type(model).__name__} on {len(rows):,} rows takes about {in_words(needed)}"
    return f"A limit of {in_words(limit)} is too little: {what}: {ways}."


def _own(model: Any, rows: Rows, n: int) -> float:
    return float(sum(model._memory(n, rows.d, rows.dtype.itemsize).values()))


def spare(otherwise: float) -> float:
    """Bytes for what a fit can do without: half of what the plan leaves, or what is usual if there is no limit."""
    left = SPARE.get()
    return otherwise if left is None else left / 2
