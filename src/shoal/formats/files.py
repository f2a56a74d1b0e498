"""Open a file or a folder of files as rows for any estimator (`open_rows`)."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from ..data.source import FileSource, Source
from ..data.sources import find_source
from ..data.types import Array, is_sparse, warn
from ..exceptions import InvalidFileError
from .fingerprint import FileSignature, fingerprint
from .options import Column, Opened, Options
from .raw import Scratch, SparseScratch
from .readers import open_path

# Bytes of rows that `materialize` keeps in memory; more are copied to a scratch file. Memory plans depend on it.
MAX_ROWS_IN_MEMORY = 1 << 26
COPY_BYTES = 1 << 24  # bytes of rows copied to a scratch file at a time


class FileRows(FileSource):
    """Rows of a file, read in blocks whenever an estimator needs them. `open_rows` returns it.

    Attributes
    ----------
    path : Path
        The file or the folder.
    shape : tuple of int
        Number of rows and of feature columns.
    dtype : dtype
        Type of the rows.
    feature_names : list of str or None
        Names of the feature columns, if the file has any. Estimators store them as `feature_names_in_`.
    ids : array of shape (n_samples,) or None
        Values of `id_column`, read on access. None if `id_column` was not given.
    texts : array of shape (n_samples,) or None
        Values of `text_column`, read on access. None if `text_column` was not given.
    id_column, text_column : iterable of arrays or None
        The same values in batches, for files whose columns do not fit into memory.
    """

    def __init__(self, path: Path, opened: Opened, options: Options) -> None:
        self.path, self._rows, self._options = path, opened.rows, options
        self.shape, self.dtype = (options.limited(opened.rows.shape[0]), opened.rows.shape[1]), opened.rows.dtype
        self.signature = FileSignature.of(path)
        self.feature_names, self.unpacking = opened.names, opened.rows.unpacking
        self.row_bytes, self.held_bytes = opened.rows.row_bytes, opened.rows.held_bytes
        self.id_column, self.text_column = (
            None if name is None or opened.column is None else self._column(name, opened.column)
            for name in (options.id_column, options.text_column)
        )

    def _column(self, name: Any, read: Callable[[Any], Iterator[Any]]) -> Column:
        return Column(f"{self.path}, column {name!r}", partial(read, name), len(self))

    def read(self, start: int, stop: int) -> Any:
        return self._rows.read(start, stop)

    def take(self, rows: Array) -> Any:
        return self._rows.take(rows)

    def materialize(self, rows: Array, copy_limit: float = math.inf) -> Source:
        size = len(rows) * self._rows.row_bytes
        if size <= min(MAX_ROWS_IN_MEMORY, copy_limit):
            return find_source(self.take(rows))
        parts = np.array_split(rows, -(-size // COPY_BYTES))
        first = self.take(parts[0])
        if is_sparse(first):
            sparse_scratch = SparseScratch(str(self.path), first.dtype, np.int64, self._options.scratch)
            for part in parts:
                sparse_scratch.append(self.take(part))
            return sparse_scratch.rows(self.shape[1])
        scratch = Scratch(str(self.path), self.shape[1], self.dtype, self._options.scratch, size)
        for part in parts:
            scratch.append(self.take(part))
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
        """Read all rows into memory."""
        block = self.read(0, len(self))
        return np.asarray(block.toarray() if is_sparse(block) else block, dtype)

    def __reduce__(self) -> Any:
        """Pickle the path and the options, not the rows: the process that unpickles it opens the same file."""
        return _reopen, (self.path.absolute(), self._options, self.signature)

    def __repr__(self) -> str:
        return f"FileRows of {self.path}: {self.shape[0]:,} x {self.shape[1]:,}, {self.dtype}"


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
    """Open a file or a folder of files as rows, which `fit` and `predict` of any estimator accept.

    Parameters
    ----------
    path : str or path
        File, whose format is chosen by its extension, or folder of files of one format, which are read in the order of their
        names. Supported extensions: npy; npz (a dense array, or a CSR matrix that `scipy.sparse.save_npz` wrote); fvecs, bvecs,
        ivecs, fbin, u8bin, i8bin; parquet, pq; arrow, feather, ipc; zarr; h5, hdf5, hdf; csv, tsv, txt; svmlight, libsvm, svm.
    columns : list of str or int, default=None
        Feature columns, by name or index. None uses all columns except `id_column`, `text_column` and the index of a table
        that pandas wrote. If a table has exactly one column of lists, the lists are the rows.
    id_column : str or int, default=None
        Column that identifies the rows, of any type. It is not a feature, and is available as `ids`.
    text_column : str or int, default=None
        Column that describes the rows. It is not a feature, and is available as `texts`; reports show it.
    limit_rows : int, default=None
        Maximum number of rows to read, from the first. None reads all rows.
    array : str, default=None
        Name of the array, for npz, HDF5 and Zarr files that hold several.
    header : bool, default=None
        Whether the first line of a CSV file holds the column names. None detects it; see Notes.
    delimiter : str, default=None
        Character between the fields of a CSV file. None detects it.
    n_features : int, default=None
        Number of columns of an svmlight file, which does not store empty columns at the end: the `n_features_in_` of the
        model. None uses the largest column in the file.
    zero_based : bool, default=None
        Whether the columns of an svmlight file count from 0. None assumes that they do if any row of the file has column 0, and
        that they count from 1 otherwise.
    scratch : str or path, default=None
        Folder for scratch files. None uses the system's folder for temporary files (see `tempfile.gettempdir`).

    Returns
    -------
    rows : FileRows
        The rows. They are read when an estimator needs them.

    Raises
    ------
    InvalidFileError
        If the file is truncated, damaged or in an unsupported layout, or if an option does not apply to it.
    FileNotFoundError
        If the path does not exist.
    ImportError
        If the format requires an optional package that is not installed.

    Notes
    -----
    Rows are read in blocks by a separate thread, and never held in memory all at once. Formats without random access (Parquet,
    Arrow, Zarr, chunked HDF5, compressed npz, arrays in Fortran order) are decompressed to a scratch file during a fit; text
    files are parsed to a scratch file when they are opened. A scratch file takes as much disk space as the uncompressed rows
    and is deleted with them. `NestedKMeans` and `cluster` also store batches of more than 64 MB in one.

    Detection of a CSV header: a first line of text is a header; a first line of numbers is a row, except 0,1,2,... up to the
    last of at least three columns, the default column names of pandas. Text beside integers, quoted numbers above unquoted
    ones, and text that begins with numbers are read as a header. A warning is issued in these cases, and for a row of equally
    spaced numbers, which could be a header. A line of numbers with a missing or malformed field is an error.

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
            raise ValueError(f"{name}={count!r} must be a positive integer, or None for all.")
    if isinstance(columns, str | Integral):
        columns = [columns]
    columns = None if columns is None else list(columns)
    folder = None if scratch is None else str(scratch)
    options = Options(columns, id_column, text_column, limit_rows, array, header, delimiter, n_features, zero_based, folder)
    opened = open_path(path, options)
    if not opened.rows.shape[0]:
        raise InvalidFileError(f"{path}: has no rows: use a file with at least one.")
    if opened.notice:
        warn(f"{path}: {opened.notice}", UserWarning)
    return FileRows(path, opened, options)


def _reopen(path: Path, options: Options, signature: FileSignature) -> FileRows:
    """Open the file of pickled rows, possibly on another machine, or raise if it is not the same file."""
    found = FileSignature.of(path) if path.exists() else FileSignature(0, 0, "")
    if found != signature:
        what = "other content" if found[:2] == signature[:2] else str(found)
        raise InvalidFileError(
            f"{path}: had {signature} when it was opened, but has {what} on {socket.gethostname()}: give every machine the "
            "same files, then call open_rows again."
        )
    return FileRows(path, open_path(path, options), options)
