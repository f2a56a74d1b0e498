"""Sources for arrays, memory maps, sparse matrices and tables. None of them copies the whole input."""

from __future__ import annotations

import math
import mmap
from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from .source import FileSource, Source
from .tables import find_table
from .types import Array, at_most_float64, sparse_dtype, sum_duplicates

MIN_RELEASED_BYTES = (
    1 << 28
)  # bytes of a memory map from which on its pages are released after each read, to bound resident memory
ROWS_PER_RELEASE = 1024  # rows taken by index from such a map between two releases of its pages


class MemorySource(Source):
    """Rows in the memory of this process, or in a file mapped into it."""

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        return self.subset(rows) if self.is_map else find_source(self.take(rows))


class Pages:
    """Pages of a memory map. They count as resident memory from the first access until they are released."""

    def __init__(self, pages: mmap.mmap, first: int, row_bytes: int) -> None:
        self.pages, self.first, self.row_bytes = pages, first, row_bytes

    @classmethod
    def of(cls, X: Array, owner: Any) -> Pages | None:
        """Return the pages of an array; None if it is not mapped, or if releasing pages would discard written data."""
        pages = getattr(owner, "_mmap", None)
        if pages is None or owner.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
            return None
        start = np.frombuffer(pages, np.uint8).ctypes.data
        return cls(pages, X.ctypes.data - start, X.strides[0])

    def release(self, start: int, stop: int) -> None:
        """Release the pages of a range of rows. The data stays in the file and possibly in the page cache."""
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
        self.is_map = (
            isinstance(owner, mmap.mmap) or getattr(owner, "_mmap", None) is not None
        )  # the copy of a memory map has none
        self.held_bytes = 0 if self.is_map else X.nbytes
        self.is_plain = X.flags.c_contiguous
        self.pages = Pages.of(X, owner) if self.is_plain and X.nbytes >= MIN_RELEASED_BYTES else None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "pages": None, "is_map": False}  # a pickled memory map becomes an array

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
        for a in range(0, len(rows), ROWS_PER_RELEASE):  # each access also maps neighbouring pages
            out[a : a + ROWS_PER_RELEASE] = self._take(rows[a : a + ROWS_PER_RELEASE])
            self.pages.release(0, self.shape[0])
        return out

    def _take(self, rows: Array) -> Array:
        if self.is_plain:  # np.take is nearly twice as fast, but copies arrays of other layouts
            return at_most_float64(np.take(np.asarray(self.X), rows, axis=0, mode="clip"))
        return at_most_float64(self.X[rows])


class SparseSource(MemorySource):
    """A scipy sparse matrix, kept as CSR."""

    def __init__(self, X: Any) -> None:
        csr = _validated(X)
        csr = csr.astype(sparse_dtype(csr.dtype), copy=False).tocsr()
        if not csr.has_canonical_format:  # kernels require sorted indices without duplicates
            summed = csr.copy()
            if sum_duplicates(summed):
                summed = csr.astype(np.float64)
                summed.sum_duplicates()
            csr = summed
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
    """Sparse rows read as dense rows, for transformations that change their zeros."""

    def __init__(self, source: Source) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.is_map, self.reads_ahead = source.is_map, source.reads_ahead
        self.held_bytes = source.held_bytes

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.source.read(start, stop).toarray())

    def take(self, rows: Array) -> Array:
        return np.asarray(self.source.take(rows).toarray())


def _bytes_of_all(matrices: list[Any]) -> int:
    """Return the bytes of the arrays of sparse matrices; shared memory counts once."""
    arrays = [a for X in matrices for a in vars(X).values() if isinstance(a, np.ndarray)]
    return sum({a.ctypes.data: a.nbytes for a in arrays}.values())


def _validated(X: Any) -> Any:
    """Return a sparse matrix with validated indices, since kernels do not check bounds."""
    X = copy(X)  # a shallow copy, since check_format may replace the arrays of the matrix
    if hasattr(X, "indptr"):
        try:
            if (X.indptr[1:] < X.indptr[:-1]).any():
                raise ValueError("indptr must be a non-decreasing sequence")
            X.check_format()
        except ValueError as error:
            raise ValueError(f"X is a broken {X.format} matrix: {error}; rebuild it from its entries.") from error
    return X


def find_source(X: Any) -> Source:
    """Return the source for an input of the user."""
    if isinstance(X, FileSource):
        return X
    if sparse.issparse(X):
        return SparseSource(X)
    table = find_table(X)
    return ArraySource(np.asarray(X)) if table is None else table(X)
