"""Cost model of a k-means step on a cluster: tasks, bytes and CPU seconds, from the measurements of `costs`."""

from __future__ import annotations

import math
from typing import NamedTuple

from shoal.distributed.scheduler import MAX_INLINE_SPEC_BYTES


class Costs(NamedTuple):
    """Costs in CPU seconds."""

    task: float  # of driver and scheduler, a task
    down: float  # the same, a byte that goes to workers
    up: float  # the same, a byte that comes back and is added up
    work: float  # of a worker, a task
    packing: float  # the same, a byte that it packs or unpacks
    flops: float  # operations a second, in blocks


class Cluster(NamedTuple):
    machines: int
    cores: int
    processes: int  # workers of a machine
    threads: int  # of a worker
    link: float = math.inf  # bytes a second of a machine, in each direction
    driver_apart: bool = True  # or it shares the cores of the only machine
    slow: float = 0.0  # share of the tasks that are slow
    deaths: float = 0.0  # of a machine, a second


class Work(NamedTuple):
    """A step of k-means."""

    rows: int
    columns: int
    clusters: int
    partitions: int
    moving: float = 1.0  # share of the rows that change cluster
    first: bool = True  # step: rows come from no cluster
    groups: int = 0  # of neighbouring partitions, whose answers are added up where they are; 0: each is sent

    def answers(self) -> int:
        return self.groups or self.partitions

    def order(self) -> float:
        """Bytes of the centres, as they are and made ready."""
        return 8.0 * self.clusters * self.columns

    def labels(self, parts: int) -> float:
        """Bytes of the labels of one of so many parts."""
        return 4.0 * self.rows / parts

    def share(self, parts: int) -> float:
        """Bytes of the clusters that the rows of one of so many parts touch: two for each that moves."""
        touches = self.rows / parts * self.moving * (1 if self.first else 2)
        return (8.0 * self.columns + 32) * self.clusters * -math.expm1(-touches / self.clusters)

    def answer(self) -> float:
        """Bytes of one: sums and, if any of its rows has moved, labels."""
        labels = self.labels(self.answers())
        return self.share(self.answers()) - labels * math.expm1(-self.moving * labels / 4)

    def down(self) -> float:
        """Bytes sent with a task."""
        return self.labels(self.partitions) + (self.order() if self.order() <= MAX_INLINE_SPEC_BYTES else 0)

    def traffic(self) -> float:
        """Bytes of a step, as `history_` tells them: what workers pass on among themselves is not in it."""
        once = self.order() if self.order() > MAX_INLINE_SPEC_BYTES else 0
        return once + self.partitions * self.down() + self.answers() * self.answer()

    def seconds(self, costs: Costs) -> float:
        """Of a core, for a task."""
        arithmetic = 2.0 * self.rows / self.partitions * self.clusters * self.columns / costs.flops
        return costs.work + arithmetic + costs.packing * (self.share(self.partitions) + self.down())


class Told(NamedTuple):
    """Simulated cost of a round."""

    seconds: float
    moved: float  # bytes, over all links
    received: float  # bytes, by the driver
    held: float  # bytes of answers that waited at one machine, at most
    driver: float  # seconds that the driver worked
    workers: float  # and all workers
    again: int  # tasks that were sent once more
    deaths: int
