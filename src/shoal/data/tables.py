"""Tables whose columns hold numbers, as sources of rows: those of pandas, polars and pyarrow.

A table is recognised by the package name of its type, so that no package is imported unless the user already uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .source import Source
from .types import Array, at_most_float64, find_rounded_integer, find_rounded_object, packages_of, rounded_integer_message, warn


class TableSource(Source):
    """A table of numeric columns; `part(rows, dtype)` returns some of its rows as an array."""

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, part: Callable[[Any, np.dtype], Array]) -> None:
        self.shape = shape
        self.raw_dtype = dtype
        self.dtype = at_most_float64(np.empty(0, dtype)).dtype
        self.part = part

    def read(self, start: int, stop: int) -> Array:
        return self.take(slice(start, stop))

    def take(self, rows: Any) -> Array:
        return at_most_float64(np.asarray(self.part(rows, self.raw_dtype), self.raw_dtype))

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        from .sources import ArraySource  # which imports this module

        return ArraySource(self.take(rows))


def _no_numbers(name: Any, kind: Any) -> str:
    return f"Column {name!r} of X holds values of type {kind}: give real numbers, or drop it."


class Column(NamedTuple):
    """A column of a table. Its dtype is read from an empty slice, since missing values may change the dtype of a slice."""

    name: Any
    no_rows: Array
    has_gaps: bool  # whether values are missing, which integers cannot represent
    all_rows: Callable[[], Array]

    def dtype(self) -> np.dtype:
        kind = self.no_rows.dtype if self.no_rows.ndim == 1 else np.dtype(object)
        if kind.kind not in "biufO":
            raise ValueError(_no_numbers(self.name, kind))
        return np.dtype(np.float64) if self.has_gaps and kind.kind in "biu" else kind

    def floats(self) -> Array:
        """Convert a column of objects to float64."""
        values = self.all_rows()
        if values.ndim > 1 or isinstance(values[0], list | np.ndarray):
            raise ValueError(f"Column {self.name!r} of X holds lists: stack it into a 2-D array.")
        try:
            numbers = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"Column {self.name!r} of X must hold real numbers: {error}.") from error
        place = find_rounded_object(values, numbers)
        if place is not None:
            warn(rounded_integer_message("X", values[place[0]], f"row {place[0]}, column {self.name!r}"), UserWarning)
        return numbers


def _table(n: int, columns: list[Column], part: Callable[[Any, np.dtype], Array]) -> TableSource:
    kinds = [column.dtype() for column in columns]
    if any(kind.kind == "O" for kind in kinds):
        numbers = np.column_stack([column.floats() for column in columns])
        return TableSource((n, len(columns)), numbers.dtype, lambda rows, _: numbers[rows])
    dtype = np.result_type(*kinds)
    if dtype.kind == "f":
        _warn_of_rounding(columns)
    return TableSource((n, len(columns)), dtype, part)


def _warn_of_rounding(columns: list[Column]) -> None:
    """Warn if an integer is rounded because other columns are floats; later checks only see the floats."""
    for column in columns:
        values = column.all_rows() if column.no_rows.dtype.kind in "iu" and not column.has_gaps else column.no_rows
        place = find_rounded_integer(values)
        if place is not None:
            warn(rounded_integer_message("X", values[place[0]], f"row {place[0]}, column {column.name!r}"), UserWarning)
            return


def _pandas(X: Any) -> TableSource:
    columns = [values for _, values in X.items()]

    def describe(values: Any) -> Column:
        gaps = not isinstance(values.dtype, np.dtype) and values.hasnans  # NumPy columns already hold NaN
        everything = partial(values.to_numpy, na_value=np.nan) if gaps else values.to_numpy
        return Column(values.name, values.iloc[:0].to_numpy(), gaps, everything)

    def is_view(values: Any) -> bool:
        return np.may_share_memory(values.to_numpy(), values.to_numpy())

    def of_table(rows: Any, dtype: np.dtype) -> Array:
        missing = {"na_value": np.nan} if dtype.kind == "f" else {}
        values: Array = X.iloc[rows].to_numpy(dtype, **missing)
        return values

    def of_views(rows: Any, dtype: np.dtype) -> Array:
        return np.stack([view[rows] for view in views], axis=1, dtype=dtype, casting="unsafe")

    first = X.iloc[:1]
    is_array = np.may_share_memory(first.to_numpy(), first.iloc[:, 0].to_numpy())  # and so are its slices
    views = [] if is_array or not all(map(is_view, columns)) else [values.to_numpy() for values in columns]
    return _table(len(X), list(map(describe, columns)), of_views if views else of_table)


def _polars(X: Any) -> TableSource:
    def describe(c: Any) -> Column:
        try:
            return Column(c.name, c[:0].to_numpy(), c.null_count() > 0, c.to_numpy)
        except Exception as error:  # of a type that NumPy does not have
            raise ValueError(_no_numbers(c.name, c.dtype)) from error

    columns = list(map(describe, X.get_columns()))
    return _table(X.height, columns, lambda rows, _: X[rows].to_numpy())


def _pyarrow(X: Any) -> TableSource:
    def values(column: Any) -> Any:
        return column.to_numpy(zero_copy_only=False)

    def part(rows: Any, dtype: np.dtype) -> Array:
        some = X.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else X.take(rows)
        return np.stack([values(c) for c in some.columns], axis=1, dtype=dtype, casting="unsafe")

    def describe(name: str, c: Any) -> Column:
        try:
            c.slice(0, 1).take([0])
            return Column(name, values(c.slice(0, 0)), c.null_count > 0, partial(values, c))
        except NotImplementedError as error:  # pyarrow cannot take rows of some types
            raise ValueError(_no_numbers(name, c.type)) from error

    return _table(X.num_rows, list(map(describe, X.schema.names, X.columns)), part)


def column_names(X: Any) -> Any:
    """Return the column names of a table in the type its package uses; None for other inputs."""
    if find_table(X) is None:
        return None
    return X.column_names if hasattr(X, "column_names") else X.columns  # the former in pyarrow


TABLES: dict[str, Callable[[Any], TableSource]] = {"pandas": _pandas, "polars": _polars, "pyarrow": _pyarrow}


def find_table(X: Any) -> Callable[[Any], TableSource] | None:
    """Return the function that makes a source of X if X is a supported table or a subclass of one; otherwise None."""
    return next((TABLES[name] for name in packages_of(X) if name in TABLES and len(getattr(X, "shape", ())) == 2), None)
