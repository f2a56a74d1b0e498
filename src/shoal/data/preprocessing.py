"""Preprocessing of tables: the part of a model that computes features from the columns of a raw table.

`formats` chooses it for a table (`open_rows`) and applies it to others. It holds no code and no rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .types import Array

KINDS = ("number", "boolean", "category", "date")
MISSING = ("error", "drop", "mean", "median")
NO_VALUE = "(missing)"  # level of a category that stands for missing values, if they are allowed


class ColumnEncoding(NamedTuple):
    """Conversion of one column of a table to features."""

    name: str
    kind: str  # one of KINDS
    levels: tuple[str, ...] = ()  # of a category: one feature each, 1 where the row has this value
    fill: float | None = None  # of the other kinds: stands for missing values; None if they are not allowed

    @property
    def feature_names(self) -> list[str]:
        """Names of the features of this column."""
        return [f"{self.name}={level}" for level in self.levels] if self.kind == "category" else [self.name]


class Preprocessing(NamedTuple):
    """Conversion of the columns of a table to features, in the order of the features.

    Numbers stay as they are, booleans become 0 and 1, dates the number of days since 1970, and a category one feature of 0 or
    1 for each of its levels.
    """

    columns: tuple[ColumnEncoding, ...]
    missing: str = "error"  # one of MISSING
    identifier: str | None = None  # column that identified the rows of the fit

    @property
    def feature_names(self) -> list[str]:
        """Names of all features."""
        return [name for column in self.columns for name in column.feature_names]

    def pooled_scales(self, scales: Array) -> Array:
        """Return scales with which a category counts as much as one column, however many levels it has.

        With a scale of their own, the features of rare levels would outweigh all other columns.
        """
        pooled, start = scales.copy(), 0
        for column in self.columns:
            stop = start + len(column.feature_names)
            if column.kind == "category":
                pooled[start:stop] = math.sqrt(float(np.square(_without_constants(scales[start:stop])).sum())) or 1.0
            start = stop
        return pooled


def _without_constants(scales: Array) -> Array:
    """Return the scales of 0/1 features; that of a constant one, which is 1 by convention, as 0."""
    return np.where(scales > 0.75, 0.0, scales)  # the deviation of zeros and ones is at most 0.5
