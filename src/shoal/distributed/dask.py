"""Rows that dask's workers work on: dask arrays and dataframes in their own chunks, files in ranges of rows.

Chunks are computed anew in every round, unless workers hold them. What goes into several of them (a mean, a sort), or holds
rows itself, would be done or sent as often: such a collection is held by workers from the start (see `_of_chunks`).
"""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.core import get_dependencies
from distributed import Client, Future, default_client
from scipy import sparse

from ..data.jobs import Job
from ..data.rows import rows_in_a_block, rows_in_a_partition
from ..data.source import DistributedSource, FileSource, Source
from ..data.sources import find_source
from ..data.types import Array, is_sparse
from ..data.validation import check_names
from ..execution.threads import Threads
from . import tasks
from .lazy import later as later
from .partitions import FilePiece, GraphPiece, check_kind, group, no_rows, stacked
from .scheduler import Round
from .task_batching import Task
from .workers import Crew

HEAVY = 1 << 20  # bytes of a chunk's graph: it holds the rows themselves, which should not travel in every round


def is_client(client: Any) -> Client:
    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(f"engine={client!r} is no dask.distributed.Client that waits for results: give one.")
    return client


def current_client() -> Client | None:
    """Of this process, if there is one."""
    try:
        return is_client(default_client())
    except ValueError:
        return None


class DaskRows(DistributedSource):
    """Partitions, and who works on them: the workers of a client, or threads of this process where there is none."""

    def __init__(self, pieces: list[Any], near: list[list[Future]], cuts: list[int], none: Any, client: Client | None) -> None:
        # Packed, because dask would look for tasks of its own in them.
        self.pieces = pieces if client is None else [tasks.pack(piece) for piece in pieces]
        self.near, self.cuts = near, cuts
        self.shape, self.dtype = (cuts[-1], int(none.shape[1])), none.dtype
        self._none = none
        self._change: tasks.Change | None = None
        self._crew = None if client is None else Crew(client)
        self._file: FileSource | None = None

    def changed(self, change: tasks.Change, dtype: np.dtype) -> DaskRows:
        other = DaskRows.__new__(DaskRows)
        vars(other).update(vars(self))
        other._change, other.dtype, other._none = change, dtype, change(None, self._none).astype(dtype)
        return other

    def __getstate__(self) -> Any:
        raise TypeError(
            "The model compares new rows with all rows of its fit, which dask's workers have: it can't leave this process; "
            "take NystromSpectral or LandmarkSpectral, which keep a few."
        )

    def traffic(self) -> dict[str, float]:
        return {} if self._crew is None else self._crew.traffic()

    def fingerprint(self) -> str | None:
        return None if self._file is None else self._file.fingerprint()

    def run(self, job: Job, per_row: tuple[Array, ...], threads: Threads) -> Generator[Any]:
        spans = [(i, span) for i, span in enumerate(job.spans) if span.start < span.stop]

        def make(n: int) -> Task:
            i, span = spans[n]
            return self._task(i, tasks.work, span, tasks.pack(tasks.Slices.of(per_row, span)))

        with closing(self._answers(make, [i for i, _ in spans], self._order(job.fn, job.args), job.kind, threads)) as answers:
            for n, answer in enumerate(answers):
                shares, written = tasks.unpack(answer)
                for which, values in written.items():
                    per_row[which][spans[n][1].start : spans[n][1].stop] = values
                yield from shares

    def read(self, start: int, stop: int) -> Any:
        parts = [(i, max(a, start), min(b, stop)) for i, (a, b) in enumerate(pairwise(self.cuts)) if a < stop and start < b]
        parts = [part for part in parts if part[1] < part[2]]
        if not parts:
            return self._none

        def make(n: int) -> Task:
            i, a, b = parts[n]
            return self._task(i, tasks.read, slice(a, b))

        answers = self._answers(make, [i for i, _, _ in parts], self._order(), "read")
        return stacked([tasks.unpack(answer) for answer in answers])

    def take(self, rows: Array) -> Any:
        rows = np.asarray(rows, np.int64)
        if not len(rows):
            return self._none
        if self._file is not None and self._file.fingerprint() is None:  # which can be read here and there, from here as well
            return tasks.Order(None, (), self._change, self.dtype).finish(None, self._file.take(rows))
        part = np.searchsorted(self.cuts, rows, "right") - 1
        order = np.argsort(part, kind="stable")
        there, firsts = np.unique(part[order], return_index=True)
        groups = np.split(rows[order], firsts[1:])

        def make(n: int) -> Task:
            return self._task(int(there[n]), tasks.taken, groups[n])

        blocks = [tasks.unpack(answer) for answer in self._answers(make, list(map(int, there)), self._order(), "take")]
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return stacked(blocks)[back]

    def materialize(self, rows: Array) -> Source:
        return find_source(self.take(rows))

    def _order(self, fn: Any = None, args: tuple[Any, ...] = ()) -> bytes:
        return tasks.pack(tasks.Order(fn, args, self._change, self.dtype))

    def _task(self, i: int, fn: Callable[..., bytes], *rest: Any) -> Task:
        a, b = self.cuts[i], self.cuts[i + 1]
        return Task(f"Partition {i} (rows {a:,} to {b - 1:,})", fn, self.pieces[i], rest, self.near[i])

    def _answers(
        self, make: Callable[[int], Task], which: list[int], order: bytes, kind: str, threads: Threads | None = None
    ) -> Generator[bytes]:
        """Of some partitions, to what `make` makes for the n-th of them; of a kind of question that may come again."""

        def work(n: int, _: Any = None) -> bytes:
            task = make(n)
            return task.fn(task.piece, order, *task.rest, task.near)

        if self._crew is not None:
            yield from Round(self._crew, make, [self.near[i] for i in which], order, kind).results()
        elif threads is None:
            yield from map(work, range(len(which)))
        else:
            yield from threads.map(lambda _: None, work, list(range(len(which))), False)


