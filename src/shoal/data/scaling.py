"""Rows standardized to mean 0 and variance 1 per column, scaled as they are read. No scaled copy is stored."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from .cancellation import pieces
from .rows import working_dtype
from .source import DistributedSource, FileSource, Source
from .sources import find_source
from .statistics import check_values
from .types import Array, is_sparse

SCALED_NUMBERS_AT_ONCE = 1 << 18  # numbers scaled per step, which needs two float64 temporaries of this size
MAX_SAMPLE_ROWS, MAX_SAMPLE_NUMBERS = 4096, 1 << 20  # size of the sample that decides if float32 is precise enough
# Difference of two values, relative to their distance from the mean, of which float32 retains only four bits.
FINE_DIFFERENCE = 2.0**-20
MAX_FINE_FRACTION = 0.01  # fraction of finer differences in a column up to which float32 is used


def scaled(source: Source, scales: Array, dtype: np.dtype) -> FileSource:
    """Return the rows of a source minus `scales[0]`, divided by `scales[1]`; distributed rows are scaled by the workers."""
    if isinstance(source, DistributedSource):
        return source.with_transform(partial(_scale_block, scales, dtype), dtype)
    return Scaled(source, scales, dtype)


def scaled_dtype(source: Source, scales: Array) -> np.dtype:
    """Return the dtype of scaled rows: float64 where scaled values that differ would be equal in float32.

    This does not happen to small integers. It happens to floats that differ little but are far from the mean, for
    instance because an outlier moves the mean. The differences of consecutive values in each column of a sample decide.
    """
    dtype = working_dtype(source.dtype)
    n, d = source.shape
    if dtype == np.float64 or source.dtype.kind != "f":
        return dtype
    block: Any = source.take(np.linspace(0, n - 1, min(n, MAX_SAMPLE_ROWS, max(1, MAX_SAMPLE_NUMBERS // d))).astype(np.int64))
    X = np.sort((block.toarray() if is_sparse(block) else block).astype(np.float64), axis=0)
    gaps = np.diff(X, axis=0)
    is_fine = (gaps > 0) & (gaps < FINE_DIFFERENCE * np.abs(X[1:] - scales[0]))
    too_fine = np.count_nonzero(is_fine, axis=0) > MAX_FINE_FRACTION * np.count_nonzero(gaps, axis=0)
    return np.dtype(np.float64) if too_fine.any() else dtype


class Scaled(FileSource):
    """Rows of another source minus `scales[0]`, divided by `scales[1]`."""

    def __init__(self, source: Source, scales: Array, dtype: np.dtype) -> None:
        self.source, self.scales = source, scales
        self.shape, self.dtype = source.shape, dtype
        self.is_map, self.reads_ahead = source.is_map, source.reads_ahead
        self.unpacking = source.unpacking
        self.row_bytes = 0.0 if scales[0].any() else source.row_bytes  # without a shift, sparse rows stay sparse
        self.held_bytes = source.held_bytes

    def read(self, start: int, stop: int) -> Any:
        return self._scale(start, self.source.read(start, stop))

    def take(self, rows: Array) -> Any:
        return self._scale(None, self.source.take(rows))

    def fingerprint(self) -> str | None:
        return self.source.fingerprint()

    def prepare_multi_pass(self) -> None:
        self.source.prepare_multi_pass()

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        if self.source.is_file:
            return Scaled(self.source.materialize(rows, copy_limit), self.scales, self.dtype)
        return self.subset(rows) if self.is_map else find_source(self.take(rows))

    def _scale(self, start: int | None, block: Any) -> Any:
        return _scale_block(self.scales, self.dtype, start, block)


def _scale_block(scales: Array, dtype: np.dtype, start: int | None, block: Any) -> Any:
    """Return scaled rows. Sparse rows become dense if a mean is subtracted, since their zeros do not stay zero."""
    if start is not None:
        check_values(start, block, False)  # before scaling, so that the message shows the value in the file
    shift, scale = scales
    with np.errstate(over="ignore"):
        if is_sparse(block) and not shift.any():
            values = np.empty(len(block.data), dtype)
            for s in pieces(len(values), SCALED_NUMBERS_AT_ONCE):
                values[s] = block.data[s] / scale[block.indices[s]]
            return type(block)((values, block.indices, block.indptr), shape=block.shape)
        out = np.empty(block.shape, dtype)
        for s in pieces(len(out), max(1, SCALED_NUMBERS_AT_ONCE // max(block.shape[1], 1))):
            out[s] = ((block[s].toarray() if is_sparse(block) else block[s]) - shift) / scale
        return out
