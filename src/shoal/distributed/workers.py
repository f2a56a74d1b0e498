"""The workers of a Dask cluster as seen by the driver: which exist, which are unresponsive, and whether the cluster is lost."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, rejoin, secede
from distributed.comm import get_address_host_port

from ..exceptions import ClusterLostError
from .task_batching import TaskStats

POLL_SECONDS = 0.25  # time between checks for late tasks; shorter ones cost CPU time of the driver
REFRESH_SECONDS = 2.0  # time between requests for the list of workers; each is a round trip to the scheduler
SCHEDULER_TIMEOUT = 3.0  # seconds that the scheduler has to answer one request
CONNECT_TIMEOUT = 1.0  # seconds that the scheduler's machine has to accept a connection
UNREACHABLE_SECONDS = 8.0  # time without an answer after which a scheduler that accepts no connection is lost
STALLED_SECONDS = 60.0  # time without an answer after which any scheduler is lost, even if it may only be busy
NO_WORKER_SECONDS = 120.0  # time without a running worker after which the cluster is lost
SUBMIT_CONFIG = {"distributed.admin.large-graph-warning-threshold": "1TB"}  # users cannot change the size of our graphs


class WorkerPool:
    """The workers of a client, and statistics of the tasks that they have run.

    Invariant: everything known of workers (`tasks_by_worker`, `last_seen`, `unresponsive`, `n_threads`, `locations`) describes
    the cluster at the last successful `refresh`.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        is_local = isinstance(getattr(client, "cluster", None), LocalCluster)
        self.gather_direct = True if is_local else None  # None: as the client is configured, by default through the scheduler
        self.n_threads = 1
        self.tasks_by_worker: dict[str, list[Any]] = {}  # keys of the tasks assigned to each worker, by its address
        self.last_seen: dict[str, float] = {}  # time of each worker's last heartbeat, by the scheduler's clock
        self.unresponsive: dict[str, float] = {}  # workers with late tasks and no heartbeat since: the last one's time
        self.contacted_at = self.had_workers_at = time.monotonic()
        self.refreshed_at = -REFRESH_SECONDS
        self.locations: dict[Any, Hashable] = {}  # a worker that holds each dependency, by key; asked for when needed
        self.task_stats: dict[Hashable, TaskStats] = {}  # of the last pass of each kind
        self._reset_traffic()

    def _reset_traffic(self) -> None:
        self.n_tasks, self.n_bytes, self.lost_seconds = 0, 0, 0.0

    def traffic(self) -> dict[str, float]:
        """Return the numbers of tasks, of bytes sent and received and of seconds lost since the last call."""
        traffic = {"tasks": self.n_tasks, "bytes": self.n_bytes, "lost": round(self.lost_seconds, 3)}
        self._reset_traffic()
        return traffic

    def submit(self, fn: Callable[..., Any], *columns: list[Any]) -> list[Future]:
        """Submit fn(*row) for each row of these columns, in one request: its cost hardly depends on the number of tasks."""
        responsive = [address for address in self.tasks_by_worker if address not in self.unresponsive]
        preference = {"workers": responsive, "allow_other_workers": True} if self.unresponsive and responsive else {}
        with dask.config.set(SUBMIT_CONFIG):
            return self.client.map(fn, *columns, pure=False, **preference)  # type: ignore[no-any-return]

    def gather(self, futures: list[Future], timeout: float) -> list[Any]:
        """Return the results of futures, or raise TimeoutError after this many seconds."""

        async def gather_all() -> list[Any]:
            return await self.client.gather(futures, direct=self.gather_direct, asynchronous=True)  # type: ignore[no-any-return]

        return self.client.sync(gather_all, callback_timeout=timeout)  # type: ignore[no-any-return]

    def refresh(self, force: bool = False) -> set[Any]:
        """Ask the scheduler for its workers, at most every `REFRESH_SECONDS` unless forced.

        Returns the keys of tasks whose workers have left since the last time. Raises ClusterLostError if the scheduler is lost,
        or has had no worker for too long.
        """
        now = time.monotonic()
        if not force and now - self.refreshed_at < REFRESH_SECONDS:
            return set()
        self.refreshed_at = now
        try:
            if self.client.status != "running":
                raise OSError(f"the client is {self.client.status}")
            workers = self.client.sync(self.client.scheduler.identity, callback_timeout=SCHEDULER_TIMEOUT)["workers"]
            assigned = self.client.sync(self.client.scheduler.processing, callback_timeout=SCHEDULER_TIMEOUT)
        except Exception as error:
            self._check_scheduler(error)
            time.sleep(POLL_SECONDS)
            return set()
        self.contacted_at = time.monotonic()
        self.locations.clear()
        lost_keys = {key for address, keys in self.tasks_by_worker.items() if address not in workers for key in keys}
        self.tasks_by_worker = {address: assigned.get(address, []) for address in workers}
        self.last_seen = {address: worker["last_seen"] for address, worker in workers.items()}
        self.unresponsive = {
            address: seen for address, seen in self.unresponsive.items() if self.last_seen.get(address) == seen
        }
        self._count_threads([worker["nthreads"] for worker in workers.values() if worker["status"] == "running"])
        return lost_keys

    def _check_scheduler(self, error: Exception) -> None:
        """Raise ClusterLostError if a request that failed with this error means that the scheduler is lost."""
        if self.client.status == "closed":
            raise ClusterLostError("The Dask client is closed: open another one.") from error
        silence = time.monotonic() - self.contacted_at
        if silence >= STALLED_SECONDS or (silence >= UNREACHABLE_SECONDS and not self._accepts_connections()):
            address = getattr(self.client.scheduler, "address", "unknown")
            reason = f" ({error})" if str(error) else ""
            raise ClusterLostError(f"The Dask scheduler at {address} is lost{reason}: start another one.") from error

    def _count_threads(self, n_threads: list[int]) -> None:
        """Update the number of threads, given those of each running worker. Paused workers accept no tasks."""
        self.n_threads = max(sum(n_threads), 1)
        if n_threads:
            self.had_workers_at = self.contacted_at
        elif self.contacted_at - self.had_workers_at > NO_WORKER_SECONDS:
            raise ClusterLostError(
                f"No Dask worker has been running for {NO_WORKER_SECONDS:.0f} s: start workers, or give them more memory if "
                "they are paused."
            )

    def _accepts_connections(self) -> bool:
        """Return whether the scheduler may only be busy: it is connected, and its machine accepts connections.

        After a network failure the client may report for minutes that it is connected, but a new connection fails at once.
        """
        if self.client.status != "running":
            return False
        try:
            address = get_address_host_port(self.client.scheduler.address)
        except ValueError:  # the scheduler is in this process, or behind a gateway
            return True
        try:
            socket.create_connection(address, CONNECT_TIMEOUT).close()
        except OSError:
            return False
        return True

    def locate_dependencies(self, dependencies: list[list[Future]]) -> Sequence[Hashable]:
        """Return a location for each task, equal for tasks whose dependencies are held by the same workers.

        Tasks without dependencies share the location (). A dependency that no worker holds is a location of its own.
        """
        keys = dict.fromkeys(future.key for futures in dependencies for future in futures)
        unknown = [key for key in keys if key not in self.locations]
        if unknown:
            try:
                holders = self.client.sync(self.client.scheduler.who_has, keys=unknown, callback_timeout=SCHEDULER_TIMEOUT)
            except Exception:  # a lost scheduler is reported by `refresh`; until then no two tasks share a location
                return range(len(dependencies))
            self.locations |= {key: (holders.get(key) or (key,))[0] for key in unknown}
        return [tuple(self.locations[future.key] for future in futures) for futures in dependencies]

    def mark_unresponsive(self, late_keys: set[Any], waited: float) -> None:
        """Prefer other workers to those that hold late tasks and have sent no heartbeat for half of the seconds waited."""
        latest = max(self.last_seen.values(), default=0.0)
        for address, keys in self.tasks_by_worker.items():
            if late_keys & set(keys) and latest - self.last_seen[address] > waited / 2:
                self.unresponsive[address] = self.last_seen[address]


@contextlib.contextmanager
def without_worker_thread() -> Iterator[None]:
    """Free the worker's thread while a fit that runs inside a task waits for tasks of its own: they may need it."""
    try:
        secede()
    except (ValueError, KeyError, AttributeError):  # this is not a task
        yield
        return
    try:
        yield
    finally:
        rejoin()
