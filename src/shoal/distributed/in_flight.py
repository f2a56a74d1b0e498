"""Tasks that have been submitted to the cluster and have no answer yet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue

from distributed import Future


class Submission:
    """A batch of tasks, by their indices, that one future answers.

    Invariant: the future is held as long as a task in `pending` may take its answer from it, and released after that.
    """

    def __init__(self, indices: Sequence[int], future: Future, submitted_at: float) -> None:
        self.indices, self.future, self.submitted_at = indices, future, submitted_at
        self.pending = set(indices)

    def drop(self, index: int) -> None:
        """Note that a task does not need this submission any more."""
        self.pending.discard(index)
        if not self.pending:
            self.future.release()

    def seconds_per_task(self) -> float:
        """Return the time since the submission, divided among its tasks."""
        return (time.monotonic() - self.submitted_at) / len(self.indices)


class InFlight:
    """Submissions of all tasks without an answer.

    Invariant: between two calls of the scheduler, `attempts` holds exactly the submitted tasks without an answer, each with the
    submissions that may still answer it, oldest first. `running` holds the submissions that have not been reported as done and
    that some task waits for; its size limits how many more are submitted.
    """

    def __init__(self) -> None:
        self.attempts: dict[int, list[Submission]] = {}
        self.running: set[Submission] = set()
        self._done: SimpleQueue[Submission] = SimpleQueue()  # filled by a thread of the client

    def add(self, indices: Sequence[int], future: Future) -> None:
        """Add a batch that has just been submitted."""
        submission = Submission(indices, future, time.monotonic())
        self.running.add(submission)
        for index in indices:
            self.attempts.setdefault(index, []).append(submission)
        future.add_done_callback(partial(self._report_done, submission))

    def _report_done(self, submission: Submission, _: Future) -> None:
        self._done.put(submission)

    def wait(self, timeout: float) -> Submission | None:
        """Return the next submission that is done, whether it succeeded or not, or None after this many seconds."""
        try:
            submission = self._done.get(timeout=timeout)
        except Empty:
            return None
        self.running.discard(submission)
        return submission

    def unanswered(self, submission: Submission) -> list[int]:
        """Return the tasks of a submission that no other submission has answered before."""
        return [index for index in submission.indices if submission in self.attempts.get(index, ())]

    def resolve(self, index: int, submission: Submission) -> float:
        """Remove a task that this submission has answered, and return the seconds that its other attempts have cost."""
        lost = 0.0
        for other in self.attempts.pop(index):
            if other is not submission:
                lost += other.seconds_per_task()
                other.drop(index)
                if not other.pending:
                    self.running.discard(other)
        return lost

    def withdraw(self, index: int, submission: Submission) -> float:
        """Remove a failed attempt of a task, and return the seconds that it has cost. The caller submits the task again."""
        lost = submission.seconds_per_task()
        self.attempts[index].remove(submission)
        submission.drop(index)
        return lost

    def overdue(self, late_seconds: float) -> dict[int, list[Submission]]:
        """Return the attempts of tasks that are late.

        The time allowed doubles with every attempt: a partition that just takes long is not submitted again without end.
        """
        now = time.monotonic()
        return {
            index: attempts
            for index, attempts in self.attempts.items()
            if now - attempts[-1].submitted_at > late_seconds * 2 ** (len(attempts) - 1)
        }

    def release(self) -> None:
        """Release all futures, which cancels what is still running."""
        for submission in chain.from_iterable(self.attempts.values()):
            submission.future.release()
