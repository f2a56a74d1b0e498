"""Profile of the columns of a table: kind, missing values, distinct values and moments, from one pass over batches of Arrow.

A column of text is one of numbers, booleans or dates if its values are written as such, so that a CSV file and a typed table
are treated alike. At least half of the values decide: the others are then errors, not another kind.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from ..data.types import Array
from .errors import need

# Memory of a profile, in values of all columns: distinct texts that are counted, and numbers kept for the median.
MAX_TEXTS, MAX_NUMBERS = 1 << 21, 1 << 22
MIN_KEPT = 1000  # of each, in one column, however many columns there are
MAX_TEXT_COUNT = 50_000  # distinct texts counted in one column; more are as good as unique
TRIAL_VALUES = 50_000  # values without a number after which a column is known to hold text
MAX_LEVELS = 32  # distinct values of a category; more would make it many sparse features
MIN_REPEATS = 2  # times that a level of a category occurs on average; less is free text
N_TOP = 3  # most frequent values that are reported

MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null")  # in any column
MISSING_NUMBERS = (*MISSING_TEXTS, "na", "n/a", "n.a.", "None", "none", "nil", "NaT", "-", "--", "?", ".")
BOOLEANS = {"true": True, "false": False, "yes": True, "no": False}
DATE_FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
)
AMBIGUOUS_DATES = ("%d/%m/%Y", "%m/%d/%Y")
DATE_TRIALS = 1000  # values that choose the format
ID_NAME = re.compile(r"(^|[_\W])(?i:id|uuid|guid|key)$|(?<=[a-z])(Id|ID|Key)$|^(?i:row|index|nr|no|#|unnamed: 0)$")
FORMATTED_NUMBER = r"[-+]?[$€£]? ?[0-9]+([., '’\u00a0\u202f][0-9]{3})*([.,][0-9]+)? ?[%$€£]?"


class TextFormat(NamedTuple):
    """Number format of text."""

    decimal: str = "."
    thousands: str | None = None

    @property
    def pattern(self) -> str:
        """Regular expression of a number."""
        point, digits = re.escape(self.decimal), "[0-9]+"
        if self.thousands is not None:
            digits = f"(?:[0-9]+|[0-9]{{1,3}}(?:{re.escape(self.thousands)}[0-9]{{3}})+)"
        return rf"^[-+]?(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][-+]?[0-9]+)?$"


class ColumnProfile(NamedTuple):
    """Profile of a column. Moments are those of numbers, booleans (0 and 1) and dates (days since 1970)."""

    name: str
    kind: str  # "number", "boolean", "category", "date", "text", "notation", "id", "empty", "list" or "other"
    n: int  # rows
    missing: int
    first_missing: int | None  # row
    distinct: int  # at most `MAX_TEXT_COUNT` are counted
    top: list[tuple[str, int]]  # most frequent values of text
    minimum: float = math.nan
    mean: float = math.nan
    median: float = math.nan
    maximum: float = math.nan
    variance: float = 0.0
    levels: tuple[str, ...] = ()  # of a category, in alphabetical order
    note: str = ""  # why a fit leaves the column out, or refuses it
    invalid: tuple[int, str] | None = None  # first row whose value is not of the column's kind, and the value
    is_unique: bool = False  # whether no value was found twice


class Moments:
    """Running moments of numbers, and evenly spaced ones of them."""

    def __init__(self, max_kept: int) -> None:
        self.n, self.mean, self.squares = 0, 0.0, 0.0
        self.minimum, self.maximum, self.is_integer = math.inf, -math.inf, True
        self.max_kept, self.stride, self.kept = max_kept, 1, np.empty(0)

    def add(self, x: Array) -> None:
        """Add numbers, which are finite."""
        if not len(x):
            return
        n, mean = self.n + len(x), float(x.mean())
        squares, gap = float(np.square(x - mean).sum()), mean - self.mean
        self.kept = np.concatenate([self.kept, x[-self.n % self.stride :: self.stride]])
        while len(self.kept) > self.max_kept:
            self.kept, self.stride = self.kept[::2], 2 * self.stride
        self.squares += squares + gap**2 * self.n * len(x) / n
        self.mean, self.n = self.mean + gap * len(x) / n, n
        self.minimum, self.maximum = min(self.minimum, float(x.min())), max(self.maximum, float(x.max()))
        self.is_integer = self.is_integer and bool((x == np.floor(x)).all())

    def facts(self) -> dict[str, Any]:
        """Return the fields of a profile."""
        if not self.n:
            return {}
        middle = float(np.median(self.kept))
        variance = self.squares / self.n
        return {"minimum": self.minimum, "mean": self.mean, "median": middle, "maximum": self.maximum, "variance": variance}


class ColumnScan:
    """Collects the profile of one column from its batches."""

    def __init__(self, name: str, format: TextFormat, n_columns: int) -> None:
        self.name, self.format = name, format
        self.n = self.missing = self.numbers = self.n_texts = 0
        self.gap: int | None = None  # first row with a missing value
        self.gap_as_number: int | None = None
        self.missing_as_number = 0
        self.first_text: tuple[int, str] | None = None  # first text that is no number
        self.texts: Counter[str] = Counter()
        self.max_texts = min(MAX_TEXT_COUNT, max(MIN_KEPT, MAX_TEXTS // n_columns))
        self.moments = Moments(max(MIN_KEPT, MAX_NUMBERS // n_columns))
        self.typed = ""  # kind of a typed column
        self.formatted = False  # whether the first texts are numbers in another notation

    def add(self, values: Any) -> None:
        """Add a batch of values."""
        types = need("pyarrow.types", "parquet", "it")
        kind = values.type
        if types.is_dictionary(kind):
            values = values.dictionary_decode()
            kind = values.type
        if types.is_string(kind) or types.is_large_string(kind):
            self._add_text(values)
        elif types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
            self.typed = "boolean" if types.is_boolean(kind) else "number"
            self._add_numbers(values)
        elif types.is_date(kind) or types.is_timestamp(kind):
            self.typed = "date"
            self._add_numbers(values)
        else:
            self.typed = "empty" if types.is_null(kind) else "other"
            self.missing += values.null_count
        self.n += len(values)

    def _add_numbers(self, values: Any) -> None:
        x = typed_numbers(values)
        gaps = np.isnan(x)
        if gaps.any():
            self.gap = self.n + int(gaps.argmax()) if self.gap is None else self.gap
            self.missing += int(gaps.sum())
        infinite = np.isinf(x)
        if infinite.any() and self.first_text is None:
            at = int(infinite.argmax())
            self.first_text = self.n + at, str(x[at])
        self.moments.add(x[np.isfinite(x)])
        if len(self.texts) < self.max_texts:  # only to count distinct values
            found, counts = np.unique(x[np.isfinite(x)], return_counts=True)
            self.texts.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))

    def _add_text(self, values: Any) -> None:
        pc = need("pyarrow.compute", "parquet", "it")
        values = pc.utf8_trim_whitespace(values)
        as_text, as_number = (missing_texts(values, words) for words in (MISSING_TEXTS, MISSING_NUMBERS))
        for gaps, name in ((as_text, "gap"), (as_number, "gap_as_number")):
            if gaps.any() and getattr(self, name) is None:
                setattr(self, name, self.n + int(gaps.argmax()))
        self.missing += int(as_text.sum())
        self.missing_as_number += int(as_number.sum())
        if self.numbers or self.n_texts < TRIAL_VALUES:
            x, is_number = text_numbers(values, self.format)
            rest = ~(is_number | as_number)
            if rest.any() and self.first_text is None:
                at = int(rest.argmax())
                self.first_text = self.n + at, str(values[at].as_py())
                self.formatted = re.fullmatch(FORMATTED_NUMBER, self.first_text[1]) is not None
            self.moments.add(x[is_number])
            self.numbers += int(is_number.sum())
        self.n_texts += len(values) - int(as_text.sum())
        if len(self.texts) < self.max_texts:
            counted = pc.value_counts(values)
            words, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
            self.texts.update({w: c for w, c in zip(words, counts, strict=True) if w is not None and w not in MISSING_TEXTS})

    def profile(self) -> ColumnProfile:
        """Return what the column holds."""
        n_distinct = min(len(self.texts), self.max_texts)
        is_unique = self.missing == 0 and n_distinct == min(self.n, self.max_texts) and self.texts.total() == len(self.texts)
        base = ColumnProfile(self.name, "empty", self.n, self.missing, self.gap, n_distinct, [], is_unique=is_unique)
        if self.missing == self.n:
            return base._replace(note="it is empty", first_missing=0)
        if self.typed in ("other", "list"):
            return base._replace(kind=self.typed, note="it holds neither numbers, text nor dates")
        if self.typed:
            return self._numeric(base, self.typed)
        if 2 * self.numbers >= self.n - self.missing_as_number and self.numbers:
            found = base._replace(missing=self.missing_as_number, first_missing=self.gap_as_number)
            return self._numeric(found, "number")
        return self._text(base)

    def _numeric(self, base: ColumnProfile, kind: str) -> ColumnProfile:
        """Return the profile of a column of numbers, which may be identifiers."""
        found = base._replace(kind=kind, invalid=self.first_text, **self.moments.facts())
        if kind != "number" or not self.moments.is_integer or self.first_text:
            return found
        is_count = found.distinct == self.n > 2 and found.maximum - found.minimum == self.n - 1
        if ID_NAME.search(self.name) or (is_count and self.n > MAX_LEVELS and found.distinct < self.max_texts):
            why = "its name is that of an identifier" if ID_NAME.search(self.name) else "it counts the rows"
            return found._replace(kind="id", note=why)
        return found

    def _dates(self, format: str) -> dict[str, Any]:
        """Return the moments of dates, of their distinct values."""
        days = Moments(MIN_KEPT)
        x = text_dates(list(self.texts), AMBIGUOUS_DATES[0] if format == "?" else format)
        days.add(x[np.isfinite(x)])
        return days.facts()

    def _text(self, base: ColumnProfile) -> ColumnProfile:
        """Return the profile of a column of text: booleans, dates, a category, identifiers or free text."""
        top = self.texts.most_common(N_TOP)
        found = base._replace(kind="text", top=top, note=f"it is free text, with {base.distinct:,} different values")
        words = {word.lower() for word in self.texts}
        if words <= {"true", "false"} or words <= {"yes", "no"}:
            share = sum(count for word, count in self.texts.items() if BOOLEANS[word.lower()]) / self.texts.total()
            moments = Moments(2)
            moments.add(np.array([BOOLEANS[word] for word in words], float))
            facts = {**moments.facts(), "mean": share, "median": float(share > 0.5), "variance": share * (1 - share)}
            return found._replace(kind="boolean", note="", **facts)
        if format := date_format([word for word, _ in self.texts.most_common(DATE_TRIALS)]):
            return found._replace(kind="date", note="", top=[], **self._dates(format))
        if self.formatted:
            shown = self.first_text[1] if self.first_text else ""
            note = f"it holds numbers such as {shown!r}, which need decimal= or thousands="
            return found._replace(kind="notation", note=note)
        if len(self.texts) <= MAX_LEVELS and self.texts.total() >= MIN_REPEATS * len(self.texts):
            variance = sum(p * (1 - p) for p in (count / self.n for count in self.texts.values()))
            return found._replace(kind="category", note="", levels=tuple(sorted(self.texts)), variance=variance)
        if base.distinct == self.n - self.missing and not any(" " in word for word in list(self.texts)[:MIN_KEPT]):
            return found._replace(kind="id", note="every row has another value")
        return found


def nested_kind(kind: Any) -> str:
    """Return "list" for a type of lists of numbers, "other" for other nested types, and "" for plain ones."""
    types = need("pyarrow.types", "parquet", "it")
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if is_list and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        return "list"
    return "other" if types.is_nested(kind) else ""


def missing_texts(values: Any, words: tuple[str, ...]) -> Array:
    """Return which values of a column of text are missing."""
    pa, pc = need("pyarrow", "parquet", "it"), need("pyarrow.compute", "parquet", "it")
    found = pc.is_in(values, value_set=pa.array([*words, None], values.type))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def text_numbers(values: Any, format: TextFormat) -> tuple[Array, Array]:
    """Return text as numbers, and which values are numbers; the others are NaN."""
    pa, pc = need("pyarrow", "parquet", "it"), need("pyarrow.compute", "parquet", "it")
    is_number = pc.match_substring_regex(values, format.pattern)
    plain = pc.if_else(is_number, values, pa.scalar(None, values.type))
    if format.thousands is not None:
        plain = pc.replace_substring(plain, format.thousands, "")
    if format.decimal != ".":
        plain = pc.replace_substring(plain, format.decimal, ".")
    plain = pc.utf8_ltrim(plain, "+")
    x = plain.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return x, np.isfinite(x)


def typed_numbers(values: Any) -> Array:
    """Return a typed column as float64: dates as days since 1970, missing values as NaN."""
    pa, types = need("pyarrow", "parquet", "it"), need("pyarrow.types", "parquet", "it")
    if types.is_date(values.type) or types.is_timestamp(values.type):
        zone = getattr(values.type, "tz", None)
        days = values.cast(pa.timestamp("us", zone)).cast(pa.int64()).cast(pa.float64(), safe=False)
        return np.asarray(days.to_numpy(zero_copy_only=False)) / 86_400e6
    if types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def date_format(words: list[str]) -> str:
    """Return the format in which all texts are dates; "" if there is none, and "?" if day and month cannot be told apart."""
    found = [name for name in DATE_FORMATS if words and np.isfinite(text_dates(words, name)).all()]
    return "?" if set(AMBIGUOUS_DATES) <= set(found) else found[0] if found else ""


def text_dates(values: Any, format: str) -> Array:
    """Return text in this format as days since 1970; NaN where it is something else."""
    pa, pc = need("pyarrow", "parquet", "it"), need("pyarrow.compute", "parquet", "it")
    values = pa.array(values, pa.string()) if isinstance(values, list) else values
    return typed_numbers(pc.strptime(values, format, "us", error_is_null=True))
