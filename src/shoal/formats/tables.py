"""Parquet, Arrow and Feather files: columns of numbers, or one column of lists of numbers, all of the same length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.types import Array, find_rounded_integer, rounded_integer_message, warn
from ..exceptions import InvalidFileError
from .arrow_footer import batch_sizes
from .errors import check_unpacked, need, wrap_read_errors
from .fingerprint import watch
from .options import Opened, Options, check_shape, place_of, places_of
from .streamed import Streamed, rows_per_batch, unpacking_bytes

REMEDY = "write it again"
PAGE_BYTES = 1 << 20  # bytes of a column that pyarrow decompresses at a time; memory plans of Parquet files depend on it
COLUMN_ROWS = 1 << 16  # rows read at a time of a column of identifiers or texts


class Layout(NamedTuple):
    """Feature columns of a table."""

    names: list[str]
    d: int
    dtype: np.dtype
    is_list: bool  # whether there is one column, whose lists are the rows
    skipped: list[str]  # index columns of pandas, which are not features


class Table(NamedTuple):
    """A file of columns, in any of the formats."""

    path: Path
    schema: Any
    n: int
    batches: Callable[[list[str], int], Iterator[Any]]  # (names, rows per batch) -> record batches
    unpacking: Callable[[Layout], int]  # bytes of memory that decompression takes in addition to the batches


def open_parquet(path: Path, options: Options) -> Opened:
    """Open a Parquet file."""
    pq = need("pyarrow.parquet", "parquet", path)

    def opened() -> Any:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)

    def batches(names: list[str], size: int) -> Iterator[Any]:
        with opened() as file:
            yield from file.iter_batches(size, columns=names)

    with wrap_read_errors(path, "opening it as Parquet", REMEDY), opened() as file:
        metadata = file.metadata
        row_group = max((metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)), default=0)

        def unpacking(layout: Layout) -> int:
            return 3 * min(row_group, len(layout.names) * PAGE_BYTES)

        return _open(Table(path, file.schema_arrow, metadata.num_rows, batches, unpacking), options)


def open_arrow(path: Path, options: Options) -> Opened:
    """Open a file in Arrow's file format, which is also called Feather."""
    ipc = need("pyarrow.ipc", "parquet", path)

    def batches(names: list[str], size: int) -> Iterator[Any]:
        with ipc.open_file(str(path)) as file:
            for i in range(file.num_record_batches):
                yield from _split(file.get_batch(i), names, size)  # a variable would hold the batch during the next read

    def batch_of(i: int) -> Any:
        with ipc.open_file(str(path)) as file:
            return file.get_batch(i)

    with wrap_read_errors(path, "opening it as an Arrow file", f"{REMEDY}, with pyarrow.feather.write_feather"):
        with ipc.open_file(str(path)) as file:
            schema = file.schema
        sizes = batch_sizes(path)
        _check_empty_batches(path, sizes["rows"], batch_of)
        rows, stored = (max(sizes[name].tolist(), default=0) for name in ("rows", "stored"))

        def unpacking(layout: Layout) -> int:
            return unpacking_bytes(max(stored, rows * layout.d * layout.dtype.itemsize))

        return _open(Table(path, schema, sum(sizes["rows"].tolist()), batches, unpacking), options)


def _check_empty_batches(path: Path, rows: Array, batch_of: Callable[[int], Any]) -> None:
    """Raise if a batch that declares no rows is damaged: a pass ends at the last row, so it may never read this batch."""
    if (rows < 0).any():
        raise InvalidFileError(f"{path}: its batch {int(np.argmin(rows))} declares {int(rows.min())} rows: {REMEDY}.")
    for i in np.flatnonzero(rows == 0).tolist():
        batch_of(i).validate(full=True)


def _split(batch: Any, names: list[str], size: int) -> Iterator[Any]:
    """Select columns of a record batch and split it into batches of at most `size` rows."""
    batch.validate(full=True)  # Arrow does not check lengths and offsets when it reads them, and would crash the process
    batch = batch.select(names)
    return (batch.slice(a, size) for a in range(0, batch.num_rows, size))


def _open(table: Table, options: Options) -> Opened:
    """Open a table, after checks of the sizes that it declares."""
    if table.n < 0:
        raise InvalidFileError(f"{table.path}: declares {table.n} rows: {REMEDY}.")
    layout = _layout(table, options)
    n = options.limited(table.n)
    check_unpacked(table.path, n * layout.d * layout.dtype.itemsize, table.path.stat().st_size)
    rows = Streamed(
        str(table.path), (n, layout.d), layout.dtype, partial(_arrays, table, layout, []), options.scratch, table.path
    )
    rows.unpacking = table.unpacking(layout)
    check_shape(table.path, rows)
    names = None if layout.is_list else layout.names
    index = ", ".join(map(repr, layout.skipped[:5]))
    notice = f"{index}, the index of a pandas table, is not used as a feature: list it in columns= to use it." if index else ""
    return Opened(rows, names, partial(_column, table, watch(table.path)), notice)


def _types() -> Any:
    """Return pyarrow's module of type predicates."""
    return need("pyarrow.types", "parquet", "it")


def _is_list(kind: Any) -> bool:
    """Return whether a column holds lists."""
    types = _types()
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _dtype(path: Path, name: str, kind: Any) -> np.dtype:
    """Return the dtype of the numbers in a column, or in its lists."""
    types = _types()
    inner = kind.value_type if _is_list(kind) else kind
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise InvalidFileError(
            f"{path}: column {name!r} holds values of type {kind}, not numbers: list the other columns in columns=, "
            "or set id_column= to it if it identifies the rows."
        )
    dtype: np.dtype = np.dtype(inner.to_pandas_dtype())
    return dtype


