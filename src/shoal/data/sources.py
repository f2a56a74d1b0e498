"""Rows in memory as sources: arrays, memory maps, sparse matrices and tables. Nothing is copied whole."""

from __future__ import annotations

import mmap
from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from .source import FileSource, Source
from .tables import find_table
from .types import Array, at_most_float64, sparse_dtype

LARGE = 1 << 28  # bytes of a memory map whose pages are given back as soon as they have been read
FEW = 1024  # rows to take from such a map before its pages are given back


class MemorySource(Source):
    """Rows of this process."""

    def materialize(self, rows: Array) -> Source:
        return self.subset(rows) if self.is_map else find_source(self.take(rows))


class Pages:
    """The pages of a memory map, which count as this process's memory from the first look at them until they are given back."""

    def __init__(self, pages: mmap.mmap, first: int, row_bytes: int) -> None:
        self.pages, self.first, self.row_bytes = pages, first, row_bytes

    @classmethod
    def of(cls, X: Array, owner: Any) -> Pages | None:
        """None of what is not mapped, or where written pages would be lost."""
        pages = getattr(owner, "_mmap", None)
        if pages is None or owner.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
            return None
        start = np.frombuffer(pages, np.uint8).ctypes.data
        return cls(pages, X.ctypes.data - start, X.strides[0])

    def release(self, start: int, stop: int) -> None:
        """Rows are still in the file, and in the system's own memory as long as it has room for them."""
        a = -(-(self.first + start * self.row_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        b = (self.first + stop * self.row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if a < b:
            self.pages.madvise(mmap.MADV_DONTNEED, a, b - a)


class ArraySource(MemorySource):
    """A numpy array of any real dtype and memory layout, memory maps included."""

    def __init__(self, X: Array) -> None:
        self.X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = at_most_float64(X[:0]).dtype
        owner: Any = X
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        self.is_map = isinstance(owner, mmap.mmap) or getattr(owner, "_mmap", None) is not None  # the copy of a map has none
        self.held_bytes = 0 if self.is_map else X.nbytes
        self.is_plain = X.flags.c_contiguous
        self.pages = Pages.of(X, owner) if self.is_plain and X.nbytes >= LARGE else None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "pages": None, "is_map": False}  # pickled, a map becomes an array

    def read(self, start: int, stop: int) -> Array:
        part = at_most_float64(self.X[start:stop])
        if self.pages is None:
            return part
        part = np.array(part)
        self.pages.release(start, stop)
        return part

    def take(self, rows: Array) -> Array:
        if self.pages is None:
            return self._take(rows)
        none = self._take(rows[:0])
        out = np.empty((len(rows), none.shape[1]), none.dtype)
        for a in range(0, len(rows), FEW):  # with each, the system maps what lies around it
            out[a : a + FEW] = self._take(rows[a : a + FEW])
            self.pages.release(0, self.shape[0])
        return out

    def _take(self, rows: Array) -> Array:
        if self.is_plain:  # nearly twice as fast; other layouts it would copy whole
            return at_most_float64(np.take(np.asarray(self.X), rows, axis=0, mode="clip"))
        return at_most_float64(self.X[rows])


class SparseSource(MemorySource):
    """A scipy sparse matrix, kept as CSR."""

    def __init__(self, X: Any) -> None:
        csr = _trusted(X)
        csr = csr.astype(sparse_dtype(csr.dtype), copy=False).tocsr()
        if not csr.has_canonical_format:  # a column named twice in a row would count as two columns
            csr = csr.copy()
            csr.sum_duplicates()
        data = csr.data
        parts = (at_most_float64(data), csr.indices, csr.indptr)
        self.X = sparse.csr_array(parts, shape=csr.shape, copy=False)
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = self.X.dtype
        self.row_bytes = self.X.nnz * (data.itemsize + csr.indices.itemsize) / max(self.shape[0], 1)
        self.held_bytes = _bytes_of_all([X, self.X])

    def read(self, start: int, stop: int) -> Any:
        a, b = self.X.indptr[start], self.X.indptr[stop]
        parts = (self.X.data[a:b], self.X.indices[a:b], self.X.indptr[start : stop + 1] - a)
        return sparse.csr_array(parts, shape=(stop - start, self.shape[1]), copy=False)

    def take(self, rows: Array) -> Any:
        return sparse.csr_array(self.X[rows])


class DenseSource(MemorySource):
    """Sparse rows, read as dense ones: for what moves their zeros."""

    def __init__(self, source: Source) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.is_map, self.reads_ahead = source.is_map, source.reads_ahead
        self.held_bytes = source.held_bytes

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.source.read(start, stop).toarray())

    def take(self, rows: Array) -> Array:
        return np.asarray(self.source.take(rows).toarray())


def _bytes_of_all(matrices: list[Any]) -> int:
    """Bytes of the arrays of sparse matrices; memory that they share counts once."""
    arrays = [a for X in matrices for a in vars(X).values() if isinstance(a, np.ndarray)]
    return sum({a.ctypes.data: a.nbytes for a in arrays}.values())


def _trusted(X: Any) -> Any:
    """The same matrix, its indices looked at: compiled code follows them wherever they lead."""
    X = copy(X)  # shares the arrays: the check may put others in their place, but not in the user's matrix
    if hasattr(X, "indptr"):
        try:
            if (X.indptr[1:] < X.indptr[:-1]).any():
                raise ValueError("indptr must be a non-decreasing sequence")
            X.check_format()
        except ValueError as error:
            raise ValueError(f"X is a broken {X.format} matrix: {error}; build it anew from its entries.") from error
    return X


def find_source(X: Any) -> Source:
    """The source for what the user handed over."""
    if isinstance(X, FileSource):
        return X
    if sparse.issparse(X):
        return SparseSource(X)
    table = find_table(X)
    return ArraySource(np.asarray(X)) if table is None else table(X)
