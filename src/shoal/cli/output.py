"""What a command leaves behind: its result on stdout, and files that never replace others unasked."""

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

from .errors import BadData, NoRoom, one_line


def plain(value: Any) -> Any:
    """As JSON has it; what is not finite is null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def tell(text: str) -> None:
    """On stdout, at once. Whoever has read enough may go."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(text)


def show(result: Mapping[str, Any], as_json: bool, lines: Mapping[str, object]) -> None:
    """The result: one JSON document, or the lines of it that people want."""
    if as_json:
        tell(json.dumps(plain(result)))
        return
    width = max(map(len, lines), default=0)
    for name, value in lines.items():
        tell(f"{one_line(name):<{width}}  {one_line(value)}")


def show_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns that line up, numbers to the right."""
    table = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[j]) for row in table) for j in range(len(head))]
    for row in table:
        tell("  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip())


def size(count: float) -> str:
    """Bytes, for people."""
    power = min(int(math.log10(max(count / 0.9995, 1))) // 3, 6)  # 999.5 MB are rounded to 1 GB
    unit = ("bytes", "KB", "MB", "GB", "TB", "PB", "EB")[power]
    return f"{count / 1000**power:.{3 if power else 0}{'g' if power else 'f'}} {unit}"


def refuse(path: Path, force: bool, *inputs: str) -> None:
    """Nothing is replaced unless it was asked for, no folder by a file, and never what is read."""
    if path.is_dir():
        raise click.UsageError(f"{path}: is a folder: name a file.")
    keep_apart(path.parent, inputs)
    if path.exists() and any(os.path.samefile(path, given) for given in inputs):
        raise click.UsageError(f"{path}: is to be read, not written: name another file.")
    if os.path.lexists(path) and not force:
        raise click.UsageError(f"{path}: is there already: name another file, or say --force to replace it.")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path.parent}: there is no such folder: make it, or name another.")


def keep_apart(folder: Path, inputs: Sequence[str]) -> None:
    """A folder of data is read whole: what is written there would be taken for data, or in its place."""
    for given in map(Path, inputs):
        if given.is_dir() and (folder.resolve() == given.resolve() or given.resolve() in folder.resolve().parents):
            raise click.UsageError(f"{folder}: lies in {given}, which is to be read: name a place outside.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[io.IOBase | Any]:
    """A file that is there when all of it is."""
    from ..data.atomic_write import atomic_write

    with saving(path), atomic_write(path) as file:
        yield file


@contextlib.contextmanager
def saving(path: Path) -> Iterator[None]:
    """Whatever keeps a file from being written is told with its name."""
    try:
        yield
    except OSError as error:
        raise NoRoom(f"{path}: can't be written ({error.strerror or error}): make room, or name another place.") from error


def write_json(path: Path, value: Any) -> None:
    with writing(path) as file:
        file.write(json.dumps(plain(value), indent=1).encode() + b"\n")


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Records as a table: a column for each name in any of them."""
    names = list(dict.fromkeys(name for record in records for name in record))
    write_csv(path, [names, *([record.get(name, "") for name in names] for record in records)])


def write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Text that a spreadsheet would run gets a quote before it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(tame, row) for row in rows)
    with writing(path) as file:
        file.write(text.getvalue().encode())


def tame(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    cell = one_line(cell)
    first = re.match(r"[^\w=+\-@|]*(.?)", unicodedata.normalize("NFKC", cell))  # some programs pass over what is before
    return f"'{cell}" if first is not None and first[1] in ("=", "+", "-", "@", "|") else cell


def write_labels(path: Path, labels: Any, ids: Any = None) -> None:
    """npy; Parquet where rows have names, which come in parts, or where the name of the file asks for it."""
    import numpy as np

    if path.suffix != ".parquet":
        with writing(path) as file:
            np.lib.format.write_array(file, np.asarray(labels), allow_pickle=False)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    with writing(path) as file, contextlib.ExitStack() as stack:
        writer, start = None, 0
        try:
            for names in [np.arange(len(labels))] if ids is None else ids:
                part = pa.table({"id": names, "label": labels[start : start + len(names)]})
                writer = writer or stack.enter_context(pq.ParquetWriter(file, part.schema))
                writer.write_table(part)
                start += len(names)
        except (ValueError, TypeError, NotImplementedError) as error:  # of Arrow's
            raise BadData(f"--id-column: its values can't be written as Parquet ({error}): name another column.") from error


def need_parquet() -> None:
    """Before a long fit, not after it."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise click.UsageError(
            "Labels with ids are written as Parquet, for which Shoal needs pyarrow: pip install 'shoal[parquet]'."
        ) from error
