"""Parquet, Arrow and Feather: columns of numbers, or one column of lists of them, all of the same length."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.types import Array, find_rounded_integer, rounded_integer_message, warn
from ..exceptions import InvalidFileError
from .errors import check_unpacked, need, wrap_read_errors
from .options import Opened, Options, check_shape, place_of, places_of
from .streamed import Streamed, more_than_a_batch, rows_in_a_batch

ANEW = "write it anew"
PAGE = 1 << 20  # bytes of a column that Parquet unpacks at a time
LONGEST = 1 << 26  # bytes that Arrow may have to say of a batch
SIZES = [("rows", "i8"), ("stored", "i8")]


class Plan(NamedTuple):
    """What becomes of the columns."""

    names: list[str]
    d: int
    dtype: np.dtype
    is_list: bool  # one column, which holds whole rows
    left_out: list[str]  # columns of the index of pandas that are left out


class Table(NamedTuple):
    """A file of columns, of whichever format."""

    path: Path
    schema: Any
    n: int
    batches: Callable[[list[str], int], Iterator[Any]]  # names, rows at a time -> record batches
    unpacking: Callable[[Plan], int]  # bytes that are in memory meanwhile, beside the batches


def open_parquet(path: Path, options: Options) -> Opened:
    pq = need("pyarrow.parquet", "parquet", path)

    def opened() -> Any:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)

    def batches(names: list[str], size: int) -> Iterator[Any]:
        with opened() as file:
            yield from file.iter_batches(size, columns=names)

    with wrap_read_errors(path, "opening it as Parquet", ANEW), opened() as file:
        told = file.metadata
        group = max((told.row_group(i).total_byte_size for i in range(told.num_row_groups)), default=0)
        return _open(
            Table(path, file.schema_arrow, told.num_rows, batches, lambda plan: 3 * min(group, len(plan.names) * PAGE)), options
        )


def open_arrow(path: Path, options: Options) -> Opened:
    """Arrow's file format, which Feather is another name of."""
    ipc = need("pyarrow.ipc", "parquet", path)

    def batches(names: list[str], size: int) -> Iterator[Any]:
        with ipc.open_file(str(path)) as file:
            for i in range(file.num_record_batches):
                yield from _cut(file.get_batch(i), names, size)  # and is forgotten before the next one comes

    with wrap_read_errors(path, "opening it as an Arrow file", f"{ANEW}, with pyarrow.feather.write_feather"):
        with ipc.open_file(str(path)) as file:
            schema = file.schema
        sizes = batch_sizes(path)
        rows, stored = (max(some, default=0) for some in (sizes["rows"].tolist(), sizes["stored"].tolist()))

        def unpacking(plan: Plan) -> int:
            return more_than_a_batch(max(stored, rows * plan.d * plan.dtype.itemsize))

        return _open(Table(path, schema, sum(sizes["rows"].tolist()), batches, unpacking), options)


def _cut(batch: Any, names: list[str], size: int) -> Iterator[Any]:
    batch.validate(full=True)  # Arrow follows lengths and places wherever they lead, and aborts
    batch = batch.select(names)
    return (batch.slice(a, size) for a in range(0, batch.num_rows, size))


def batch_sizes(path: Path) -> Array:
    """Rows and bytes of each batch of an Arrow file, which pyarrow only tells after it has read them.

    At the end of the file is a table, laid out by FlatBuffers, of where the batches are; there, another one tells of each.
    """
    with open(path, "rb") as file:
        file.seek(-10, os.SEEK_END)
        (size,) = struct.unpack("<i", file.read(4))
        file.seek(-10 - size, os.SEEK_END)
        footer = file.read(size)
        if not (places := _field(footer, _inner(footer, 0), 3)):
            return np.zeros(0, SIZES)
        at = _inner(footer, places)
        blocks = np.frombuffer(footer, "<i8, <i4, <i4, <i8", struct.unpack_from("<I", footer, at)[0], at + 4)
        sizes = np.zeros(len(blocks), SIZES)
        for i, (place, length, _, stored) in enumerate(blocks.tolist()):
            file.seek(place)
            message = file.read(min(max(length, 0), LONGEST))
            message = message[8 if message.startswith(b"\xff\xff\xff\xff") else 4 :]
            batch = _inner(message, _field(message, _inner(message, 0), 2))
            at = _field(message, batch, 0)
            sizes[i] = struct.unpack_from("<q", message, at)[0] if at else 0, stored
    return sizes


