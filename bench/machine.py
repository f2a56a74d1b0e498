"""Limits of this machine: matrix products and memory bandwidth, with the threads that all libraries have."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import cpu_count

REPEATS = 7  # of which the fastest counts


def _shortest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest run."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def sgemm(size: int = 2048) -> float:
    """Return the GFLOP/s of NumPy's product of two float32 matrices of this size."""
    A, B = np.random.default_rng(0).random((2, size, size), dtype=np.float32)
    out = np.empty_like(A)
    return 2e-9 * size**3 / _shortest(lambda: np.matmul(A, B, out=out))


def bandwidth(megabytes: int = 512) -> float:
    """Return the GB/s at which the threads together read an array that is larger than the caches."""
    X = np.ones(megabytes << 18, np.float32)
    parts = np.array_split(X, cpu_count())
    with ThreadPoolExecutor(len(parts)) as pool:
        return 1e-9 * X.nbytes / _shortest(lambda: list(pool.map(np.max, parts)))
