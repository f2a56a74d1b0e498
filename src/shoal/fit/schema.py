"""Schemas: what fitted attributes and stored states must look like before compiled code sees them.

An estimator declares a spec for each attribute that a fit sets (`_fitted_schema`). The same schema checks attributes that users
set, models read from files and models inside checkpoints. Sizes are named by symbols ("k" clusters, "d" features, "n" rows):
the first array that has a symbol in its shape fixes it, and all later ones must agree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..data.frame import Frame
from ..data.rows import Rows
from ..data.sources import ArraySource, SparseSource
from ..data.types import Array

Sizes = dict[str, int]  # symbol -> size
Size = str | int
NAMES = {"k": "n_clusters", "d": "n_features", "n": "n_samples", "r": "n_bits"}  # names of symbols in messages
MAX_COUNT = 2**53  # no count of rows, steps or distances is larger
MAX_EXPONENT = 2200  # largest exponent of a frame: about twice that of float64


class Spec(ABC):
    """Description of the valid values of an attribute."""

    @abstractmethod
    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        """Raise ValueError if the value does not match; record sizes that were not known yet."""


def fail(name: str, found: str, expected: str) -> ValueError:
    """Return the error for an attribute that does not match its spec."""
    return ValueError(f"{name} {found}, expected {expected}: set it back to what the fit produced, or fit again.")


def resolve(size: Size, found: int, sizes: Sizes) -> bool:
    """Return whether a size agrees with that of its symbol, which the first size determines."""
    return found == (sizes.setdefault(size, found) if isinstance(size, str) else size)


def shown(shape: tuple[Size, ...], sizes: Sizes) -> str:
    """Return a shape as text for messages, with numbers for known sizes."""
    known = [str(sizes.get(size, NAMES.get(size, size)) if isinstance(size, str) else size) for size in shape]
    return f"({', '.join(known)}{',' * (len(shape) == 1)})"


@dataclass(frozen=True)
class ArraySpec(Spec):
    """A NumPy array: its shape, its types and its range. Floats must be finite; empty arrays must be allowed."""

    shape: tuple[Size, ...]
    dtypes: tuple[str, ...] = ("float32", "float64")
    low: float = -math.inf
    high: float | str = math.inf  # a symbol: values must be below that size
    increasing: bool = False
    may_be_empty: bool = False

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, np.ndarray):
            raise fail(name, f"is of type {type(value).__name__}", "a NumPy array")
        if value.dtype not in [np.dtype(kind) for kind in self.dtypes]:
            raise fail(name, f"has dtype {value.dtype}", " or ".join(self.dtypes))
        if value.ndim != len(self.shape) or not all(map(partial(resolve, sizes=sizes), self.shape, value.shape)):
            raise fail(name, f"has shape {value.shape}", shown(self.shape, sizes))
        if not value.size and not self.may_be_empty:
            raise fail(name, f"has shape {value.shape}", "at least one value")
        self._check_values(value, name, sizes)

    def _check_values(self, value: Array, name: str, sizes: Sizes) -> None:
        if not value.size or value.dtype == bool:
            return
        low, high = float(value.min()), float(value.max())
        if isinstance(self.high, str) and self.high not in sizes:
            raise fail(name, "refers to attributes that are missing", "a complete model")
        most = sizes[self.high] - 1 if isinstance(self.high, str) else self.high
        if not (math.isfinite(low) and math.isfinite(high) and low >= self.low and high <= most):  # NaN compares as false
            raise fail(name, f"holds values from {low:.6g} to {high:.6g}", f"finite values from {self.low:g} to {most:g}")
        if self.increasing and not (value[1:] > value[:-1]).all():
            raise fail(name, "is not sorted", "increasing values")


def floats(*shape: Size, low: float = -math.inf, high: float = math.inf) -> ArraySpec:
    """Return the spec of a float32 or float64 array."""
    return ArraySpec(shape, low=low, high=high)


def doubles(*shape: Size, low: float = -math.inf, high: float = math.inf) -> ArraySpec:
    """Return the spec of a float64 array."""
    return ArraySpec(shape, ("float64",), low, high)


def bools(*shape: Size) -> ArraySpec:
    """Return the spec of a boolean array."""
    return ArraySpec(shape, ("bool",))


def labels(size: Size, below: Size) -> ArraySpec:
    """Return the spec of cluster labels of rows."""
    return ArraySpec((size,), ("int32",), 0, below if isinstance(below, str) else below - 1)


@dataclass(frozen=True)
class Number(Spec):
    """A real number within limits, finite unless infinity is allowed; an integer if `integral`."""

    low: float = -math.inf
    high: float = math.inf
    integral: bool = False
    finite: bool = True

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        kinds = (int, np.integer) if self.integral else (int, float, np.integer, np.floating)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise fail(name, f"is of type {type(value).__name__}", "an integer" if self.integral else "a number")
        if not self.low <= value <= self.high or (self.finite and not math.isfinite(value)):  # NaN compares as false
            raise fail(name, f"is {value}", f"a {'finite ' * self.finite}number from {self.low:g} to {self.high:g}")


def count(low: int = 0, high: float = MAX_COUNT) -> Number:
    """Return the spec of an integer within limits."""
    return Number(low, high, integral=True)


@dataclass(frozen=True)
class SizeOf(Spec):
    """An integer that equals the size of a symbol, or determines it."""

    symbol: str

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        count(1).check(value, name, sizes)
        if not resolve(self.symbol, int(value), sizes):
            raise fail(name, f"is {value}", str(sizes[self.symbol]))


@dataclass(frozen=True)
class Below(Spec):
    """An integer from 1 (or `low`) to the size of a symbol."""

    symbol: str
    low: int = 1

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        count(self.low, sizes[self.symbol]).check(value, name, sizes)


@dataclass(frozen=True)
class Choice(Spec):
    """One of several values, of the same type as the value."""

    options: tuple[Any, ...]

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        same_type = str if isinstance(value, np.str_) else type(value)  # NumPy strings count as strings
        if not any(same_type is type(option) and value == option for option in self.options):
            raise fail(name, f"is {str(value)[:40]!r}", " or ".join(map(repr, self.options)))


NOTHING, FLAG = Choice((None,)), Choice((False, True))


@dataclass(frozen=True)
class Names(Spec):
    """An array of strings."""

    size: Size

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        if not (isinstance(value, np.ndarray) and value.dtype == object and all(isinstance(word, str) for word in value.flat)):
            raise fail(name, f"is of type {type(value).__name__}", "an array of strings")
        if value.ndim != 1 or not resolve(self.size, len(value), sizes):
            raise fail(name, f"has shape {value.shape}", shown((self.size,), sizes))


@dataclass(frozen=True)
class OneOf(Spec):
    """Any of several specs."""

    specs: tuple[Spec, ...]

    def check(self, value: Any, name: str, sizes: Sizes) -> None:
        errors = []
        for spec in self.specs:
            trial = dict(sizes)
            try:
                spec.check(value, name, trial)
            except ValueError as error:
                errors.append(error)
            else:
                sizes.update(trial)
                return
        raise errors[-1]


def optional(spec: Spec) -> OneOf:
    """Return a spec that also allows None."""
    return OneOf((NOTHING, spec))


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
