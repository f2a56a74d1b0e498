"""Lloyd's algorithm: assign every row to its nearest centroid, then move each centroid to the mean of its rows.

References
----------
S. P. Lloyd (1982), Least squares quantization in PCM, doi:10.1109/TIT.1982.1056489.

Differs from the paper: the centroid of an empty cluster moves to the row with the largest error.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..data.rows import Rows
from ..fit.partition import Partition, StepStats, label_all


def assign(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], None]:
    """Assign every row by comparing it with every centroid; no bounds are stored."""
    return label_all(rows, state), None
