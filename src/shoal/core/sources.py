"""Where rows live: a source reads ranges of rows, whatever the user handed over. Nothing is ever copied whole.

A kind of data is found by the name of the package that its type comes from, so that no package is imported before a
user brings data of its kind.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from .types import Array

LARGE = 1 << 28  # bytes of a memory map whose pages are given back as soon as they have been read
SAMPLE, SAMPLE_NUMBERS = (16, 1024), 1 << 18  # rows that stand for all, and about how many numbers they hold
FEW = 1024  # rows to take from such a map before its pages are given back


class Source(Protocol):
    """Rows that can be read in ranges or picked one by one."""

    shape: tuple[int, int]
    dtype: np.dtype
    is_map: bool  # do the rows lie on disk, not in memory
    reads_ahead: bool  # does `read` take so long that a thread of its own should do it, ahead of the work

    def read(self, start: int, stop: int) -> Any: ...

    def take(self, rows: Array) -> Any: ...


class FileSource(ABC):
    """Rows of an open file, which estimators take as they are; `io` has one for each format."""

    is_map = True
    reads_ahead = True
    shape: tuple[int, int]
    dtype: np.dtype
    row_bytes: float = 0.0  # that a row takes, where rows are sparse
    unpacking: float = 0.0  # bytes, where a file has parts that are larger than usual and come whole
    feature_names: list[str] | None = None  # of the columns, where the file has names for them

    @abstractmethod
    def read(self, start: int, stop: int) -> Any: ...

    @abstractmethod
    def take(self, rows: Array) -> Any: ...

    @abstractmethod
    def gather(self, rows: Array) -> Source:
        """Some rows, read once, as a source that has them at hand."""

    def fingerprint(self) -> str | None:
        """What the file is known again by, where rows here and there can't be had for little."""
        return None

    def read_often(self) -> None:  # noqa: B027 - most have nothing to do
        """There will be more than one pass."""

    def __len__(self) -> int:
        return self.shape[0]


class FarSource(FileSource):
    """Rows that live with workers elsewhere, or that they alone should read; `scaleout` has them."""

    cuts: list[int]  # where partitions begin, and the number of rows

    @abstractmethod
    def run(self, job: Any, per_row: tuple[Array, ...], threads: Any) -> Iterator[Any]:
        """Shares of a `threads.Job`, in row order, folded as `Threads.run` does. `threads`: those of this process."""

    @abstractmethod
    def changed(self, change: Callable[[int | None, Any], Any], dtype: np.dtype) -> FarSource:
        """The same rows, as `change(start, raw rows)` leaves them; `start` is None for rows from here and there."""

    @abstractmethod
    def traffic(self) -> dict[str, float]:
        """What the work has taken since this was last asked: tasks, bytes sent and fetched, seconds of work done in vain."""

    def gather(self, rows: Array) -> Source:
        return find_source(self.take(rows))


def some_rows(source: Source) -> Any:
    """Rows from the first to the last, which tell whether a source still holds what it held; or what its file tells."""
    told = source.fingerprint() if isinstance(source, FileSource) else None
    n, d = source.shape
    count = min(n, max(SAMPLE[0], min(SAMPLE[1], SAMPLE_NUMBERS // d)))
    return source.take(np.linspace(0, n - 1, count).astype(np.int64)) if told is None else told


def at_most_float64(values: Array) -> Array:
    """Long doubles as float64. What is too large becomes infinite, for the check of values to find."""
    if values.dtype.itemsize <= 8:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float64)


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


class ArraySource:
    """A numpy array of any real dtype and memory layout, memory maps included."""

    reads_ahead = False

    def __init__(self, X: Array) -> None:
        self.X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = at_most_float64(X[:0]).dtype
        owner: Any = X
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        self.is_map = isinstance(owner, mmap.mmap) or getattr(owner, "_mmap", None) is not None  # the copy of a map has none
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


class PickedSource:
    """Some rows of another source, in the order named, read whenever they are asked for."""

    def __init__(self, source: Source, ids: Array) -> None:
        self.source, self.ids = source, ids
        self.shape, self.dtype, self.is_map = (len(ids), source.shape[1]), source.dtype, source.is_map
        self.reads_ahead = source.reads_ahead

    def read(self, start: int, stop: int) -> Any:
        return self.source.take(self.ids[start:stop])

    def take(self, rows: Array) -> Any:
        return self.source.take(self.ids[rows])


class SparseSource:
    """A scipy sparse matrix, kept as CSR."""

    is_map = reads_ahead = False

    def __init__(self, X: Any) -> None:
        csr = _trusted(X).tocsr()
        if not csr.has_canonical_format:  # a column named twice in a row would count as two columns
            csr = csr.copy()
            csr.sum_duplicates()
        data = csr.data.astype(csr.dtype.newbyteorder("="), copy=False)  # kernels read no other bytes
        parts = (at_most_float64(data), csr.indices, csr.indptr)
        self.X = sparse.csr_array(parts, shape=csr.shape, copy=False)
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = self.X.dtype
        self.row_bytes = self.X.nnz * (data.itemsize + csr.indices.itemsize) / max(self.shape[0], 1)

    def read(self, start: int, stop: int) -> Any:
        a, b = self.X.indptr[start], self.X.indptr[stop]
        parts = (self.X.data[a:b], self.X.indices[a:b], self.X.indptr[start : stop + 1] - a)
        return sparse.csr_array(parts, shape=(stop - start, self.shape[1]), copy=False)

    def take(self, rows: Array) -> Any:
        return sparse.csr_array(self.X[rows])


class DenseSource:
    """Sparse rows, read as dense ones: for what moves their zeros."""

    def __init__(self, source: Source) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.is_map, self.reads_ahead = source.is_map, source.reads_ahead

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.source.read(start, stop).toarray())

    def take(self, rows: Array) -> Array:
        return np.asarray(self.source.take(rows).toarray())


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


class TableSource:
    """A table whose columns hold numbers; `part(rows, dtype)` gives some of its rows as an array."""

    is_map = reads_ahead = False

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, part: Callable[[Any, np.dtype], Array]) -> None:
        self.shape = shape
        self.raw_dtype = dtype
        self.dtype = at_most_float64(np.empty(0, dtype)).dtype
        self.part = part

    def read(self, start: int, stop: int) -> Array:
        return self.take(slice(start, stop))

    def take(self, rows: Any) -> Array:
        return at_most_float64(np.asarray(self.part(rows, self.raw_dtype), self.raw_dtype))


