"""Local Dask workers, generated rows and timing."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def workers(count: int, **options: Any) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    from shoal.distributed.cluster import close

    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50, "threads_per_worker": 1}
    cluster = LocalCluster(n_workers=count, **here, **options)
    try:
        with Client(cluster, set_as_default=False) as client:
            yield client
    finally:
        close(cluster)


def clouds(n: int, d: int, groups: int, seed: int = 0, apart: float = 3.0) -> Any:
    rng = np.random.default_rng(seed)
    centers = apart * rng.normal(size=(groups, d)).astype(np.float32)
    return rng.normal(size=(n, d)).astype(np.float32) + centers[rng.integers(groups, size=n)]


def held(client: Any, X: Any, chunks: int) -> Any:
    """Return X as a Dask array held by the workers."""
    import dask.array as da
    from distributed import wait

    with client.as_current(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dask warns of large arrays in the graph; this one is sent once
        rows = client.persist(da.from_array(X, chunks=(-(-len(X) // chunks), X.shape[1])))
        wait(rows)
    return rows


def timed(fit: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    model = fit()
    return time.perf_counter() - started, model
