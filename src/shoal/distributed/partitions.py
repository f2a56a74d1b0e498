"""Partitions of distributed rows: a range of a file that workers open by its path, or chunks computed from a Dask graph.

Workers verify what they open: files that have changed, and chunks of another shape or dtype than declared, are refused.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple, Protocol

import dask
import numpy as np
from scipy import sparse

from ..data.source import Source
from ..data.sources import find_source
from ..data.types import is_sparse

_open_lock = Lock()  # threads of one worker open a file once, not once each


class Partition(Protocol):
    """Description of a partition's rows that a worker can open."""

    def open(self, dependencies: list[Any]) -> tuple[Source, int]:
        """Return a source and the index of its first row, given the values of the partition's dependencies."""


class FilePartition(NamedTuple):
    """Rows of a file that workers open by its path."""

    packed: bytes  # the pickled source: its path and how to read it
    content: str  # fingerprint of the file, since the same path may hold other rows in another fit

    def open(self, dependencies: list[Any]) -> tuple[Source, int]:
        return _open_file(*self), 0


def _open_file(packed: bytes, content: str) -> Any:
    """Return the source of a file, opened once per worker process."""
    with _open_lock:
        return _open_file_cached(packed, content)


@lru_cache(maxsize=4)
def _open_file_cached(packed: bytes, _: str) -> Any:
    source = pickle.loads(packed)  # pickled by the driver of this fit, never read from a file
    source.prepare_multi_pass()
    return source


class GraphPartition(NamedTuple):
    """Chunks computed from a Dask graph and from values that workers hold already."""

    start: int  # index of the first row
    graph: dict[Any, Any]  # all that the chunks depend on, except for what workers hold
    keys: list[Any]  # of the chunks
    shapes: list[tuple[int, int]]  # declared shapes of the chunks; empty if not known
    dependency_keys: list[Any]  # keys of the values that workers hold
    empty: Any = None  # zero rows of the declared type
    columns: list[Any] | None = None  # declared names of the columns; None for arrays

    def open(self, dependencies: list[Any]) -> tuple[Source, int]:
        chunks = self.compute_chunks(dependencies)
        for chunk in chunks:
            check_chunk_type(chunk)
        for chunk, shape in zip(chunks, self.shapes, strict=False):
            self._check_chunk(chunk, shape)
        if self.columns is None:  # tables are stacked by the names of their columns, arrays by position
            chunks = [find_source(chunk).read(0, chunk.shape[0]) if hasattr(chunk, "columns") else chunk for chunk in chunks]
        return find_source(stack_chunks(chunks)), self.start

    def compute_chunks(self, dependencies: list[Any]) -> list[Any]:
        """Return the values of the chunks."""
        return list(dask.get({**self.graph, **dict(zip(self.dependency_keys, dependencies, strict=True))}, self.keys))

    def _check_chunk(self, chunk: Any, shape: tuple[int, int]) -> None:
        """Raise ValueError if a chunk differs from what the collection declares."""
        self._check_columns(chunk)
        declared = [f"shape {shape}", _describe_dtype(self.empty)]
        actual = [f"shape {chunk.shape}", declared[1] if _is_compatible(chunk, self.empty) else _describe_dtype(chunk)]
        if actual != declared:
            raise ValueError(
                f"A chunk of X, in the partition that starts at row {self.start:,}, has {', '.join(actual)}, but X declares "
                f"{', '.join(declared)}: check the dtype= and meta= arguments that X was created with, or persist X if it is "
                "not deterministic."
            )

    def _check_columns(self, chunk: Any) -> None:
        """Raise ValueError if a table has other columns than declared, or the same ones in another order."""
        if self.columns is not None and list(getattr(chunk, "columns", self.columns)) != self.columns:
            raise ValueError(
                f"A chunk of X, in the partition that starts at row {self.start:,}, has columns {list(chunk.columns)}, but X "
                f"declares {self.columns}: select the declared columns, in this order, in every partition of X."
            )


def numeric_dtype(rows: Any) -> np.dtype:
    """Return the dtype of an array, or the common dtype of a table's columns, where extension types count as float64."""
    if not hasattr(rows, "columns"):
        dtype: np.dtype[Any] = np.dtype(rows.dtype)
        return dtype
    dtypes = [np.dtype(dtype if isinstance(dtype, np.dtype) else np.float64) for dtype in rows.dtypes]
    common: np.dtype[Any] = np.result_type(*dtypes)
    return common


def _describe_dtype(rows: Any) -> str:
    return f"{'sparse ' if is_sparse(rows) else ''}{numeric_dtype(rows)}"


def _is_compatible(chunk: Any, empty: Any) -> bool:
    """Return whether the declared dtype holds the chunk's values. Floats may be rounded; no other loss is allowed."""
    actual, declared = numeric_dtype(chunk), numeric_dtype(empty)
    return is_sparse(chunk) == is_sparse(empty) and (np.can_cast(actual, declared) or actual.kind == declared.kind == "f")


def empty_rows(meta: Any) -> Any:
    """Return an array without rows, in the common dtype of a table's columns."""
    if not len(meta.columns):
        raise ValueError("X has no columns: give at least one.")
    for name, dtype in zip(meta.columns, meta.dtypes, strict=True):
        if dtype.kind not in "biuf" and not hasattr(dtype, "categories"):  # categories may be numbers
            raise ValueError(f"Column {name!r} of X holds values of type {dtype}: give real numbers, or drop it.")
    return find_source(np.empty((0, len(meta.columns)), numeric_dtype(meta))).read(0, 0)


def check_chunk_type(chunk: Any) -> None:
    """Raise an error if a chunk, or a collection's `_meta`, is not an array or a table that can be clustered."""
    if np.ma.is_masked(chunk):
        raise ValueError("X has masked chunks, whose masks would be ignored: fill the masked values or drop these rows.")
    if not (isinstance(chunk, np.ndarray) or is_sparse(chunk) or hasattr(chunk, "columns")):
        name = f"{type(chunk).__module__}.{type(chunk).__name__}"
        raise TypeError(f"X has chunks of type {name}: use NumPy arrays, SciPy sparse arrays or dataframes.")
    if chunk.ndim != 2:
        raise ValueError(f"X has a chunk of shape {chunk.shape}: all chunks must be two-dimensional.")


def stack_chunks(chunks: list[Any]) -> Any:
    """Return chunks of one type, one below the other."""
    if len(chunks) == 1:
        return chunks[0]
    if is_sparse(chunks[0]):
        return sparse.vstack(chunks, "csr")
    if isinstance(chunks[0], np.ndarray):
        return np.concatenate(chunks)
    import pandas

    return pandas.concat(chunks)


def group_chunks(sizes: list[int], min_rows: int) -> list[tuple[int, int]]:
    """Return ranges of adjacent chunks with at least this many rows each, except for the last.

    The ranges depend on the chunk sizes alone, so results do not depend on the number of workers.
    """
    ends, n_rows = [0], 0
    for i, size in enumerate(sizes):
        n_rows += size
        if n_rows >= min_rows:
            ends.append(i + 1)
            n_rows = 0
    if ends[-1] < len(sizes):
        ends.append(len(sizes))
    return list(pairwise(ends))