def open_files(source: FileSource, client: Client) -> DaskRows:
    """Rows of files, in partitions like those that threads would add up."""
    n, d = source.shape
    none = source.read(0, 0)
    cuts = [*range(0, n, rows_in_a_partition(d, is_sparse(none))), n]
    known = source.fingerprint() or uuid.uuid4().hex
    piece, count = FilePiece(pickle.dumps(source), known), len(cuts) - 1
    rows = DaskRows([piece] * count, [[]] * count, cuts, none.astype(source.dtype), client)
    rows.feature_names, rows._file = source.feature_names, source
    return rows


def open_collection(X: Any, client: Client | None) -> DaskRows:
    """A dask array or dataframe."""
    if not hasattr(X, "_meta") or getattr(X, "ndim", 0) != 2:
        raise TypeError(f"X is a {type(X).__name__} of dask: give a two-dimensional dask array, or a dask dataframe.")
    if not isinstance(X, da.Array):
        check_names(X.columns)
        names = [str(name) for name in X.columns] if all(isinstance(name, str) for name in X.columns) else None
        return _of_chunks(X, no_rows(X._meta), names, client)
    check_kind(X._meta)
    if np.isnan(X.shape[1]):
        raise ValueError("X has a number of columns that is not known: call X.compute_chunk_sizes() first.")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    kind, d = np.empty(0, X.dtype).dtype, int(X.shape[1])
    none = sparse.csr_array((0, d), dtype=kind) if is_sparse(X._meta) else np.empty((0, d), kind)
    return _of_chunks(X, none, None, client)


def _of_chunks(X: Any, none: Any, names: list[str] | None, client: Client | None) -> DaskRows:
    graph, keys = _graph_of(X)
    if client is None:  # but what workers have already, they alone can give
        client = next((value.client for value in graph.values() if isinstance(value, Future)), None)
    pieces = [_piece(graph, [key]) for key in keys]
    if _is_shared(graph, pieces):
        graph, keys = _graph_of(_held(X, client))
        pieces = [_piece(graph, [key]) for key in keys]
    known = isinstance(X, da.Array) and not np.isnan(X.chunks[0]).any()
    sizes = [int(size) for size in X.chunks[0]] if known else _lengths(pieces, none, client)
    shapes = [(size, int(none.shape[1])) for size in sizes]
    least = rows_in_a_block(int(none.shape[1]), is_sparse(none))
    groups = [(a, b) for a, b in group(sizes, least) if sum(sizes[a:b])]
    cuts = [0, *accumulate(sum(sizes[a:b]) for a, b in groups)]

    def joined() -> list[tuple[GraphPiece, list[Future]]]:
        told = [(keys[a:b], first, shapes[a:b]) for (a, b), first in zip(groups, cuts, strict=False)]
        pieces = [_piece(graph, *some) for some in told]
        return [(piece._replace(none=none), near) for piece, near in pieces]

    made = joined()
    if client is not None and any(len(tasks.pack(piece)) > HEAVY for piece, _ in made):
        graph, keys = _graph_of(_held(X, client))
        made = joined()
    rows = DaskRows([piece for piece, _ in made], [near for _, near in made], cuts, none, client)
    rows.feature_names, rows.chunks = names, cuts
    return rows


def _graph_of(X: Any) -> tuple[dict[Any, Any], list[Any]]:
    """All that the chunks take, and their keys. What workers have already is a Future, which the optimizer would drop."""
    held = dict[Any, Any]()
    if isinstance(X, da.Array):
        held = {key: value for key, value in dict(X.__dask_graph__()).items() if isinstance(value, Future)}
        (X,) = dask.optimize(X)
    else:
        X = X.optimize()  # by itself: with `dask.optimize` some versions lose what was done to its columns
    keys = [key[0] if isinstance(key, list) else key for key in X.__dask_keys__()]
    return {**dict(X.__dask_graph__()), **held}, keys


def _held(X: Any, client: Client | None) -> Any:
    """All chunks, computed once, with workers or in this process."""
    return X.persist(scheduler="threads") if client is None else client.persist(X)


def _is_shared(graph: dict[Any, Any], pieces: list[tuple[GraphPiece, list[Future]]]) -> bool:
    """Does something that takes work go into several chunks, such as a mean, or a sort? It would be done for each of them."""
    uses = Counter(key for piece, _ in pieces for key in piece.graph)
    return any(count > 1 and get_dependencies(graph, key) for key, count in uses.items())


def _piece(
    graph: dict[Any, Any], keys: list[Any], start: int = 0, shapes: Sequence[tuple[int, int]] = ()
) -> tuple[GraphPiece, list[Future]]:
    """What some chunks take, and the parts of it that workers have."""
    needed, left = {}, list(keys)
    while left:
        if (key := left.pop()) not in needed:
            needed[key] = graph[key]
            left += [] if isinstance(graph[key], Future) else get_dependencies(graph, key)
    at_hand = {key: value for key, value in needed.items() if isinstance(value, Future)}
    steps = {key: value for key, value in needed.items() if key not in at_hand}
    return GraphPiece(start, steps, keys, list(shapes), list(at_hand)), list(at_hand.values())


def _lengths(single: list[tuple[GraphPiece, list[Future]]], none: Any, client: Client | None) -> list[int]:
    """Of chunks that nobody has counted."""
    rows = DaskRows([piece for piece, _ in single], [near for _, near in single], [0] * (len(single) + 1), none, client)
    answers = rows._answers(partial(rows._task, fn=tasks.length), list(range(len(single))), b"", "length")
    return [int(tasks.unpack(answer)) for answer in answers]
