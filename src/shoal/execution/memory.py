"""Estimate how much memory a fit needs.

The estimate adds up what was measured in fresh processes: the program and its compiled kernels, the blocks that threads work
on, and what a method holds for all rows (its `_memory`) and for its centroids (its `_center_arrays`).
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

from ..data.rows import BLOCKS_PER_PARTITION, rows_in_a_block, working_dtype
from ..data.sizes import format_size
from ..data.source import Source
from ..data.types import is_sparse
from ..exceptions import MemoryLimitError
from .threads import default_threads

PROGRAM_BYTES = 3.0e8  # Python, its packages and the compiled kernels
SCORE_BYTES = 8e6  # scores that a thread computes for its block
UNPACKING_BYTES = 1.3e8  # reading packed files: two batches, and buffers of the package that reads them
MAX_MACHINE_SHARE = 2.0  # estimate over memory of the machine; estimates are high, so a slightly too large fit may succeed


class Workload(NamedTuple):
    """Properties of rows on which the memory of a fit depends."""

    n: int
    d: int
    raw_itemsize: int  # bytes of a number as it is read
    itemsize: int  # bytes of a number as it is computed with
    row: float  # bytes of a sparse row; 0 for dense rows
    held: float  # bytes that the source keeps in memory
    fixed: float  # bytes that reading takes for any number of rows
    has_weights: bool

    @classmethod
    def of(cls, source: Source, has_weights: bool = False) -> Workload:
        """Return the workload of the rows of a source."""
        row = max(float(source.row_bytes), 8.0) if is_sparse(source.read(0, 0)) else 0.0
        fixed = (source.fingerprint() is not None) * UNPACKING_BYTES + source.unpacking
        itemsize, held = working_dtype(source.dtype).itemsize, float(source.held_bytes)
        return cls(*source.shape, source.dtype.itemsize, itemsize, row, held, fixed, has_weights)

    def first(self, n: int) -> Workload:
        """Return the workload of the first n rows alone."""
        return self._replace(n=n, held=self.held * n / self.n)

    @property
    def numbers(self) -> int:
        """Numbers in a dense row that takes as much memory as a row."""
        return math.ceil(self.row / self.itemsize) if self.row else self.d

    @property
    def block(self) -> int:
        """Rows in a block."""
        return min(self.n, rows_in_a_block(self.d, self.row > 0))

    @property
    def block_bytes(self) -> float:
        """Bytes of a block as it is read and as it is computed with, and of results for each of its rows."""
        return self.block * (max(3.5 * self.row + 64, 512) if self.row else self.d * (self.raw_itemsize + 2.0 * self.itemsize))

    def share_bytes(self, k: int, dense: bool) -> float:
        """Return the bytes of the sums of one block. A row may be subtracted from one cluster and added to another."""
        full = 8.0 * k * self.d
        if self.row and not dense:
            full = min(1.5 * full, 3 * self.row * self.block)
        return max(full if dense or self.row else min(full, 16.0 * self.block * self.d), 24.0 * self.d)


def plan(model: Any, source: Source, n_threads: int | None = None, has_weights: bool = False) -> dict[str, float]:
    """Estimate the bytes that a fit of the model needs, by purpose."""
    return estimate_parts(model, Workload.of(source, has_weights), n_threads or default_threads())


def estimate_parts(model: Any, load: Workload, n_threads: int) -> dict[str, float]:
    """Estimate the bytes that a fit of the model to a workload needs, by purpose."""
    n, d, k, in_flight = load.n, load.d, model.n_clusters, n_threads + 2
    blocks = min(BLOCKS_PER_PARTITION, -(-n // load.block))  # blocks whose sums are added up before they are added to the total
    double, single = model._center_arrays
    init = getattr(model, "init", None)
    share = load.share_bytes(0 if init is None else k, model._dense_shares)
    partition = 2 * min(12.0 * k * d, blocks * share)
    if load.row and not model._dense_shares:  # sums of sparse rows are kept block by block until they are added to the total
        partition = blocks * share
    own = {
        "centroids": k * d * (8.0 * double + load.itemsize * single),
        "sums of blocks": share * (in_flight + model._dense_shares * n_threads) + partition,
        **model._memory(load),
    }
    start = model._init_memory(load)
    parts = {
        "program": PROGRAM_BYTES + load.fixed,
        "rows in memory": load.held + 8.0 * n * load.has_weights,
        "blocks": in_flight * (load.block_bytes + SCORE_BYTES),
        **own,
        "start": max(start - sum(own.values()), 0.0),  # the initialization frees its memory before the rest is allocated
    }
    plans = [parts, *(estimate_parts(inner, load, n_threads) for inner in model._fits_before())]
    return {name: size for name, size in max(plans, key=lambda plan: sum(plan.values())).items() if size}


def check_fit(model: Any, source: Source, has_weights: bool) -> None:
    """Raise `MemoryLimitError` for a fit that by far exceeds the memory of this machine."""
    # distributed rows are in the memory of workers, and a model that stores affinities has a better message of its own
    if not source.is_distributed and not getattr(model, "store", False):
        needed = sum(plan(model, source, 1, has_weights).values())
        check_machine(f"{type(model).__name__} on {source.shape[0]:,} rows", needed)


def check_machine(what: str, needed: float) -> None:
    """Raise `MemoryLimitError` if more memory is needed than this machine has by far.

    Without the check, the operating system may kill this process, or others, without a message.
    """
    if needed > MAX_MACHINE_SHARE * (available := machine_bytes()):
        raise MemoryLimitError(
            f"{what} takes about {format_size(needed)}, but this machine has {format_size(available)}: take fewer rows, "
            "columns or clusters, or another method."
        )


def machine_bytes() -> float:
    """Return the memory of this machine; infinity if it is unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not available on every system
        return math.inf
