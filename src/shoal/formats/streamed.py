"""Rows that can only be had in order: whatever is packed, or lies column by column.

The first pass reads them as they come, and holds a batch or two; if it is known that there will be others, it copies them
to a scratch file (see `raw`) as it goes. A second pass, or a call for rows here and there, reads that file, or first unpacks
everything into one: each row is unpacked once by a fit, and at most twice by anybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from ..data.source import StoredSource
from ..data.types import Array
from ..exceptions import InvalidFileError
from .raw import RawRows, Scratch

BATCH = 1 << 22  # numbers that are unpacked at a time


def rows_in_a_batch(d: int) -> int:
    return max(1, BATCH // max(d, 1))


def more_than_a_batch(size: int) -> int:
    """What a part of so many bytes takes that can only be unpacked whole: as it was and as it will be, and before it is cut."""
    return 3 * size if size > 8 * BATCH else 0


class Streamed(StoredSource):
    """Dense rows of a stream of batches that can be begun anew."""

    is_packed = True

    def __init__(
        self, name: str, shape: tuple[int, int], dtype: Any, batches: Callable[[], Iterator[Array]], folder: str | None
    ) -> None:
        self.name, self.shape, self.dtype, self.batches, self.folder = name, shape, np.dtype(dtype), batches, folder
        self.row_bytes = shape[1] * self.dtype.itemsize
        self._lock = threading.Lock()
        self._copy: RawRows | None = None
        self._often = False
        self._forget()

    def _forget(self) -> None:
        self._stream: Generator[Array] | None = None
        self._scratch: Scratch | None = None  # what has come so far, if there will be more passes
        self._window: list[Array] = []  # batches that are at hand,
        self._first = self._end = 0  # and the rows they hold

    def prepare_multi_pass(self) -> None:
        self._often = True

    def read(self, start: int, stop: int) -> Array:
        if start == stop:
            return np.empty((0, self.shape[1]), self.dtype)
        with self._lock:
            if self._copy is None and start >= self._first:
                try:
                    return self._next(start, stop)
                except BaseException:
                    self._forget()
                    raise
        return self._copied().read(start, stop)

    def take(self, rows: Array) -> Array:
        return self._copied().take(rows)

    def _next(self, start: int, stop: int) -> Array:
        """Rows that are still to come, or have just been there."""
        if self._stream is None:
            self._stream = self.rows_in_order()
            self._scratch = self._new_scratch() if self._often else None
        while self._end < stop:
            batch = next(self._stream)
            self._window.append(batch)
            self._end += len(batch)
            if self._scratch is not None:
                self._scratch.append(batch)
            if self._end == self.shape[0]:
                self._stream.close()  # and with it the file
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
        """All of them, in batches, from the first on."""
        return counted(self.name, self.shape[0], self.dtype, self.batches)

    def _new_scratch(self) -> Scratch:
        return Scratch(self.name, self.shape[1], self.dtype, self.folder, self.shape[0] * self.row_bytes)

    def _copied(self) -> RawRows:
        with self._lock:
            if self._copy is None:
                self._forget()
                scratch = self._new_scratch()
                for batch in self.rows_in_order():
                    scratch.append(batch)
                self._copy = scratch.rows()
            return self._copy


def counted(name: str, n: int, dtype: np.dtype, batches: Callable[[], Iterator[Array]]) -> Generator[Array]:
    """All batches, as many rows as there should be. It knows nothing of who reads, and so ends with them."""
    left = n
    for batch in batches():
        yield np.asarray(batch[:left], dtype)
        left -= len(batch)
        if left <= 0:
            return
    raise InvalidFileError(f"{name}: ends {left:,} of {n:,} rows early: it was cut; write or copy it anew.")
