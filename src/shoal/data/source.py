"""The base classes of row sources: where rows live, read in ranges or by index."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

import numpy as np

from .types import Array

FINGERPRINT_ROWS, FINGERPRINT_NUMBERS = (16, 1024), 1 << 18  # rows that identify a source, and about how many numbers they hold


class Source(ABC):
    """Rows that can be read in ranges or picked by index."""

    shape: tuple[int, int]
    dtype: np.dtype
    is_map: bool = False  # whether the rows are on disk, not in memory
    is_file: bool = False  # whether every pass reads a file
    is_distributed: bool = False  # whether workers in other processes read the rows
    reads_ahead: bool = False  # whether `read` is slow enough to be done by a thread of its own, ahead of the work
    row_bytes: float = 0.0  # bytes of a row, where rows are sparse
    unpacking: float = 0.0  # bytes of parts of a file that are larger than usual and must be read whole
    held_bytes: float = 0.0  # bytes that the source itself keeps in memory
    feature_names: list[str] | None = None
    chunks: list[int] | None = None  # where partitions start and end, if the user has chosen them

    @abstractmethod
    def read(self, start: int, stop: int) -> Any:
        """Return rows start to stop."""

    @abstractmethod
    def take(self, rows: Array) -> Any:
        """Return the rows of these indices."""

    def subset(self, rows: Array) -> Source:
        """Return some rows as a source that reads them when they are asked for."""
        return SubsetSource(self, rows)

    @abstractmethod
    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        """Return some rows as a source that has read them once; a memory map reads them when they are asked for.

        Copies of rows of a file that take more than `copy_limit` bytes go to a temporary file.
        """

    def partitions(self, partition_rows: int) -> list[tuple[int, int]]:
        """Return the first row and the end of each partition."""
        return list(pairwise([*range(0, self.shape[0], partition_rows), self.shape[0]]))

    def run(self, job: Any, per_row: tuple[Array, ...], executor: Any) -> Generator[Any]:
        """Yield the shares of a `jobs.Job` in row order, added up by partition where they can be."""
        return executor.run(job, per_row)  # type: ignore[no-any-return]

    def fingerprint(self) -> str | None:
        """Return a text that identifies the content; None where single rows can be read instead."""
        return None

    def traffic(self) -> dict[str, float]:
        """Return what distributed work has cost since the last call: tasks, bytes sent and received, seconds lost."""
        return {}

    def prepare_multi_pass(self) -> None:  # noqa: B027 - most sources have nothing to prepare
        """Prepare for more than one pass over the rows."""


class SubsetSource(Source):
    """Some rows of another source, in the order of their indices, read when they are asked for."""

    def __init__(self, source: Source, ids: Array) -> None:
        self.source, self.ids = source, ids
        self.shape, self.dtype, self.is_map = (len(ids), source.shape[1]), source.dtype, source.is_map
        self.reads_ahead = source.reads_ahead
        self.held_bytes = source.held_bytes + ids.nbytes

    def read(self, start: int, stop: int) -> Any:
        return self.source.take(self.ids[start:stop])

    def take(self, rows: Array) -> Any:
        return self.source.take(self.ids[rows])

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        return self.source.materialize(self.ids[rows], copy_limit)


class CellSource(SubsetSource):
    """Some rows of another source, cell by cell; each cell is a partition."""

    def __init__(self, source: Source, ids: Array, cuts: Array) -> None:
        super().__init__(source, ids)
        self.cuts = cuts  # first row of each cell, and the number of rows

    def partitions(self, partition_rows: int) -> list[tuple[int, int]]:
        return list(pairwise(self.cuts.tolist()))


class StoredSource(Source):
    """Rows on disk, without what a user knows of a file."""

    is_map = reads_ahead = True
    is_packed: bool = False  # whether rows can be read in order only, and are unpacked for it

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        return self.subset(rows)


class FileSource(Source):
    """Rows of an open file, which estimators accept as they are; `formats` has one for each format."""

    is_map = is_file = reads_ahead = True

    def __len__(self) -> int:
        return self.shape[0]


class DistributedSource(FileSource):
    """Rows that workers in other processes read; see `distributed`."""

    is_distributed = True
    cuts: list[int]  # where partitions start, and the number of rows

    @abstractmethod
    def run(self, job: Any, per_row: tuple[Array, ...], executor: Any) -> Generator[Any]: ...

    @abstractmethod
    def with_transform(self, transform: Callable[[int | None, Any], Any], dtype: np.dtype) -> DistributedSource:
        """Return the rows after `transform(start, raw rows)`; `start` is None for rows picked by index."""

    @abstractmethod
    def traffic(self) -> dict[str, float]: ...

    def subset(self, rows: Array) -> Source:
        return self.materialize(rows)

    def partitions(self, partition_rows: int) -> list[tuple[int, int]]:
        return list(pairwise(self.cuts))


def file_column_names(X: Any) -> list[str] | None:
    """Return the column names of the rows of a file; None for input of any other type."""
    return X.feature_names if isinstance(X, FileSource) else None


def sample_for_fingerprint(source: Source) -> Any:
    """Return rows from the first to the last, or a file's fingerprint, which identify the content of a source."""
    text = source.fingerprint()
    n, d = source.shape
    low, high = FINGERPRINT_ROWS
    count = min(n, max(low, min(high, FINGERPRINT_NUMBERS // d)))
    return source.take(np.linspace(0, n - 1, count).astype(np.int64)) if text is None else text
