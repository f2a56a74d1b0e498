"""Where rows live: a source reads ranges of rows, whatever the user handed over. Nothing is ever copied whole.

A kind of data is found by the name of the package that its type comes from, so that no package is imported before a
user brings data of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from .types import Array


class Source(Protocol):
    """Rows that can be read in ranges or picked one by one."""

    shape: tuple[int, int]
    dtype: np.dtype
    is_map: bool  # do the rows lie on disk, not in memory

    def read(self, start: int, stop: int) -> Any: ...

    def take(self, rows: Array) -> Any: ...


class ArraySource:
    """A numpy array of any real dtype and memory layout, memory maps included."""

    def __init__(self, X: Array) -> None:
        self.X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = X.dtype
        owner: Any = X
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        self.is_map = isinstance(owner, np.memmap | mmap)

    def read(self, start: int, stop: int) -> Array:
        return self.X[start:stop]

    def take(self, rows: Array) -> Array:
        return self.X[rows]


class SparseSource:
    """A scipy sparse matrix, kept as CSR."""

    is_map = False

    def __init__(self, X: Any) -> None:
        csr = X.tocsr()
        if not csr.has_canonical_format:  # a column named twice in a row would count as two columns
            csr = csr.copy() if csr is X else csr
            csr.sum_duplicates()
        self.X = csr.astype(np.float64) if csr.dtype.itemsize > 8 else csr
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = self.X.dtype

    def read(self, start: int, stop: int) -> Any:
        a, b = self.X.indptr[start], self.X.indptr[stop]
        parts = (self.X.data[a:b], self.X.indices[a:b], self.X.indptr[start : stop + 1] - a)
        return sparse.csr_array(parts, shape=(stop - start, self.shape[1]), copy=False)

    def take(self, rows: Array) -> Any:
        return sparse.csr_array(self.X[rows])


class TableSource:
    """A table of columns; `cut` gives some of its rows as a table, `columns` a table's columns as arrays."""

    is_map = False

    def __init__(self, shape: tuple[int, int], cut: Callable[[Any], Any], columns: Callable[[Any], list[Array]]) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.cut = cut
        self.columns = columns
        kinds = [np.asarray(c).dtype for c in columns(cut(slice(0, 1)))]
        for column, kind in enumerate(kinds):
            if kind.kind not in "biufO":
                raise ValueError(f"Column {column} of X holds values of type {kind}: give real numbers, or drop it.")
        self.dtype = np.result_type(*kinds)

    def read(self, start: int, stop: int) -> Array:
        return np.column_stack(self.columns(self.cut(slice(start, stop))))

    def take(self, rows: Array) -> Array:
        return np.column_stack(self.columns(self.cut(rows)))


def _pandas(X: Any) -> Source:
    def columns(part: Any) -> list[Array]:
        return [part.iloc[:, j].to_numpy(na_value=np.nan) for j in range(part.shape[1])]

    return TableSource(X.shape, lambda rows: X.iloc[rows], columns)


def _polars(X: Any) -> Source:
    return TableSource(X.shape, lambda rows: X[rows], lambda part: [c.to_numpy() for c in part.get_columns()])


def _pyarrow(X: Any) -> Source:
    def cut(rows: Any) -> Any:
        return X.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else X.take(rows)

    def columns(part: Any) -> list[Array]:
        return [
            c.to_numpy(zero_copy_only=False) if hasattr(c, "type") and part.num_rows == 0 else np.asarray(c)
            for c in part.columns
        ]

    return TableSource((X.num_rows, X.num_columns), cut, columns)


TABLES: dict[str, Callable[[Any], Source]] = {"pandas": _pandas, "polars": _polars, "pyarrow": _pyarrow}


def find_source(X: Any) -> Source:
    """The source for what the user handed over."""
    if sparse.issparse(X):
        return SparseSource(X)
    package = type(X).__module__.partition(".")[0]
    if package in TABLES and len(getattr(X, "shape", ())) == 2:
        return TABLES[package](X)
    return ArraySource(np.asarray(X))
