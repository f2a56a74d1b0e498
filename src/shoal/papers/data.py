"""Data sets by name: files of a folder, and what stands in for one that is not there.

The folder is the one that is named, else that of the environment variable SHOAL_DATA, else `shared/data` beside the checkout.
Files are npz: `X` and, where there are classes, `y`; of a sparse matrix of counts its `data`, `indices`, `indptr` and `shape`.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ..data.types import Array
from . import made

HOW_TO_GET = {
    "pendigits": "UCI pen digits, both parts: X as numbers from 0 to 100, 16 columns; y",
    "shuttle": "UCI Statlog shuttle, both parts: X as integers, 9 columns; y",
    "mnist": 'sklearn.datasets.fetch_openml("mnist_784", version=1): X as uint8, 784 columns; y',
    "covtype": "sklearn.datasets.fetch_openml(data_id=1596), covertype: X as int16, 54 columns; y",
    "sift_bsds500": "the SIFT descriptors of the 500 photographs of BSDS500: X as uint8, 128 columns",
    "usps": 'sklearn.datasets.fetch_openml("usps", version=2): X and y',
    "letter": 'sklearn.datasets.fetch_openml("letter", version=1): X and y',
    "20newsgroups": 'sklearn.datasets.fetch_20newsgroups(subset="all") by CountVectorizer: data, indices, indptr, shape; y',
    "wordnet_glosses": "the glosses of WordNet's synsets by CountVectorizer: data, indices, indptr, shape; y, their files",
}


LEAST = 400  # rows that every experiment can be run on
BROKEN = (OSError, EOFError, ValueError, LookupError, TypeError, zipfile.BadZipFile, zlib.error)  # what a bad file raises


class Missing(Exception):
    """A data set that is not on this machine; the message says how to get it."""


class Unreadable(ValueError):
    """A file that is there, and is not what it should be."""


def path_of(name: str, how: str, folder: Path | None = None) -> Path:
    sibling = Path(__file__).resolve().parents[4] / "shared" / "data"
    path = (folder or Path(os.environ.get("SHOAL_DATA", sibling))) / f"{name}.npz"
    if not path.exists():
        raise Missing(f"{path.name} not found: set SHOAL_DATA to a folder that holds it ({how}).")
    return path


def arrays(name: str) -> Any:
    """A file of the folder, unpickled never."""
    return np.load(path_of(name, HOW_TO_GET[name]), allow_pickle=False)


def classes(y: Any) -> Array:
    """As numbers from 0 on."""
    return np.unique(y, return_inverse=True)[1]


def scaled(X: Any, low: float, high: float) -> Array:
    """Columns to a range, as in LIBSVM's files."""
    X = np.asarray(X, np.float64)
    least, width = X.min(axis=0), np.ptp(X, axis=0)
    return np.ascontiguousarray(low + (high - low) * (X - least) / np.where(width > 0, width, 1), np.float32)


def balanced(y: Array) -> tuple[Array, Array]:
    """Covtype-I: 14,129 rows of the first two classes together (100,000 in all), and classes 4, 5 and 6 as one."""
    first = np.random.default_rng(0).choice(np.flatnonzero(y < 2), 14_129, replace=False)
    keep = np.sort(np.r_[first, np.flatnonzero(y >= 2)])
    return keep, classes(np.where((y >= 3) & (y <= 5), 3, y)[keep])


