"""The threads that process blocks of rows. Only this file starts threads for computations.

`Threads` is the default executor: it runs a `Job` and yields its shares in row order. Distributed rows have another one (see
`data.source.DistributedSource`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any, Self

import joblib
import numpy as np
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from threadpoolctl import ThreadpoolController

from ..data.cancellation import inherited, under
from ..data.jobs import Job, folded
from ..data.rows import Rows
from ..data.types import Array


@cache
def _blas() -> ThreadpoolController:
    """Return the controller of the BLAS libraries that are loaded."""
    return ThreadpoolController()


_blas_lock = threading.Lock()

_blas_depth = 0  # number of blocks that limit BLAS at the moment

_blas_limit: Any = None  # context manager of the limit


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, since blocks run in parallel already. Blocks of concurrent fits are counted."""
    global _blas_depth, _blas_limit
    with _blas_lock:
        if _blas_depth == 0:
            _blas_limit = _blas().limit(limits=1, user_api="blas")
            _blas_limit.__enter__()
        _blas_depth += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_depth -= 1
            if _blas_depth == 0:
                _blas_limit.__exit__(None, None, None)


def _forget_blas() -> None:
    """Reset the limit in a forked child, in which the threads that set it or hold the lock do not exist."""
    global _blas_lock, _blas_depth
    _blas_lock = threading.Lock()
    if _blas_depth:
        _blas_depth = 0
        _blas_limit.__exit__(None, None, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_blas)


def default_threads() -> int:
    """Return the number of threads that OpenMP would start, which joblib limits in its workers, at most one per CPU."""
    return min(int(_openmp_effective_n_threads(only_physical_cores=False)), int(joblib.cpu_count()))


@contextlib.contextmanager
def on_threads(rows: Rows, n_threads: int | None = None) -> Iterator[Rows]:
    """Yield the rows with threads of this process as their executor: `n_threads`, or the default number."""
    with Threads(n_threads or default_threads()) as executor:
        yield rows.with_executor(executor)


class Threads:
    """Executor that runs blocks on threads of this process, within a `with` block.

    A loop over shares that ends early, by an error, an interrupt or a deadline, cancels the blocks that are still running.

    BLAS is limited for the whole `with` block and not only while shares are generated: after an error in the loop over the
    shares, the generator, and with it the limit, would live as long as the traceback.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(one_blas_thread())
        self._pool = ThreadPoolExecutor(self.n_threads, "shoal")  # starts threads on demand
        self._stack.callback(self._pool.shutdown, cancel_futures=True)
        self._reader = ThreadPoolExecutor(1, "shoal-reader")
        self._stack.callback(self._reader.shutdown, cancel_futures=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def resize(self, n_threads: int) -> None:
        """Change the number of threads. Call it between passes only."""
        self.__exit__()
        self.n_threads = n_threads
        self.__enter__()

    def run(self, job: Job, per_row: tuple[Array, ...]) -> Generator[Any]:
        """Yield shares in row order: one per block or, if they add up, one per partition. One more thread reads files."""
        blocks = [block for span in job.spans for block in span.blocks()]

        def read(here: slice) -> Any:
            return job.source.read(here.start, here.stop)

        def work(here: slice, raw: Any) -> Any:
            mine = (np.ascontiguousarray(a[here]) for a in per_row)  # copies constant weights only
            return job.fn(here.start, raw, *mine, *job.args)

        shares = self.map(read, work, blocks, job.source.reads_ahead)
        with contextlib.closing(shares):
            for span in job.spans:
                yield from folded(islice(shares, len(span.blocks())))

    def map(self, read: Callable[[Any], Any], work: Callable[[Any, Any], Any], items: list[Any], ahead: bool) -> Generator[Any]:
        """Yield work(item, read(item)) of all items in order; if `ahead`, another thread reads the next items meanwhile."""
        cancellation = inherited()

        def both(item: Any, coming: Future[Any] | None) -> Any:
            with under(cancellation):
                cancellation.check()
                return work(item, read(item) if coming is None else coming.result())

        if len(items) < 2 or (self.n_threads == 1 and not ahead):
            yield from (both(item, None) for item in items)
            return
        waiting, reads = deque[Future[Any]](), deque[Future[Any]]()
        try:
            for item in items:
                if ahead:
                    reads.append(self._reader.submit(read, item))
                waiting.append(self._pool.submit(both, item, reads[-1] if reads else None))
                if len(waiting) > self.n_threads + 1:
                    yield waiting.popleft().result()
                    if reads:
                        reads.popleft()
            while waiting:
                yield waiting.popleft().result()
        finally:
            cancellation.is_set = True
            for future in (*waiting, *reads):  # work first, since it waits for reads
                future.cancel()
