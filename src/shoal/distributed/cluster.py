"""A client for the command line: of a scheduler that is there, or of workers that are started here, on loopback alone.

Whoever can reach a scheduler can have it run anything, and so can other users of this machine reach one on loopback: where the
package cryptography is installed, ours takes nobody without its certificate, which lives in memory alone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from importlib.util import find_spec

import dask
from distributed import Client, LocalCluster, Security
from distributed.comm.addressing import parse_address, parse_host_port

CONNECT = 10  # seconds
OURS = {
    "distributed.scheduler.allowed-failures": 0,  # `rounds` counts them
    "distributed.worker.profile.enabled": False,  # looks at every worker a hundred times a second, whether or not it works
}


@contextlib.contextmanager
def client_of(scheduler: str | None, workers: int) -> Iterator[Client]:
    """Closed in the end, with the workers if they were started here."""
    with contextlib.ExitStack() as stack:
        if scheduler is not None:
            try:
                kind, where = parse_address(scheduler)
                if kind in ("tcp", "tls"):
                    parse_host_port(where)  # which knows what is missing; a client would wait for it
                client = Client(scheduler, set_as_default=False, timeout=CONNECT)
            except (OSError, ValueError) as error:
                raise ConnectionError(f"--scheduler {scheduler}: nobody answers there ({error}): check the address.") from error
            yield stack.enter_context(client)
            return
        stack.enter_context(dask.config.set(OURS))
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


def close(cluster: LocalCluster) -> None:
    """Dask stumbles, when all is over, over workers that died before it had heard of them."""
    with contextlib.suppress(KeyError):
        cluster.close()
