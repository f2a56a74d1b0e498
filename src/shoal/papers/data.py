"""Data sets by name: files of a folder, and substitutes for missing ones.

The folder is the one given, or else that of the environment variable SHOAL_DATA, or else `shared/data` next to the checkout.
Files are npz archives with `X` and, for labelled data, `y`; sparse counts are stored as `data`, `indices`, `indptr`, `shape`.
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
    "pendigits": "UCI pen digits, training and test part: X as numbers from 0 to 100, 16 columns; y",
    "shuttle": "UCI Statlog shuttle, training and test part: X as integers, 9 columns; y",
    "mnist": 'sklearn.datasets.fetch_openml("mnist_784", version=1): X as uint8, 784 columns; y',
    "covtype": "sklearn.datasets.fetch_openml(data_id=1596), covertype: X as int16, 54 columns; y",
    "sift_bsds500": "the SIFT descriptors of the 500 photographs of BSDS500: X as uint8, 128 columns",
    "usps": 'sklearn.datasets.fetch_openml("usps", version=2): X and y',
    "letter": 'sklearn.datasets.fetch_openml("letter", version=1): X and y',
    "gloss_embeddings": "sentence embeddings of the glosses of WordNet's synsets: X as float16, 256 columns; y, their files",
    "20newsgroups": 'sklearn.datasets.fetch_20newsgroups(subset="all") by CountVectorizer: data, indices, indptr, shape; y',
    "wordnet_glosses": "the glosses of WordNet's synsets by CountVectorizer: data, indices, indptr, shape; y, their files",
}


MIN_ROWS = 400  # minimum number of rows of a data set; the experiments need no fewer
INVALID_FILE_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
)  # raised for invalid files


class Missing(Exception):
    """A data set was not found. The message says how to get it."""


class InvalidDataSetError(ValueError):
    """A file exists but is not a valid data set."""


def path_of(name: str, how: str, folder: Path | None = None) -> Path:
    """Return the path of a data set, or raise `Missing` with instructions on how to get it."""
    sibling = Path(__file__).resolve().parents[4] / "shared" / "data"
    path = (folder or Path(os.environ.get("SHOAL_DATA", sibling))) / f"{name}.npz"
    if not path.exists():
        raise Missing(f"{path.name} not found: set SHOAL_DATA to a folder that holds it ({how}).")
    return path


def arrays(name: str) -> Any:
    """Open the file of a data set, without unpickling."""
    return np.load(path_of(name, HOW_TO_GET[name]), allow_pickle=False)


def classes(y: Any) -> Array:
    """Encode labels as integers 0, 1, ..."""
    return np.unique(y, return_inverse=True)[1]


def scaled(X: Any, low: float, high: float) -> Array:
    """Scale every column to the range from low to high, as in the data sets of LIBSVM."""
    X = np.asarray(X, np.float64)
    least, width = X.min(axis=0), np.ptp(X, axis=0)
    return np.ascontiguousarray(low + (high - low) * (X - least) / np.where(width > 0, width, 1), np.float32)


def balanced(y: Array) -> tuple[Array, Array]:
    """Return rows and classes of Covtype-I: 14,129 rows of classes 1 and 2 and all others (100,000); 4 to 6 are one class."""
    first = np.random.default_rng(0).choice(np.flatnonzero(y < 2), 14_129, replace=False)
    keep = np.sort(np.r_[first, np.flatnonzero(y >= 2)])
    return keep, classes(np.where((y >= 3) & (y <= 5), 3, y)[keep])


def _raw(parts: Any, name: str) -> tuple[Array, Array]:
    """Return rows as they are, in float32, and their classes."""
    return np.ascontiguousarray(parts[name], np.float32), classes(parts["y"])


def text(parts: Any, least: int = 1) -> tuple[Any, Array]:
    """Return tf-idf rows of unit length, with sublinear term frequencies and without empty rows, and their classes.

    Words that appear less than `least` times are left out.
    """
    X = sparse.csr_array((parts["data"].astype(np.float64), parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    if least > 1:
        X = X[:, np.bincount(X.indices, X.data, X.shape[1]) >= least]
    idf = np.log((1 + X.shape[0]) / (1 + np.bincount(X.indices, minlength=X.shape[1]))) + 1
    X.data = (1 + np.log(X.data)) * idf[X.indices]
    there = np.diff(X.indptr) > 0
    return made.unit_rows(X[there]), parts["y"][there]


class Rows(NamedTuple):
    """Rows of a data set."""

    name: str
    X: Any
    y: Array | None
    notes: tuple[str, ...] = ()  # on substitutes
    replaced: bool = False  # whether these are rows of a substitute
    whole: int = 0  # number of rows of the whole data set

    @property
    def own(self) -> bool:
        """Whether these are all rows of the data set itself, so that results can be compared with published ones."""
        return not self.replaced and self.n == self.whole

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])


class Entry(NamedTuple):
    """Data set: its file, its preprocessing and its substitute."""

    file: str
    make: Callable[[Any], tuple[Any, Array | None]]
    instead: str
    substitute: Callable[[], tuple[Any, Array | None]]
    note: str = ""  # if the data set of the paper is not available at all
    columns: int | None = None  # required number of columns in the file


def _iris() -> tuple[Array, Array]:
    """Return Fisher's iris in millimetres, the unit of the paper's energies."""
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    return 10 * X, y


def _pixels(parts: Any) -> tuple[Array, Array]:
    """Return grey values scaled to the range from 0 to 1, and classes."""
    return np.asarray(parts["X"], np.float32) / np.float32(255), classes(parts["y"])


def _covtype(parts: Any) -> tuple[Array, Array]:
    """Return all rows of Covertype, scaled to the range from 0 to 1."""
    return scaled(parts["X"], 0, 1), classes(parts["y"])


def _balanced(parts: Any) -> tuple[Array, Array]:
    """Return the rows of Covtype-I."""
    X, y = _covtype(parts)
    keep, y = balanced(y)
    return X[keep], y


def _pendigits() -> tuple[Array, Array]:
    """Return the pen digits that come with Shoal."""
    from ..datasets import load_pendigits

    X, y = load_pendigits()
    return np.ascontiguousarray(X, np.float32), y


def _digits() -> tuple[Array, Array]:
    """Return scikit-learn's digits, scaled to the range from 0 to 1."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


