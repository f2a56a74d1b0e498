"""Specs of single values: arrays, numbers, strings and choices.

Sizes are named by symbols ("k" clusters, "d" features, "n" rows): the first array that has a symbol in its shape determines its
size, and all later ones must agree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..data.types import Array

Sizes = dict[str, int]  # symbol -> size
Size = str | int
NAMES = {"k": "n_clusters", "d": "n_features", "n": "n_samples", "r": "n_bits"}  # names of symbols in messages
MAX_COUNT = 2**53  # no count of rows, steps or distances is larger


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
