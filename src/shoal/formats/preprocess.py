"""Choose which columns of a table become features, and turn its batches into rows of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.preprocessing import NO_VALUE, ColumnEncoding, Preprocessing
from ..data.types import Array, warn
from ..exceptions import InvalidFileError
from .column_profile import (
    AMBIGUOUS_DATES,
    BOOLEANS,
    DATE_TRIALS,
    MISSING_NUMBERS,
    MISSING_TEXTS,
    ColumnProfile,
    TextFormat,
    date_format,
    missing_texts,
    text_dates,
    text_numbers,
    typed_numbers,
)
from .errors import need
from .options import Options, nearest_name, shown_names

MAX_NAMED = 8  # columns, or values, that a message names


class Use(NamedTuple):
    """Columns that a fit uses, and why it leaves the others out."""

    columns: list[ColumnProfile]
    left_out: dict[str, str]  # name -> reason
    identifier: str | None  # column that identifies the rows


def choose_columns(path: Path, profiles: Sequence[ColumnProfile], options: Options) -> Use:
    """Return the columns that become features: those asked for, or all that hold quantities or categories."""
    names = [profile.name for profile in profiles]
    listed = None if options.columns is None else [names[j] for j in places_of_names(path, options.columns, names)]
    excluded = [names[j] for j in places_of_names(path, options.exclude or (), names)]
    others = [names[j] for j in places_of_names(path, options.non_features, names)]
    both = sorted(set(listed or ()) & set(excluded))
    if both:
        raise InvalidFileError(f"{path}: column {both[0]!r} is both in columns= and in exclude=: remove it from one of them.")
    left_out: dict[str, str] = {}
    by_name = dict(zip(names, profiles, strict=True))
    for profile in profiles:
        if profile.name in others or (listed is not None and profile.name not in listed):
            continue
        why = "it is excluded" if profile.name in excluded else _reason_against(profile, options, listed is not None)
        if why and (listed is not None or (profile.kind == "notation" and profile.name not in excluded)):
            remedy = "leave it out with exclude=" if listed is None else "remove it from columns="
            raise InvalidFileError(f"{path}: column {profile.name!r} cannot be used, since {why}: {remedy}.")
        if why:
            left_out[profile.name] = why
    wanted = [name for name in names if name not in others] if listed is None else listed
    used = [by_name[name] for name in wanted if name not in left_out]
    if not used:
        reasons = "; ".join(f"{name!r}: {why}" for name, why in list(left_out.items())[:MAX_NAMED])
        raise InvalidFileError(f"{path}: has no column to cluster by ({reasons}): use a table with columns of numbers.")
    unique = (p.name for p in profiles if p.kind == "id" and p.is_unique and p.name not in [column.name for column in used])
    return Use(used, left_out, next(unique, None))


def _reason_against(profile: ColumnProfile, options: Options, is_listed: bool) -> str:
    """Return why a column does not become a feature; "" if it does."""
    if profile.kind == "category":
        return "it is a category, and categorical='drop'" if options.categorical == "drop" else ""
    if profile.kind == "date":
        return "" if is_listed or options.dates == "number" else "it holds dates (dates='number' uses them)"
    if profile.kind == "id":
        return "" if is_listed and np.isfinite(profile.mean) else profile.note
    return "" if profile.kind in ("number", "boolean") else profile.note


def learn(path: Path, use: Use, options: Options) -> Preprocessing:
    """Return how the columns become features; raise if values are missing or invalid and no option says what to do."""
    missing = options.missing or "error"
    for profile in use.columns:
        if profile.invalid is not None:
            raise invalid_value(path, profile.name, profile.kind, *profile.invalid)
    if missing == "error":
        check_missing(path, {p.name: (p.missing, p.first_missing or 0) for p in use.columns if p.missing}, use.columns[0].n)
    columns = [_encoding(path, profile, missing) for profile in use.columns]
    names = Counter(name for column in columns for name in column.feature_names)
    same = next((name for name, count in names.items() if count > 1), None)
    if same is not None:
        raise InvalidFileError(f"{path}: has two features named {same!r}: rename a column, or list others in exclude=.")
    return Preprocessing(tuple(columns), missing, use.identifier)


def _encoding(path: Path, profile: ColumnProfile, missing: str) -> ColumnEncoding:
    kind = "number" if profile.kind == "id" else profile.kind
    if kind == "category":
        levels = (*profile.levels, *[NO_VALUE] * (missing in ("mean", "median") and profile.missing > 0))
        return ColumnEncoding(profile.name, kind, levels)
    fill = {"mean": profile.mean, "median": profile.median}.get(missing)
    return ColumnEncoding(profile.name, kind, (), fill)


def check_missing(path: Path, gaps: Mapping[str, tuple[int, int]], n: int) -> None:
    """Raise if values are missing; name every column with their number, and the first row."""
    if not gaps:
        return
    counts = [f"{name!r} ({count:,})" for name, (count, _) in gaps.items()]
    named = ", ".join(counts[:MAX_NAMED]) + f" and {len(counts) - MAX_NAMED} more" * (len(counts) > MAX_NAMED)
    first = min(row for _, row in gaps.values())
    columns = "column" if len(gaps) == 1 else "columns"
    raise InvalidFileError(
        f"{path}: values are missing in {columns} {named} of {n:,} rows, the first in row {first}: use missing='drop' to leave "
        "such rows out, missing='mean' or missing='median' to fill them in, or exclude= to leave columns out."
    )


def invalid_value(path: Path, name: str, kind: str, row: int, value: str) -> InvalidFileError:
    """Return the error for a value that is not of the kind of its column."""
    what = {"number": "a number", "boolean": "true or false, or yes or no", "date": "a date like the others"}.get(kind, kind)
    hint = ", or set decimal= or thousands= if it is written in another way" if kind == "number" else ""
    return InvalidFileError(f"{path}: row {row}, column {name!r} is {value[:40]!r}, not {what}: correct it{hint}.")


def places_of_names(path: Path, columns: Sequence[Any], names: list[str]) -> list[int]:
    """Return the places of columns that are given by name or number; suggest the nearest name for one that is unknown."""
    places: list[int] = []
    for column in columns:
        text = str(column)
        if text in names and isinstance(column, str):
            place = names.index(text)
        elif text.isascii() and text.isdecimal() and int(text) < len(names):
            place = int(text)
        else:
            raise InvalidFileError(
                f"{path}: has no column named {text!r}{nearest_name(text, names)}: it has {shown_names(names)}."
            )
        if place in places:
            raise InvalidFileError(f"{path}: column {text!r} is listed twice: list each column once.")
        places.append(place)
    return places


class Encoder:
    """Turns batches of a table into rows of numbers, and counts what it cannot use."""

    def __init__(self, path: Path, preprocessing: Preprocessing, format: TextFormat) -> None:
        self.path, self.preprocessing, self.format = path, preprocessing, format
        self.n = 0
        self.gaps: dict[str, tuple[int, int]] = {}  # missing values that are not allowed: number, first row
        self.unseen: dict[str, Counter[str]] = {}  # values of categories that are no level
        self.formats: dict[str, str] = {}  # of the dates in each column
        self.kept: list[Array] = []  # by batch: which rows have no missing value, if rows with one are dropped

    def encode(self, batch: Any) -> Array:
        """Return the rows of a batch; without those to drop."""
        columns = self.preprocessing.columns
        parts = [self._features(column, values) for column, values in zip(columns, batch.columns, strict=True)]
        X = np.concatenate(parts, axis=1)
        gaps = np.isnan(X)
        if self.preprocessing.missing == "drop":
            keep = ~gaps.any(axis=1)
            self.kept.append(keep)
            X = X if keep.all() else X[keep]
        elif gaps.any():
            self._note_gaps(gaps)
        self.n += batch.num_rows
        return X

    def rows(self, batches: Iterator[Any]) -> Iterator[Array]:
        """Yield the rows of all batches; raise at the end if values are missing, with the counts of all columns."""
        for batch in batches:
            yield self.encode(batch)
        check_missing(self.path, self.gaps, self.n)
        for name, values in self.unseen.items():
            words = ", ".join(repr(word) for word, _ in values.most_common(3)) + ", ..." * (len(values) > 3)
            count = values.total()
            warn(
                f"{self.path}: column {name!r} has {words} in {count:,} {'row' if count == 1 else 'rows'}, which the fit did "
                "not have: they count as none of its values.",
                UserWarning,
            )

    def row_numbers(self) -> Array | None:
        """Return the numbers of the rows that were kept; None if all were."""
        keep = np.concatenate(self.kept) if self.kept else np.ones(0, bool)
        return None if keep.all() else np.flatnonzero(keep)

    def _note_gaps(self, gaps: Array) -> None:
        start = 0
        for column in self.preprocessing.columns:
            some = gaps[:, start]
            start += len(column.feature_names)
            if some.any():
                count, first = self.gaps.get(column.name, (0, self.n + int(some.argmax())))
                self.gaps[column.name] = count + int(some.sum()), first

    def _features(self, column: ColumnEncoding, values: Any) -> Array:
        """Return the features of one column, with NaN for missing values that are not filled in."""
        types = need("pyarrow.types", "parquet", self.path)
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        is_text = types.is_string(values.type) or types.is_large_string(values.type)
        if is_text:
            values = need("pyarrow.compute", "parquet", self.path).utf8_trim_whitespace(values)
        if column.kind == "category":
            return self._one_hot(column, values, is_text)
        x = self._text(column, values) if is_text else self._typed(column, values)
        if column.fill is not None:
            x = np.where(np.isnan(x), column.fill, x)
        return x[:, None]

    def _typed(self, column: ColumnEncoding, values: Any) -> Array:
        types = need("pyarrow.types", "parquet", self.path)
        kind = values.type
        is_date = types.is_date(kind) or types.is_timestamp(kind)
        is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
        if not (is_date if column.kind == "date" else is_number or types.is_null(kind)):
            raise InvalidFileError(
                f"{self.path}: column {column.name!r} holds values of type {kind}, and was a {column.kind} in the fit: write "
                "it like the table of the fit."
            )
        x = np.full(len(values), np.nan) if types.is_null(kind) else typed_numbers(values)
        infinite = np.isinf(x)
        if infinite.any():
            at = int(infinite.argmax())
            raise invalid_value(self.path, column.name, column.kind, self.n + at, str(x[at]))
        return x

    def _text(self, column: ColumnEncoding, values: Any) -> Array:
        """Return text as numbers; raise for the first value that is neither missing nor of the column's kind."""
        gaps = missing_texts(values, MISSING_NUMBERS if column.kind == "number" else MISSING_TEXTS)
        if column.kind == "number":
            x, _ = text_numbers(values, self.format)
        elif column.kind == "boolean":
            x = self._booleans(values)
        else:
            x = self._dates(column, values, gaps)
        wrong = np.isnan(x) & ~gaps
        if wrong.any():
            at = int(wrong.argmax())
            raise invalid_value(self.path, column.name, column.kind, self.n + at, str(values[at].as_py()))
        return x

    def _booleans(self, values: Any) -> Array:
        words = values.dictionary_encode()
        known = [BOOLEANS.get(str(word).lower(), np.nan) for word in words.dictionary.to_pylist()]
        codes = words.indices.to_numpy(zero_copy_only=False)
        missing = np.isnan(codes.astype(float))
        return np.where(missing, np.nan, np.array([*known, np.nan])[np.where(missing, -1, codes).astype(int)])

    def _dates(self, column: ColumnEncoding, values: Any, gaps: Array) -> Array:
        if column.name not in self.formats and not gaps.all():
            words = [str(values[int(i)].as_py()) for i in np.flatnonzero(~gaps)[:DATE_TRIALS]]
            format = date_format(words)
            if format == "?":
                raise InvalidFileError(
                    f"{self.path}: column {column.name!r} holds dates such as {words[0]!r}, in which day and month cannot be "
                    "told apart: write them as 2024-12-31, or leave the column out with exclude=."
                )
            self.formats[column.name] = format or "%Y-%m-%d"
        return text_dates(values, self.formats.get(column.name, AMBIGUOUS_DATES[0]))

    def _one_hot(self, column: ColumnEncoding, values: Any, is_text: bool) -> Array:
        """Return a feature of 0 and 1 for each level."""
        pa, pc = need("pyarrow", "parquet", self.path), need("pyarrow.compute", "parquet", self.path)
        texts = values if is_text else values.cast(pa.string())
        gaps = missing_texts(texts, MISSING_TEXTS)
        levels = list(column.levels)
        found = pc.index_in(texts, value_set=pa.array(levels, texts.type)).to_numpy(zero_copy_only=False)
        codes = np.where(np.isnan(found.astype(float)), -1, found).astype(int)
        unseen = (codes < 0) & ~gaps
        if unseen.any():
            more = Counter(str(texts[int(i)].as_py()) for i in np.flatnonzero(unseen))
            self.unseen[column.name] = self.unseen.get(column.name, Counter()) + more
        codes[gaps] = levels.index(NO_VALUE) if NO_VALUE in levels else -1
        X = np.zeros((len(codes), len(levels)))
        X[np.arange(len(codes))[codes >= 0], codes[codes >= 0]] = 1
        if self.preprocessing.missing in ("error", "drop"):
            X[gaps] = np.nan
        return X