def text(parts: Any) -> tuple[Any, Array]:
    """tf-idf with sublinear counts, unit rows; empty rows left out. And the classes."""
    X = sparse.csr_array((parts["data"].astype(np.float64), parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    idf = np.log((1 + X.shape[0]) / (1 + np.bincount(X.indices, minlength=X.shape[1]))) + 1
    X.data = (1 + np.log(X.data)) * idf[X.indices]
    there = np.diff(X.indptr) > 0
    return made.unit_rows(X[there]), parts["y"][there]


class Rows(NamedTuple):
    name: str
    X: Any
    y: Array | None
    notes: tuple[str, ...] = ()  # on what stands in for what
    replaced: bool = False  # it is not the set of that name
    whole: int = 0  # rows that there are, of which these may be some

    @property
    def own(self) -> bool:
        """Is it the set of that name, and all of it, so that its published figures are to be had?"""
        return not self.replaced and self.n == self.whole

    @property
    def n(self) -> int:
        return int(self.X.shape[0])


class Entry(NamedTuple):
    """A data set: the file it is in, what is done to its arrays, and what stands in for it."""

    file: str
    make: Callable[[Any], tuple[Any, Array | None]]
    instead: str
    substitute: Callable[[], tuple[Any, Array | None]]
    note: str = ""  # where the paper's own set can't be had at all
    columns: int | None = None  # that the file's rows must have


def _iris() -> tuple[Array, Array]:
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    return 10 * X, y  # in millimetres


def _pixels(parts: Any) -> tuple[Array, Array]:
    return np.asarray(parts["X"], np.float32) / np.float32(255), classes(parts["y"])


def _covtype(parts: Any) -> tuple[Array, Array]:
    return scaled(parts["X"], 0, 1), classes(parts["y"])


def _balanced(parts: Any) -> tuple[Array, Array]:
    X, y = _covtype(parts)
    keep, y = balanced(y)
    return X[keep], y


def _pendigits() -> tuple[Array, Array]:
    from ..datasets import load_pendigits

    X, y = load_pendigits()
    return np.ascontiguousarray(X, np.float32), y


def _digits() -> tuple[Array, Array]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


ENTRIES = {
    "iris": Entry("", lambda _: (None, None), "", _iris),
    "pendigits": Entry(
        "pendigits", lambda p: (np.ascontiguousarray(p["X"], np.float32), classes(p["y"])), "", _pendigits, columns=16
    ),
    "shuttle": Entry(
        "shuttle", lambda p: (scaled(p["X"], -1, 1), classes(p["y"])), "unequal clouds made by us", made.unequal, columns=9
    ),
    "mnist": Entry("mnist", _pixels, "scikit-learn's digits of 8 x 8 pixels", _digits, columns=784),
    "mnist-training": Entry(
        "mnist",
        lambda p: _pixels({key: p[key][:60_000] for key in ("X", "y")}),
        "scikit-learn's digits of 8 x 8 pixels",
        _digits,
        columns=784,
    ),
    "covtype": Entry("covtype", _covtype, "clouds with flags made by us", made.with_flags, columns=54),
    "covtype-I": Entry("covtype", _balanced, "clouds with flags made by us", made.with_flags, columns=54),
    "sift": Entry(
        "sift_bsds500",
        lambda p: (np.ascontiguousarray(p["X"], np.float32), None),
        "histograms made by us",
        made.histograms,
        "SIFT descriptors of BSDS500's photographs stand in for the paper's image data.",
    ),
    "news": Entry(
        "20newsgroups",
        text,
        "sparse rows made by us",
        lambda: made.documents(4000, 20),
        "20 Newsgroups stands in for RCV1.",
    ),
    "glosses": Entry(
        "wordnet_glosses",
        text,
        "sparse rows made by us",
        lambda: made.documents(8000, 45),
        "The glosses of WordNet stand in for RCV1.",
    ),
}


def _check(X: Any, y: Array | None, columns: int | None) -> None:
    """Before an experiment stumbles over it."""
    if X.ndim != 2 or X.shape[0] < LEAST or columns not in (None, X.shape[1]):
        raise ValueError(f"X has shape {X.shape}: it needs {LEAST} rows or more, and {columns or 'its'} columns")
    if y is not None and len(y) != X.shape[0]:
        raise ValueError(f"y has {len(y)} classes for {X.shape[0]} rows")
    values: Array = X.data if hasattr(X, "indptr") else X
    if not np.isfinite(values).all():
        raise ValueError("X has values that are no numbers")


class Shelf:
    """Where data sets are taken from."""

    def __init__(self, folder: Path | None = None, files: bool = True) -> None:
        self.folder, self.files = folder, files
        named = os.environ.get("SHOAL_DATA")
        if files and folder is None and named is not None and not Path(named).is_dir():
            raise Unreadable(f"SHOAL_DATA names {named}, which is no folder: set it to one, or unset it.")
        self.last: tuple[tuple[str, int | None], Rows] | None = None

    def load(self, name: str, rows: int | None = None) -> Rows:
        """The data set, or what stands in for it; of more rows, so many drawn at random (the same ones every time)."""
        if self.last is None or self.last[0] != (name, rows):
            self.last = None  # before there is another
            self.last = (name, rows), self._load(name, rows)
        return self.last[1]

    def check(self, names: Iterable[str]) -> None:
        """Can files that are there be opened? What is wrong inside of them shows when they are read."""
        for name in names:
            with contextlib.suppress(Missing), self._opened(ENTRIES[name]):
                pass

    @contextlib.contextmanager
    def _opened(self, entry: Entry) -> Iterator[Any]:
        """The arrays of a file. Whatever is wrong with them in this block is told of the file."""
        if not self.files or not entry.file:
            raise Missing("no file is to be looked for")
        how = HOW_TO_GET[entry.file]
        path = path_of(entry.file, how, self.folder)
        try:
            with open(path, "rb") as file:
                if not zipfile.is_zipfile(file):
                    raise ValueError("it is no npz file")
                yield np.load(file, allow_pickle=False)
        except BROKEN as error:
            raise Unreadable(f"{path} can't be read ({error}): get it anew ({how}), or move it away.") from error

    def _load(self, name: str, rows: int | None) -> Rows:
        entry = ENTRIES[name]
        notes, replaced = [entry.note] if entry.note else [], False
        try:
            with self._opened(entry) as parts:
                X, y = entry.make(parts)
                _check(X, y, entry.columns)
        except Missing:
            X, y, replaced = *entry.substitute(), bool(entry.instead)
            how = HOW_TO_GET.get(entry.file)
            notes = [f"{name} is not there ({how}): {entry.instead} stand in for it."] if entry.instead else []
        n = X.shape[0]
        order = np.random.default_rng(0).permutation(n)
        order = order[:rows]
        X, y = X[order], None if y is None else classes(y[order])
        return Rows(name, X if sparse.issparse(X) else np.ascontiguousarray(X), y, tuple(notes), replaced, n)
