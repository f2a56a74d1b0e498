"""Tables with columns of several kinds (text, categories, dates, missing values) as rows of numbers.

One pass finds out what the columns hold (`column_profile`) and chooses the features (`preprocess`), or a model has chosen them.
A second pass writes the rows of numbers to a scratch file, as for any text file. Batches of Arrow are all that is in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.preprocessing import Preprocessing
from ..data.types import Array
from ..exceptions import InvalidFileError
from .column_profile import ID_NAME, ColumnProfile, ColumnScan, TextFormat, nested_kind
from .delimited import Layout, layout_of
from .errors import check_unpacked, need, wrap_read_errors
from .options import Opened, Options, nearest_name, shown_names
from .preprocess import MAX_NAMED, Encoder, Use, choose_columns, learn, places_of_names
from .raw import Scratch
from .tables import arrow_table, parquet_table
from .text_lines import lines_of, open_decompressed, parts_of, text_encoding

REMEDY = "write one row per line, with the same number of fields"
THOUSANDS = (".", ",", "'", " ", "_", "’", "\u00a0", "\u202f")
BLOCK_BYTES = 1 << 22  # bytes of text parsed at a time
BATCH_VALUES = 1 << 18  # values of a typed table read at a time
NAMING_LINES = 10_000  # lines of JSON that determine the names of the columns
USABLE = ("number", "boolean", "category", "date", "id")  # kinds of columns that may become features
JSON_LINES, TYPED = (".jsonl", ".ndjson"), {**dict.fromkeys((".parquet", ".pq"), parquet_table)}
TYPED |= dict.fromkeys((".arrow", ".feather", ".ipc"), arrow_table)


class MixedTable(NamedTuple):
    """A table in one or several files, read in batches."""

    path: Path
    names: list[str]
    batches: Callable[[Sequence[str]], Iterator[Any]]  # names -> record batches of these columns
    notice: str = ""
    has_names: bool = True  # whether the names are in the file
    nested: Mapping[str, str] = {}  # columns of lists and other nested values, which are not read, and their kinds

    def limited(self, names: Sequence[str], limit: int | None) -> Iterator[Any]:
        """Yield the batches of the first rows."""
        left = limit
        for batch in self.batches(names):
            yield batch if left is None or batch.num_rows <= left else batch.slice(0, left)
            left = None if left is None else left - batch.num_rows
            if left is not None and left <= 0:
                return


def mixed_profiles(path: Path, files: Sequence[Path], options: Options) -> list[ColumnProfile]:
    """Return what the columns hold; an empty list if all that a fit may use hold numbers, and none is missing.

    The list is empty, too, if a column holds lists of numbers, which are rows, or if no column can be used.
    """
    listed = options.columns
    profiles = profiles_of(mixed_table(path, files, options), options)
    wanted = profiles if listed is None else [profiles[j] for j in places_of_names(path, listed, [p.name for p in profiles])]
    if any(profile.kind == "list" for profile in wanted) or not any(profile.kind in USABLE for profile in wanted):
        return []
    return profiles if any(profile.kind != "number" or profile.missing for profile in wanted) else []


class Survey(NamedTuple):
    """Profiles of the columns of a table, and which of them a fit would use."""

    profiles: list[ColumnProfile]
    use: Use
    problem: str  # why a fit would fail; "" if it would not


def survey(path: Path, files: Sequence[Path], options: Options) -> Survey | None:
    """Survey a table; return None for rows whose columns have no names, or are lists of numbers."""
    table = mixed_table(path, files, options)
    profiles = profiles_of(table, options)
    is_plain = all(profile.kind == "number" and not profile.missing for profile in profiles)
    if (is_plain and not table.has_names) or any(profile.kind == "list" for profile in profiles):
        return None
    try:
        use = choose_columns(path, profiles, options)
    except InvalidFileError as error:
        good = [profile for profile in profiles if profile.kind in ("number", "boolean", "category")]
        return Survey(profiles, Use(good, {p.name: p.note for p in profiles if p.note}, None), str(error))
    try:
        learn(path, use, options)
    except InvalidFileError as error:
        return Survey(profiles, use, str(error))
    return Survey(profiles, use, "")


def has_identifiers(names: Sequence[str] | None) -> bool:
    """Return whether the name of a column is that of an identifier."""
    return any(ID_NAME.search(name) for name in names or ())


def open_json(path: Path, options: Options) -> Opened:
    """Open a file with a JSON object in each line."""
    return open_mixed(path, [path], options)


def open_mixed(path: Path, files: Sequence[Path], options: Options, profiles: Sequence[ColumnProfile] = ()) -> Opened:
    """Open a table, in one or several files, as rows of numbers. `profiles` say what its columns hold, if this is known."""
    table = mixed_table(path, files, options)
    preprocessing, notice = options.preprocessing, ""
    if preprocessing is not None and options.missing is not None:
        preprocessing = _with_missing(path, preprocessing, options.missing)
    if preprocessing is None:
        use = choose_columns(path, profiles or profiles_of(table, options), options)
        preprocessing = learn(path, use, options)
        notice = describe_left_out(use.left_out)
    encoder = Encoder(path, preprocessing, text_format(path, options))
    scratch = Scratch(str(path), len(preprocessing.feature_names), np.float64, options.scratch)
    with wrap_read_errors(path, "reading its rows", REMEDY):
        for block in encoder.rows(table.limited(_columns_in(table, preprocessing), options.limit_rows)):
            scratch.append(block)
    row_numbers = encoder.row_numbers()
    if row_numbers is not None and not len(row_numbers):
        raise InvalidFileError(f"{path}: has no row without missing values: fill them in with missing='mean' or 'median'.")

    def column(name: Any) -> Iterator[Array]:
        return _column(table, name, options.limit_rows, row_numbers)

    for name in options.non_features:
        places_of_names(path, [name], table.names)
    rows = scratch.rows()
    names = options.id_column, preprocessing.identifier
    identifier = next((name for name in names if name is not None and str(name) in table.names), options.id_column)
    more = Extras(preprocessing, row_numbers, encoder.n, identifier, partial(table.limited, table.names, options.limit_rows))
    return Opened(rows, preprocessing.feature_names, column, " ".join(filter(None, [table.notice, notice])), more)


class Extras(NamedTuple):
    """Further properties of the rows of a table."""

    preprocessing: Preprocessing
    row_numbers: Array | None  # of the rows in the file; None if no row was left out
    n_in_file: int
    identifier: str | None  # column that identifies the rows
    batches: Callable[[], Iterator[Any]]  # all columns, as record batches


def _with_missing(path: Path, preprocessing: Preprocessing, missing: str) -> Preprocessing:
    """Return the preprocessing of a model with another treatment of missing values."""
    if missing in ("mean", "median") and missing != preprocessing.missing:
        raise InvalidFileError(
            f"{path}: missing={missing!r} needs the values of the fit, which had missing={preprocessing.missing!r}: use "
            "missing='drop', or fit again."
        )
    if missing in ("error", "drop"):
        columns = tuple(column._replace(fill=None) for column in preprocessing.columns)
        preprocessing = preprocessing._replace(columns=columns)
    return preprocessing._replace(missing=missing)


def profiles_of(table: MixedTable, options: Options) -> list[ColumnProfile]:
    """Return what the columns hold, in one pass."""
    format = text_format(table.path, options)
    read = [name for name in table.names if name not in table.nested]
    scans = {name: ColumnScan(name, format, len(table.names)) for name in table.names}
    with wrap_read_errors(table.path, "reading its rows", REMEDY):
        for batch in table.limited(read, options.limit_rows) if read else ():
            for name, values in zip(read, batch.columns, strict=True):
                scans[name].add(values)
    n = max(scan.n for scan in scans.values())
    if not n:
        raise InvalidFileError(f"{table.path}: has no rows: use a file with at least one.")
    for name, kind in table.nested.items():
        scans[name].typed, scans[name].n = kind, n
    return [scan.profile() for scan in scans.values()]


def describe_left_out(left_out: dict[str, str]) -> str:
    """Return a notice of the columns that are not used; "" if all are."""
    if not left_out:
        return ""
    reasons = [f"{name!r} ({why})" for name, why in left_out.items()]
    more = f" and {len(reasons) - MAX_NAMED} more" * (len(reasons) > MAX_NAMED)
    return f"not clustered by: {', '.join(reasons[:MAX_NAMED])}{more}."


def text_format(path: Path, options: Options) -> TextFormat:
    """Return how numbers are written, or raise for characters that cannot mean this."""
    decimal, thousands = options.decimal or ".", options.thousands
    if (
        decimal not in (".", ",")
        or thousands not in (None, ".", ",", "'", " ", "_", "’", "\u00a0", "\u202f")
        or decimal == thousands
    ):
        raise InvalidFileError(
            f"{path}: decimal={decimal!r} with thousands={thousands!r} is not a way to write numbers: decimal= is '.' or ',', "
            "and thousands= another of '.', ',', \"'\", ' ' and '_'."
        )
    return TextFormat(decimal, thousands)


def _columns_in(table: MixedTable, preprocessing: Preprocessing) -> list[str]:
    """Return the names of the columns of the fit, or raise and suggest the nearest name for one that is missing."""
    names = [column.name for column in preprocessing.columns]
    lost = [name for name in names if name not in table.names]
    if lost:
        rest = [name for name in table.names if name not in names]
        others = ", ".join(f"{name!r}{nearest_name(name, rest)}" for name in lost[:MAX_NAMED])
        plural = "s" * (len(lost) > 1)
        raise InvalidFileError(
            f"{table.path}: has no column{plural} {others}, used in the fit: it has {shown_names(table.names)}."
        )
    return names


def _column(table: MixedTable, name: Any, limit: int | None, row_numbers: Array | None) -> Iterator[Any]:
    """Yield a column of any type, given its name or number, in batches; without rows that were left out."""
    found, start = table.names[places_of_names(table.path, [name], table.names)[0]], 0
    with wrap_read_errors(table.path, f"reading column {found!r}", REMEDY):
        for batch in table.limited([found], limit):
            values = batch.column(0)
            if row_numbers is not None:
                first, last = np.searchsorted(row_numbers, [start, start + len(values)])
                values = values.take(need("pyarrow", "parquet", table.path).array(row_numbers[first:last] - start))
            start += batch.num_rows
            yield values


def mixed_table(path: Path, files: Sequence[Path], options: Options) -> MixedTable:
    """Return the table in one or several files, which must have the same columns."""
    need("pyarrow", "parquet", path)
    tables = [_table_in(file, options) for file in files]
    first = tables[0]
    for file, other in zip(files, tables, strict=True):
        if other.names != first.names:
            odd = next((name for name in other.names if name not in first.names), other.names[0])
            raise InvalidFileError(
                f"{file}: has other columns than {files[0].name}, for instance {odd!r}: write all files alike."
            )

    def batches(names: Sequence[str]) -> Iterator[Any]:
        return chain.from_iterable(table.batches(names) for table in tables)

    return MixedTable(path, first.names, batches, first.notice, first.has_names, first.nested)


def _table_in(file: Path, options: Options) -> MixedTable:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes[-1] in TYPED:
        table = TYPED[suffixes[-1]](file)
        size = max(1, BATCH_VALUES // max(len(table.schema.names), 1))
        names = table.schema.names
        if not names or len(set(names)) < len(names):
            what = "two columns of the same name: give each column its own name" if names else "no columns: write it again"
            raise InvalidFileError(f"{file}: has {what}.")
        check_unpacked(file, 8 * table.n * len(names), file.stat().st_size)
        nested = {name: kind for name in names if (kind := nested_kind(table.schema.field(name).type))}
        return MixedTable(file, names, lambda wanted: table.batches(list(wanted), size), nested=nested)
    if any(suffix in JSON_LINES for suffix in suffixes):
        return _json_table(file, options)
    with wrap_read_errors(file, "reading its first lines as CSV", REMEDY):
        layout = layout_of(file, options)
    if layout.delimiter is None:
        raise InvalidFileError(f"{file}: has fields between spaces, which must all be numbers: use another delimiter for text.")
    names = unique_names(layout.names or [f"x{j}" for j in range(layout.d)])
    has_names = layout.names is not None
    return MixedTable(file, names, lambda wanted: _csv_batches(file, layout, names, wanted), "", has_names)


def unique_names(names: Sequence[str]) -> list[str]:
    """Return a name for each column: those without one, or with that of another, get a number."""
    counts: Counter[str] = Counter()
    unique = []
    for place, name in enumerate(names):
        name = name or f"x{place}"
        counts[name] += 1
        unique.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return unique


def _csv_batches(file: Path, layout: Layout, names: list[str], wanted: Sequence[str]) -> Iterator[Any]:
    """Yield the columns of a CSV file as batches of text."""
    pa, csv = need("pyarrow", "parquet", file), need("pyarrow.csv", "parquet", file)

    ragged: list[Any] = []

    def note_ragged(row: Any) -> str:  # called by Arrow, through which no exception passes
        ragged.append(row)
        return "error"

    with open_decompressed(file) as stream:
        try:
            reader = csv.open_csv(
                stream,
                csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK_BYTES,
                    skip_rows=layout.first,
                    column_names=names,
                    encoding=layout.encoding.replace("utf-8-sig", "utf8"),
                ),
                csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True, invalid_row_handler=note_ragged),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), include_columns=list(wanted), strings_can_be_null=False
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise _ragged(file, layout, ragged[0]) if ragged else error from error


def _ragged(file: Path, layout: Layout, row: Any) -> InvalidFileError:
    """Return the error for a row with too many or too few fields."""
    place = f"the row {str(row.text)[:40]!r}" if row.number is None else f"row {row.number - layout.first - 1}"
    return InvalidFileError(
        f"{file}: {place} has {row.actual_columns} fields, but the first line has {row.expected_columns}: use the same number "
        "in all rows, and quotes around fields that contain the delimiter."
    )


def _json_table(file: Path, options: Options) -> MixedTable:
    """Return a file with a JSON object in each line as a table of text."""
    encoding = text_encoding(file, options.encoding)
    names: dict[str, None] = {}
    for number, line in enumerate(lines_of(file, encoding), 1):
        names.update(dict.fromkeys(_object(file, number, line)))
        if number == NAMING_LINES:
            break

    def batches(wanted: Sequence[str]) -> Iterator[Any]:
        pa = need("pyarrow", "parquet", file)
        for part in parts_of(enumerate(lines_of(file, encoding), 1), None):
            records = [_object(file, number, line) for number, line in part if line.strip()]
            for number, record in zip((number for number, line in part if line.strip()), records, strict=True):
                other = next((name for name in record if name not in names), None)
                if other is not None:
                    raise InvalidFileError(
                        f"{file}: line {number} has a field {other!r}, which the first {NAMING_LINES:,} lines do not have: "
                        "write all fields in the first line, with null where there is no value."
                    )
            columns = [pa.array([_as_text(record.get(name)) for record in records], pa.string()) for name in wanted]
            yield pa.RecordBatch.from_arrays(columns, list(wanted))

    return MixedTable(file, list(names), batches)


def _object(file: Path, number: int, line: str) -> dict[str, Any]:
    """Return the JSON object in a line."""
    try:
        value = json.loads(line) if line.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidFileError(f"{file}: line {number} is not JSON ({error}): write one object per line.") from error
    if not isinstance(value, dict):
        raise InvalidFileError(f"{file}: line {number} holds {str(value)[:40]}, not an object: write one object per line.")
    return value


def _as_text(value: Any) -> str:
    """Return a value of JSON as text, as a CSV file would have it; "" for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value) if isinstance(value, float) else json.dumps(value)
