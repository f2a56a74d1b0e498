"""Named, counter-based random streams, and weighted draws from them."""

from __future__ import annotations

import numbers
from enum import IntEnum
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..data.types import Array


class Stream(IntEnum):
    """Names of the random streams, the first argument of `generator` after the seed.

    A centroid method uses the stream `start`, the number of the start, for its initialization and the stream `(start, t)` for
    its t-th step, batch or epoch. The streams below 2**32 have such small numbers too, but belong to methods that use them
    otherwise. Changing a value changes results, so two methods that use the same number keep it:

    - `PROBE_SIGNS` of `papers.spectral` and `PROBE_ORDER`, which `MiniBatchSpectral` uses too, equal
      `CODE_DIRECTIONS` and `CODE_CENTERS` of `CompressedKMeans`;
    - `MiniBatchSpectral` and `PowerSpectral` both draw their initial subspace from `INITIAL_SUBSPACE`;
    - `CompressedKMeans` without learning initializes its s-th start from the stream s, which may equal a `CODE_` stream.
    """

    CODE_SAMPLE = 0  # rows from which a code is learned
    CODE_DIRECTIONS = 1  # random hyperplanes, and directions of the sketch
    CODE_CENTERS = 2  # (CODE_CENTERS, start): initial centroids of the sampled rows
    CODE_HYPERPLANES = 3  # hyperplanes before learning
    CODE_BATCHES = 4  # (CODE_BATCHES, start, round): batches of the sampled rows
    PROBE_SIGNS = 1  # (PROBE_SIGNS, t): entries of the random vectors of step t
    PROBE_ORDER = 2  # (PROBE_ORDER, epoch): order of the columns in an epoch
    ROW_KEYS = 1 << 32  # hash functions by which rows are sorted, always with seed 0; not the start of any fit
    BANDWIDTH_SAMPLE = 1 << 40  # rows from which sigma is chosen
    DEGREE_SAMPLE = 1 << 41  # columns from which degrees are estimated
    EIGENSOLVER = 1 << 42  # start vectors of ARPACK
    INITIAL_SUBSPACE = 1 << 43  # start of the iterations of spectral methods
    NYSTROM_SAMPLE = 1 << 44  # rows of the Nyström approximation
    QUOTIENT_SAMPLE = 1 << 45  # rows from which Rayleigh quotients are estimated
    NEAREST_CHECK = 1 << 46  # rows that are compared with all centroids to see how good a search is
    REPORT_SAMPLE = 1 << 48  # rows shown in a report


def resolve_seed(random_state: Any) -> int:
    """Return the seed of all random streams of a fit."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Return a generator that depends on the seed and the numbers of the stream only (see `Stream`).

    The key includes the length of the stream and two 32-bit words per number, since `SeedSequence` does not distinguish (1, 0)
    from (1), nor 2**32 from (0, 1).
    """
    words = [word for number in (seed, *stream) for word in (number & 0xFFFFFFFF, number >> 32)]
    key = np.random.SeedSequence([len(stream), *words]).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def draw(rng: np.random.Generator, mass: Array, count: int) -> Array:
    """Draw indices with replacement, with probability proportional to mass; uniformly if it is zero for all."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=count)
    places: Array = np.searchsorted(total, rng.random(count) * total[-1], "right")
    return places.clip(max=len(mass) - 1)


def draw_at_once(rng: np.random.Generator, mass: Array, count: int, keys: Array) -> Array:
    """Draw distinct rows without replacement, with probability proportional to mass.

    Rows with equal keys, which must be adjacent, count as one row. Rows of zero mass follow the others, and all rows repeat if
    there are fewer than `count`.
    """
    first = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    mass = np.add.reduceat(mass, first)
    with np.errstate(divide="ignore", invalid="ignore"):
        arrivals = rng.exponential(size=len(mass)) / mass  # the order of exponential arrival times is a weighted permutation
    arrivals[~(mass > 0)] = np.inf
    return np.resize(first[np.argsort(arrivals, kind="stable")], count)
