"""Write labels: alone as npy, or as a table with identifiers, distances and second-best clusters."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from .errors import InvalidDataError
from .output import escape_formula, open_atomic

ENDINGS = (".npy", ".parquet", ".csv")
TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".gz", ".bz2", ".zst")
CHUNK_ROWS = 1 << 16  # rows written at a time
PLAIN_NUMBER = re.compile(r"[-+]?[0-9.,]+([eE][-+]?[0-9]+)?%?")  # begins like a formula, and is none


def labels_file(rows: Any, data: str, join: bool) -> str:
    """Return the name of the file for the labels of a fit: of the kind of the table, or npy for rows without names."""
    if rows.id_name is None and rows.preprocessing is None and not join:
        return "labels.npy"
    return "labels.csv" if Path(data).suffix.lower() in TEXT_ENDINGS else "labels.parquet"


def check_labels_path(path: Path, needs_table: bool) -> None:
    """Raise a usage error if labels cannot be written to a file of this name. Called before a long fit, not after it."""
    if path.suffix not in ENDINGS:
        raise click.UsageError(f"{path}: must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    if path.suffix == ".npy" and needs_table:
        raise click.UsageError(f"{path}: an npy file cannot hold identifiers or other columns: name a .csv or .parquet file.")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise click.UsageError(
                "Labels with identifiers are written as Parquet, which needs pyarrow: pip install pyarrow."
            ) from error


def check_join(rows: Any, data: str) -> None:
    """Raise a usage error if the rows are not those of a table."""
    if rows.batches is None:
        raise click.UsageError(
            f"--join: {data} is read as rows of numbers, without other columns: name its identifiers with --id-column instead."
        )


def write_labels(path: Path, model: Any, rows: Any, labels: Any, join: bool = False) -> None:
    """Write labels as npy, or as a CSV or Parquet table. Rows that were left out get the label -1, or none in a table."""
    import numpy as np

    if path.suffix == ".npy":
        with open_atomic(path) as file:
            np.lib.format.write_array(file, np.asarray(_for_all_rows(labels, rows, -1)), allow_pickle=False)
        return
    from ..fit.margins import margins_of

    columns = {"cluster": np.asarray(labels)}
    margins = margins_of(model, rows, columns["cluster"]) if len(labels) else None
    if margins is not None:
        columns |= {"distance": margins.distances, "second_cluster": margins.second}
    with open_atomic(path) as file, contextlib.ExitStack() as stack:
        write = stack.enter_context((_csv_writer if path.suffix == ".csv" else _parquet_writer)(file, join))
        for names, parts in _parts(rows, columns, join):
            write(names, parts)


def _for_all_rows(values: Any, rows: Any, missing: Any) -> Any:
    """Return one value for each row of the file: `missing` for rows that were left out."""
    import numpy as np

    if rows.row_numbers is None:
        return values
    all_values = np.full(rows.n_in_file, missing, np.asarray(values).dtype)
    all_values[rows.row_numbers] = values
    return all_values


def _parts(rows: Any, columns: Mapping[str, Any], join: bool) -> Iterator[tuple[list[str], list[Any]]]:
    """Yield the table of labels in parts: names and columns."""
    import numpy as np

    start = 0
    if join:
        columns = {name: _for_all_rows(values, rows, np.nan if name == "distance" else -1) for name, values in columns.items()}
        for batch in rows.batches():
            own = {_new_name(name, batch.schema.names): values for name, values in columns.items()}
            stop = start + batch.num_rows
            yield [*batch.schema.names, *own], [*batch.columns, *(_with_gaps(values[start:stop]) for values in own.values())]
            start = stop
        return
    name = "row" if rows.id_name is None else str(rows.id_name) if not str(rows.id_name).isdecimal() else "id"
    numbers = np.arange(rows.n_in_file) if rows.row_numbers is None else rows.row_numbers
    ids = (
        (numbers[a : a + CHUNK_ROWS] for a in range(0, len(numbers), CHUNK_ROWS)) if rows.id_column is None else rows.id_column
    )
    for part in ids:
        stop = start + len(part)
        own = {_new_name(own, [name]): values[start:stop] for own, values in columns.items()}
        yield [name, *own], [part, *map(_with_gaps, own.values())]
        start = stop


def _new_name(name: str, taken: list[str]) -> str:
    """Return a name for a column that no other column has."""
    while name in taken:
        name = f"shoal_{name}"
    return name


def _with_gaps(values: Any) -> Any:
    """Return values with gaps where a row has no cluster, or no second one."""
    import numpy as np

    gaps = np.isnan(values) if values.dtype.kind == "f" else values < 0
    return np.ma.MaskedArray(values, gaps) if gaps.any() else values


@contextlib.contextmanager
def _parquet_writer(file: Any, join: bool) -> Iterator[Callable[[list[str], list[Any]], None]]:
    """Yield a function that appends columns to a Parquet file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        writer: Any = None

        def write(names: list[str], parts: list[Any]) -> None:
            nonlocal writer
            try:
                arrays = [pa.array(p.data, mask=p.mask) if isinstance(p, np.ma.MaskedArray) else pa.array(p) for p in parts]
                part = pa.table(arrays, names)
                part.validate(full=True)  # pyarrow reads and writes invalid UTF-8, which other programs reject
                writer = writer or stack.enter_context(pq.ParquetWriter(file, part.schema))
                writer.write_table(part)
            except (ValueError, TypeError, NotImplementedError) as error:  # raised by Arrow
                option = "--join" if join else "--id-column"
                raise InvalidDataError(
                    f"{option}: its values cannot be written as Parquet ({error}): name another column."
                ) from error

        yield write


@contextlib.contextmanager
def _csv_writer(file: Any, join: bool) -> Iterator[Callable[[list[str], list[Any]], None]]:
    """Yield a function that appends columns to a CSV file. Text that a spreadsheet would run as a formula is escaped."""
    is_first = True

    def write(names: list[str], parts: list[Any]) -> None:
        nonlocal is_first
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if is_first:
            writer.writerow(map(escape_formula, names))
        is_first = False
        columns = [part.to_pylist() if hasattr(part, "to_pylist") else part.tolist() for part in parts]
        writer.writerows(zip(*(list(map(_cell, column)) for column in columns), strict=True))
        file.write(text.getvalue().encode(errors="replace"))

    yield write


def _cell(value: Any) -> Any:
    """Return a value for a cell. Text that begins like a number or a word is no formula."""
    if value is None or value != value:
        return ""
    if not isinstance(value, str):
        return f"{value:.6g}" if isinstance(value, float) else value
    if value[:1].isalnum() or PLAIN_NUMBER.fullmatch(value):
        return value
    return escape_formula(value)
