"""Schemas: what fitted attributes and stored states must look like before compiled code sees them.

An estimator declares a spec for each attribute that a fit sets (`_fitted_schema`). The same schema checks attributes that users
set, models read from files and models inside checkpoints. `specs` has the specs of single values; here are those of objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..data.frame import Frame
from ..data.preprocessing import KINDS, MISSING, ColumnEncoding, Preprocessing
from ..data.rows import Rows
from ..data.sources import ArraySource, SparseSource
from .specs import (
    FLAG,
    MAX_COUNT,
    NAMES,
    NOTHING,
    ArraySpec,
    Below,
    Choice,
    Names,
    Number,
    OneOf,
    Size,
    SizeOf,
    Sizes,
    Spec,
    bools,
    count,
    doubles,
    fail,
    floats,
    labels,
    optional,
    resolve,
    shown,
)

# Re-exported, so that estimators import all specs from this module.
__all__ = [
    "FLAG",
    "MAX_COUNT",
    "NAMES",
    "NOTHING",
    "ArraySpec",
    "Below",
    "Choice",
    "Names",
    "Number",
    "OneOf",
    "Size",
    "SizeOf",
    "Sizes",
    "Spec",
    "bools",
    "count",
    "doubles",
    "fail",
    "floats",
    "labels",
    "optional",
    "resolve",
    "shown",
]

MAX_EXPONENT = 2200  # largest exponent of a frame: about twice that of float64


@dataclass(frozen=True)
class Parts(Spec):
    """An object of one class (a NamedTuple, or one that lists its `parts`) whose parts match their specs."""

    cls: type
    parts: Mapping[str, Spec] = field(default_factory=dict)

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if type(value) is not self.cls:
            raise fail(name, f"is of type {type(value).__name__}", f"a {self.cls.__name__}")
        for part, spec in self.parts.items():
            spec.check(getattr(value, part), f"{name}.{part}", sizes)


@dataclass(frozen=True)
class History(Spec):
    """A list of records of steps, which hold numbers by name."""

    fields: tuple[str, ...] = ("step", "seconds")

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not (isinstance(value, list) and all(map(self._is_record, value))):
            raise fail(name, "does not hold records of steps", f"dicts of numbers, {', '.join(self.fields)} among them")

    def _is_record(self, record: Any) -> bool:
        if not isinstance(record, dict) or not set(self.fields) <= set(record):
            return False
        return all(isinstance(key, str) and isinstance(value, int | float | np.number) for key, value in record.items())


@dataclass(frozen=True)
class ParameterValues(Spec):
    """A dict of the values of some parameters in the fit."""

    names: tuple[str, ...]

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, dict) or tuple(value) != self.names:
            raise fail(name, "does not hold parameters of the fit", f"the values of {', '.join(self.names) or 'none'}")


def frame(bits: bool = False, size: Size = "d") -> Spec:
    """Return the spec of a frame of numbers, or of bits."""
    exponent = count(-MAX_EXPONENT, MAX_EXPONENT)
    zero = Choice((0,))
    flags = {"unit": Choice((False,)), "bits": Choice((bits,))}
    if bits:
        return Parts(Frame, {"shift": NOTHING, "exponent": zero, **flags})
    moved = Parts(Frame, {"shift": optional(doubles(size)), "exponent": exponent, **flags})
    return OneOf((Parts(Frame, {"shift": NOTHING, "exponent": zero, **flags, "unit": Choice((True,))}), moved))


@dataclass(frozen=True)
class RowsSpec(Spec):
    """Rows that a model holds to compare new rows with."""

    n: Size
    d: Size

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        Parts(Rows).check(value, name, sizes)
        source = value.source
        shape = source.shape
        agrees = all(map(partial(resolve, sizes=sizes), (self.n, self.d), shape))
        if not agrees or not min(shape) or source.dtype.kind not in "biuf":
            raise fail(name, f"has shape {shape}", f"rows of numbers of shape {shown((self.n, self.d), sizes)}")
        frame(size=self.d).check(value.frame, f"{name}.frame", sizes)
        if isinstance(source, ArraySource | SparseSource) and source.dtype.kind == "f":
            data = source.X.data if isinstance(source, SparseSource) else source.X
            if not np.isfinite(np.sum(data, dtype=np.float64)) and not np.isfinite(data).all():
                raise fail(name, "holds NaN or infinity", "finite numbers")


@dataclass(frozen=True)
class Fitted(Spec):
    """A fitted estimator inside another one. `symbols` maps its symbols to those of the outer one."""

    cls: type
    symbols: Mapping[str, str] = field(default_factory=dict)  # symbol of the inner estimator -> symbol of the outer one

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, self.cls):
            raise fail(name, f"is of type {type(value).__name__}", f"a {self.cls.__name__}")
        inner = {symbol: sizes[outer] for symbol, outer in self.symbols.items() if outer in sizes}
        check_fitted_state(value, sizes=inner, prefix=f"{name}.")
        for symbol, outer in self.symbols.items():
            if symbol in inner:
                sizes.setdefault(outer, inner[symbol])


@dataclass(frozen=True)
class PreprocessingSpec(Spec):
    """Preprocessing of the columns of a table for a fit."""

    size: Size = "d"

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        Parts(Preprocessing, {"missing": Choice(MISSING)}).check(value, name, sizes)
        if not (value.identifier is None or isinstance(value.identifier, str)):
            raise fail(f"{name}.identifier", f"is of type {type(value.identifier).__name__}", "the name of a column")
        if not (isinstance(value.columns, tuple) and value.columns):
            raise fail(f"{name}.columns", "is not a tuple of columns", "the columns of the fit")
        for column in value.columns:
            Parts(ColumnEncoding, {"kind": Choice(KINDS), "fill": optional(Number())}).check(column, f"{name}.columns", sizes)
            texts = (column.name, *column.levels) if isinstance(column.levels, tuple) else (None,)
            if not all(isinstance(text, str) for text in texts) or bool(column.levels) != (column.kind == "category"):
                raise fail(f"{name}.columns", "holds an invalid column", "names, and levels of categories")
        if not resolve(self.size, len(value.feature_names), sizes):
            raise fail(name, f"has {len(value.feature_names)} features", str(sizes[str(self.size)]))


class OutputConfig(Spec):
    """The configuration that `set_output` stores."""

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, dict) or not set(value) <= {"transform"}:
            raise fail(name, "is not a configuration of outputs", "what set_output sets")
        Choice(("default", "pandas", "polars")).check(value.get("transform", "default"), name, sizes)


def matches(spec: Spec, value: Any, sizes: Sizes) -> bool:
    """Return whether a value from a checkpoint matches a spec, given the sizes."""
    try:
        spec.check(value, "", dict(sizes))
    except ValueError:
        return False
    return True


def check_unchanged_parameters(model: Any) -> None:
    """Raise ValueError if a parameter on which predictions depend was changed after the fit."""
    for name, value in vars(model).get("_fit_parameters", {}).items():
        if getattr(model, name) != value:
            raise ValueError(f"{name}={getattr(model, name)!r} was {value!r} in the fit: set it back, or fit again.")


def check_fitted_state(model: Any, *names: str, sizes: Sizes | None = None, prefix: str = "") -> Sizes:
    """Raise ValueError if a fitted attribute (of the given names, or any) is invalid; return the sizes found."""
    sizes, present = {} if sizes is None else sizes, vars(model)
    needed: tuple[str, ...] = model._required_attributes
    missing = [name for name in needed if name not in present]
    if 0 < len(missing) < len(needed):
        raise fail(prefix + missing[0], "is missing", "an attribute of a fitted model")
    for name, spec in model._fitted_schema().items():
        if name in present and (not names or name in names):
            spec.check(present[name], prefix + name, sizes)
    return sizes
