"""What a user may say of a file, and what opening it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.source import StoredSource
from ..data.types import Array, is_sparse
from ..exceptions import InvalidFileError


class Options(NamedTuple):
    """See `files.open_rows`."""

    columns: list[Any] | None = None
    id_column: Any = None
    text_column: Any = None
    limit_rows: int | None = None
    array: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    n_features: int | None = None
    zero_based: bool | None = None
    scratch: str | None = None

    @property
    def beside(self) -> list[Any]:
        """Columns that tell what the rows are."""
        return [column for column in (self.id_column, self.text_column) if column is not None]

    def limited(self, n: int) -> int:
        """How many of n rows are wanted."""
        return n if self.limit_rows is None else min(n, self.limit_rows)


class Column:
    """One column of a file, whatever it holds. It is read when it is asked for, some rows at a time."""

    def __init__(self, parts: Callable[[], Iterator[Any]], n: int) -> None:
        self.parts, self.n = parts, n

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Any]:
        """Arrays of NumPy's or of Arrow's, in order."""
        left = self.n
        for part in self.parts():
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return

    def some_values(self, rows: Array) -> list[Any]:
        """Of these rows, which are named in order."""
        found: list[Any] = []
        start = 0
        for part in self:
            a, b = np.searchsorted(rows, (start, start + len(part)))
            found += [part[i] for i in (rows[a:b] - start).tolist()]
            start += len(part)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate([_numpy(part) for part in self], dtype=dtype)


def _numpy(part: Any) -> Array:
    """Where values are missing, as objects: large integers would be rounded among floats."""
    return np.array(part.tolist(), object) if getattr(part, "null_count", 0) else np.asarray(part)


class Opened(NamedTuple):
    """A file's rows, the names of its columns, and one of these by its name or number, in parts."""

    rows: Any  # a source with `row_bytes` and `is_packed`: must it be unpacked before rows here and there can be had?
    # And with `unpacking`: the bytes that this takes more than with parts of the usual size; and `held_bytes`, in memory.
    names: list[str] | None = None
    column: Callable[[Any], Iterator[Any]] | None = None
    notice: str = ""  # what the user should be warned of


class Selection(NamedTuple):
    """Which columns of an array are wanted: those listed, or all but those listed. It takes the room of its list alone."""

    columns: Array  # in the wanted order; in ascending order if they are to be dropped
    drop: bool = False

    def width(self, d: int) -> int:
        """How many of d columns are wanted."""
        return d - len(self.columns) if self.drop else len(self.columns)

    def of(self, block: Any) -> Any:
        """The wanted columns of a block of rows."""
        if is_sparse(block):
            return self._of_sparse(block)
        return np.delete(block, self.columns, axis=1) if self.drop else block[:, self.columns]

    def _of_sparse(self, block: Any) -> Any:
        """By the stored values: SciPy makes arrays of the matrix's width, which a file may state as it likes."""
        order = np.argsort(self.columns)
        ranked = self.columns[order]
        place = np.searchsorted(ranked, block.indices)
        listed = ranked[np.minimum(place, len(ranked) - 1)] == block.indices
        kept = ~listed if self.drop else listed
        indices = block.indices[kept] - place[kept] if self.drop else order[place[kept]]
        indptr = np.concatenate([[0], np.cumsum(kept)])[block.indptr]
        shape = block.shape[0], self.width(block.shape[1])
        out = type(block)((block.data[kept], indices.astype(block.indices.dtype), indptr), shape=shape)
        out.sum_duplicates()
        return out


