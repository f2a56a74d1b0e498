"""Cost model of a k-means step on a cluster: tasks, bytes and CPU seconds, from the measurements of `costs`."""

from __future__ import annotations

import math
from typing import NamedTuple

from shoal.distributed.scheduler import MAX_INLINE_SPEC_BYTES


class Costs(NamedTuple):
    """Costs in CPU seconds."""

    task: float  # driver and scheduler, per task
    down: float  # driver and scheduler, per byte sent to workers
    up: float  # driver and scheduler, per byte received and added up
    work: float  # worker, per task
    packing: float  # worker, per byte packed or unpacked
    flops: float  # operations per second of matrix products


class Cluster(NamedTuple):
    machines: int
    cores: int
    processes: int  # workers per machine
    threads: int  # per worker
    link: float = math.inf  # bytes per second of a machine, in each direction
    driver_apart: bool = True  # whether the driver has its own machine
    slow: float = 0.0  # fraction of slow tasks
    deaths: float = 0.0  # failures per machine and second


class Work(NamedTuple):
    """A step of k-means."""

    rows: int
    columns: int
    clusters: int
    partitions: int
    moving: float = 1.0  # fraction of the rows that change their cluster
    first: bool = True  # whether it is the first step, in which rows come from no cluster
    groups: int = 0  # groups of partitions whose answers are added up on their machine; 0 to send every answer

    def answers(self) -> int:
        return self.groups or self.partitions

    def order(self) -> float:
        """Return the bytes of the centroids, including precomputed arrays."""
        return 8.0 * self.clusters * self.columns

    def labels(self, parts: int) -> float:
        """Return the bytes of the labels of one of `parts` parts."""
        return 4.0 * self.rows / parts

    def share(self, parts: int) -> float:
        """Return the bytes of the clusters changed by one of `parts` parts: two per reassigned row."""
        touches = self.rows / parts * self.moving * (1 if self.first else 2)
        return (8.0 * self.columns + 32) * self.clusters * -math.expm1(-touches / self.clusters)

    def answer(self) -> float:
        """Return the bytes of an answer: sums and, if rows were reassigned, labels."""
        labels = self.labels(self.answers())
        return self.share(self.answers()) - labels * math.expm1(-self.moving * labels / 4)

    def down(self) -> float:
        """Return the bytes sent with a task."""
        return self.labels(self.partitions) + (self.order() if self.order() <= MAX_INLINE_SPEC_BYTES else 0)

    def traffic(self) -> float:
        """Return the bytes of a step as in `history_`, without transfers between workers."""
        once = self.order() if self.order() > MAX_INLINE_SPEC_BYTES else 0
        return once + self.partitions * self.down() + self.answers() * self.answer()

    def seconds(self, costs: Costs) -> float:
        """Return the core seconds of a task."""
        arithmetic = 2.0 * self.rows / self.partitions * self.clusters * self.columns / costs.flops
        return costs.work + arithmetic + costs.packing * (self.share(self.partitions) + self.down())


class RoundCost(NamedTuple):
    """Simulated cost of a round."""

    seconds: float
    moved: float  # bytes, over all links
    received: float  # bytes, by the driver
    held: float  # maximum bytes of answers waiting at one machine
    driver: float  # busy seconds of the driver
    workers: float  # busy seconds of all workers
    again: int  # tasks that were sent again
    deaths: int
