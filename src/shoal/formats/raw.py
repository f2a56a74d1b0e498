"""Uncompressed rows in a file: dense rows of fixed size, or the three arrays of a CSR matrix.

Rows that cannot be read at random positions are copied once to a scratch file. It is unlinked as soon as it is created, so the
system deletes it when the last reader closes it, even if the process is killed.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from typing import Any

import numpy as np
from scipy import sparse

from ..data.source import StoredSource
from ..data.types import Array, at_most_float64, sparse_dtype, sum_duplicates
from ..exceptions import InvalidFileError
from ..kernels.files import read_spans
from .errors import DISK_FULL, wrap_read_errors
from .file_cache import HAS_PREAD, File

# Spans of rows that are read by a Python loop; more are read by a compiled kernel, whose first use takes time to load.
MAX_SPANS_IN_PYTHON = 8


class RawRows(StoredSource):
    """Dense rows of equal size, from a byte offset of a file; `lead` are the bytes before each row, the same for all rows."""

    def __init__(self, file: File, shape: tuple[int, int], dtype: Any, offset: int = 0, lead: Array | None = None) -> None:
        self.file, self.shape, self.raw_dtype, self.offset = file, shape, np.dtype(dtype), offset
        self.dtype = at_most_float64(np.empty(0, dtype)).dtype
        self.lead = np.empty(0, np.uint8) if lead is None else lead
        self.stride = len(self.lead) + shape[1] * self.raw_dtype.itemsize
        self.row_bytes = shape[1] * self.dtype.itemsize

    def read(self, start: int, stop: int) -> Array:
        return self._spans(np.array([start]), np.array([stop]))

    def take(self, rows: Array) -> Array:
        rows = np.asarray(rows, np.int64)
        if len(rows) and (np.diff(rows) > 0).all():
            return self._spans(*runs(rows))
        distinct, inverse = np.unique(rows, return_inverse=True)
        return self._spans(*runs(distinct))[inverse]

    def _spans(self, starts: Array, stops: Array) -> Array:
        """Read the rows of all spans, from each start to its stop."""
        buffer = np.empty((int((stops - starts).sum()), self.stride), np.uint8)
        done = 0
        if HAS_PREAD and len(starts) > MAX_SPANS_IN_PYTHON:
            with self.file.opened() as fd:
                done = read_spans(fd, starts, stops, self.stride, self.offset, buffer)
        view = memoryview(buffer.reshape(-1).data)[int((stops - starts)[:done].sum()) * self.stride :]
        for start, stop in zip(starts[done:].tolist(), stops[done:].tolist(), strict=True):
            size = (stop - start) * self.stride
            self.file.fill(view[:size], self.offset + start * self.stride)
            view = view[size:]
        if len(self.lead):
            self._check_leads(buffer, starts, stops)
            buffer = np.ascontiguousarray(buffer[:, len(self.lead) :])
        return at_most_float64(buffer.view(self.raw_dtype).reshape(len(buffer), self.shape[1]))

    def _check_leads(self, buffer: Array, starts: Array, stops: Array) -> None:
        """Raise if the bytes before a row differ from those of the first row."""
        bad = (buffer[:, : len(self.lead)] != self.lead).any(axis=1)
        if bad.any():
            rows = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
            row = int(rows[np.argmax(bad)])
            raise InvalidFileError(
                f"{self.file.name}: row {row} (byte {self.offset + row * self.stride:,}) declares another length than the "
                f"first row, which has {self.shape[1]} columns: write all rows with the same number of columns."
            )


class CSRRows(StoredSource):
    """Sparse rows: `data` and `indices` on disk, `indptr` in memory; `base` is the index of the first column in the file."""

    def __init__(self, data: RawRows, indices: RawRows, indptr: Array, d: int, base: int = 0) -> None:
        self.data, self.indices, self.indptr, self.base = data, indices, indptr, base
        self.shape, self.dtype, self.held_bytes = (len(indptr) - 1, d), sparse_dtype(data.dtype), indptr.nbytes
        self.row_bytes = int(indptr[-1]) * (data.row_bytes + indices.row_bytes) // max(len(indptr) - 1, 1)

    def read(self, start: int, stop: int) -> Any:
        return self._spans(np.array([start]), np.array([stop]))

    def take(self, rows: Array) -> Any:
        distinct, inverse = np.unique(np.asarray(rows, np.int64), return_inverse=True)
        block = self._spans(*runs(distinct))
        return block if np.array_equal(rows, distinct) else sparse.csr_array(block[inverse])

    def _spans(self, starts: Array, stops: Array) -> Any:
        """Read the rows of all spans as one CSR block with sorted indices and without duplicates."""
        spans = self.indptr[starts], self.indptr[stops]
        data, indices = (part._spans(*spans)[:, 0] for part in (self.data, self.indices))
        indices = indices - self.base
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.shape[1]):
            raise InvalidFileError(
                f"{self.data.file.name}: near row {int(starts[0])}, a value is in column "
                f"{int(indices.min() if indices.min() < 0 else indices.max())} of {self.shape[1]}: write the matrix again."
            )
        lengths = [np.diff(self.indptr[a : b + 1]) for a, b in zip(starts, stops, strict=True)]
        indptr = np.concatenate([[0], *lengths]).cumsum()
        data = data.astype(self.dtype, copy=False)
        block = sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, self.shape[1]))
        if not block.has_canonical_format:
            self._sum_duplicates(block, int(starts[0]))
        return block

    def _sum_duplicates(self, block: Any, row: int) -> None:
        """Sum duplicate entries in place, or raise if an integer sum overflows: all blocks have the dtype of the file."""
        name = self.data.file.name
        with wrap_read_errors(name, f"summing duplicate entries of type {block.dtype}", "write the matrix again"):
            overflows = sum_duplicates(block)
        if overflows:
            raise InvalidFileError(
                f"{name}: near row {row}, duplicate entries have a sum that {block.dtype} cannot hold: convert the matrix with "
                "X.astype(numpy.float64) and save it again."
            )


def runs(rows: Array) -> tuple[Array, Array]:
    """Return where runs of consecutive row numbers start and stop; `rows` is in ascending order."""
    ends = np.flatnonzero(np.diff(rows) != 1)
    return rows[np.concatenate([[0], ends + 1])[: len(rows)]], rows[np.concatenate([ends, [-1]])[: len(rows)]] + 1


class Scratch:
    """Scratch file of dense rows: append blocks, then read them as a source."""

    def __init__(self, name: str, d: int, dtype: Any, folder: str | None, expected: float = 0) -> None:
        self.name, self.d, self.dtype, self.n = name, d, np.dtype(dtype), 0
        self.folder = folder or tempfile.gettempdir()
        if expected > shutil.disk_usage(self.folder).free:
            raise self._disk_full(expected)
        with tempfile.TemporaryFile(dir=self.folder, prefix="shoal-") as file:
            self.file = File(os.dup(file.fileno()), f"the scratch copy of {name}")

    def append(self, block: Array) -> None:
        view = memoryview(np.ascontiguousarray(block, self.dtype).reshape(-1).view(np.uint8).data)
        try:
            with self.file.opened() as fd:
                while len(view):
                    view = view[os.write(fd, view) :]
        except OSError as error:
            raise self._disk_full(len(view)) if error.errno in DISK_FULL else error from error
        self.n += len(block)

    def _disk_full(self, size: float) -> OSError:
        reason = (
            f"no space for {size:,} more bytes of the scratch copy of {self.name}: set scratch= to a folder with more space"
        )
        return OSError(errno.ENOSPC, reason, self.folder)

    def rows(self) -> RawRows:
        return RawRows(self.file, (self.n, self.d), self.dtype)


class SparseScratch:
    """Scratch files of sparse rows: append CSR blocks, then read them as a source, whose width is given last."""

    def __init__(self, name: str, dtype: Any, index_dtype: Any, folder: str | None) -> None:
        self.data, self.indices = Scratch(name, 1, dtype, folder), Scratch(name, 1, index_dtype, folder)
        self.lengths: list[Array] = []

    def append(self, block: Any) -> None:
        self.data.append(block.data[:, None])
        self.indices.append(block.indices[:, None])
        self.lengths.append(np.diff(block.indptr).astype(np.int64))

    def rows(self, d: int, base: int = 0) -> CSRRows:
        indptr = np.zeros(1 + sum(map(len, self.lengths)), np.int64)
        if self.lengths:
            np.concatenate(self.lengths, out=indptr[1:])
        self.lengths.clear()
        np.cumsum(indptr, out=indptr)
        return CSRRows(self.data.rows(), self.indices.rows(), indptr, d, base)
