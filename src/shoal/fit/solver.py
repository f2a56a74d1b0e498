"""The interface between a method and the fit loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from ..data.rows import Rows
from ..data.types import Array
from .partition import Partition, PartitionInfo, StepStats


class Solver(ABC):
    """A method, prepared for the rows of one fit.

    `state` holds all that the next step needs (arrays and numbers, among them `centers`), so saving it is the checkpoint.
    `info` holds what one step has found; the loop adds it to the history.
    """

    info_type: ClassVar[type] = PartitionInfo

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @abstractmethod
    def init(self, centers: Array, start: int) -> Any:
        """Return the state before the first step of a start, given its initial centroids and its number."""

    @abstractmethod
    def step(self, state: Any) -> tuple[Any, Any]:
        """Return the state and the info after one step."""

    @abstractmethod
    def converged(self, state: Any, info: Any) -> bool:
        """Return whether the start has ended."""

    @abstractmethod
    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        """Label all rows by the final centroids (see `partition.Assign`)."""