def _inner(data: bytes, at: int) -> int:
    """The place that is named at this one."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, i: int) -> int:
    """The place of a field of a table; 0: it has none."""
    slots = table - struct.unpack_from("<i", data, table)[0]
    known = struct.unpack_from("<H", data, slots)[0]
    offset = struct.unpack_from("<H", data, slots + 4 + 2 * i)[0] if 4 + 2 * i < known else 0
    return table + int(offset) if offset else 0


def _open(table: Table, options: Options) -> Opened:
    if table.n < 0:
        raise InvalidFileError(f"{table.path}: claims to have {table.n} rows: {ANEW}.")
    plan = _plan(table, options)
    n = options.limited(table.n)
    check_unpacked(table.path, n * plan.d * plan.dtype.itemsize, table.path.stat().st_size)
    rows = Streamed(str(table.path), (n, plan.d), plan.dtype, partial(_arrays, table, plan, []), options.scratch)
    rows.unpacking = table.unpacking(plan)
    check_shape(table.path, rows)
    names = None if plan.is_list else plan.names
    index = ", ".join(map(repr, plan.left_out[:5]))
    notice = f"{index}, the index of a pandas table, is left out: name it in columns= to cluster by it, too." if index else ""
    return Opened(rows, names, partial(_column, table), notice)


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
        raise InvalidFileError(
            f"{path}: column {name!r} holds values of type {kind}, not numbers: leave it out of columns=, "
            "or name it as id_column= if it names the rows."
        )
    dtype: np.dtype = np.dtype(inner.to_pandas_dtype())
    return dtype


def _plan(table: Table, options: Options) -> Plan:
    path, schema = table.path, table.schema
    if len(set(schema.names)) < len(schema.names):
        raise InvalidFileError(f"{path}: has two columns of the same name: give each its own.")
    places = places_of(path, options, schema.names, len(schema.names))
    lists = [j for j in places if _is_list(schema.field(j).type)]
    if options.columns is None and len(lists) == 1:
        places = lists
    index = []
    if options.columns is None and not lists:
        sibling = {place_of(path, column, schema.names, len(schema.names)) for column in options.beside}
        index = [name for name in _index_columns(schema) if schema.names.index(name) not in sibling]
        places = [j for j in places if schema.names[j] not in index]
    names = [schema.names[j] for j in places]
    if not names:
        raise InvalidFileError(f"{path}: has no columns of numbers: name a file that has.")
    if lists and len(places) > 1:
        raise InvalidFileError(f"{path}: column {schema.names[lists[0]]!r} holds whole rows: name it alone as columns=.")
    dtype = np.result_type(*(_dtype(path, name, schema.field(name).type) for name in names))
    return Plan(names, _width(table, names[0]) if lists else len(names), dtype, bool(lists), index)


def _index_columns(schema: Any) -> list[str]:
    """The columns that hold the index of a table of pandas, which is no feature of its rows."""
    try:
        told = (schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in told if isinstance(name, str) and name in schema.names]
    except (ValueError, TypeError, AttributeError, RecursionError):  # what it says of itself is no JSON of pandas
        return []


def _width(table: Table, name: str) -> int:
    """Numbers in the first list of a column."""
    kind = table.schema.field(name).type
    if _types().is_fixed_size_list(kind):
        return int(kind.list_size)
    for batch in table.batches([name], 1):
        if batch.num_rows:
            first = batch.column(0)[0]
            if not first.is_valid:
                raise InvalidFileError(f"{table.path}: row 0 of column {name!r} is missing: fill it in or drop the row.")
            return len(first.values)
    return 1  # there are no rows


def _arrays(table: Table, plan: Plan, warned: list[bool]) -> Iterator[Array]:
    """All rows, batch by batch. The user is warned of the first integer that is rounded, once for all passes."""
    start, may_round = 0, not plan.is_list and plan.dtype.kind == "f"
    with wrap_read_errors(table.path, "reading its rows", ANEW):
        for batch in table.batches(plan.names, rows_in_a_batch(plan.d)):
            if may_round and not warned and _warns_of_rounding(table.path, plan, batch, start):
                warned.append(True)
            yield _array(table.path, plan, batch, start)
            start += batch.num_rows


def _warns_of_rounding(path: Path, plan: Plan, batch: Any, start: int) -> bool:
    """Integers beside columns of floats become floats here: warn of the first that is rounded."""
    for name, column in zip(plan.names, batch.columns, strict=True):
        if _types().is_integer(column.type) and not column.null_count:
            values = column.to_numpy(zero_copy_only=False)
            place = find_rounded_integer(values)
            if place is not None:
                where = f"row {start + int(place[0])}, column {name!r}"
                warn(rounded_integer_message(f"{path}:", values[place[0]], where), UserWarning)
                return True
    return False


def _array(path: Path, plan: Plan, batch: Any, start: int) -> Array:
    """Some rows."""
    for name, column in zip(plan.names, batch.columns, strict=True):
        if column.null_count:
            row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise InvalidFileError(f"{path}: row {row} of column {name!r} is missing: fill it in or drop the row.")
    if not plan.is_list:
        columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        return np.stack(columns, axis=1, dtype=plan.dtype, casting="unsafe")
    column = batch.column(0)
    if not _types().is_fixed_size_list(column.type):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if (lengths != plan.d).any():
            at = int(np.argmax(lengths != plan.d))
            raise InvalidFileError(
                f"{path}: row {start + at} of column {plan.names[0]!r} is a list of {lengths[at]} numbers, "
                f"but the first one has {plan.d}: all must have as many."
            )
    values = column.flatten()
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidFileError(
            f"{path}: number {at % plan.d} of row {start + at // plan.d} of column {plan.names[0]!r} is missing: "
            "fill it in or drop the row."
        )
    return np.array(values.to_numpy(zero_copy_only=False)).reshape(batch.num_rows, plan.d)  # a view would keep the batch


def _column(table: Table, column: Any) -> Iterator[Any]:
    """Its values, whatever they are."""
    name = table.schema.names[place_of(table.path, column, table.schema.names, len(table.schema.names))]
    with wrap_read_errors(table.path, f"reading column {name!r}", ANEW):
        yield from (batch.column(0) for batch in table.batches([name], 1 << 16))
