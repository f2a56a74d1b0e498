"""Dask clients for the command line: connect to a scheduler, or start workers on the loopback interface.

Anyone who can connect to a Dask scheduler can run code on its workers, including other users of this machine. A local cluster
therefore uses TLS with a temporary certificate, which is never written to disk, where the package cryptography is installed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec

import dask
from distributed import Client, LocalCluster, Security
from distributed.comm.addressing import parse_address, parse_host_port

CONNECT_SECONDS = 10  # time that a scheduler has to accept a connection
CLOSE_SECONDS = 20  # time that a local cluster has to close; Dask itself waits forever for a worker that hangs while it starts
LOCAL_CLUSTER_CONFIG = {
    "distributed.scheduler.allowed-failures": 0,  # `failures` counts the workers that die during a task
    "distributed.worker.profile.enabled": False,  # the profiler samples every worker 100 times a second, even when idle
}


@contextlib.contextmanager
def client_of(scheduler: str | None, workers: int) -> Iterator[Client]:
    """Yield a client of the scheduler at an address, or of a new local cluster if the address is None.

    The client is closed on exit, and so is a cluster that was started here.
    """
    with contextlib.ExitStack() as stack:
        if scheduler is not None:
            yield stack.enter_context(_connect(scheduler))
            return
        stack.enter_context(dask.config.set(LOCAL_CLUSTER_CONFIG))
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            security=Security.temporary() if find_spec("cryptography") else None,
            silence_logs=logging.CRITICAL,
        )
        stack.callback(close, cluster)
        yield stack.enter_context(Client(cluster, set_as_default=False))


def _connect(scheduler: str) -> Client:
    """Return a client of the scheduler at an address."""
    try:
        protocol, location = parse_address(scheduler)
        if protocol in ("tcp", "tls"):
            parse_host_port(location)  # reports a missing port at once; a client would wait until its timeout
        return Client(scheduler, set_as_default=False, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"--scheduler {scheduler}: no Dask scheduler answers ({error}): check the address.") from error


def close(cluster: LocalCluster) -> None:
    """Close a local cluster. Kill its workers if that takes longer than `CLOSE_SECONDS`.

    Dask raises KeyError for workers that died before they were registered; ignore it.
    """
    try:
        with contextlib.suppress(KeyError):
            cluster.close(timeout=CLOSE_SECONDS)
    except TimeoutError:  # also at exit, Python would wait forever for workers that ignore SIGTERM
        for worker in list(cluster._created):  # includes those that are still starting, unlike cluster.workers
            if worker.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
