"""Estimate of how much further steps on nested batches will lower the energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..data.blocks import Block, Centers
from ..data.rows import Rows
from ..data.types import Array
from ..fit.partition import Partition

SAFETY_FACTOR = 2.0  # the energy falls in leaps, so the expected improvement is multiplied by this; see `bench calibration`
MIN_STEPS = 3  # steps on a batch before the improvement is estimated; with fewer, it is infinite


class BatchRecord(Protocol):
    """Statistics of one step on a batch."""

    @property
    def energy(self) -> float:
        """Energy of the incoming centroids on the batch, scaled to all rows."""

    @property
    def reassigned(self) -> int:
        """Rows whose label changed."""

    @property
    def batch(self) -> int:
        """Rows in the batch."""

    @property
    def newest(self) -> float:
        """Energy of the rows that joined last, scaled to all rows; NaN if it was not computed."""


def newest_energy(rows: Rows, state: Partition) -> float:
    """Return the mean energy of the newer half of the batch per unit of weight."""
    new = np.arange(len(rows)) >= len(rows) // 2
    shares = rows.map_blocks(_newest_block, rows.prepare_pairs(state.centers), per_row=(rows.weights, state.labels, new))
    energy, mass = np.sum(list(shares), axis=0)
    return float(energy / mass) if mass else np.nan


def _newest_block(block: Block, weights: Array, labels: Array, new: Array, centers: Centers) -> Array:
    at = np.flatnonzero(new)
    return np.array([weights[at] @ block.pair_distances(at, labels[at], centers), weights[at].sum()])


def remaining_improvement(records: Sequence[BatchRecord], n: int) -> float:
    """Return the share of its energy that a fit may still lose, given the steps so far and the number of rows n.

    It has two parts. Within a batch, the decrease per step falls about as 1 / t^2 in step t, so that t times the last decrease
    remains. Between batches: the centroids of a batch of b rows cost c / b more than necessary on rows that are not in it, and
    c / b less on the batch itself. Rows that join the batch, and then take part in 2 b rows, therefore gain 1.5 c / b, of which
    a third remains. (They are compared with themselves, as other rows may have a different energy.)
    """
    if not records:
        return np.inf
    last = records[-1]
    if last.batch == n and (last.reassigned == 0 or last.energy <= 0):
        return 0.0
    here = [info for info in records if info.batch == last.batch]
    energies = np.array([info.energy for info in here[-3:]])
    if len(here) < MIN_STEPS or last.energy <= 0:  # a batch of energy zero says nothing about the other rows
        return np.inf
    if not np.isfinite(energies).all():  # in the units of X, they may exceed the range of float64
        return np.inf
    tail = len(here) * max(*-np.diff(energies), 0.0)
    gap = 0.0 if last.batch == n else max(here[0].newest - last.newest, 0.0) / 3
    return float("inf") if np.isnan(gap) else float(SAFETY_FACTOR * (tail + gap) / last.energy)
