"""Answers that are ready on the cluster or in the driver, but have not been yielded."""

from __future__ import annotations

from .in_flight import Submission
from .task_batching import MAX_GATHER_BYTES


class ResultBuffer:
    """Answers in the order in which they become ready, for a consumer that needs them in task order.

    Invariant: a task with an answer is either in `remote`, with the submission whose future holds the answer on a worker, or in
    `fetched`, with the answer itself, and leaves the latter when its turn comes.
    """

    def __init__(self, answer_bytes: int) -> None:
        self.remote: dict[int, Submission] = {}
        self.fetched: dict[int, bytes] = {}
        self.answer_bytes = answer_bytes  # size of the answer fetched last, or as expected before the first one
        self.max_answer_bytes = 0

    def remote_bytes(self) -> int:
        """Return the approximate size of the answers that can be fetched."""
        return len(self.remote) * self.answer_bytes

    def select(self, next_index: int, fetch_one: bool) -> tuple[list[Submission], int]:
        """Return submissions to fetch in one request, including that of task `next_index`, and their number of answers."""
        limit = 1 if fetch_one else max(1, MAX_GATHER_BYTES // max(self.answer_bytes, 1))
        ready = [i for i in sorted(self.remote) if i == next_index or self.remote[i].future.status == "finished"][:limit]
        return list(dict.fromkeys(self.remote[i] for i in ready)), len(ready)

    def store(self, submission: Submission, answers: list[bytes]) -> tuple[int, list[int]]:
        """Store the answers of a submission, and return their size and the tasks that its batch has left undone."""
        waiting = [
            (position, index) for position, index in enumerate(submission.indices) if self.remote.get(index) is submission
        ]
        n_bytes = 0
        for position, index in waiting:
            del self.remote[index]
            if position < len(answers):
                self.fetched[index], self.answer_bytes = answers[position], len(answers[position])
                self.max_answer_bytes = max(self.max_answer_bytes, self.answer_bytes)
                n_bytes += self.answer_bytes
        return n_bytes, [index for position, index in waiting if position >= len(answers)]

    def discard(self, submission: Submission) -> list[int]:
        """Remove and return the tasks whose answers this submission held: they cannot be fetched."""
        indices = [index for index in submission.indices if self.remote.get(index) is submission]
        for index in indices:
            del self.remote[index]
        return indices

    def release(self) -> None:
        """Release all futures."""
        for submission in self.remote.values():
            submission.future.release()