class SomeColumns(StoredSource):
    """Some columns of another source."""

    def __init__(self, rows: Any, selection: Selection) -> None:
        self.rows, self.selection = rows, selection
        self.shape, self.dtype = (rows.shape[0], selection.width(rows.shape[1])), rows.dtype
        self.is_packed, self.unpacking, self.held_bytes = rows.is_packed, rows.unpacking, rows.held_bytes
        self.row_bytes = max(1, rows.row_bytes * self.shape[1] // max(rows.shape[1], 1))

    def prepare_multi_pass(self) -> None:
        self.rows.prepare_multi_pass()

    def read(self, start: int, stop: int) -> Any:
        return self.selection.of(self.rows.read(start, stop))

    def take(self, rows: Array) -> Any:
        return self.selection.of(self.rows.take(rows))


def place_of(path: Path, column: Any, names: list[str] | None, d: int) -> int:
    """The number of a column that is named or numbered."""
    if isinstance(column, str):
        places = [j for j, name in enumerate(names or ()) if name == column]
        if len(places) > 1:
            raise InvalidFileError(
                f"{path}: columns {places[0]} and {places[1]} are both named {column!r}: give a number instead."
            )
        if places:
            return places[0]
        if column.isascii() and column.isdecimal() and len(column) < 10:  # as it is typed
            return place_of(path, int(column), names, d)
        known = f"it has {', '.join(names[:20])}{', ...' * (len(names) > 20)}" if names else f"its {d} columns have none"
        raise InvalidFileError(f"{path}: has no column named {column!r}: {known}; name one that is there, or give its number.")
    if not isinstance(column, int | np.integer) or isinstance(column, bool) or not 0 <= column < d:
        raise InvalidFileError(f"{path}: has no column {column!r}: number its columns from 0 to {d - 1}.")
    return int(column)


def selection_of(path: Path, options: Options, names: list[str] | None, d: int) -> Selection:
    """Which columns are features: all, unless some are named, but those that tell what the rows are."""
    beside = sorted({place_of(path, column, names, d) for column in options.beside})
    if options.columns is None:
        if beside and len(beside) == d:
            raise InvalidFileError(
                f"{path}: has no column but those that tell what the rows are: there is nothing to cluster by."
            )
        return Selection(np.array(beside, np.int64), drop=True)
    counts = Counter(names)
    known = {name: j for j, name in enumerate(names or ()) if counts[name] == 1}
    places = [known[c] if isinstance(c, str) and c in known else place_of(path, c, names, d) for c in options.columns]
    if not places:
        raise InvalidFileError(f"{path}: columns=[] names none: name one at least, or leave it at None for all.")
    seen: set[int] = set()
    for column, place in zip(options.columns, places, strict=True):
        if place in seen:
            raise InvalidFileError(f"{path}: columns= names {column!r} twice: name each once.")
        seen.add(place)
    return Selection(np.array(places, np.int64))


def places_of(path: Path, options: Options, names: list[str] | None, d: int) -> list[int]:
    """The same as a list, for files that hold something for every column, and so have room for it."""
    selection = selection_of(path, options, names, d)
    columns: list[int] = selection.of(np.arange(d)[None])[0].tolist()
    return columns


def check_shape(path: Path, rows: Any) -> None:
    """Refuse what no array can be, before somebody makes one of that size."""
    n, d = rows.shape
    if d < 1:
        raise InvalidFileError(f"{path}: its rows have no columns: name a file whose rows have some.")
    if max(n, 1) * rows.row_bytes >= 2**63 or d >= 2**31:
        raise InvalidFileError(
            f"{path}: claims to have {n:,} rows of {d:,} columns, more than can be: it is broken; write it anew."
        )


def columns_by_place(path: Path, rows: Any, options: Options) -> Opened:
    """For files that are one array."""
    check_shape(path, rows)
    if options.columns is None and not options.beside:
        return Opened(rows)

    def column(name: Any) -> Iterator[Array]:
        some = SomeColumns(rows, Selection(np.array([place_of(path, name, None, rows.shape[1])])))
        step = max(1, (1 << 24) // max(rows.row_bytes, 1))
        for a in range(0, rows.shape[0], step):
            block = some.read(a, min(a + step, rows.shape[0]))
            values = (block.toarray() if is_sparse(block) else block)[:, 0]
            yield values.astype(values.dtype.newbyteorder("="), copy=False)  # Arrow takes no other

    return Opened(SomeColumns(rows, selection_of(path, options, None, rows.shape[1])), None, column)
