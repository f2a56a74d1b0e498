"""Files one after the other, as one."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse

from ..data.source import StoredSource
from ..data.types import Array, is_sparse
from .options import SomeColumns
from .streamed import Streamed


def joined(name: str, parts: list[Any], scratch: str | None) -> Any:
    """One source of several. What has to be unpacked goes to one scratch file: thousands could not be open at once."""
    first = parts[0]
    if all(isinstance(part, SomeColumns) for part in parts):
        return SomeColumns(joined(name, [part.rows for part in parts], scratch), first.selection)
    if not all(isinstance(part, Streamed) for part in parts):
        return Folder(parts)
    shape = sum(part.shape[0] for part in parts), first.shape[1]
    rows = Streamed(name, shape, first.dtype, lambda: chain.from_iterable(part.rows_in_order() for part in parts), scratch)
    rows.unpacking = max(part.unpacking for part in parts)
    return rows


class Folder(StoredSource):
    """Rows of several files, one after the other."""

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
        return _stacked(blocks)

    def take(self, rows: Array) -> Any:
        rows = np.asarray(rows, np.int64)
        which = np.searchsorted(self.ends, rows, "right")
        order = np.argsort(which, kind="stable")
        blocks = []
        for i in np.unique(which):
            part = self.parts[i]
            blocks.append(part.take(rows[order][which[order] == i] - (self.ends[i] - part.shape[0])))
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return _stacked(blocks)[back] if blocks else self.parts[0].read(0, 0)


def _stacked(blocks: list[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    if is_sparse(blocks[0]):
        return sparse.vstack(blocks, "csr")
    return np.concatenate(blocks)