ENTRIES = {
    "iris": Entry("", lambda _: (None, None), "", _iris),
    "pendigits": Entry(
        "pendigits", lambda p: (np.ascontiguousarray(p["X"], np.float32), classes(p["y"])), "", _pendigits, columns=16
    ),
    "shuttle": Entry(
        "shuttle",
        lambda p: (scaled(p["X"], -1, 1), classes(p["y"])),
        "synthetic clusters of different sizes",
        made.unequal,
        columns=9,
    ),
    "mnist": Entry("mnist", _pixels, "scikit-learn's digits of 8 x 8 pixels", _digits, columns=784),
    "mnist-training": Entry(
        "mnist",
        lambda p: _pixels({key: p[key][:60_000] for key in ("X", "y")}),
        "scikit-learn's digits of 8 x 8 pixels",
        _digits,
        columns=784,
    ),
    "covtype": Entry("covtype", _covtype, "synthetic clusters with binary columns", made.with_flags, columns=54),
    "covtype-I": Entry("covtype", _balanced, "synthetic clusters with binary columns", made.with_flags, columns=54),
    "sift": Entry(
        "sift_bsds500",
        lambda p: (np.ascontiguousarray(p["X"], np.float32), None),
        "synthetic histograms",
        made.histograms,
        "SIFT descriptors of the BSDS500 photographs replace the image data of the paper.",
    ),
    "letters": Entry(
        "letter",
        lambda p: (np.ascontiguousarray(p["X"], np.float32), classes(p["y"])),
        "scikit-learn's digits of 8 x 8 pixels",
        _digits,
        columns=16,
    ),
    "mnist-raw": Entry("mnist", lambda p: _raw(p, "X"), "scikit-learn's digits of 8 x 8 pixels", _digits, columns=784),
    "covtype-raw": Entry(
        "covtype", lambda p: _raw(p, "X"), "synthetic clusters with binary columns", made.with_flags, columns=54
    ),
    "news-frequent": Entry(
        "20newsgroups",
        lambda p: text(p, 100),
        "synthetic sparse rows",
        lambda: made.documents(4000, 20),
        "20 Newsgroups replaces RCV1.",
    ),
    "embeddings": Entry(
        "gloss_embeddings",
        lambda p: (np.ascontiguousarray(p["X"], np.float32), classes(p["y"])),
        "scikit-learn's digits of 8 x 8 pixels",
        _digits,
        columns=256,
    ),
    "news": Entry(
        "20newsgroups",
        text,
        "synthetic sparse rows",
        lambda: made.documents(4000, 20),
        "20 Newsgroups replaces RCV1.",
    ),
    "glosses": Entry(
        "wordnet_glosses",
        text,
        "synthetic sparse rows",
        lambda: made.documents(8000, 45),
        "WordNet glosses replace RCV1.",
    ),
}


