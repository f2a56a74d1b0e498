"""The workers of a dask cluster as one driver sees them: who is there, who is late, and whether anybody is left to ask."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import dask
from distributed import Client, Future, LocalCluster
from distributed.comm import get_address_host_port

from ..exceptions import ClusterLostError
from .task_batching import Habit

TICK, PULSE = 0.25, 2.0  # seconds between looks at what is late, and at who is there
WORD, DOOR = 3.0, 1.0  # seconds that the scheduler may take for one, and its machine to take a call
SILENCE, STALL = 8.0, 60.0  # seconds without any after which it is lost: if nobody is there, and if it may be busy
EMPTY = 120.0  # seconds without any worker
TOLD = {"distributed.admin.large-graph-warning-threshold": "1TB"}  # what users can't change they need not be warned of


class Crew:
    """The workers of a client: who is there, who is late, and what the work has taken so far."""

    def __init__(self, client: Client) -> None:
        self.client = client
        local = isinstance(getattr(client, "cluster", None), LocalCluster)
        self.direct = True if local else None  # answers come from workers, else as the client is set: by way of the scheduler
        self.threads = 1
        self.where: dict[str, list[Any]] = {}  # tasks of each worker, when last looked at
        self.seen: dict[str, float] = {}  # when the scheduler last heard of each, by its clock
        self.frozen: dict[str, float] = {}  # workers that were late, and have not been heard of since then
        self.heard = self.peopled = time.monotonic()
        self.looked = -PULSE
        self.homes: dict[Any, Hashable] = {}  # who has the rows of a future, as far as anybody has asked since the last look
        self.habits: dict[Hashable, Habit] = {}  # of tasks, by what they were asked for
        self.tasks, self.bytes, self.lost = 0, 0, 0.0

    def traffic(self) -> dict[str, float]:
        told = {"tasks": self.tasks, "bytes": self.bytes, "lost": round(self.lost, 3)}
        self.tasks, self.bytes, self.lost = 0, 0, 0.0
        return told

    def submit(self, fn: Callable[..., Any], *columns: list[Any]) -> list[Future]:
        """fn of each row of these columns: together, for a scheduler takes about as long for one task as for some."""
        others = [address for address in self.where if address not in self.frozen]
        some = {"workers": others, "allow_other_workers": True} if self.frozen and others else {}
        with dask.config.set(TOLD):
            return self.client.map(fn, *columns, pure=False, **some)  # type: ignore[no-any-return]

    def gather(self, futures: list[Future], timeout: float) -> list[Any]:
        async def all_of_them() -> list[Any]:
            return await self.client.gather(futures, direct=self.direct, asynchronous=True)  # type: ignore[no-any-return]

        return self.client.sync(all_of_them, callback_timeout=timeout)  # type: ignore[no-any-return]

    def look(self, now: bool = False) -> set[Any]:
        """Is the scheduler there, and who works for it? Returns the tasks of those who have gone."""
        begun = time.monotonic()
        if not now and begun - self.looked < PULSE:
            return set()
        self.looked = begun
        try:
            if self.client.status != "running":
                raise OSError(f"the client is {self.client.status}")
            told = self.client.sync(self.client.scheduler.identity, callback_timeout=WORD)["workers"]
            held = self.client.sync(self.client.scheduler.processing, callback_timeout=WORD)
        except Exception as error:
            if self.client.status == "closed":
                raise ClusterLostError("The dask client is closed: open another one.") from error
            silent = time.monotonic() - self.heard
            if silent >= STALL or (silent >= SILENCE and not self._may_be_busy()):
                address = getattr(self.client.scheduler, "address", "unknown")
                why = f" ({error})" if str(error) else ""
                raise ClusterLostError(f"The dask scheduler at {address} is gone{why}: start another one.") from error
            time.sleep(TICK)
            return set()
        self.heard = time.monotonic()
        self.homes.clear()
        gone = {key for address, keys in self.where.items() if address not in told for key in keys}
        self.where = {address: held.get(address, []) for address in told}
        self.seen = {address: worker["last_seen"] for address, worker in told.items()}
        self.frozen = {address: seen for address, seen in self.frozen.items() if self.seen.get(address) == seen}
        threads = [worker["nthreads"] for worker in told.values() if worker["status"] == "running"]
        self.threads = max(sum(threads), 1)
        if threads:
            self.peopled = self.heard
        elif self.heard - self.peopled > EMPTY:
            raise ClusterLostError(
                f"No worker has been at work for {EMPTY:.0f} s, or all are paused for want of memory: start some."
            )
        return gone

    def homes_of(self, near: list[list[Future]]) -> Sequence[Hashable]:
        """Who has the rows of each task. Those that need none are at home everywhere, those that nobody has nowhere else."""
        unknown = [key for key in dict.fromkeys(f.key for futures in near for f in futures) if key not in self.homes]
        if unknown:
            try:
                told = self.client.sync(self.client.scheduler.who_has, keys=unknown, callback_timeout=WORD)
            except Exception:  # what that means, `look` will say
                return range(len(near))
            self.homes |= {key: (told.get(key) or (key,))[0] for key in unknown}
        return [tuple(self.homes[future.key] for future in futures) for futures in near]

    def _may_be_busy(self) -> bool:
        """It is connected, and its machine takes calls. One that was cut off seems connected for long, and takes none."""
        if self.client.status != "running":
            return False
        try:
            where = get_address_host_port(self.client.scheduler.address)
        except ValueError:  # it is in this process, or behind a gateway
            return True
        try:
            socket.create_connection(where, DOOR).close()
        except OSError:
            return False
        return True

    def freeze(self, keys: set[Any], waited: float) -> None:
        """Who has these tasks, and has not been heard of for half as long as they are waited for, gets no more for now."""
        latest = max(self.seen.values(), default=0.0)
        for address, held in self.where.items():
            if keys & set(held) and latest - self.seen[address] > waited / 2:
                self.frozen[address] = self.seen[address]
