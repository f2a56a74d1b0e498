"""Rows that can only be read in order, because the file is compressed or stored by columns.

The first pass reads batches from the file and holds one or two of them. If more passes are announced
(`prepare_multi_pass`), it also copies the rows to a scratch file (see `raw`). Later passes and random access read the scratch
file, which is written first if it does not exist. Each row is decompressed once in a fit, and at most twice otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..data.source import StoredSource
from ..data.types import Array
from ..exceptions import InvalidFileError
from .errors import changed_error
from .fingerprint import watch
from .raw import RawRows, Scratch

# Numbers decompressed at a time (32 MB of float64). Larger batches need more memory than `execution.memory` plans for.
BATCH_NUMBERS = 1 << 22


def rows_per_batch(d: int) -> int:
    """Return the number of rows of d columns in a batch."""
    return max(1, BATCH_NUMBERS // max(d, 1))


def unpacking_bytes(size: int) -> int:
    """Return the memory for a chunk of `size` bytes that must be decompressed as a whole; 0 if it is no larger than a batch.

    Three copies exist at the same time: compressed, decompressed, and converted before it is split into batches.
    """
    return 3 * size if size > 8 * BATCH_NUMBERS else 0


class Streamed(StoredSource):
    """Dense rows from a function that returns a new iterator over all batches."""

    is_packed = True

    def __init__(
        self,
        name: str,
        shape: tuple[int, int],
        dtype: Any,
        batches: Callable[[], Iterator[Array]],
        folder: str | None,
        path: Path | None = None,
    ) -> None:
        """`path` is the file or the folder that `batches` opens by itself, if it does."""
        self.name, self.shape, self.dtype, self.batches, self.folder = name, shape, np.dtype(dtype), batches, folder
        self._check_unchanged = None if path is None else watch(path)
        self.row_bytes = shape[1] * self.dtype.itemsize
        self._lock = threading.Lock()
        self._copy: RawRows | None = None
        self._multi_pass = False
        self._reset()

    def _reset(self) -> None:
        """Start again at the first row."""
        self._stream: Generator[Array] | None = None
        self._scratch: Scratch | None = None  # the rows read so far, if there will be more passes
        self._window: list[Array] = []  # the latest batches, which hold
        self._first = self._end = 0  # rows _first to _end

    def prepare_multi_pass(self) -> None:
        self._multi_pass = True

    def read(self, start: int, stop: int) -> Array:
        if start == stop:
            return np.empty((0, self.shape[1]), self.dtype)
        with self._lock:
            if self._copy is None and start >= self._first:
                try:
                    return self._next(start, stop)
                except BaseException:
                    self._reset()
                    raise
        return self._copied().read(start, stop)

    def take(self, rows: Array) -> Array:
        return self._copied().take(rows)

    def _next(self, start: int, stop: int) -> Array:
        """Return rows that are in the window or come after it."""
        if self._stream is None:
            self._stream = self.rows_in_order()
            self._scratch = self._new_scratch() if self._multi_pass else None
        while self._end < stop:
            batch = next(self._stream)
            self._window.append(batch)
            self._end += len(batch)
            if self._scratch is not None:
                self._scratch.append(batch)
            if self._end == self.shape[0]:
                self._stream.close()  # closes the file, too
                self._copy = None if self._scratch is None else self._scratch.rows()
            while self._window and self._first + len(self._window[0]) <= start:
                self._first += len(self._window.pop(0))
        first = self._first
        parts = []
        for batch in self._window:
            parts.append(batch[max(start - first, 0) : max(stop - first, 0)])
            first += len(batch)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def rows_in_order(self) -> Generator[Array]:
        """Yield all rows in batches."""
        return check_batches(self.name, self.shape, self.dtype, self.batches, self._check_unchanged)

    def _new_scratch(self) -> Scratch:
        return Scratch(self.name, self.shape[1], self.dtype, self.folder, self.shape[0] * self.row_bytes)

    def _copied(self) -> RawRows:
        """Return the rows in the scratch file, which is written first if it does not exist."""
        with self._lock:
            if self._copy is None:
                self._reset()
                scratch = self._new_scratch()
                for batch in self.rows_in_order():
                    scratch.append(batch)
                self._copy = scratch.rows()
            return self._copy


def check_batches(
    name: str,
    shape: tuple[int, int],
    dtype: np.dtype,
    batches: Callable[[], Iterator[Array]],
    check_unchanged: Callable[[], None] | None,
) -> Generator[Array]:
    """Yield batches of the first n rows, or raise if there are fewer, or if the file has changed since it was opened.

    A function, not a method: a generator that referred to its `Streamed` would form a reference cycle and keep the file open.
    """
    n, d = shape
    remaining = n
    for batch in batches():
        if batch.shape[1] != d:  # a kernel would read beyond the end of a row
            raise changed_error(name)
        if len(batch) >= remaining and check_unchanged is not None:
            check_unchanged()
        yield np.asarray(batch[:remaining], dtype)
        remaining -= len(batch)
        if remaining <= 0:
            return
    raise InvalidFileError(
        f"{name}: ends {remaining:,} rows before the declared {n:,}: it is truncated; copy or write it again."
    )
