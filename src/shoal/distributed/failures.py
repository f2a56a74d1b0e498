"""Tasks whose workers died or whose dependencies were lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..exceptions import ClusterLostError
from .task_batching import Task

MAX_WORKER_DEATHS = 3  # workers that may die during a task before the fit fails; each may have to be restarted
MAX_CANCELLATIONS = 10  # times that a task is submitted again after it was cancelled


class FailureTracker:
    """Deaths and cancellations of each task.

    Dask blames a worker's death on all tasks that the worker had. Invariant: every task whose workers died, and which is not in
    flight, is in `suspects`. Suspects are run one at a time, with nothing else in flight, so that a death identifies its cause.
    """

    def __init__(self, make_task: Callable[[int], Task]) -> None:
        self._make_task = make_task
        self.deaths: dict[int, int] = {}  # workers that died during each task
        self.suspects: list[int] = []
        self.isolated: int | None = None  # the suspect that was last submitted alone
        self.cancellations: Counter[int] = Counter()

    def record_deaths(self, index: int, n_workers: int) -> None:
        """Count workers that died during a task, and raise ClusterLostError if it was alone and has cost too many."""
        self.deaths[index] = self.deaths.get(index, 0) + n_workers
        if index == self.isolated:
            self._check_deaths(index)

    def next_suspect(self) -> int:
        """Remove and return the suspect to run alone. A single suspect is known to be the cause."""
        if len(self.suspects) == 1:
            self._check_deaths(self.suspects[0])
        self.isolated = self.suspects.pop(0)
        return self.isolated

    def _check_deaths(self, index: int) -> None:
        if self.deaths[index] >= MAX_WORKER_DEATHS:
            raise ClusterLostError(
                f"{self.describe_deaths(index)}, one after the other: give workers more memory, or check these rows."
            )

    def describe_deaths(self, index: int) -> str:
        """Return how many workers a task has cost."""
        n_workers = self.deaths[index]
        return f"{self._make_task(index).name}: {n_workers} worker{'s' * (n_workers > 1)} died while processing it"

    def record_cancellation(self, index: int) -> None:
        """Count a cancellation, and raise ClusterLostError if the task cannot succeed.

        A task is cancelled for ever if its dependencies are; dependencies that were lost with a worker may be computed again.
        """
        task = self._make_task(index)
        self.cancellations[index] += 1
        is_final = any(future.status == "cancelled" for future in task.dependencies)
        if is_final or self.cancellations[index] > MAX_CANCELLATIONS:
            raise ClusterLostError(f"{task.name}: workers no longer hold these rows: persist or scatter X again.")