class Column(NamedTuple):
    """Of a table. Its type is read from no rows at all: those with a missing value could tell of another one."""

    name: Any
    no_rows: Array
    has_gaps: bool  # are values missing, in a way that integers can't tell
    all_rows: Callable[[], Array]

    def dtype(self) -> np.dtype:
        kind = self.no_rows.dtype if self.no_rows.ndim == 1 else np.dtype(object)
        if kind.kind not in "biufO":
            raise ValueError(f"Column {self.name!r} of X holds values of type {kind}: give real numbers, or drop it.")
        return np.dtype(np.float64) if self.has_gaps and kind.kind in "biu" else kind

    def floats(self) -> Array:
        """For what only comes as objects."""
        values = self.all_rows()
        if values.ndim > 1 or isinstance(values[0], list | np.ndarray):
            raise ValueError(f"Column {self.name!r} of X holds lists: stack it into a 2-D array.")
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Column {self.name!r} of X must hold real numbers: {error}.") from error


def _table(n: int, columns: list[Column], part: Callable[[Any, np.dtype], Array]) -> Source:
    kinds = [column.dtype() for column in columns]
    if any(kind.kind == "O" for kind in kinds):
        return ArraySource(np.column_stack([column.floats() for column in columns]))
    return TableSource((n, len(columns)), np.result_type(*kinds), part)


def _pandas(X: Any) -> Source:
    columns = [values for _, values in X.items()]

    def describe(values: Any) -> Column:
        gaps = not isinstance(values.dtype, np.dtype) and values.hasnans  # in a NumPy column they are NaN already
        everything = partial(values.to_numpy, na_value=np.nan) if gaps else values.to_numpy
        return Column(values.name, values.iloc[:0].to_numpy(), gaps, everything)

    def is_view(values: Any) -> bool:
        return np.may_share_memory(values.to_numpy(), values.to_numpy())

    def of_table(rows: Any, dtype: np.dtype) -> Array:
        missing = {"na_value": np.nan} if dtype.kind == "f" else {}
        values: Array = X.iloc[rows].to_numpy(dtype, **missing)
        return values

    def of_views(rows: Any, dtype: np.dtype) -> Array:
        return np.stack([view[rows] for view in views], axis=1, dtype=dtype, casting="unsafe")

    first = X.iloc[:1]
    is_array = np.may_share_memory(first.to_numpy(), first.iloc[:, 0].to_numpy())  # and so are its slices
    views = [] if is_array or not all(map(is_view, columns)) else [values.to_numpy() for values in columns]
    return _table(len(X), list(map(describe, columns)), of_views if views else of_table)


def _polars(X: Any) -> Source:
    columns = [Column(c.name, c[:0].to_numpy(), c.null_count() > 0, c.to_numpy) for c in X.get_columns()]
    return _table(X.height, columns, lambda rows, _: X[rows].to_numpy())


def _pyarrow(X: Any) -> Source:
    def values(column: Any) -> Any:
        return column.to_numpy(zero_copy_only=False)

    def part(rows: Any, dtype: np.dtype) -> Array:
        some = X.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else X.take(rows)
        return np.stack([values(c) for c in some.columns], axis=1, dtype=dtype, casting="unsafe")

    columns = [
        Column(name, values(c.slice(0, 0)), c.null_count > 0, partial(values, c))
        for name, c in zip(X.schema.names, X.columns, strict=True)
    ]
    return _table(X.num_rows, columns, part)


TABLES: dict[str, Callable[[Any], Source]] = {"pandas": _pandas, "polars": _polars, "pyarrow": _pyarrow}


def find_table(X: Any) -> Callable[[Any], Source] | None:
    """What makes a source of X if it is a table that Shoal knows, or derives from one."""
    packages = (kind.__module__.partition(".")[0] for kind in type(X).__mro__)
    return next((TABLES[name] for name in packages if name in TABLES and len(getattr(X, "shape", ())) == 2), None)


def find_source(X: Any) -> Source:
    """The source for what the user handed over."""
    if isinstance(X, FileSource):
        return X
    if sparse.issparse(X):
        return SparseSource(X)
    table = find_table(X)
    return ArraySource(np.asarray(X)) if table is None else table(X)
