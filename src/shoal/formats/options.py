"""Options of `open_rows`, and the result of opening a file: rows, column names and column selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.source import StoredSource
from ..data.types import Array, is_sparse
from ..exceptions import InvalidFileError
from .errors import wrap_read_errors

COLUMN_BYTES = 1 << 24  # bytes of rows read at a time to extract one column


class Options(NamedTuple):
    """Arguments of `files.open_rows`, which documents them."""

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
    exclude: list[Any] | None = None
    categorical: str | None = None
    missing: str | None = None
    dates: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    preprocessing: Any = None

    @property
    def is_mixed(self) -> bool:
        """Whether an option applies only to tables with columns of several kinds."""
        asked = (self.exclude, self.categorical, self.missing, self.dates, self.decimal, self.thousands, self.preprocessing)
        return any(value is not None for value in asked)

    @property
    def non_features(self) -> list[Any]:
        """Columns that identify or describe the rows, and are not clustered by."""
        return [column for column in (self.id_column, self.text_column) if column is not None]

    def limited(self, n: int) -> int:
        """Number of rows to read of a file of n rows."""
        return n if self.limit_rows is None else min(n, self.limit_rows)


class Column:
    """One column of a file, of any type, read lazily in batches."""

    def __init__(self, name: str, parts: Callable[[], Iterator[Any]], n: int) -> None:
        self.name, self.parts, self.n = name, parts, n  # the name is for messages

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Any]:
        """Yield the column as NumPy or Arrow arrays, in row order."""
        left = self.n
        for part in self.parts():
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return

    def values_at(self, rows: Array) -> list[Any]:
        """Return the values at these row numbers, which are in ascending order."""
        found: list[Any] = []
        start = 0
        for part in self:
            a, b = np.searchsorted(rows, (start, start + len(part)))
            found += [part[i] for i in (rows[a:b] - start).tolist()]
            start += len(part)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        with wrap_read_errors(self.name, "converting it to an array", "write it again"):  # text may be invalid UTF-8
            return np.concatenate([_numpy(part) for part in self], dtype=dtype)


def _numpy(part: Any) -> Array:
    """Convert to NumPy; as objects if values are missing, since a float array would round large integers."""
    return np.array(part.tolist(), object) if getattr(part, "null_count", 0) else np.asarray(part)


class Opened(NamedTuple):
    """An opened file."""

    rows: Any  # a `StoredSource`
    names: list[str] | None = None  # of the feature columns
    column: Callable[[Any], Iterator[Any]] | None = None  # reads any column, given its name or index, in batches
    notice: str = ""  # a warning for the user
    table: Any = None  # `mixed.Extras`, if the columns of a table were made features


class Selection(NamedTuple):
    """Columns to select, or to drop. Its memory depends on the length of the list, not on the width of the rows."""

    columns: Array  # in the order of the result; in ascending order if they are to be dropped
    drop: bool = False

    def width(self, d: int) -> int:
        """Return the number of columns that remain of d."""
        return d - len(self.columns) if self.drop else len(self.columns)

    def of(self, block: Any) -> Any:
        """Return the selected columns of a block of rows."""
        if is_sparse(block):
            return self._of_sparse(block)
        return np.delete(block, self.columns, axis=1) if self.drop else block[:, self.columns]

    def _of_sparse(self, block: Any) -> Any:
        """Select columns by the stored values only.

        SciPy's indexing allocates arrays of the width that a file declares, which may be anything.
        """
        order = np.argsort(self.columns)
        ascending = self.columns[order]
        rank = np.searchsorted(ascending, block.indices)
        is_listed = ascending[np.minimum(rank, len(ascending) - 1)] == block.indices
        mask = ~is_listed if self.drop else is_listed
        indices = block.indices[mask] - rank[mask] if self.drop else order[rank[mask]]
        indptr = np.concatenate([[0], np.cumsum(mask)])[block.indptr]
        shape = block.shape[0], self.width(block.shape[1])
        out = type(block)((block.data[mask], indices.astype(block.indices.dtype), indptr), shape=shape)
        out.sum_duplicates()
        return out


class SomeColumns(StoredSource):
    """Source with a selection of the columns of another source."""

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


def shown_names(names: Sequence[str]) -> str:
    """Return the first names as text."""
    return ", ".join(names[:20]) + ", ..." * (len(names) > 20)


def nearest_name(name: str, names: Sequence[str]) -> str:
    """Return a suggestion of the most similar name; "" if none is similar."""
    lower = {other.lower(): other for other in names}
    found = get_close_matches(name.lower(), list(lower), 1, 0.6)
    return f" (did you mean {lower[found[0]]!r}?)" if found else ""


def place_of(path: Path, column: Any, names: list[str] | None, d: int) -> int:
    """Return the index of a column that is given by name or by index."""
    if isinstance(column, str):
        places = [j for j, name in enumerate(names or ()) if name == column]
        if len(places) > 1:
            raise InvalidFileError(
                f"{path}: columns {places[0]} and {places[1]} are both named {column!r}: use a column number instead."
            )
        if places:
            return places[0]
        if column.isascii() and column.isdecimal() and len(column) < 10:  # a number typed on the command line
            return place_of(path, int(column), names, d)
        known = f"it has {shown_names(names)}" if names else f"its {d} columns have no names"
        suggestion = nearest_name(column, names or ())
        raise InvalidFileError(
            f"{path}: has no column named {column!r}{suggestion}: {known}; use one of these, or a column number."
        )
    if not isinstance(column, int | np.integer) or isinstance(column, bool) or not 0 <= column < d:
        raise InvalidFileError(f"{path}: has no column {column!r}: use a number from 0 to {d - 1}.")
    return int(column)


def selection_of(path: Path, options: Options, names: list[str] | None, d: int) -> Selection:
    """Return the feature columns: those of `options.columns`, by default all but the non-features."""
    non_features = sorted({place_of(path, column, names, d) for column in options.non_features})
    if options.columns is None:
        if non_features and len(non_features) == d:
            raise InvalidFileError(
                f"{path}: has no columns other than id_column and text_column: use a file with features to cluster by."
            )
        return Selection(np.array(non_features, np.int64), drop=True)
    counts = Counter(names)
    known = {name: j for j, name in enumerate(names or ()) if counts[name] == 1}
    places = [known[c] if isinstance(c, str) and c in known else place_of(path, c, names, d) for c in options.columns]
    if not places:
        raise InvalidFileError(f"{path}: columns=[] is empty: list at least one column, or use None for all.")
    seen: set[int] = set()
    for column, place in zip(options.columns, places, strict=True):
        if place in seen:
            raise InvalidFileError(f"{path}: columns= lists {column!r} twice: list each column once.")
        seen.add(place)
    return Selection(np.array(places, np.int64))


def places_of(path: Path, options: Options, names: list[str] | None, d: int) -> list[int]:
    """Return the indices of the feature columns as a list, for formats that store metadata for every column."""
    selection = selection_of(path, options, names, d)
    columns: list[int] = selection.of(np.arange(d)[None])[0].tolist()
    return columns


def check_shape(path: Path, rows: Any) -> None:
    """Raise if no array can have this shape, before one is allocated."""
    n, d = rows.shape
    if d < 1:
        raise InvalidFileError(f"{path}: its rows have no columns: use a file with at least one.")
    if max(n, 1) * rows.row_bytes >= 2**63 or d >= 2**31:
        raise InvalidFileError(
            f"{path}: declares {n:,} rows of {d:,} columns, more than an array can have: it is damaged; write it again."
        )


def columns_by_place(path: Path, rows: Any, options: Options) -> Opened:
    """Open a file that is a single array: its columns have indices but no names."""
    check_shape(path, rows)
    if options.columns is None and not options.non_features:
        return Opened(rows)

    def column(name: Any) -> Iterator[Array]:
        selected = SomeColumns(rows, Selection(np.array([place_of(path, name, None, rows.shape[1])])))
        step = max(1, COLUMN_BYTES // max(rows.row_bytes, 1))
        for a in range(0, rows.shape[0], step):
            block = selected.read(a, min(a + step, rows.shape[0]))
            values = (block.toarray() if is_sparse(block) else block)[:, 0]
            yield values.astype(values.dtype.newbyteorder("="), copy=False)  # Arrow accepts native order only

    return Opened(SomeColumns(rows, selection_of(path, options, None, rows.shape[1])), None, column)
