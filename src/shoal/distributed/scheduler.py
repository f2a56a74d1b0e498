"""Scheduling of one task per partition on a Dask cluster, with answers in partition order and recovery from lost workers.

A pass over the rows ends with a barrier, and every task carries all that it needs. A worker that dies therefore costs no more
than its current tasks, which Dask runs again. A task that takes much longer than the others, because its worker may be frozen,
is submitted again, and the first answer counts. No more tasks are in flight than keep the workers busy, so that the time since
a submission is about the time that the task takes. Short tasks are submitted in batches (see `task_batching`); after a failure,
the tasks of a batch are submitted one by one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from distributed import CancelledError, Future, KilledWorker

from ..exceptions import ClusterLostError
from . import lateness
from .failures import FailureTracker
from .in_flight import InFlight, Submission
from .result_buffer import ResultBuffer
from .task_batching import MAX_BATCH_ANSWER_BYTES, Task, TaskStats, make_batches, make_calls, tasks_per_batch
from .workers import POLL_SECONDS, REFRESH_SECONDS, UNREACHABLE_SECONDS, WorkerPool, without_worker_thread

MAX_IN_FLIGHT = 3  # batches per thread: one that runs and two that wait, so that no worker idles while the driver is busy
MAX_AHEAD = 8  # batches per thread between the next answer to yield and the last batch submitted; limits memory for answers
MAX_INLINE_SPEC_BYTES = 1 << 18  # specifications up to this size are sent with every task; workers share larger ones
MIN_BYTES_PER_SECOND = 2e7  # bandwidth assumed for the timeout of a fetch: 160 Mbit/s


class OrderedScheduler:
    """Run one task per partition on a pool of workers, and yield the answers in order.

    Invariant: between two calls, every task is in exactly one place, in this order unless something fails:
    `queue` (not submitted), `in_flight.attempts` (submitted), `buffer.remote` (answered, on a worker), `buffer.fetched` (in the
    driver), yielded. After a failure it returns to `in_flight`, if its worker died by way of `failures.suspects`.

    Parameters
    ----------
    pool : WorkerPool
        Workers that run the tasks. It keeps the statistics of the pass for later ones of the same kind.
    make_task : callable
        make_task(i) returns the i-th task. It is called once per submission, since tasks are too large to be stored.
    dependencies : list of list of Future
        Values on the workers that each task needs.
    spec : bytes
        Packed `PassSpec`, which all tasks share.
    kind : hashable
        Identifies passes whose tasks cost about the same.
    """

    def __init__(
        self,
        pool: WorkerPool,
        make_task: Callable[[int], Task],
        dependencies: list[list[Future]],
        spec: bytes,
        kind: Hashable = None,
    ) -> None:
        self.pool, self.make_task, self.dependencies, self.spec = pool, make_task, dependencies, spec
        self.kind = kind, len(spec).bit_length()  # the cost also depends on the size of the arguments
        self.stats = pool.task_stats.get(self.kind, TaskStats())
        self.queue: deque[list[int]] = deque()  # batches that have not been submitted
        self.batch_size = 1
        self.in_flight = InFlight()
        self.buffer = ResultBuffer(self.stats.answer_bytes)
        self.failures = FailureTracker(make_task)
        self.lateness = lateness.LatenessEstimator()
        self.shared_spec: Any = spec  # or a future of it, if it is large

    def results(self) -> Iterator[bytes]:
        """Yield the answers of all tasks in order."""
        started = self.pool.contacted_at = self.pool.had_workers_at = time.monotonic()  # no refresh since the last pass
        buffer, n_tasks = self.buffer, len(self.dependencies)
        with without_worker_thread():
            try:
                self._refresh()
                self._fill_queue()
                self._share_spec()
                for next_index in range(n_tasks):
                    while next_index not in buffer.fetched:
                        # Fetching has a fixed cost: wait for more answers, as long as they are few and small.
                        while next_index not in buffer.remote or (
                            self.in_flight.attempts and buffer.remote_bytes() < MAX_BATCH_ANSWER_BYTES
                        ):
                            self._advance(next_index)
                        self._fetch(next_index)
                    yield buffer.fetched.pop(next_index)
                seconds = (time.monotonic() - started) * self.pool.n_threads / max(n_tasks, 1)
                batch_seconds = self.lateness.median_duration(self.stats.batch_seconds)
                self.pool.task_stats[self.kind] = TaskStats(seconds, batch_seconds, buffer.max_answer_bytes)
            finally:
                self.in_flight.release()
                buffer.release()
                self.shared_spec = None

    def _advance(self, next_index: int) -> None:
        """Submit what there is capacity for, then handle one submission that is done, or look for late tasks."""
        self._submit_queued(next_index)
        submission = self.in_flight.wait(POLL_SECONDS)
        if submission is None:
            self._refresh()
            self._retry_late()
        else:
            self._handle_done(submission)

    # Submission. Invariant: tasks are submitted in order, at most `MAX_IN_FLIGHT` batches per thread at a time; while there are
    # suspects, nothing but one of them.

    def _fill_queue(self) -> None:
        """Divide the tasks into batches; those of a batch have their dependencies on the same worker."""
        n_tasks = len(self.dependencies)
        batch_size = tasks_per_batch(self.stats, n_tasks, self.pool.n_threads)
        locations = self.pool.locate_dependencies(self.dependencies) if batch_size > 1 else range(n_tasks)
        self.queue.extend(make_batches(locations, batch_size))
        self.batch_size = max(map(len, self.queue), default=1)

    def _share_spec(self) -> None:
        """Send a large specification to one worker, from which the others fetch it."""
        if len(self.spec) > MAX_INLINE_SPEC_BYTES:
            (self.shared_spec,) = self._call_workers(_identity, [self.spec])
            self.pool.n_bytes += len(self.spec)

    def _submit_queued(self, next_index: int) -> None:
        """Submit the next batches if there is capacity for one more per thread, or the next suspect if nothing is in flight."""
        if self.failures.suspects or self.failures.isolated in self.in_flight.attempts:
            if not self.in_flight.attempts:
                self._submit([[self.failures.next_suspect()]], self.spec)
            return
        n_threads = self.pool.n_threads
        capacity = MAX_IN_FLIGHT * n_threads - len(self.in_flight.running)
        if capacity >= n_threads:
            last = next_index + MAX_AHEAD * n_threads * self.batch_size
            batches: list[list[int]] = []
            while self.queue and len(batches) < capacity and self.queue[0][0] <= last:
                batches.append(self.queue.popleft())
            self._submit(batches, self.shared_spec)

    def _submit_alone(self, indices: Sequence[int]) -> None:
        """Submit tasks again, one by one, with the specification itself: the worker that held the shared one may be lost."""
        self._submit([[index] for index in indices], self.spec)

    def _submit(self, batches: Sequence[Sequence[int]], spec: Any) -> None:
        """Submit batches in one request."""
        if not batches:
            return
        fn, calls = make_calls([[self.make_task(index) for index in batch] for batch in batches], spec)
        futures = self._call_workers(fn, *map(list, zip(*calls, strict=True)))
        self.pool.n_tasks += len(batches)
        self.pool.n_bytes += sum(len(arg) for call in calls for arg in call if isinstance(arg, bytes))
        for batch, future in zip(batches, futures, strict=True):
            self.in_flight.add(batch, future)

    def _call_workers(self, fn: Callable[..., Any], *columns: list[Any]) -> list[Future]:
        try:
            return self.pool.submit(fn, *columns)
        except Exception:
            self._refresh(force=True)  # raises ClusterLostError if that is the reason
            raise

    # Completion. Invariant: the first answer to a task counts, and its other attempts are dropped. An error of a task itself is
    # an answer, raised when its turn comes; every other failure puts the task in flight again, or among the suspects.

    def _handle_done(self, submission: Submission) -> None:
        indices = self.in_flight.unanswered(submission)
        if not indices:
            return
        status, is_alone = submission.future.status, len(submission.indices) == 1
        error = submission.future.exception(timeout=UNREACHABLE_SECONDS) if status == "error" else None
        if isinstance(error, KilledWorker):
            for index in indices:
                self._handle_death(index, submission, error.allowed_failures + 1)
        elif status == "finished" or (status == "error" and is_alone):
            self.lateness.durations.append(time.monotonic() - submission.submitted_at)
            for index in indices:
                self.pool.lost_seconds += self.in_flight.resolve(index, submission)
                self.buffer.remote[index] = submission
        else:
            if status != "error":  # cancelled or lost, as all are if the scheduler is lost
                self._refresh(force=True)
                for index in indices:
                    self.failures.record_cancellation(index)
            for index in indices:  # else one task of the batch has failed, and will fail again alone
                self.pool.lost_seconds += self.in_flight.withdraw(index, submission)
            self._submit_alone(indices)

    def _handle_death(self, index: int, submission: Submission, n_workers: int) -> None:
        """Make a task a suspect, unless another attempt of it is still in flight."""
        self.failures.record_deaths(index, n_workers)
        self.pool.lost_seconds += self.in_flight.withdraw(index, submission)
        if not self.in_flight.attempts[index]:
            del self.in_flight.attempts[index]
            self.failures.suspects.append(index)

    # Collection. Invariant: when `_fetch` returns, the answer of task `next_index` has been fetched, or the task is in flight
    # again because its batch has left it undone.

    def _fetch(self, next_index: int) -> None:
        """Fetch the answer of a task, with others that are ready. If its worker is lost or frozen, run the task again."""
        buffer, started, extra_seconds = self.buffer, time.monotonic(), REFRESH_SECONDS
        while True:
            first = buffer.remote[next_index].future
            if first.status == "error" and not isinstance(first.exception(), KilledWorker):
                first.result()  # raises the error of the task
            # After a timeout answers are fetched one by one, so that a frozen worker does not delay those of others.
            submissions, n_answers = buffer.select(next_index, fetch_one=self.lateness.fetch_delay > 0)
            timeout = extra_seconds + n_answers * buffer.answer_bytes / MIN_BYTES_PER_SECOND
            try:
                fetched = self.pool.gather([submission.future for submission in submissions], timeout)
            except (TimeoutError, CancelledError, KilledWorker, OSError):
                self._refresh(force=True)
                extra_seconds *= 2
                self.lateness.fetch_delay = max(self.lateness.fetch_delay, time.monotonic() - started)
                if self.lateness.fetch_delay > self._late_seconds() or first.status != "finished":
                    self._recompute(next_index)
                    started = time.monotonic()
                continue
            for submission, answers in zip(submissions, fetched, strict=True):
                n_bytes, undone = buffer.store(submission, answers if isinstance(answers, list) else [answers])
                self.pool.n_bytes += n_bytes
                self._submit_alone(undone)
            return

    def _recompute(self, next_index: int) -> None:
        """Run a task again whose answer cannot be fetched, and the others of its batch, until it is answered."""
        submission = self.buffer.remote[next_index]
        indices = self.buffer.discard(submission)
        self.pool.lost_seconds += len(indices) * submission.seconds_per_task()
        self._submit_alone(indices)
        while next_index not in self.buffer.remote:
            self._advance(next_index)

    # Late tasks and lost workers. Invariant: a task may have several attempts in flight, each allowed twice the time of the one
    # before. Workers that hold late tasks and send no heartbeat are avoided until their next one.

    def _late_seconds(self) -> float:
        return self.lateness.threshold(self.stats.batch_seconds)

    def _retry_late(self) -> None:
        """Submit late tasks once more, preferably to other workers."""
        late_seconds = self._late_seconds()
        overdue = self.in_flight.overdue(late_seconds)
        if overdue:
            self._refresh(force=True)
            keys = {submission.future.key for attempts in overdue.values() for submission in attempts}
            self.pool.mark_unresponsive(keys, late_seconds)
        for index in overdue:
            self._submit_alone([index])

    def _refresh(self, force: bool = False) -> None:
        """Update the pool and count the time lost with workers. If the cluster is lost, name the suspects."""
        try:
            lost_keys = self.pool.refresh(force)
        except ClusterLostError as error:
            causes = map(self.failures.describe_deaths, self.failures.suspects)
            raise ClusterLostError("; ".join([*causes, str(error)])) from error
        lost = (submission for submission in self.in_flight.running if submission.future.key in lost_keys)
        self.pool.lost_seconds += sum(submission.seconds_per_task() for submission in lost)


def _identity(spec: bytes) -> bytes:
    return spec
