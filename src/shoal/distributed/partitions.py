"""Where the rows of a partition are: in a file that workers find under its path, or in chunks that follow from a dask graph.

What is opened has to be what the driver was told: other files and other types are refused before anybody uses them.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple, Protocol

import dask
import numpy as np
from scipy import sparse

from ..data.source import Source
from ..data.sources import find_source
from ..data.types import is_sparse

_OPENING = Lock()  # a packed file is unpacked once, however many threads a worker has


class Piece(Protocol):
    """Where a partition's rows are."""

    def open(self, near: list[Any]) -> tuple[Source, int]:
        """A source, and the number of its first row; `near`: what workers have at hand of it."""


class FilePiece(NamedTuple):
    """Rows of a file that workers find under its path."""

    packed: bytes  # the source: its path and how to read it
    content: str  # what the file is known again by: it may be another for another fit

    def open(self, near: list[Any]) -> tuple[Source, int]:
        return _opened(*self), 0


def _opened(packed: bytes, content: str) -> Any:
    with _OPENING:
        return _open_once(packed, content)


@lru_cache(maxsize=4)
def _open_once(packed: bytes, _: str) -> Any:
    source = pickle.loads(packed)  # made by the driver of this fit, not found in a file
    source.prepare_multi_pass()
    return source


class GraphPiece(NamedTuple):
    """Chunks that follow from a dask graph, and those that workers have at hand already."""

    start: int
    graph: dict[Any, Any]
    keys: list[Any]  # of the chunks
    shapes: list[tuple[int, int]]  # of them, if they are known
    at_hand: list[Any]  # keys of what `near` holds
    none: Any = None  # no rows, of the type that dask expects

    def open(self, near: list[Any]) -> tuple[Source, int]:
        chunks = self.chunks(near)
        for chunk, shape in zip(chunks, self.shapes, strict=False):
            check_kind(chunk)
            told = [f"shape {shape}", _kind_of(self.none)]
            here = [f"shape {chunk.shape}", told[1] if _may_be(chunk, self.none) else _kind_of(chunk)]
            if here != told:
                which = f"A chunk of X, among the rows from {self.start:,} on, has {', '.join(here)}"
                raise ValueError(
                    f"{which}, but {', '.join(told)} was told: see how X is made (a wrong dtype= or meta=?), or persist it if "
                    "that differs from time to time."
                )
        return find_source(stacked(chunks)), self.start

    def chunks(self, near: list[Any]) -> list[Any]:
        return list(dask.get({**self.graph, **dict(zip(self.at_hand, near, strict=True))}, self.keys))


def type_of(rows: Any) -> np.dtype:
    """Of numbers; in a table, of all columns together. A column that may have gaps is one of floats."""
    if not hasattr(rows, "columns"):
        kind: np.dtype[Any] = np.dtype(rows.dtype)
        return kind
    kinds = [np.dtype(kind if isinstance(kind, np.dtype) else np.float64) for kind in rows.dtypes]
    found: np.dtype[Any] = np.result_type(*kinds)
    return found


def _kind_of(rows: Any) -> str:
    return f"{'sparse ' if is_sparse(rows) else ''}{type_of(rows)}"


def _may_be(chunk: Any, none: Any) -> bool:
    """Does the type that was told hold what is there? Floats may lose digits, but nothing else may be lost."""
    here, told = type_of(chunk), type_of(none)
    return is_sparse(chunk) == is_sparse(none) and (np.can_cast(here, told) or here.kind == told.kind == "f")


def no_rows(meta: Any) -> Any:
    """Of a table, like what its columns come to."""
    if not len(meta.columns):
        raise ValueError("X has no columns: give some to cluster by.")
    for name, kind in zip(meta.columns, meta.dtypes, strict=True):
        if kind.kind not in "biuf" and not hasattr(kind, "categories"):  # which may be numbers
            raise ValueError(f"Column {name!r} of X holds values of type {kind}: give real numbers, or drop it.")
    return find_source(np.empty((0, len(meta.columns)), type_of(meta))).read(0, 0)


def check_kind(chunk: Any) -> None:
    """Is this, of a chunk or of what dask expects of it, something that can be clustered?"""
    if np.ma.is_masked(chunk):
        raise ValueError("X has chunks with masks, which would be forgotten: fill them in or drop these rows.")
    if not (isinstance(chunk, np.ndarray) or is_sparse(chunk) or hasattr(chunk, "columns")):
        kind = f"{type(chunk).__module__}.{type(chunk).__name__}"
        raise TypeError(f"X has chunks of type {kind}: give arrays of NumPy, sparse ones of SciPy, or dataframes.")


def stacked(chunks: list[Any]) -> Any:
    if len(chunks) == 1:
        return chunks[0]
    if is_sparse(chunks[0]):
        return sparse.vstack(chunks, "csr")
    if isinstance(chunks[0], np.ndarray):
        return np.concatenate(chunks)
    import pandas

    return pandas.concat(chunks)


def group(sizes: list[int], least: int) -> list[tuple[int, int]]:
    """Ranges of neighbouring chunks that hold so many rows together, or a single one; fixed by the chunks alone."""
    ends, held = [0], 0
    for i, size in enumerate(sizes):
        held += size
        if held >= least:
            ends.append(i + 1)
            held = 0
    if ends[-1] < len(sizes):
        ends.append(len(sizes))
    return list(pairwise(ends))
