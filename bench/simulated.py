"""Discrete-event simulation of a round of tasks on a cluster.

The driver (with the scheduler, on one core) sends one task per partition, as far ahead as `distributed.scheduler` does, fetches
answers in order and adds them up. Workers forward the centroids to each other and run tasks. Some tasks are slow, and machines
fail. Costs are measured (`costs`); machines and links are assumed.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import nsmallest
from statistics import median

import numpy as np

from shoal.distributed.lateness import LATE_FACTOR, MIN_LATE_SECONDS
from shoal.distributed.scheduler import MAX_AHEAD, MAX_IN_FLIGHT, MAX_INLINE_SPEC_BYTES
from shoal.distributed.task_batching import MAX_GATHER_BYTES

from .events import Clock, Shared, Then
from .scale import Cluster, Costs, RoundCost, Work

MAX_OUTGOING = 50  # simultaneous transfers from a worker to others, in dask
SLOW_TASK_FACTOR = 8.0  # duration of a slow task relative to others


class Worker:
    """A worker process."""

    def __init__(self, machine: int, threads: int) -> None:
        self.machine, self.free = machine, threads
        self.waiting: deque[int] = deque()
        self.has_centers = self.is_sending = False  # of the centroids
        self.passing = 0  # workers that it is sending the centroids to


class Fleet:
    """Machines over several rounds: failed machines stay failed, and others have read their rows."""

    def __init__(self, cluster: Cluster, costs: Costs, seed: int = 0) -> None:
        self.cluster, self.costs = cluster, costs
        self.rng = np.random.default_rng(seed)
        self.alive, self.gone = list(range(cluster.machines)), set[int]()
        self.homes: dict[int, int] = {}  # machine of each partition that was moved

    def home(self, task: int, work: Work) -> int:
        """Return the machine that holds the rows of a task; neighbors are together if their answers are added up there."""
        count = self.cluster.machines
        return self.homes.get(task, task * count // work.partitions if work.groups else task % count)

    def run(self, work: Work) -> RoundCost:
        return Round(self, work).run()


class Round:
    """Simulation of one round. The driver does one thing at a time: it sends no task while it receives an answer."""

    def __init__(self, fleet: Fleet, work: Work) -> None:
        self.fleet, self.work, self.cluster, self.costs = fleet, work, fleet.cluster, fleet.costs
        self.clock = Clock()
        here = range(self.cluster.machines)
        self.cores = [Shared(self.clock, self.cluster.cores) for _ in here]
        self.links = [Shared(self.clock) for _ in here]
        self.inward, self.outward = Shared(self.clock), Shared(self.clock)  # links of the driver
        self.driver = Shared(self.clock) if self.cluster.driver_apart else self.cores[0]
        self.workers = [[Worker(m, self.cluster.threads) for _ in range(self.cluster.processes)] for m in here]
        self.threads = self.cluster.processes * self.cluster.threads * len(fleet.alive)
        self.sent = self.at = 0  # tasks sent, and index of the next answer
        self.tries: dict[int, list[tuple[float, Worker]]] = {}  # start time and worker of unfinished tasks
        self.done: dict[int, int] = {}  # machine of each finished task
        self.took: list[float] = []
        self.missing = np.bincount(
            self._group(np.arange(work.partitions)), minlength=work.answers()
        )  # unfinished tasks of each answer
        self.there: dict[int, int] = {}  # machine of each answer that can be fetched
        self.fetched: set[int] = set()
        self.held = [0.0] * self.cluster.machines
        self.idle = False
        self.events: deque[tuple[int, int]] = deque()  # finished tasks and their machines, not yet processed by the driver
        self.turn = sorted(range(work.partitions), key=self._place) if work.groups else range(work.partitions)
        self.seconds, self.size, self.down = work.seconds(self.costs), work.answer(), work.down()
        self.holders, self.starving = deque[Worker](), deque[Worker]()
        self.moved = self.received = self.most = self.spent = 0.0
        self.again = self.deaths = 0

    def run(self) -> RoundCost:
        if self.work.order() > MAX_INLINE_SPEC_BYTES:
            self._drive(self.costs.task + self.work.order() * self.costs.down, self._spread)
        else:
            for worker in (worker for machine in self.workers for worker in machine):
                worker.has_centers = True
            self._next()
        self._schedule_failure()
        self.clock.at(MIN_LATE_SECONDS, self._resend_late_tasks)
        self.clock.run(lambda: self.at == self.work.answers())
        worked = self.seconds * (self.work.partitions + self.again)
        return RoundCost(self.clock.now, self.moved, self.received, self.most, self.spent, worked, self.again, self.deaths)

    def _group(self, task: int) -> int:
        return task * self.work.answers() // self.work.partitions

    def _place(self, task: int) -> int:
        """Return the task at a position of the order, which alternates between groups so that all machines are busy."""
        return task - -(-self._group(task) * self.work.partitions // self.work.answers())

    def _carry(self, link: Shared, size: float, then: Then) -> None:
        self.moved += size
        link.start(size / self.cluster.link, then)

    # Driver

    def _drive(self, seconds: float, then: Then) -> None:
        self.spent += seconds
        self.driver.start(seconds, then)

    def _next(self) -> None:
        """Fetch the next answer; if it is not ready, send tasks, then process events."""
        while self.at in self.fetched:
            self.at += 1
        ahead = self.work.partitions if self.work.groups else self.at + MAX_AHEAD * self.threads + 1
        while self.at not in self.there:
            if self.sent < min(self.work.partitions, ahead) and len(self.tries) < MAX_IN_FLIGHT * self.threads:
                self.sent += 1
                self._send(self.turn[self.sent - 1], self._next)
                break
            self.idle = not self.events
            if self.idle:
                break
            self._note(*self.events.popleft())
        else:
            self._fetch()

    def _note(self, task: int, machine: int) -> None:
        if task in self.done or machine in self.fleet.gone:
            return
        self.took.append(self.clock.now - self.tries.pop(task)[0][0])
        self.done[task] = machine
        group = self._group(task)
        self.missing[group] -= 1
        if not self.missing[group]:
            self.there[group] = machine

    def _send(self, task: int, then: Then, avoid: int | None = None) -> None:
        machine = self.fleet.home(task, self.work)
        if machine == avoid or machine in self.fleet.gone:
            machine = int(self.fleet.rng.choice([m for m in self.fleet.alive if m != avoid]))
        worker = min(self.workers[machine], key=lambda w: len(w.waiting) - w.free)
        self.tries.setdefault(task, []).append((self.clock.now, worker))

        def away() -> None:
            self._carry(self.outward, self.down, partial(self._arrive, task, worker))
            then()

        self._drive(self.costs.task + self.down * self.costs.down, away)

    def _fetch(self) -> None:
        """Fetch the next answer and others that are ready."""
        some = (
            nsmallest(max(1, int(MAX_GATHER_BYTES // self.size)), self.there) if self.size < MAX_GATHER_BYTES / 2 else [self.at]
        )
        size = self.size * len(some)
        for n in some:
            self.held[self.there.pop(n)] -= self.size
            self.fetched.add(n)
        self.received += size
        self._carry(self.inward, size, partial(self._drive, size * self.costs.up, self._next))

    def _resend_late_tasks(self) -> None:
        """Send late tasks again, to other workers, when the driver is idle."""
        late = max(MIN_LATE_SECONDS, LATE_FACTOR * median(self.took)) if self.took else 100 * MIN_LATE_SECONDS
        for task, tries in list(self.tries.items()) if self.idle and len(self.fleet.alive) > 1 else []:
            if self.clock.now - tries[-1][0] > late:
                self.again += 1
                self._send(task, _nothing, tries[-1][1].machine)
        self.clock.at(self.clock.now + late / 8, self._resend_late_tasks)

    # Workers

    def _spread(self) -> None:
        """Send the centroids to one worker, which passes them on to the others."""
        first = self.workers[self.fleet.alive[0]][0]
        first.is_sending = True
        self._carry(self.outward, self.work.order(), partial(self._receive_centers, first, first))
        self._next()

    def _receive_centers(self, worker: Worker, sender: Worker) -> None:
        worker.has_centers = True
        sender.passing -= 1
        self.holders.append(worker)
        self._forward_centers()
        self._go(worker)

    def _forward_centers(self) -> None:
        full = 0
        while self.starving and full < len(self.holders):
            sender = self.holders[0]
            self.holders.rotate(-1)
            full += 1
            if sender.passing < MAX_OUTGOING:
                full = 0
                sender.passing += 1
                self._carry(
                    self.links[sender.machine],
                    self.work.order(),
                    partial(self._receive_centers, self.starving.popleft(), sender),
                )

    def _arrive(self, task: int, worker: Worker) -> None:
        """Run a task on a worker, which first reads the rows if its machine does not hold them."""
        home = self.fleet.home(task, self.work)
        if home == worker.machine:
            self._queue(task, worker)
            return
        if home in self.fleet.gone:
            self.fleet.homes[task] = worker.machine
        size = 4.0 * self.work.rows / self.work.partitions * self.work.columns
        self._carry(self.links[worker.machine], size, partial(self._queue, task, worker))

    def _queue(self, task: int, worker: Worker) -> None:
        worker.waiting.append(task)
        self._go(worker)

    def _go(self, worker: Worker) -> None:
        if not worker.has_centers:
            if not worker.is_sending:
                worker.is_sending = True
                self.starving.append(worker)
                self._forward_centers()
            return
        while worker.free and worker.waiting and worker.machine not in self.fleet.gone:
            worker.free -= 1
            times = SLOW_TASK_FACTOR if self.fleet.rng.random() < self.cluster.slow else 1.0
            end = partial(self._finish, worker.waiting.popleft(), worker)
            self.cores[worker.machine].start(self.seconds * times, end)

    def _finish(self, task: int, worker: Worker) -> None:
        if worker.machine in self.fleet.gone:
            return
        worker.free += 1
        self.events.append((task, worker.machine))
        self.held[worker.machine] += self.size * self.work.answers() / self.work.partitions
        self.most = max(self.most, self.held[worker.machine])
        self._go(worker)
        if self.idle:
            self.idle = False
            self._next()

    def _schedule_failure(self) -> None:
        if self.cluster.deaths and len(self.fleet.alive) > 1:
            later = self.fleet.rng.exponential(1 / (self.cluster.deaths * len(self.fleet.alive)))
            self.clock.at(self.clock.now + later, self._fail)

    def _fail(self) -> None:
        """Fail a machine: its rows, running tasks and unfetched results are lost."""
        gone = int(self.fleet.rng.choice(self.fleet.alive))
        self.fleet.alive.remove(gone)
        self.fleet.gone.add(gone)
        self.deaths += 1
        lost = [task for task, tries in self.tries.items() if tries[-1][1].machine == gone]
        for task in [task for task, m in self.done.items() if m == gone and self._group(task) not in self.fetched]:
            del self.done[task]
            self.missing[self._group(task)] += 1
            self.there.pop(self._group(task), None)
            lost.append(task)
        for task in lost:
            self._send(task, _nothing)
        self.again += len(lost)
        self._schedule_failure()


def _nothing() -> None:
    pass
