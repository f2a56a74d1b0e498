"""`open_rows`: rows of a file or a folder of files, for any estimator."""

from __future__ import annotations

import socket
from functools import partial
from importlib import import_module
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from ..data.source import FileSource, Source
from ..data.sources import find_source
from ..data.types import Array, is_sparse, warn
from ..exceptions import InvalidFileError
from ..execution.memory import spare
from .fingerprint import FileSignature, fingerprint
from .folder import joined
from .options import Column, Opened, Options
from .raw import Scratch, SparseScratch

AT_HAND = 1 << 26  # bytes of gathered rows that are kept in memory
PIECE = 1 << 24  # bytes that are copied at a time

FORMATS = {  # imported when a file of that kind is opened
    ".npy": "npy.open_npy",
    ".npz": "npy.open_npz",
    **dict.fromkeys((".fvecs", ".bvecs", ".ivecs"), "vectors.open_vecs"),
    **dict.fromkeys((".fbin", ".u8bin", ".i8bin"), "vectors.open_bin"),
    **dict.fromkeys((".parquet", ".pq"), "tables.open_parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "tables.open_arrow"),
    ".zarr": "grids.open_zarr",
    **dict.fromkeys((".h5", ".hdf5", ".hdf"), "grids.open_hdf5"),
    **dict.fromkeys((".csv", ".tsv", ".txt"), "text.open_csv"),
    **dict.fromkeys((".svmlight", ".libsvm", ".svm"), "text.open_svmlight"),
}
ONLY_FOR = {
    "array": (".npz", ".zarr", ".h5", ".hdf5", ".hdf"),
    **dict.fromkeys(("header", "delimiter"), (".csv", ".tsv", ".txt")),
    **dict.fromkeys(("n_features", "zero_based"), (".svmlight", ".libsvm", ".svm")),
}


class FileRows(FileSource):
    """Rows of a file, as `open_rows` gives them: read block by block, whenever they are worked on.

    Attributes
    ----------
    path : Path
    shape : tuple of int
    dtype : dtype
    feature_names : list of str or None
        Of the columns, where the file has names for them. Estimators keep them as `feature_names_in_`.
    ids : array of shape (n_samples,) or None
        What the rows are called, if `id_column` was named: read when it is asked for. `id_column` has it in parts.
    texts : array of shape (n_samples,) or None
        What `text_column` holds, if it was named, in the same way.
    """

    def __init__(self, path: Path, opened: Opened, options: Options) -> None:
        self.path, self._rows, self._options = path, opened.rows, options
        self.shape, self.dtype = (options.limited(opened.rows.shape[0]), opened.rows.shape[1]), opened.rows.dtype
        self.seen = FileSignature.of(path)
        self.feature_names, self.unpacking = opened.names, opened.rows.unpacking
        self.row_bytes, self.held_bytes = opened.rows.row_bytes, opened.rows.held_bytes
        self.id_column, self.text_column = (
            None if name is None or opened.column is None else Column(partial(opened.column, name), len(self))
            for name in (options.id_column, options.text_column)
        )

    def read(self, start: int, stop: int) -> Any:
        return self._rows.read(start, stop)

    def take(self, rows: Array) -> Any:
        return self._rows.take(rows)

    def materialize(self, rows: Array) -> Source:
        size = len(rows) * self._rows.row_bytes
        if size <= min(AT_HAND, spare(AT_HAND)):
            return find_source(self.take(rows))
        pieces = np.array_split(rows, -(-size // PIECE))
        first = self.take(pieces[0])
        if is_sparse(first):
            sparse_scratch = SparseScratch(str(self.path), first.dtype, np.int64, self._options.scratch)
            for some in pieces:
                sparse_scratch.append(self.take(some))
            return sparse_scratch.rows(self.shape[1])
        scratch = Scratch(str(self.path), self.shape[1], self.dtype, self._options.scratch, size)
        for some in pieces:
            scratch.append(self.take(some))
        return scratch.rows()

    def fingerprint(self) -> str | None:
        return f"{fingerprint(self.path)} {self._options._replace(scratch=None)}" if self._rows.is_packed else None

    def prepare_multi_pass(self) -> None:
        self._rows.prepare_multi_pass()

    @property
    def ids(self) -> Array | None:
        return None if self.id_column is None else np.asarray(self.id_column)

    @property
    def texts(self) -> Array | None:
        return None if self.text_column is None else np.asarray(self.text_column)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All rows in memory."""
        block = self.read(0, len(self))
        return np.asarray(block.toarray() if is_sparse(block) else block, dtype)

    def __reduce__(self) -> Any:
        """Pickled, it is a name and how to read the file; whoever has the file opens it again."""
        return _reopened, (self.path.absolute(), self._options, self.seen)

    def __repr__(self) -> str:
        return f"Rows of {self.path}: {self.shape[0]:,} x {self.shape[1]:,}, {self.dtype}"


def open_rows(
    path: Any,
    *,
    columns: Any = None,
    id_column: Any = None,
    text_column: Any = None,
    limit_rows: int | None = None,
    array: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    scratch: Any = None,
) -> FileRows:
    """Rows of a file or of a folder of files, for any estimator: `KMeans(100).fit(open_rows("rows.parquet"))`.

    They are read block by block, by a thread of its own, and never held all at once. Files that can't be read here and
    there at will (Parquet, Arrow, Zarr, HDF5 in chunks, packed npz, arrays that lie column by column) are unpacked into a
    scratch file by a fit, text by whoever opens it. It takes the room of the numbers, and goes when the rows do.
    `NestedKMeans` and `cluster` keep their batch in one, too, when it is larger than 64 MB.

    Parameters
    ----------
    path : str or path
        By its ending: npy, npz (dense, or CSR as SciPy saves it), fvecs, bvecs, ivecs, fbin, u8bin, i8bin, parquet, arrow,
        feather, zarr, h5, csv, tsv, txt, svmlight. Or a folder of such files, all of one kind, in the order of their
        names.
    columns : list of str or int, default=None
        The columns to cluster by, by name or number; None for all but `id_column` and `text_column`, and but the index of a
        table that pandas wrote. A table with one column of lists has its rows there.
    id_column : str or int, default=None
        A column that names the rows, given as `ids`; it may hold text.
    text_column : str or int, default=None
        A column that tells of the rows, given as `texts`; reports show it beside them.
    limit_rows : int, default=None
        Only so many rows, from the first on.
    array : str, default=None
        Which array of an npz, HDF5 or Zarr file, where there are several.
    header : bool, default=None
        Whether the first line of a CSV file names the columns; None to find out: a line of text does, a line of numbers does
        not. But 0,1,2,... up to the last of three columns or more is taken for names, which pandas gives to columns without
        any. Text beside whole numbers, such as years, numbers in quotes above others without, and text that begins with numbers
        are taken for names, too; a warning says so in all these cases, and where a row of numbers at equal steps could be
        names. A line of numbers with a field that is missing or badly written is an error.
    delimiter : str, default=None
        Between the fields of a CSV file; None to find it.
    n_features : int, default=None
        How many columns an svmlight file has, where its last ones may be empty: those of the fit. None for those it names.
    zero_based : bool, default=None
        Whether the columns of an svmlight file count from 0; None: if one of them is 0, else from 1.
    scratch : str or path, default=None
        The folder for scratch files; None for the system's (see `tempfile.gettempdir`).

    Returns
    -------
    rows : FileRows

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from shoal import KMeans, open_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.array([[1.0, 2], [1, 4], [10, 2], [10, 4]]))
    ...     rows = open_rows(f"{folder}/rows.npy")
    ...     KMeans(n_clusters=2, random_state=0).fit(rows).inertia_
    4.0
    """
    path = Path(path)
    for name, count in (("limit_rows", limit_rows), ("n_features", n_features)):
        if count is not None and (not isinstance(count, Integral) or isinstance(count, bool) or count < 1):
            raise ValueError(f"{name}={count!r} must be an integer from 1 on, or None for all.")
    if isinstance(columns, str | Integral):
        columns = [columns]
    columns = None if columns is None else list(columns)
    folder = None if scratch is None else str(scratch)
    options = Options(columns, id_column, text_column, limit_rows, array, header, delimiter, n_features, zero_based, folder)
    opened = _open(path, options)
    if not opened.rows.shape[0]:
        raise InvalidFileError(f"{path}: has no rows: name a file that has some.")
    if opened.notice:
        warn(f"{path}: {opened.notice}", UserWarning)
    return FileRows(path, opened, options)


def _reopened(path: Path, options: Options, seen: FileSignature) -> FileRows:
    """Where it is pickled to, which may be another machine: the files there have to be the same."""
    here = FileSignature.of(path) if path.exists() else FileSignature(0, 0, "")
    if here != seen:
        what = "others" if here[:2] == seen[:2] else str(here)
        raise InvalidFileError(
            f"{path}: {seen} when the rows were opened, but {socket.gethostname()} finds {what} there: give every machine the "
            "same, and open them anew."
        )
    return FileRows(path, _open(path, options), options)


def _kind(path: Path) -> str:
    if path.suffix.lower() in FORMATS:
        return path.suffix.lower()
    if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
        return ".zarr"
    return ""


def is_for(option: str, path: Path) -> bool:
    """Does an option of `open_rows` mean anything to a file, or to those of a folder?"""
    files = _files(path) if path.is_dir() and _kind(path) != ".zarr" else [path]
    return any(_kind(file) in ONLY_FOR[option] for file in files)


def _open(path: Path, options: Options) -> Opened:
    kind = _kind(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidFileError(f"{path}: is neither a file nor a folder, but a pipe or a device: copy what it gives to a file.")
    if path.is_dir() and kind != ".zarr":
        return _open_folder(path, options)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file: check its name.")
    if not kind:
        known = ", ".join(name[1:] for name in FORMATS)
        raise InvalidFileError(f"{path}: ends in none of {known}: rename it or convert it.")
    for name, kinds in ONLY_FOR.items():
        if getattr(options, name) is not None and kind not in kinds:
            raise InvalidFileError(f"{path}: {name}={getattr(options, name)!r} is for {', '.join(kinds)} alone: leave it out.")
    if path.is_file() and path.stat().st_size == 0:
        raise InvalidFileError(f"{path}: is empty: name a file with rows.")
    module, _, function = FORMATS[kind].partition(".")
    opened: Opened = getattr(import_module(f"{__package__}.{module}"), function)(path, options)
    return opened


def _files(folder: Path) -> list[Path]:
    """Those that can be read, in the order of their names."""
    return sorted(file for file in folder.iterdir() if _kind(file) and not file.name.startswith((".", "_")))


def _open_folder(path: Path, options: Options) -> Opened:
    files = _files(path)
    kinds = {FORMATS[_kind(file)] for file in files}
    if len(kinds) != 1:
        what = "files of several kinds" if kinds else "no file that Shoal can read"
        raise InvalidFileError(f"{path}: has {what}: put those that belong together into a folder of their own.")
    parts: list[Opened] = []
    left = options.limit_rows
    for file in files:
        part = _open(file, options._replace(limit_rows=left))
        _check_alike(file, part, files[0], parts[0] if parts else part)
        parts.append(part)
        left = None if left is None else left - part.rows.shape[0]
        if left is not None and left <= 0:
            break
    some = [part.column for part in parts if part.column is not None]
    column = (lambda name: chain.from_iterable(read(name) for read in some)) if some else None
    return Opened(
        joined(str(path), [part.rows for part in parts], options.scratch),
        parts[0].names,
        column,
        _skipped(path) or parts[0].notice,
    )


def _skipped(folder: Path) -> str:
    """A warning of files that are left out, though their names say that they hold rows: packed ones, such as part.csv.gz."""
    files = [f for f in folder.iterdir() if not _kind(f) and not f.name.startswith((".", "_"))]
    names = sorted(f.name for f in files if any(suffix.lower() in FORMATS for suffix in f.suffixes))
    shown = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
    return f"{shown} is not read, since its ending is none that Shoal knows: unpack it, or put it elsewhere." if names else ""


def _check_alike(file: Path, part: Opened, first_file: Path, first: Opened) -> None:
    here, there = ((p.rows.shape[1], p.rows.dtype, is_sparse(p.rows.read(0, 0)), p.names) for p in (part, first))
    if here != there:
        said = [
            f"{d} columns of {dtype}{', sparse' * thin}{f', named {names[:5]}' if names else ''}"
            for d, dtype, thin, names in (here, there)
        ]
        raise InvalidFileError(
            f"{file}: has {said[0]}, but {first_file.name} has {said[1]}: give all files of a folder the same."
        )
    bases = [getattr(opened.rows, "base", 0) for opened in (part, first)]
    if bases[0] != bases[1]:
        counts = f"columns seem to count from {bases[0]}, but those of {first_file.name} from {bases[1]}"
        raise InvalidFileError(f"{file}: its {counts}: say which as zero_based=.")
