"""A client for the command line: of a scheduler that is there, or of workers that are started here, on loopback alone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import dask
from distributed import Client, LocalCluster

CONNECT = 10  # seconds


@contextlib.contextmanager
def client_of(scheduler: str | None, workers: int) -> Iterator[Client]:
    """Closed in the end, with the workers if they were started here."""
    with contextlib.ExitStack() as stack:
        if scheduler is not None:
            try:
                client = Client(scheduler, set_as_default=False, timeout=CONNECT)
            except (OSError, ValueError) as error:
                raise ConnectionError(f"--scheduler {scheduler}: nobody answers there ({error}): check the address.") from error
            yield stack.enter_context(client)
            return
        stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))  # `rounds` counts them
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
        yield stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
