"""Rounds of tasks on a dask cluster: one task a partition, results in their order, whatever happens to workers meanwhile.

A round is a barrier, and all that it needs it sends: a worker that dies costs the work it was at, which dask does again. A task
that takes much longer than the others (its worker may be frozen) is sent once more, to somebody else, and the first answer
counts. No more tasks are under way than keep the workers busy, so that the time since a task was sent is about what it takes.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any, NamedTuple

from distributed import CancelledError, Future, KilledWorker, rejoin, secede

from ..core.engine import Lost
from .crew import GULP, PULSE, SILENCE, TICK, Crew

PATIENCE, TIMES = 30.0, 4.0  # seconds, and medians of this round, after which a task is sent again
AHEAD, MOST = 3, 8  # tasks under way, a thread; and those that are done, but not yet their turn
KILLS = 3  # workers that a task may cost
INLINE = 1 << 18  # bytes of an order up to which every task brings it along
SMALL = 1 << 22  # bytes of answers that are not worth a journey, as long as others are to come
SLOWEST = 2e7  # bytes a second of a link that is worth waiting for
CANCELLED = 10  # times that a task may be


class Task(NamedTuple):
    """fn(piece, order, rest..., near) for one partition."""

    name: str  # for people
    fn: Callable[..., bytes]
    piece: Any
    rest: tuple[Any, ...]
    near: list[Future]


class Try(NamedTuple):
    """A task that was sent."""

    number: int
    future: Future
    sent: float


class Round:
    """Some tasks for a crew; `make(i)` makes the i-th of them, as often as it is sent."""

    def __init__(self, crew: Crew, make: Callable[[int], Task], count: int, order: bytes) -> None:
        self.crew, self.make, self.count, self.order = crew, make, count, order
        self.tries: dict[int, list[Try]] = {}  # of tasks without an answer
        self.answers: dict[int, Try] = {}  # that nobody has fetched yet
        self.fetched: dict[int, bytes] = {}  # whose turn is still to come
        self.events: SimpleQueue[Try] = SimpleQueue()
        self.took: list[float] = []
        self.sent = 0
        self.deaths: dict[int, int] = {}  # of workers, over each task
        self.suspects: list[int] = []
        self.alone: int | None = None
        self.cancelled: Counter[int] = Counter()
        self.shared: Any = order  # with every task; or one copy, which goes from worker to worker

    def results(self) -> Iterator[bytes]:
        """In order."""
        self.crew.heard = self.crew.peopled = time.monotonic()  # nobody has looked since the last round
        with _room_for_others():
            try:
                self._look()
                if len(self.order) > INLINE:
                    (self.shared,) = self._submit(_same, [self.order])
                    self.crew.bytes += len(self.order)
                for at in range(self.count):
                    while at not in self.answers and at not in self.fetched:
                        self._go_on(at)
                    if at not in self.fetched:
                        while self.tries and len(self.answers) * self.crew.size < SMALL:
                            self._go_on(at)
                        self._fetch(at)
                    yield self.fetched.pop(at)
                self.crew.usual = median(self.took or [self.crew.usual])
            finally:
                for attempt in (*chain.from_iterable(self.tries.values()), *self.answers.values()):
                    attempt.future.release()
                self.shared = None

    def _go_on(self, at: int) -> None:
        self._feed(at)
        self._wait()

    def _feed(self, at: int) -> None:
        """Send what there is room for. Of tasks that lost their workers together each goes alone: one of them did it."""
        if self.suspects or self.alone in self.tries:
            if not self.tries:
                if len(self.suspects) == 1:
                    self._judge(self.suspects[0])
                self.alone = self.suspects.pop(0)
                self._send([self.alone], self.order)
            return
        most = self.crew.threads
        last = min(self.count, at + MOST * most + 1, self.sent + AHEAD * most - len(self.tries))
        if last > self.sent and len(self.tries) <= (AHEAD - 1) * most:  # there is room for one more each
            self._send(range(self.sent, last), self.shared)
            self.sent = last

    def _send(self, numbers: Sequence[int], order: Any) -> None:
        tasks = [self.make(number) for number in numbers]
        args = [(task.piece, order, *task.rest, task.near) for task in tasks]
        futures = self._submit(tasks[0].fn, *map(list, zip(*args, strict=True)))
        self.crew.tasks += len(tasks)
        self.crew.bytes += sum(len(a) for row in args for a in row if isinstance(a, bytes))
        for number, future in zip(numbers, futures, strict=True):
            attempt = Try(number, future, time.monotonic())
            self.tries.setdefault(number, []).append(attempt)
            future.add_done_callback(partial(self._heard, attempt))

    def _heard(self, attempt: Try, _: Future) -> None:
        self.events.put(attempt)

    def _submit(self, fn: Callable[..., Any], *columns: list[Any]) -> list[Future]:
        try:
            return self.crew.submit(fn, *columns)
        except Exception:
            self._look(now=True)  # which says so, if nobody is there
            raise

    def _wait(self) -> None:
        """For the next answer, or for something to be wrong."""
        try:
            attempt = self.events.get(timeout=TICK)
        except Empty:
            self._look()
            self._hurry()
            return
        now = time.monotonic()
        if attempt not in self.tries.get(attempt.number, ()):  # another one was sooner
            return
        if attempt.future.status in ("finished", "error"):
            if self._was_killed(attempt):
                return
            for other in self.tries.pop(attempt.number):
                if other is not attempt:
                    self.crew.lost += now - other.sent
                    other.future.release()
            self.answers[attempt.number] = attempt
            self.took.append(now - attempt.sent)
        else:  # cancelled or lost: so are all, if the scheduler is
            self._look(now=True)
            self._check_rows(attempt.number)
            self._give_up(attempt)
            self._send([attempt.number], self.order)

    def _check_rows(self, number: int) -> None:
        """A task is cancelled if the rows that it needs are, and then it will never be anything else."""
        task = self.make(number)
        self.cancelled[number] += 1
        if self.cancelled[number] > CANCELLED or any(future.status in ("cancelled", "lost") for future in task.near):
            raise Lost(f"{task.name}: workers held these rows, and they are gone: persist or scatter X anew.")

    def _give_up(self, attempt: Try) -> None:
        self.crew.lost += time.monotonic() - attempt.sent
        self.tries[attempt.number].remove(attempt)

    def _was_killed(self, attempt: Try) -> bool:
        """Did its workers die over it? If it was alone, there is nobody else to blame."""
        error = attempt.future.exception(timeout=SILENCE) if attempt.future.status == "error" else None
        if not isinstance(error, KilledWorker):
            return False
        number = attempt.number
        self.deaths[number] = self.deaths.get(number, 0) + error.allowed_failures + 1
        if number == self.alone:
            self._judge(number)
        self._give_up(attempt)
        if not self.tries[number]:
            del self.tries[number]
            self.suspects.append(number)
        return True

    def _judge(self, number: int) -> None:
        if self.deaths[number] >= KILLS:
            raise Lost(f"{self._cost(number)}, one after the other: give workers more memory, or look at these rows.")

    def _cost(self, number: int) -> str:
        died = self.deaths[number]
        return f"{self.make(number).name}: {died} worker{'s' * (died > 1)} died over it"

    def _fetch(self, at: int) -> None:
        """The answer to a task, and with it others that are there. It is gone if its worker is, and then comes again."""
        asked, more = time.monotonic(), PULSE
        while True:
            first = self.answers[at].future
            if first.status == "error" and not isinstance(first.exception(), KilledWorker):
                first.result()  # raises what the task did
            most = max(1, GULP // max(self.crew.size, 1))
            there = [n for n in sorted(self.answers) if n == at or self.answers[n].future.status == "finished"][:most]
            try:
                found = self.crew.gather([self.answers[n].future for n in there], more + len(there) * self.crew.size / SLOWEST)
            except (TimeoutError, CancelledError, KilledWorker, OSError):
                self._look(now=True)
                more *= 2
                if time.monotonic() - asked > self._late() or first.status != "finished":
                    self._again(at)
                    asked = time.monotonic()
                continue
            for n, answer in zip(there, found, strict=True):
                self.fetched[n], self.crew.size = answer, len(answer)
                self.crew.bytes += len(answer)
                del self.answers[n]
            return

    def _again(self, at: int) -> None:
        """An answer that can't be had: ask somebody else."""
        attempt = self.answers.pop(at)
        self.crew.lost += time.monotonic() - attempt.sent
        self._send([at], self.order)
        while at not in self.answers:
            self._go_on(at)

    def _late(self) -> float:
        """Seconds after which a task is late; of a round without answers, little is known."""
        if self.took:
            return max(PATIENCE, TIMES * median(self.took))
        return TIMES * max(PATIENCE, TIMES * self.crew.usual)

    def _hurry(self) -> None:
        """Send what is late once more, to others, and again when that is twice as late: some partitions are just long.

        A worker that is not heard of gets no more until it is.
        """
        now, late = time.monotonic(), self._late()
        slow = {n: tries for n, tries in self.tries.items() if now - tries[-1].sent > late * 2 ** (len(tries) - 1)}
        if slow:
            self._look(now=True)
            self.crew.freeze({attempt.future.key for tries in slow.values() for attempt in tries}, late)
        for number in slow:
            self._send([number], self.order)

    def _look(self, now: bool = False) -> None:
        try:
            gone, moment = self.crew.look(now), time.monotonic()
        except Lost as error:
            raise Lost("; ".join([*map(self._cost, self.suspects), str(error)])) from error
        self.crew.lost += sum(moment - t.sent for tries in self.tries.values() for t in tries if t.future.key in gone)


def _same(order: bytes) -> bytes:
    return order


@contextlib.contextmanager
def _room_for_others() -> Iterator[None]:
    """A fit inside a task gives its worker's thread to the tasks that it waits for."""
    try:
        secede()
    except (ValueError, KeyError, AttributeError):  # it is inside none
        yield
        return
    try:
        yield
    finally:
        rejoin()
