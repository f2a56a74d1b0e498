"""Open the data of a command and identify files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from .errors import reporting_open_errors
from .settings import RowSettings


def open_data(path: str, settings: RowSettings) -> Any:
    """Open the rows of a file or folder."""
    import shoal

    with reporting_open_errors(path):
        return shoal.open_rows(path, **settings.open_rows_arguments())


def check_image(rows: Any, shape: tuple[int, ...] | None) -> None:
    """Raise a usage error if rows cannot be shown as images of this shape. Called before a long fit, not after it."""
    if shape is not None and (math.prod(shape) != rows.shape[1] or shape[2:] not in ((), (1,), (3,))):
        size = "x".join(map(str, shape))
        raise click.UsageError(f"--image {size} does not match rows of {rows.shape[1]:,} columns: use height x width.")


def find_model(path: str) -> str:
    """Return the path of a model file. For the output folder of a fit, that is the model in it."""
    from .folder import MODEL
    from .run_record import RECORD_FILE

    folder = Path(path)
    if not (folder / RECORD_FILE).is_file():
        return path
    if not (folder / MODEL).is_file():
        raise click.UsageError(f"{path}: is the folder of a fit without a model: complete it with `shoal resume`.")
    return str(folder / MODEL)


def is_model(path: str) -> bool:
    """Return True if the file is an archive with a manifest, as saved models are. Its content is not validated."""
    if not Path(path).is_file():
        return False
    from ..formats.npz import open_zip

    try:
        with open_zip(Path(path)) as archive:
            return "manifest.json" in archive.namelist()
    except Exception:  # damaged archives raise many types; the code that reads the file reports the problem
        return False


def disk_bytes(path: str) -> int:
    """Return the size of a file, or of all files in a folder, in bytes."""
    root = Path(path)
    files = (file for file in root.rglob("*") if file.is_file()) if root.is_dir() else [root]
    return sum(file.stat().st_size for file in files)


def fingerprint(path: str) -> str:
    """Return a string that changes when the content of the file or folder changes."""
    from ..formats.fingerprint import fingerprint

    return fingerprint(Path(path))
