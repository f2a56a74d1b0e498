"""Choose the reader for a file by its extension, and open folders of files."""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from pathlib import Path

from ..data.types import is_sparse
from ..exceptions import InvalidFileError
from .folder import concatenate
from .options import Opened, Options

CSV, SVMLIGHT = (".csv", ".tsv", ".txt"), (".svmlight", ".libsvm", ".svm")
HDF5 = (".h5", ".hdf5", ".hdf")

READERS = {  # extension -> module and function, imported when a file is opened, since some need optional packages
    ".npy": "npy.open_npy",
    ".npz": "npz.open_npz",
    **dict.fromkeys((".fvecs", ".bvecs", ".ivecs"), "vectors.open_vecs"),
    **dict.fromkeys((".fbin", ".u8bin", ".i8bin"), "vectors.open_bin"),
    **dict.fromkeys((".parquet", ".pq"), "tables.open_parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "tables.open_arrow"),
    ".zarr": "grids.open_zarr",
    **dict.fromkeys(HDF5, "grids.open_hdf5"),
    **dict.fromkeys(CSV, "delimited.open_csv"),
    **dict.fromkeys(SVMLIGHT, "svmlight.open_svmlight"),
}
EXTENSIONS_OF_OPTION = {  # options that apply to some formats only
    "array": (".npz", ".zarr", *HDF5),
    **dict.fromkeys(("header", "delimiter"), CSV),
    **dict.fromkeys(("n_features", "zero_based"), SVMLIGHT),
}


def open_path(path: Path, options: Options) -> Opened:
    """Open a file or a folder of files."""
    extension = _extension(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidFileError(f"{path}: is a pipe or a device: copy its content to a regular file.")
    if path.is_dir() and extension != ".zarr":
        return _open_folder(path, options)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file: check the path.")
    if not extension:
        known = ", ".join(name[1:] for name in READERS)
        raise InvalidFileError(f"{path}: its extension is none of {known}: rename or convert it.")
    for name, extensions in EXTENSIONS_OF_OPTION.items():
        if getattr(options, name) is not None and extension not in extensions:
            raise InvalidFileError(
                f"{path}: {name}={getattr(options, name)!r} applies only to {', '.join(extensions)} files: remove it."
            )
    if path.is_file() and path.stat().st_size == 0:
        raise InvalidFileError(f"{path}: is empty: use a file with rows.")
    module, _, function = READERS[extension].partition(".")
    opened: Opened = getattr(import_module(f"{__package__}.{module}"), function)(path, options)
    return opened


def option_applies(option: str, path: Path) -> bool:
    """Return whether an option of `open_rows` has an effect on a file, or on any file of a folder."""
    files = _data_files(path) if path.is_dir() and _extension(path) != ".zarr" else [path]
    return any(_extension(file) in EXTENSIONS_OF_OPTION[option] for file in files)


def _extension(path: Path) -> str:
    """Return the extension that selects the reader; "" if there is no reader."""
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
        part = open_path(file, options._replace(limit_rows=remaining))
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
