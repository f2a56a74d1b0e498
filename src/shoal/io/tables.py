"""Parquet, Arrow and Feather: columns of numbers, or one column of lists of them, all of the same length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.types import Array
from .errors import FileError, check_unpacked, need, told_of
from .options import Opened, Options, check_shape, place_of, places_of
from .streamed import Streamed, rows_in_a_batch

ANEW = "write it anew"


class Table(NamedTuple):
    """A file of columns, of whichever format."""

    path: Path
    schema: Any
    n: int
    batches: Callable[[list[str], int], Iterator[Any]]  # names, rows at a time -> record batches


class Plan(NamedTuple):
    """What becomes of the columns."""

    names: list[str]
    d: int
    dtype: np.dtype
    is_list: bool  # one column, which holds whole rows


def open_parquet(path: Path, options: Options) -> Opened:
    pq = need("pyarrow.parquet", "parquet", path)

    def opened() -> Any:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)

    def batches(names: list[str], size: int) -> Iterator[Any]:
        with opened() as file:
            yield from file.iter_batches(size, columns=names)

    with told_of(path, "opening it as Parquet", ANEW), opened() as file:
        return _open(Table(path, file.schema_arrow, file.metadata.num_rows, batches), options)


def open_arrow(path: Path, options: Options) -> Opened:
    """Arrow's file format, which Feather is another name of."""
    ipc = need("pyarrow.ipc", "parquet", path)
    dataset = need("pyarrow.dataset", "parquet", path)

    def batches(names: list[str], size: int) -> Iterator[Any]:
        with ipc.open_file(str(path)) as file:
            for i in range(file.num_record_batches):
                batch = file.get_batch(i)
                batch.validate(full=True)  # Arrow follows lengths and places wherever they lead, and aborts
                batch = batch.select(names)
                for a in range(0, batch.num_rows, size):
                    yield batch.slice(a, size)

    with told_of(path, "opening it as an Arrow file", f"{ANEW}, with pyarrow.feather.write_feather"):
        n = dataset.dataset(str(path), format="ipc").count_rows()
        with ipc.open_file(str(path)) as file:
            return _open(Table(path, file.schema, n, batches), options)


def _open(table: Table, options: Options) -> Opened:
    if table.n < 0:
        raise FileError(f"{table.path}: claims to have {table.n} rows: {ANEW}.")
    plan = _plan(table, options)
    n = options.limited(table.n)
    check_unpacked(table.path, n * plan.d * plan.dtype.itemsize, table.path.stat().st_size)
    rows = Streamed(str(table.path), (n, plan.d), plan.dtype, partial(_arrays, table, plan), options.scratch)
    check_shape(table.path, rows)
    names = None if plan.is_list else plan.names
    return Opened(rows, names, partial(_column, table))


def _types() -> Any:
    return need("pyarrow.types", "parquet", "it")


def _is_list(kind: Any) -> bool:
    types = _types()
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _dtype(path: Path, name: str, kind: Any) -> np.dtype:
    """Of the numbers in a column, or in its lists."""
    types = _types()
    inner = kind.value_type if _is_list(kind) else kind
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise FileError(
            f"{path}: column {name!r} holds values of type {kind}, not numbers: leave it out of columns=, "
            "or name it as id_column= if it names the rows."
        )
    dtype: np.dtype = np.dtype(inner.to_pandas_dtype())
    return dtype


def _plan(table: Table, options: Options) -> Plan:
    path, schema = table.path, table.schema
    if len(set(schema.names)) < len(schema.names):
        raise FileError(f"{path}: has two columns of the same name: give each its own.")
    places = places_of(path, options, schema.names, len(schema.names))
    lists = [j for j in places if _is_list(schema.field(j).type)]
    if options.columns is None and len(lists) == 1:
        places = lists
    names = [schema.names[j] for j in places]
    if not names:
        raise FileError(f"{path}: has no columns of numbers: name a file that has.")
    if lists and len(places) > 1:
        raise FileError(f"{path}: column {schema.names[lists[0]]!r} holds whole rows: name it alone as columns=.")
    dtype = np.result_type(*(_dtype(path, name, schema.field(name).type) for name in names))
    return Plan(names, _width(table, names[0]) if lists else len(names), dtype, bool(lists))


def _width(table: Table, name: str) -> int:
    """Numbers in the first list of a column."""
    kind = table.schema.field(name).type
    if _types().is_fixed_size_list(kind):
        return int(kind.list_size)
    for batch in table.batches([name], 1):
        if batch.num_rows:
            first = batch.column(0)[0].as_py()
            if first is None:
                raise FileError(f"{table.path}: row 0 of column {name!r} is missing: fill it in or drop the row.")
            return len(first)
    return 1  # there are no rows


def _arrays(table: Table, plan: Plan) -> Iterator[Array]:
    start = 0
    with told_of(table.path, "reading its rows", ANEW):
        for batch in table.batches(plan.names, rows_in_a_batch(plan.d)):
            yield _array(table.path, plan, batch, start)
            start += batch.num_rows


def _array(path: Path, plan: Plan, batch: Any, start: int) -> Array:
    """Some rows."""
    for name, column in zip(plan.names, batch.columns, strict=True):
        if column.null_count:
            row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise FileError(f"{path}: row {row} of column {name!r} is missing: fill it in or drop the row.")
    if not plan.is_list:
        columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        return np.stack(columns, axis=1, dtype=plan.dtype, casting="unsafe")
    column = batch.column(0)
    if not _types().is_fixed_size_list(column.type):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if (lengths != plan.d).any():
            at = int(np.argmax(lengths != plan.d))
            raise FileError(
                f"{path}: row {start + at} of column {plan.names[0]!r} is a list of {lengths[at]} numbers, "
                f"but the first one has {plan.d}: all must have as many."
            )
    values = column.flatten()
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise FileError(
            f"{path}: number {at % plan.d} of row {start + at // plan.d} of column {plan.names[0]!r} is missing: "
            "fill it in or drop the row."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(batch.num_rows, plan.d)


def _column(table: Table, column: Any) -> Iterator[Any]:
    """Its values, whatever they are."""
    name = table.schema.names[place_of(table.path, column, table.schema.names, len(table.schema.names))]
    with told_of(table.path, f"reading column {name!r}", ANEW):
        yield from (batch.column(0) for batch in table.batches([name], 1 << 16))
