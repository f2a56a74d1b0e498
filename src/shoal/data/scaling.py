"""Rows with every column at mean 0 and variance 1, scaled as they are read: nothing is written, nothing is held."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .cancellation import pieces
from .rows import working_dtype
from .source import DistributedSource, FileSource, Source
from .sources import find_source
from .statistics import check_values
from .types import Array, is_sparse

NUMBERS = 1 << 18  # that are scaled together: in float64, of which there are two copies then

SAMPLED_ROWS, SAMPLED_NUMBERS = 4096, 1 << 20  # at most, to see how fine the differences between rows are

FINE = 2.0**-20  # of the distance from the mean: float32 has four bits left of such a difference

FEW = 0.01  # the share of differences that may be finer


def scaled(source: Source, scales: Array, dtype: np.dtype) -> FileSource:
    """Rows of another source, less the first of two rows of `scales` and over the second, wherever they are worked on."""
    if isinstance(source, DistributedSource):
        return source.changed(partial(_of, scales, dtype), dtype)
    return Scaled(source, scales, dtype)


def scaled_dtype(source: Source, scales: Array) -> np.dtype:
    """float64, where float32 would round away what tells scaled rows apart.

    Small integers far apart do not come near that. Floats do where rows that differ little lie far from the mean, be it
    because of an outlier. Some rows tell: the differences between neighbours, column by column.
    """
    dtype = working_dtype(source.dtype)
    n, d = source.shape
    if dtype == np.float64 or source.dtype.kind != "f":
        return dtype
    block: Any = source.take(np.linspace(0, n - 1, min(n, SAMPLED_ROWS, max(1, SAMPLED_NUMBERS // d))).astype(np.int64))
    X = np.sort((block.toarray() if is_sparse(block) else block).astype(np.float64), axis=0)
    gaps = np.diff(X, axis=0)
    fine = (gaps > 0) & (gaps < FINE * np.abs(X[1:] - scales[0]))
    too_fine = np.count_nonzero(fine, axis=0) > FEW * np.count_nonzero(gaps, axis=0)
    return np.dtype(np.float64) if too_fine.any() else dtype


class Scaled(FileSource):
    """Rows of another source, less the first of two rows of `scales` and over the second."""

    def __init__(self, source: Source, scales: Array, dtype: np.dtype) -> None:
        self.source, self.scales = source, scales
        self.shape, self.dtype = source.shape, dtype
        self.is_map, self.reads_ahead = source.is_map, source.reads_ahead
        self.unpacking = source.unpacking
        self.row_bytes = 0.0 if scales[0].any() else source.row_bytes  # without a shift, sparse rows stay sparse
        self.held_bytes = source.held_bytes

    def read(self, start: int, stop: int) -> Any:
        return self._of(start, self.source.read(start, stop))

    def take(self, rows: Array) -> Any:
        return self._of(None, self.source.take(rows))

    def fingerprint(self) -> str | None:
        return self.source.fingerprint()

    def prepare_multi_pass(self) -> None:
        self.source.prepare_multi_pass()

    def materialize(self, rows: Array) -> Source:
        if self.source.is_file:
            return Scaled(self.source.materialize(rows), self.scales, self.dtype)
        return self.subset(rows) if self.is_map else find_source(self.take(rows))

    def _of(self, start: int | None, block: Any) -> Any:
        return _of(self.scales, self.dtype, start, block)


def _of(scales: Array, dtype: np.dtype, start: int | None, block: Any) -> Any:
    """Scaled rows; dense ones, where a mean is subtracted and zeros of sparse rows do not stay zeros."""
    if start is not None:
        check_values(start, block, False)  # afterwards it would be told of what is not in the file
    shift, scale = scales
    with np.errstate(over="ignore"):
        if is_sparse(block) and not shift.any():
            values = np.empty(len(block.data), dtype)
            for s in pieces(len(values), NUMBERS):
                values[s] = block.data[s] / scale[block.indices[s]]
            return type(block)((values, block.indices, block.indptr), shape=block.shape)
        out = np.empty(block.shape, dtype)
        for s in pieces(len(out), max(1, NUMBERS // max(block.shape[1], 1))):
            out[s] = ((block[s].toarray() if is_sparse(block) else block[s]) - shift) / scale
        return out
