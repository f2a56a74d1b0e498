"""Interface between a method and the fit loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from ..data.rows import Rows
from ..data.types import Array
from ..execution.time_estimate import labelling_seconds
from . import finalize
from .loop import Limits, RunResult
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

    def finalize(self, result: RunResult, limits: Limits, skipped: list[str]) -> tuple[RunResult, float]:
        """Return the run of a start with labels of all rows by the published centroids, and its loss."""
        return finalize.finalize(self.rows, result, self.assign, self.publish, limits, skipped)

    def evaluate(self, result: RunResult) -> tuple[RunResult, float]:
        """Return a finalized run with labels and loss computed again."""
        return finalize.evaluate(self.rows, result, self.assign)

    def publish(self, state: Partition) -> Partition:
        """Return the partition with centroids rounded to the values that the user will see."""
        return finalize.round_as_published(self.rows, state)

    def labelling_seconds(self, k: int) -> float:
        """Estimate the seconds from the last step to the end of a start, without reading the rows."""
        return labelling_seconds(self.rows, k)

    def is_valid_state(self, state: Any) -> bool:
        """Return whether a state of the right types and shapes, read from a checkpoint, could be one of this method."""
        return True
