"""Print results to stdout and write files, without overwriting existing ones unless asked to."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .errors import InvalidDataError, ResourceLimitError, one_line


def to_jsonable(value: Any) -> Any:
    """Convert a value to JSON types. Numbers that are not finite become None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): to_jsonable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def echo_stdout(text: str) -> None:
    """Print to stdout. Ignore broken pipes."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(text)


def show(result: Mapping[str, Any], as_json: bool, lines: Mapping[str, object]) -> None:
    """Print the result as one JSON document, or as lines of text."""
    if as_json:
        echo_stdout(json.dumps(to_jsonable(result)))
        return
    width = max(map(len, lines), default=0)
    for name, value in lines.items():
        echo_stdout(f"{one_line(name):<{width}}  {one_line(value)}")


def show_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print an aligned table: the first column left-aligned, the others right-aligned."""
    table = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[j]) for row in table) for j in range(len(head))]
    for row in table:
        echo_stdout(
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        )


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 step" or "2,000 steps"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_estimate(seconds: float) -> str:
    """Return an estimated duration with two significant digits, such as "about 0.12 s", "about 3.5 min" or "about 27 h"."""
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * unit:
            return f"about {float(f'{seconds / unit:.2g}'):,g} {name}"
    return f"about {float(f'{seconds:.2g}'):g} s" if seconds >= 0.01 else "less than 0.01 s"


def check_output_file(path: Path, force: bool, *inputs: str) -> None:
    """Raise a usage error if the file exists (unless forced), is a folder or an input, or has no parent folder."""
    if path.is_dir():
        raise click.UsageError(f"{path}: is a folder: name a file.")
    if path.exists() and not path.is_file():  # it would be replaced, not written to
        raise click.UsageError(f"{path}: is a pipe or a device: name a file.")
    check_outside_inputs(path.parent, inputs)
    if path.exists() and any(os.path.samefile(path, given) for given in inputs):
        raise click.UsageError(f"{path}: is an input and cannot be overwritten: name another file.")
    if os.path.lexists(path) and not force:
        raise click.UsageError(f"{path}: already exists: name another file, or use --force to overwrite it.")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path.parent}: no such folder: create it, or name another.")


def check_outside_inputs(folder: Path, inputs: Sequence[str]) -> None:
    """Raise a usage error if the folder is inside an input folder: all files in there are read as data."""
    for given in map(Path, inputs):
        if given.is_dir() and (folder.resolve() == given.resolve() or given.resolve() in folder.resolve().parents):
            raise click.UsageError(f"{folder}: is inside the input folder {given}: name a folder outside it.")


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[io.IOBase | Any]:
    """Open a file that appears under its name only when it is complete."""
    from ..data.atomic_write import atomic_write

    with reporting_write_errors(path), atomic_write(path) as file:
        yield file


@contextlib.contextmanager
def reporting_write_errors(path: Path) -> Iterator[None]:
    """Report errors in writing a file, with its path."""
    try:
        yield
    except OSError as error:
        raise ResourceLimitError(
            f"{path}: cannot be written ({error.strerror or error}): free disk space, or name another place."
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Write a value as an indented JSON file."""
    with open_atomic(path) as file:
        file.write(json.dumps(to_jsonable(value), indent=1).encode() + b"\n")


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records as a CSV table with one column for each key."""
    names = list(dict.fromkeys(name for record in records for name in record))
    write_csv(path, [names, *([record.get(name, "") for name in names] for record in records)])


def write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write a CSV file. Text that a spreadsheet would run as a formula is escaped."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(escape_formula, row) for row in rows)
    with open_atomic(path) as file:
        file.write(text.getvalue().encode())


def escape_formula(cell: Any) -> Any:
    """Prefix text that starts like a formula with a quote."""
    if not isinstance(cell, str):
        return cell
    cell = one_line(cell)
    first = re.match(r"[^\w=+\-@|]*(.?)", unicodedata.normalize("NFKC", cell))  # some programs skip other leading characters
    return f"'{cell}" if first is not None and first[1] in ("=", "+", "-", "@", "|") else cell


def write_labels(path: Path, labels: Any, ids: Any = None) -> None:
    """Write labels as npy or, if the file name ends in .parquet, as a table of identifiers and labels.

    `ids` iterates over blocks of identifiers; the default is the row number.
    """
    import numpy as np

    if path.suffix != ".parquet":
        with open_atomic(path) as file:
            np.lib.format.write_array(file, np.asarray(labels), allow_pickle=False)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_atomic(path) as file, contextlib.ExitStack() as stack:
        writer, start = None, 0
        try:
            for names in [np.arange(len(labels))] if ids is None else ids:
                part = pa.table({"id": names, "label": labels[start : start + len(names)]})
                part.validate(full=True)  # pyarrow reads and writes invalid UTF-8, which other programs reject
                writer = writer or stack.enter_context(pq.ParquetWriter(file, part.schema))
                writer.write_table(part)
                start += len(names)
        except (ValueError, TypeError, NotImplementedError) as error:  # raised by Arrow
            raise InvalidDataError(
                f"--id-column: its values cannot be written as Parquet ({error}): name another column."
            ) from error


def require_parquet() -> None:
    """Raise a usage error if pyarrow is not installed. Called before a long fit, not after it."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise click.UsageError(
            "Labels with identifiers are written as Parquet, which needs pyarrow: pip install 'shoal[parquet]'."
        ) from error
