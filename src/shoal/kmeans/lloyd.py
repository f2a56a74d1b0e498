"""Lloyd's k-means: assign every row to its nearest centre, move each centre to its rows' mean.

S. P. Lloyd (1982), Least squares quantization in PCM, doi:10.1109/TIT.1982.1056489.
Differs from the paper: a centre that loses all its rows moves to the row that is served worst.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..data.rows import Rows
from ..fit.partition import Partition, StepStats, label_all


def assign(rows: Rows, state: Partition) -> tuple[Iterable[StepStats], None]:
    """All rows, all centres, nothing to remember."""
    return label_all(rows, state), None
