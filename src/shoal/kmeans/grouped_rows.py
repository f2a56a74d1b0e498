"""Rows in the order of their groups, so that rows that are compared with the same centroids are side by side."""

from __future__ import annotations

import numpy as np

from ..data.rows import Rows
from ..data.source import Source
from ..data.types import Array
from ..kernels import tiles


def group_order(groups: Array) -> Array:
    """Return the rows sorted by group, int32; rows of a group keep their order. Groups are numbers from -1 on."""
    starts, order = np.empty(int(groups.max()) + 3, np.int64), np.empty(len(groups), np.int32)
    tiles.group_rows(groups, -1, starts, order)
    return order


class GroupedRows:
    """Rows that can be read in the order of any groups.

    Rows in memory are read where they are. Rows of a file are copied once, in the order of the first groups of more than one
    value (to a temporary file if they are many), so that later groups, which are finer or similar, are near each other in
    the copy. Distributed rows keep their order.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._copy: Source | None = None
        self._places: Array | None = None  # place of each row in the copy

    def by(self, groups: Array, k: int = 1) -> tuple[Rows, Array]:
        """Return the rows in the order of their groups, and their indices; each is to be compared with k centroids."""
        rows = self.rows
        if rows.is_distributed or not groups.any():
            return rows, np.arange(len(rows), dtype=np.int32)
        order = group_order(groups)
        if rows.source.is_file and self._copy is None:
            self._copy = rows.source.materialize(order.astype(np.int64), rows.copy_limit)
            self._places = np.empty_like(order)
            self._places[order] = np.arange(len(order), dtype=np.int32)
        if self._copy is None or self._places is None:
            return rows.subset(order, k), order
        return rows.view(self._copy.subset(self._places[order]), order, k), order
