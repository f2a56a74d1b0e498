"""Named, counter-based random streams, and weighted draws from them."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..data.types import Array

KEYS = 1 << 32  # the stream that rows are sorted by: the start of no seed


def resolve_seed(random_state: Any) -> int:
    """One integer for all random numbers of a fit."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Random numbers that depend on nothing but the seed and the stream's name.

    Its length and two words a number go into the key: SeedSequence takes (1, 0) for (1), and 2**32 for (0, 1).
    """
    words = [word for number in (seed, *stream) for word in (number & 0xFFFFFFFF, number >> 32)]
    key = np.random.SeedSequence([len(stream), *words]).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def draw(rng: np.random.Generator, mass: Array, count: int) -> Array:
    """Rows drawn with probability proportional to mass."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=count)
    places: Array = np.searchsorted(total, rng.random(count) * total[-1], "right")
    return places.clip(max=len(mass) - 1)


def draw_at_once(rng: np.random.Generator, mass: Array, count: int, keys: Array) -> Array:
    """Different rows, drawn with probability proportional to mass, and then any others if too few have some.

    Equal rows have equal keys and stand beside each other.
    """
    first = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    mass = np.add.reduceat(mass, first)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = rng.exponential(size=len(mass)) / mass  # the first to come is a draw, the next one of the rest, and so on
    times[~(mass > 0)] = np.inf
    return np.resize(first[np.argsort(times, kind="stable")], count)
