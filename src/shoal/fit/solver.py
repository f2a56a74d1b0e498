"""What a method provides to the fit loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..data.types import Array
from . import partition
from .partition import Assign


class Method(NamedTuple):
    """A method, made ready for some rows."""

    begin: Callable[[Array, int], Any]  # centres and the number of the start -> state, which has `centers`
    step: Callable[[Any], tuple[Any, Any]]  # state -> state, info
    done: Callable[[Any, Any], bool]  # state, info -> has it converged?
    assign: Assign  # how to label all rows in the end
    info: type = partition.PartitionInfo  # what a step returns beside the state
