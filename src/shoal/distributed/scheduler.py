"""Rounds of tasks on a dask cluster: one task a partition, results in their order, whatever happens to workers meanwhile.

A round is a barrier, and all that it needs it sends: a worker that dies costs the work it was at, which dask does again. A task
that takes much longer than the others (its worker may be frozen) is sent once more, to somebody else, and the first answer
counts. No more tasks are under way than keep the workers busy, so that the time since a task was sent is about what it takes.
Short tasks travel together (see `loads`); if something is wrong with them, each goes again alone.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any

from distributed import CancelledError, Future, KilledWorker, rejoin, secede

from ..exceptions import ClusterLostError
from .task_batching import GULP, SMALL, Habit, Sent, Task, divided, most_of
from .tasks import pack, several
from .workers import PULSE, SILENCE, TICK, Crew

PATIENCE, TIMES = 30.0, 4.0  # seconds, and medians of this round, after which a task is sent again
AHEAD, MOST = 3, 8  # loads under way, a thread; and those that are done, but not yet their turn
KILLS = 3  # workers that a task may cost
INLINE = 1 << 18  # bytes of an order up to which every task brings it along
SLOWEST = 2e7  # bytes a second of a link that is worth waiting for
CANCELLED = 10  # times that a task may be


class Round:
    """A task for each list of futures that it needs; `make(i)` makes the i-th of them, as often as it is sent."""

    def __init__(
        self, crew: Crew, make: Callable[[int], Task], near: list[list[Future]], order: bytes, kind: Hashable = None
    ) -> None:
        self.crew, self.make, self.near, self.order = crew, make, near, order
        self.kind = kind, len(order).bit_length()  # what is asked for, and about how much
        self.habit = crew.habits.get(self.kind, Habit())
        self.size, self.largest = self.habit.size, 0  # bytes of an answer: the last one, and of all of them
        self.left: deque[list[int]] = deque()  # loads that are still to be sent
        self.most = 1  # tasks of a load
        self.busy: set[Sent] = set()  # that workers are at, as far as anybody knows
        self.tries: dict[int, list[Sent]] = {}  # of tasks without an answer
        self.answers: dict[int, Sent] = {}  # that nobody has fetched yet
        self.fetched: dict[int, bytes] = {}  # whose turn is still to come
        self.events: SimpleQueue[Sent] = SimpleQueue()
        self.took: list[float] = []
        self.deaths: dict[int, int] = {}  # of workers, over each task
        self.suspects: list[int] = []
        self.alone: int | None = None
        self.cancelled: Counter[int] = Counter()
        self.silence = 0.0  # seconds that an answer was waited for in vain
        self.shared: Any = order  # with every task; or one copy, which goes from worker to worker

    def results(self) -> Iterator[bytes]:
        """In order."""
        begun = self.crew.heard = self.crew.peopled = time.monotonic()  # nobody has looked since the last round
        with _room_for_others():
            try:
                self._look()
                self._divide()
                if len(self.order) > INLINE:
                    (self.shared,) = self._submit(_same, [self.order])
                    self.crew.bytes += len(self.order)
                for at in range(len(self.near)):
                    while at not in self.fetched:
                        while at not in self.answers or (self.tries and len(self.answers) * self.size < SMALL):
                            self._go_on(at)
                        self._fetch(at)
                    yield self.fetched.pop(at)
                each = (time.monotonic() - begun) * self.crew.threads / max(len(self.near), 1)
                self.crew.habits[self.kind] = Habit(each, median(self.took or [self.habit.late]), self.largest)
            finally:
                for sent in (*chain.from_iterable(self.tries.values()), *self.answers.values()):
                    sent.future.release()
                self.shared = None

    def _divide(self) -> None:
        most = most_of(self.habit, len(self.near), self.crew.threads)
        homes = self.crew.homes_of(self.near) if most > 1 else range(len(self.near))
        self.left.extend(divided(homes, most))
        self.most = max(map(len, self.left), default=1)

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
                self._send([[self.alone]], self.order)
            return
        most = self.crew.threads
        room = AHEAD * most - len(self.busy)
        if room >= most:  # for one more each
            some: list[list[int]] = []
            while self.left and len(some) < room and self.left[0][0] <= at + MOST * most * self.most:
                some.append(self.left.popleft())
            self._send(some, self.shared)

    def _send(self, loads: Sequence[Sequence[int]], order: Any) -> None:
        if not loads:
            return
        tasks = [[self.make(number) for number in load] for load in loads]
        fn: Callable[..., Any] = tasks[0][0].fn
        args: list[tuple[Any, ...]] = [(some[0].piece, order, *some[0].rest, some[0].near) for some in tasks]
        if max(map(len, loads)) > 1:
            own = [(pack([(task.piece, task.rest) for task in some]), [task.near for task in some]) for some in tasks]
            fn, args = several, [(fn, packed, order, near) for packed, near in own]
        futures = self._submit(fn, *map(list, zip(*args, strict=True)))
        self.crew.tasks += len(loads)
        self.crew.bytes += sum(len(a) for row in args for a in row if isinstance(a, bytes))
        for load, future in zip(loads, futures, strict=True):
            sent = Sent(load, future, time.monotonic())
            self.busy.add(sent)
            for number in load:
                self.tries.setdefault(number, []).append(sent)
            future.add_done_callback(partial(self._heard, sent))

    def _heard(self, sent: Sent, _: Future) -> None:
        self.events.put(sent)

    def _submit(self, fn: Callable[..., Any], *columns: list[Any]) -> list[Future]:
        try:
            return self.crew.submit(fn, *columns)
        except Exception:
            self._look(now=True)  # which says so, if nobody is there
            raise

    def _wait(self) -> None:
        """For the next answer, or for something to be wrong."""
        try:
            sent = self.events.get(timeout=TICK)
        except Empty:
            self._look()
            self._hurry()
            return
        self.busy.discard(sent)
        numbers = [number for number in sent.numbers if sent in self.tries.get(number, ())]  # others were answered sooner
        if not numbers:
            return
        status, alone = sent.future.status, len(sent.numbers) == 1
        error = sent.future.exception(timeout=SILENCE) if status == "error" else None
        if isinstance(error, KilledWorker):
            for number in numbers:
                self._was_killed(number, sent, error.allowed_failures + 1)
        elif status == "finished" or (status == "error" and alone):
            self.took.append(time.monotonic() - sent.at)
            for number in numbers:
                self._is_answered(number, sent)
        else:  # cancelled or lost: so are all, if the scheduler is; or one of several has failed, and will do so alone
            if status != "error":
                self._look(now=True)
                for number in numbers:
                    self._check_rows(number)
            for number in numbers:
                self._give_up(number, sent)
            self._send([[number] for number in numbers], self.order)

    def _is_answered(self, number: int, sent: Sent) -> None:
        for other in self.tries.pop(number):
            if other is not sent:
                self.crew.lost += other.age()
                other.drop(number)
                if not other.waiting:
                    self.busy.discard(other)
        self.answers[number] = sent

    def _check_rows(self, number: int) -> None:
        """A task is cancelled if the rows that it needs are, and then never anything else; lost ones may come back."""
        task = self.make(number)
        self.cancelled[number] += 1
        if self.cancelled[number] > CANCELLED or any(future.status == "cancelled" for future in task.near):
            raise ClusterLostError(f"{task.name}: workers held these rows, and they are gone: persist or scatter X anew.")

    def _give_up(self, number: int, sent: Sent) -> None:
        self.crew.lost += sent.age()
        self.tries[number].remove(sent)
        sent.drop(number)

    def _was_killed(self, number: int, sent: Sent, workers: int) -> None:
        """So many died over it. If it was alone, there is nobody else to blame."""
        self.deaths[number] = self.deaths.get(number, 0) + workers
        if number == self.alone:
            self._judge(number)
        self._give_up(number, sent)
        if not self.tries[number]:
            del self.tries[number]
            self.suspects.append(number)

    def _judge(self, number: int) -> None:
        if self.deaths[number] >= KILLS:
            raise ClusterLostError(
                f"{self._cost(number)}, one after the other: give workers more memory, or look at these rows."
            )

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
            most = 1 if self.silence else max(1, GULP // max(self.size, 1))  # a silent worker keeps nobody else's from coming
            there = [n for n in sorted(self.answers) if n == at or self.answers[n].future.status == "finished"][:most]
            loads = list(dict.fromkeys(self.answers[n] for n in there))
            try:
                found = self.crew.gather([sent.future for sent in loads], more + len(there) * self.size / SLOWEST)
            except (TimeoutError, CancelledError, KilledWorker, OSError):
                self._look(now=True)
                more *= 2
                self.silence = max(self.silence, time.monotonic() - asked)
                if self.silence > self._late() or first.status != "finished":
                    self._again(at)
                    asked = time.monotonic()
                continue
            for sent, answers in zip(loads, found, strict=True):
                self._keep(sent, answers if isinstance(answers, list) else [answers])
            return

    def _keep(self, sent: Sent, answers: list[bytes]) -> None:
        """What came of some tasks. The last of them may have been left undone, and are sent again."""
        mine = [(i, n) for i, n in enumerate(sent.numbers) if self.answers.get(n) is sent]
        for i, n in mine:
            del self.answers[n]
            if i < len(answers):
                self.fetched[n], self.size = answers[i], len(answers[i])
                self.largest = max(self.largest, self.size)
                self.crew.bytes += self.size
        self._send([[n] for i, n in mine if i >= len(answers)], self.order)

    def _again(self, at: int) -> None:
        """An answer that can't be had: ask somebody else, and for those that came with it."""
        sent = self.answers[at]
        gone = [n for n in sent.numbers if self.answers.get(n) is sent]
        for n in gone:
            del self.answers[n]
            self.crew.lost += sent.age()
        self._send([[n] for n in gone], self.order)
        while at not in self.answers:
            self._go_on(at)

    def _late(self) -> float:
        """Seconds after which a task is late; of a round without answers, little is known."""
        if self.took:
            return max(PATIENCE, TIMES * median(self.took))
        return TIMES * max(PATIENCE, TIMES * self.habit.late)

    def _hurry(self) -> None:
        """Send what is late once more, to others, and again when that is twice as late: some partitions are just long.

        A worker that is not heard of gets no more until it is.
        """
        now, late = time.monotonic(), self._late()
        slow = {n: tries for n, tries in self.tries.items() if now - tries[-1].at > late * 2 ** (len(tries) - 1)}
        if slow:
            self._look(now=True)
            self.crew.freeze({sent.future.key for tries in slow.values() for sent in tries}, late)
        for number in slow:
            self._send([[number]], self.order)

    def _look(self, now: bool = False) -> None:
        try:
            gone = self.crew.look(now)
        except ClusterLostError as error:
            raise ClusterLostError("; ".join([*map(self._cost, self.suspects), str(error)])) from error
        self.crew.lost += sum(sent.age() for sent in self.busy if sent.future.key in gone)


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