def _layout(table: Table, options: Options) -> Layout:
    """Choose the feature columns and their common dtype."""
    path, schema = table.path, table.schema
    if len(set(schema.names)) < len(schema.names):
        raise InvalidFileError(f"{path}: has two columns of the same name: give each column its own name.")
    places = places_of(path, options, schema.names, len(schema.names))
    lists = [j for j in places if _is_list(schema.field(j).type)]
    if options.columns is None and len(lists) == 1:
        places = lists
    index = []
    if options.columns is None and not lists:
        non_features = {place_of(path, column, schema.names, len(schema.names)) for column in options.non_features}
        index = [name for name in _index_columns(schema) if schema.names.index(name) not in non_features]
        places = [j for j in places if schema.names[j] not in index]
    names = [schema.names[j] for j in places]
    if not names:
        raise InvalidFileError(f"{path}: has no columns of numbers: use a file with at least one.")
    if lists and len(places) > 1:
        raise InvalidFileError(f"{path}: column {schema.names[lists[0]]!r} holds lists: set columns= to it alone.")
    dtype = np.result_type(*(_dtype(path, name, schema.field(name).type) for name in names))
    return Layout(names, _width(table, names[0]) if lists else len(names), dtype, bool(lists), index)


def _index_columns(schema: Any) -> list[str]:
    """Return the columns that hold the index of a pandas table, which is not a feature."""
    try:
        columns = (schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in columns if isinstance(name, str) and name in schema.names]
    except (ValueError, TypeError, AttributeError, RecursionError):  # the metadata is not JSON, or not as pandas writes it
        return []


def _width(table: Table, name: str) -> int:
    """Return the length of the first list of a column."""
    kind = table.schema.field(name).type
    if _types().is_fixed_size_list(kind):
        return int(kind.list_size)
    for batch in table.batches([name], 1):
        if batch.num_rows:
            first = batch.column(0)[0]
            if not first.is_valid:
                raise InvalidFileError(f"{table.path}: row 0 of column {name!r} is missing: fill it in or drop the row.")
            return len(first.values)
    return 1  # without rows, which `open_rows` rejects


def _arrays(table: Table, layout: Layout, warned: list[bool]) -> Iterator[Array]:
    """Yield all rows in batches; warn of the first integer that is rounded, once for all passes."""
    start, may_round = 0, not layout.is_list and layout.dtype.kind == "f"
    with wrap_read_errors(table.path, "reading its rows", REMEDY):
        for batch in table.batches(layout.names, rows_per_batch(layout.d)):
            if may_round and not warned and _warn_if_rounded(table.path, layout, batch, start):
                warned.append(True)
            yield _array(table.path, layout, batch, start)
            start += batch.num_rows


def _warn_if_rounded(path: Path, layout: Layout, batch: Any, start: int) -> bool:
    """Warn of the first integer that conversion to the common float dtype rounds; return whether there is one."""
    for name, column in zip(layout.names, batch.columns, strict=True):
        if _types().is_integer(column.type) and not column.null_count:
            values = column.to_numpy(zero_copy_only=False)
            place = find_rounded_integer(values)
            if place is not None:
                where = f"row {start + int(place[0])}, column {name!r}"
                warn(rounded_integer_message(f"{path}:", values[place[0]], where), UserWarning)
                return True
    return False


def _array(path: Path, layout: Layout, batch: Any, start: int) -> Array:
    """Convert a record batch to an array, or raise if values are missing. `start` is the index of its first row."""
    for name, column in zip(layout.names, batch.columns, strict=True):
        if column.null_count:
            row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise InvalidFileError(f"{path}: row {row} of column {name!r} is missing: fill it in or drop the row.")
    if layout.is_list:
        return _array_of_lists(path, layout, batch.column(0), start)
    columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
    return np.stack(columns, axis=1, dtype=layout.dtype, casting="unsafe")


def _array_of_lists(path: Path, layout: Layout, column: Any, start: int) -> Array:
    """Convert a column of lists to an array, or raise if a list is incomplete or has another length than the first."""
    if not _types().is_fixed_size_list(column.type):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if (lengths != layout.d).any():
            at = int(np.argmax(lengths != layout.d))
            raise InvalidFileError(
                f"{path}: row {start + at} of column {layout.names[0]!r} is a list of {lengths[at]} numbers, "
                f"but the first one has {layout.d}: write lists of equal length."
            )
    values = column.flatten()
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidFileError(
            f"{path}: number {at % layout.d} of row {start + at // layout.d} of column {layout.names[0]!r} is missing: "
            "fill it in or drop the row."
        )
    numbers = np.array(values.to_numpy(zero_copy_only=False))  # a copy: a view would keep the batch in memory
    return numbers.reshape(len(column), layout.d)


def _column(table: Table, check_unchanged: Callable[[], None], column: Any) -> Iterator[Any]:
    """Yield a column of any type, given its name or index, in batches."""
    name = table.schema.names[place_of(table.path, column, table.schema.names, len(table.schema.names))]
    with wrap_read_errors(table.path, f"reading column {name!r}", REMEDY):
        for batch in table.batches([name], COLUMN_ROWS):
            check_unchanged()
            yield batch.column(0)
