"""Several files as one source: their rows follow each other in the order of the files."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse

from ..data.source import StoredSource
from ..data.types import Array, is_sparse
from .options import SomeColumns
from .streamed import Streamed


def concatenate(name: str, parts: list[Any], scratch: str | None) -> Any:
    """Return one source for the rows of several, which have the same columns.

    Compressed files share one scratch file, because thousands of scratch files could not be open at the same time.
    """
    first = parts[0]
    if all(isinstance(part, SomeColumns) for part in parts):
        return SomeColumns(concatenate(name, [part.rows for part in parts], scratch), first.selection)
    if not all(isinstance(part, Streamed) for part in parts):
        return Folder(parts)
    shape = sum(part.shape[0] for part in parts), first.shape[1]
    rows = Streamed(name, shape, first.dtype, lambda: chain.from_iterable(part.rows_in_order() for part in parts), scratch)
    rows.unpacking = max(part.unpacking for part in parts)
    return rows


class Folder(StoredSource):
    """Rows of several sources, one after the other."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.ends = np.cumsum([part.shape[0] for part in parts])
        self.shape, self.dtype = (int(self.ends[-1]), parts[0].shape[1]), parts[0].dtype
        self.is_packed, self.unpacking = any(part.is_packed for part in parts), max(part.unpacking for part in parts)
        self.row_bytes, self.held_bytes = max(part.row_bytes for part in parts), sum(part.held_bytes for part in parts)

    def prepare_multi_pass(self) -> None:
        for part in self.parts:
            part.prepare_multi_pass()

    def read(self, start: int, stop: int) -> Any:
        if start == stop:
            return self.parts[0].read(0, 0)
        blocks = []
        for part, end in zip(self.parts, self.ends.tolist(), strict=True):
            first = end - part.shape[0]
            if first < stop and start < end:
                blocks.append(part.read(max(start - first, 0), min(stop, end) - first))
        return _stack(blocks)

    def take(self, rows: Array) -> Any:
        rows = np.asarray(rows, np.int64)
        part_of_row = np.searchsorted(self.ends, rows, "right")
        order = np.argsort(part_of_row, kind="stable")
        blocks = []
        for i in np.unique(part_of_row):
            part = self.parts[i]
            blocks.append(part.take(rows[order][part_of_row[order] == i] - (self.ends[i] - part.shape[0])))
        inverse = np.empty(len(rows), np.int64)
        inverse[order] = np.arange(len(rows))
        return _stack(blocks)[inverse] if blocks else self.parts[0].read(0, 0)


def _stack(blocks: list[Any]) -> Any:
    """Stack dense or sparse blocks."""
    if len(blocks) == 1:
        return blocks[0]
    if is_sparse(blocks[0]):
        return sparse.vstack(blocks, "csr")
    return np.concatenate(blocks)
