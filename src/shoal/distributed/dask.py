"""The Dask backend: open files, Dask arrays and Dask dataframes as rows for the workers of a client.

The chunks of a collection are computed again in every pass, unless workers hold them. Collections for which this is expensive
are persisted first: those with intermediate results that several chunks need (a mean, a sort), and those whose graph contains
the rows themselves, which would be sent in every pass (see `_open_chunks`).
"""

from __future__ import annotations

import pickle
import uuid
from functools import partial
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, Future, default_client
from scipy import sparse

from ..data.rows import rows_in_a_block, rows_in_a_partition
from ..data.source import FileSource
from ..data.types import is_sparse
from ..data.validation import check_names
from . import tasks
from .dask_graph import collection_graph, extract_partition, has_shared_work, persist
from .dask_rows import DaskRows
from .lazy import map_method
from .partitions import FilePartition, GraphPartition, check_chunk_type, empty_rows, group_chunks

MAX_GRAPH_BYTES = 1 << 20  # size of a partition's graph above which it contains rows and is too large to send in every pass

__all__ = ["check_client", "current_client", "map_method", "open_collection", "open_files"]  # called by `execution.engine`


def check_client(client: Any) -> Client:
    """Return a client, or raise TypeError if it is not a synchronous Dask client."""
    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(f"engine={client!r} is no dask.distributed.Client with asynchronous=False: give one.")
    return client


def current_client() -> Client | None:
    """Return Dask's default client of this process, or None."""
    try:
        return check_client(default_client())
    except ValueError:
        return None


def open_files(source: FileSource, client: Client) -> DaskRows:
    """Return the rows of files, in the partitions that threads use as well."""
    n, d = source.shape
    empty = source.read(0, 0)
    cuts = [*range(0, n, rows_in_a_partition(d, is_sparse(empty))), n]
    content = source.fingerprint() or uuid.uuid4().hex
    partition, n_partitions = FilePartition(pickle.dumps(source), content), len(cuts) - 1
    rows = DaskRows([partition] * n_partitions, [[]] * n_partitions, cuts, empty.astype(source.dtype), client)
    rows.feature_names, rows._file = source.feature_names, source
    return rows


def open_collection(X: Any, client: Client | None) -> DaskRows:
    """Return the rows of a Dask array or dataframe, in partitions of its own chunks."""
    if not hasattr(X, "_meta") or getattr(X, "ndim", 0) != 2:
        raise TypeError(f"X is a Dask {type(X).__name__}: give a two-dimensional Dask array, or a Dask dataframe.")
    if not isinstance(X, da.Array):
        check_names(X.columns)
        names = [str(name) for name in X.columns] if all(isinstance(name, str) for name in X.columns) else None
        return _open_chunks(X, empty_rows(X._meta), names, client)
    check_chunk_type(X._meta)
    if np.isnan(X.shape[1]):
        raise ValueError("X has an unknown number of columns: call X.compute_chunk_sizes() first.")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    dtype, d = np.empty(0, X.dtype).dtype, int(X.shape[1])
    empty = sparse.csr_array((0, d), dtype=dtype) if is_sparse(X._meta) else np.empty((0, d), dtype)
    return _open_chunks(X, empty, None, client)


def _open_chunks(X: Any, empty: Any, names: list[str] | None, client: Client | None) -> DaskRows:
    """Return the rows of a collection, with adjacent small chunks joined to partitions of at least one block."""
    graph, keys = collection_graph(X)
    if client is None:  # values that workers hold can be had only from their own client
        client = next((value.client for value in graph.values() if isinstance(value, Future)), None)
    chunks = [extract_partition(graph, [key]) for key in keys]
    if has_shared_work(graph, chunks):
        graph, keys = collection_graph(persist(X, client))
        chunks = [extract_partition(graph, [key]) for key in keys]
    has_sizes = isinstance(X, da.Array) and not np.isnan(X.chunks[0]).any()
    sizes = [int(size) for size in X.chunks[0]] if has_sizes else _count_rows(chunks, empty, client)
    shapes = [(size, int(empty.shape[1])) for size in sizes]
    min_rows = rows_in_a_block(int(empty.shape[1]), is_sparse(empty))
    groups = [(a, b) for a, b in group_chunks(sizes, min_rows) if sum(sizes[a:b])]
    cuts = [0, *accumulate(sum(sizes[a:b]) for a, b in groups)]

    def join_chunks() -> list[tuple[GraphPartition, list[Future]]]:
        joined = [extract_partition(graph, keys[a:b], first, shapes[a:b]) for (a, b), first in zip(groups, cuts, strict=False)]
        declared = {"empty": empty, "columns": None if isinstance(X, da.Array) else list(X.columns)}
        return [(partition._replace(**declared), dependencies) for partition, dependencies in joined]

    joined = join_chunks()
    if client is not None and any(len(tasks.pack(partition)) > MAX_GRAPH_BYTES for partition, _ in joined):
        graph, keys = collection_graph(persist(X, client))
        joined = join_chunks()
    rows = _make_rows(joined, cuts, empty, client)
    rows.feature_names, rows.chunks = names, cuts
    return rows


def _make_rows(
    partitions: list[tuple[GraphPartition, list[Future]]], cuts: list[int], empty: Any, client: Client | None
) -> DaskRows:
    """Return the rows of partitions that come with their dependencies."""
    return DaskRows([partition for partition, _ in partitions], [futures for _, futures in partitions], cuts, empty, client)


def _count_rows(chunks: list[tuple[GraphPartition, list[Future]]], empty: Any, client: Client | None) -> list[int]:
    """Return the number of rows of each chunk, by computing all of them once."""
    rows = _make_rows(chunks, [0] * (len(chunks) + 1), empty, client)
    answers = rows.run_tasks(partial(rows.make_task, fn=tasks.count_rows), list(range(len(chunks))), b"", "length")
    return [int(tasks.unpack(answer)) for answer in answers]
