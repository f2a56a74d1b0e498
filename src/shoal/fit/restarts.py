"""Restarts of a fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .loop import RunResult


class RestartState(NamedTuple):
    """How far a fit has come: all that is needed to go on, but for the rows."""

    start: int  # the one under way
    run: RunResult | None  # of it, so far
    best: RunResult | None = None  # of the starts before
    least: float = np.inf  # what that one costs
