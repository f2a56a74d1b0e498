"""Margins of labels: the distance of each row to its centroid, and its second-best cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Centers, nearest_others
from ..data.rows import Rows
from ..data.types import Array
from ..execution.threads import on_threads
from .centroid_model import BaseCentroidModel, near_block
from .standardized import Standardized


class Margins(NamedTuple):
    """Distances and second-best clusters of rows."""

    distances: Array  # to the centroid of the row's cluster, in the space in which the rows were clustered
    second: Array  # nearest other cluster; -1 if there is only one


def margins_of(model: Any, X: Any, labels: Array) -> Margins | None:
    """Return the margins of labeled rows; None for a model whose clusters are not around centroids in the space of X."""
    if isinstance(model, Standardized):
        return margins_of(model.estimator_, model.scaled(X), labels)
    if not isinstance(model, BaseCentroidModel) or model._centers_frame.bits:
        return None
    rows, centers = model._rows(X)
    found = Margins(np.empty(len(rows)), np.full(len(rows), -1, np.int32))
    with on_threads(rows, model.n_threads) as rows:
        rows.for_each_raw(_margins_block, rows, centers, per_row=(labels, *found))
    return found


def _margins_block(start: int, raw: Any, labels: Array, distances: Array, second: Array, rows: Rows, centers: Centers) -> None:
    """Write the margins of a block of rows."""
    block, centers = near_block(start, raw, rows, centers)
    with np.errstate(over="ignore", under="ignore"):
        distances[:] = rows.frame.distances_out_of(block.pair_distances(np.arange(len(block)), labels, centers))
    if len(centers.C) > 1:
        second[:] = nearest_others(block, labels, centers)
