"""Choose the reader for a file by its extension, and open folders of files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path

from ..data.types import is_sparse
from ..exceptions import InvalidFileError
from .folder import concatenate
from .options import Opened, Options
from .text_lines import COMPRESSED

CSV, SVMLIGHT = (".csv", ".tsv", ".txt"), (".svmlight", ".libsvm", ".svm")
HDF5, JSON_LINES = (".h5", ".hdf5", ".hdf"), (".jsonl", ".ndjson")
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
TABLES = (*CSV, *JSON_LINES, *PARQUET, *ARROW)  # files with columns of several kinds

READERS = {  # extension -> module and function, imported when a file is opened, since some need optional packages
    ".npy": "npy.open_npy",
    ".npz": "npz.open_npz",
    **dict.fromkeys((".fvecs", ".bvecs", ".ivecs"), "vectors.open_vecs"),
    **dict.fromkeys((".fbin", ".u8bin", ".i8bin"), "vectors.open_bin"),
    **dict.fromkeys(PARQUET, "tables.open_parquet"),
    **dict.fromkeys(ARROW, "tables.open_arrow"),
    **dict.fromkeys(JSON_LINES, "mixed.open_json"),
    ".zarr": "grids.open_zarr",
    **dict.fromkeys(HDF5, "grids.open_hdf5"),
    **dict.fromkeys(CSV, "delimited.open_csv"),
    **dict.fromkeys(SVMLIGHT, "svmlight.open_svmlight"),
}
EXTENSIONS_OF_OPTION = {  # options that apply to some formats only
    "array": (".npz", ".zarr", *HDF5),
    **dict.fromkeys(("header", "delimiter"), CSV),
    **dict.fromkeys(("n_features", "zero_based"), SVMLIGHT),
    **dict.fromkeys(("exclude", "categorical", "missing", "dates", "preprocessing"), TABLES),
    **dict.fromkeys(("decimal", "thousands", "encoding"), (*CSV, *JSON_LINES)),
}


def open_path(path: Path, options: Options) -> Opened:
    """Open a file or a folder of files."""
    if path.is_dir() and _extension(path) != ".zarr":
        return _open_table_or(partial(_open_folder, path, options), path, _data_files(path), options)
    _check_file(path, options)
    return _open_table_or(partial(_open_numbers, path, options), path, [path], options)


def _check_file(path: Path, options: Options) -> None:
    """Raise if a path is not that of a file with a reader, or if an option does not apply to it."""
    extension = _extension(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidFileError(f"{path}: is a pipe or a device: copy its content to a regular file.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file: check the path.")
    if not extension:
        known = ", ".join(name[1:] for name in READERS)
        raise InvalidFileError(f"{path}: its extension is none of {known}: rename or convert it.")
    for name, extensions in EXTENSIONS_OF_OPTION.items():
        value = getattr(options, name)
        if value is not None and extension not in extensions:
            given = "the preprocessing of the model" if name == "preprocessing" else f"{name}={value!r}"
            remedy = "use such a file" if name == "preprocessing" else "remove it"
            raise InvalidFileError(f"{path}: {given} applies only to {', '.join(extensions)} files: {remedy}.")
    if path.is_file() and path.stat().st_size == 0:
        raise InvalidFileError(f"{path}: is empty: use a file with rows.")


def _open_numbers(path: Path, options: Options) -> Opened:
    """Open a file all of whose columns hold numbers."""
    module, _, function = READERS[_extension(path)].partition(".")
    opened: Opened = getattr(import_module(f"{__package__}.{module}"), function)(path, options)
    return opened


def _open_table_or(open_numbers: Callable[[], Opened], path: Path, files: list[Path], options: Options) -> Opened:
    """Open files of numbers; as a table with columns of several kinds if they are one, or if an option says so."""
    if not files or _extension(files[0]) not in TABLES:
        return open_numbers()
    for file in files:
        _check_file(file, options)
    from .mixed import has_identifiers, mixed_profiles, open_mixed

    if options.is_mixed:
        return open_mixed(path, files, options)
    try:
        opened = open_numbers()
    except InvalidFileError as error:
        try:
            profiles = mixed_profiles(path, files, options)
        except (InvalidFileError, ImportError) as why:  # the first message tells more, unless a package is missing
            raise InvalidFileError(f"{error} {why}" if isinstance(why, ImportError) else str(error)) from error
        if not profiles:
            raise
        return open_mixed(path, files, options, profiles)
    if options.columns is None and has_identifiers(opened.names):
        return open_mixed(path, files, options)
    return opened


def table_files(path: Path) -> list[Path]:
    """Return the files of a table, which may have columns of several kinds; an empty list for other data."""
    files = _data_files(path) if path.is_dir() and _extension(path) != ".zarr" else [path]
    return files if files and all(_extension(file) in TABLES for file in files) else []


def option_applies(option: str, path: Path) -> bool:
    """Return whether an option of `open_rows` has an effect on a file, or on any file of a folder."""
    files = _data_files(path) if path.is_dir() and _extension(path) != ".zarr" else [path]
    return any(_extension(file) in EXTENSIONS_OF_OPTION[option] for file in files)


def _extension(path: Path) -> str:
    """Return the extension that selects the reader; "" if there is no reader."""
    inner = Path(path.stem).suffix.lower()
    if path.suffix.lower() in COMPRESSED and inner in (*CSV, *JSON_LINES):
        return inner
    if path.suffix.lower() in READERS:
        return path.suffix.lower()
    if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
        return ".zarr"
    return ""


def _data_files(folder: Path) -> list[Path]:
    """Return the files of a folder that have a reader, sorted by name."""
    return sorted(file for file in folder.iterdir() if _extension(file) and not file.name.startswith((".", "_")))


def _open_folder(path: Path, options: Options) -> Opened:
    """Open all files of a folder, which must have the same format and columns."""
    files = _data_files(path)
    readers = {READERS[_extension(file)] for file in files}
    if len(readers) != 1:
        content = "files of several formats" if readers else "no files in a supported format"
        raise InvalidFileError(f"{path}: has {content}: put the files of one data set into a folder of their own.")
    parts: list[Opened] = []
    remaining = options.limit_rows
    for file in files:
        _check_file(file, options)
        part = _open_numbers(file, options._replace(limit_rows=remaining))
        _check_same_columns(file, part, files[0], parts[0] if parts else part)
        parts.append(part)
        remaining = None if remaining is None else remaining - part.rows.shape[0]
        if remaining is not None and remaining <= 0:
            break
    readers_of_column = [part.column for part in parts if part.column is not None]
    column = (lambda name: chain.from_iterable(read(name) for read in readers_of_column)) if readers_of_column else None
    rows = concatenate(str(path), [part.rows for part in parts], options.scratch)
    return Opened(rows, parts[0].names, column, _skipped_files(path) or parts[0].notice)


def _skipped_files(folder: Path) -> str:
    """Return a warning about compressed data files, such as part.csv.gz, which are skipped; "" if there are none."""
    files = [file for file in folder.iterdir() if not _extension(file) and not file.name.startswith((".", "_"))]
    names = sorted(file.name for file in files if any(suffix.lower() in READERS for suffix in file.suffixes))
    shown = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
    return f"{shown} is skipped, since its extension is not supported: decompress it, or move it elsewhere." if names else ""


def _check_same_columns(file: Path, part: Opened, first_file: Path, first: Opened) -> None:
    """Raise if a file differs from the first one of its folder in the number, type, names or numbering of columns."""
    here, there = ((p.rows.shape[1], p.rows.dtype, is_sparse(p.rows.read(0, 0)), p.names) for p in (part, first))
    if here != there:
        described = [
            f"{d} columns of {dtype}{', sparse' * sparse}{f', named {names[:5]}' if names else ''}"
            for d, dtype, sparse, names in (here, there)
        ]
        raise InvalidFileError(
            f"{file}: has {described[0]}, but {first_file.name} has {described[1]}: write all files of a folder alike."
        )
    bases = [getattr(opened.rows, "base", 0) for opened in (part, first)]
    if bases[0] != bases[1]:
        raise InvalidFileError(
            f"{file}: its columns seem to count from {bases[0]}, but those of {first_file.name} from {bases[1]}: set "
            "zero_based= to True or False."
        )