def _check(X: Any, y: Array | None, columns: int | None) -> None:
    """Raise if the arrays of a file are not a valid data set."""
    if X.ndim != 2 or X.shape[0] < MIN_ROWS or columns not in (None, X.shape[1]):
        raise ValueError(f"X has shape {X.shape}: it needs {MIN_ROWS} rows or more, and {columns or 'its'} columns")
    if y is not None and len(y) != X.shape[0]:
        raise ValueError(f"y has {len(y)} classes for {X.shape[0]} rows")
    values: Array = X.data if hasattr(X, "indptr") else X
    if not np.isfinite(values).all():
        raise ValueError("X contains NaN or infinity")


class Shelf:
    """Folder of data sets. It caches the last one."""

    def __init__(self, folder: Path | None = None, files: bool = True) -> None:
        self.folder, self.files = folder, files
        named = os.environ.get("SHOAL_DATA")
        if files and folder is None and named is not None and not Path(named).is_dir():
            raise InvalidDataSetError(f"SHOAL_DATA={named} is not a folder: set it to an existing folder or unset it.")
        self.last: tuple[tuple[str, int | None], Rows] | None = None

    def load(self, name: str, rows: int | None = None) -> Rows:
        """Return a data set or its substitute, shuffled; with `rows`, a random subset, the same every time."""
        if self.last is None or self.last[0] != (name, rows):
            self.last = None  # free the memory before loading
            self.last = (name, rows), self._load(name, rows)
        return self.last[1]

    def check(self, names: Iterable[str]) -> None:
        """Raise if an existing file cannot be opened. Its contents are checked by `load`."""
        for name in names:
            with contextlib.suppress(Missing), self._opened(ENTRIES[name]):
                pass

    @contextlib.contextmanager
    def _opened(self, entry: Entry) -> Iterator[Any]:
        """Open the file of a data set. Errors in this block are raised as `InvalidDataSetError`, with its path."""
        if not self.files or not entry.file:
            raise Missing("files are disabled, or the data set has none")
        how = HOW_TO_GET[entry.file]
        path = path_of(entry.file, how, self.folder)
        try:
            with open(path, "rb") as file:
                if not zipfile.is_zipfile(file):
                    raise ValueError("not an npz file")
                yield np.load(file, allow_pickle=False)
        except INVALID_FILE_ERRORS as error:
            raise InvalidDataSetError(f"{path} cannot be read ({error}): download it again ({how}), or remove it.") from error

    def _load(self, name: str, rows: int | None) -> Rows:
        """Read, check and shuffle a data set."""
        entry = ENTRIES[name]
        notes, replaced = [entry.note] if entry.note else [], False
        try:
            with self._opened(entry) as parts:
                X, y = entry.make(parts)
                _check(X, y, entry.columns)
        except Missing:
            X, y, replaced = *entry.substitute(), bool(entry.instead)
            how = HOW_TO_GET.get(entry.file)
            notes = [f"{name} was not found and is replaced by {entry.instead}. To get it: {how}."] if entry.instead else []
        n = X.shape[0]
        order = np.random.default_rng(0).permutation(n)
        order = order[:rows]
        X, y = X[order], None if y is None else classes(y[order])
        return Rows(name, X if sparse.issparse(X) else np.ascontiguousarray(X), y, tuple(notes), replaced, n)
