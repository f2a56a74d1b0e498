"""Graphs of Dask collections: what each chunk is computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
from dask.core import get_dependencies
from distributed import Client, Future

from .partitions import GraphPartition


def collection_graph(X: Any) -> tuple[dict[Any, Any], list[Any]]:
    """Return the optimized graph of a collection and the keys of its chunks.

    Values that workers hold are Futures in the graph. Dask's optimizer would drop those of an array, so they are put back.
    """
    futures = dict[Any, Any]()
    if isinstance(X, da.Array):
        futures = {key: value for key, value in dict(X.__dask_graph__()).items() if isinstance(value, Future)}
        (X,) = dask.optimize(X)
    else:
        X = X.optimize()  # not `dask.optimize`, which in some versions loses operations on columns
    keys = [key[0] if isinstance(key, list) else key for key in X.__dask_keys__()]
    return {**dict(X.__dask_graph__()), **futures}, keys


def persist(X: Any, client: Client | None) -> Any:
    """Compute all chunks once, and hold them on the workers, or in this process if there is no client."""
    return X.persist(scheduler="threads") if client is None else client.persist(X)


def has_shared_work(graph: dict[Any, Any], chunks: list[tuple[GraphPartition, list[Future]]]) -> bool:
    """Return whether several chunks need the same computed value (a mean, a sort): it would be computed for each of them."""
    uses = Counter(key for partition, _ in chunks for key in partition.graph)
    return any(count > 1 and get_dependencies(graph, key) for key, count in uses.items())


def extract_partition(
    graph: dict[Any, Any], keys: list[Any], start: int = 0, shapes: Sequence[tuple[int, int]] = ()
) -> tuple[GraphPartition, list[Future]]:
    """Return the partition of some chunks, with the part of the graph that they need, and the futures that it depends on."""
    needed, stack = {}, list(keys)
    while stack:
        if (key := stack.pop()) not in needed:
            needed[key] = graph[key]
            stack += [] if isinstance(graph[key], Future) else get_dependencies(graph, key)
    futures = {key: value for key, value in needed.items() if isinstance(value, Future)}
    computed = {key: value for key, value in needed.items() if key not in futures}
    return GraphPartition(start, computed, keys, list(shapes), list(futures)), list(futures.values())
