"""The data of a command: rows of a file, as the options say, and what tells whether a file is still the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from .errors import opening
from .options import ROWS


def open_data(path: str, settings: Mapping[str, Any]) -> Any:
    """Rows of a file."""
    import shoal

    given = {name: settings.get(name) for name in (*ROWS, "text_column", "n_features")}
    with opening(path):
        return shoal.open_rows(path, **given)


def check_image(rows: Any, shape: tuple[int, ...] | None) -> None:
    """Before a long fit, not after it."""
    if shape is not None and (math.prod(shape) != rows.shape[1] or shape[2:] not in ((), (1,), (3,))):
        size = "x".join(map(str, shape))
        raise click.UsageError(f"--image {size} is no shape of rows of {rows.shape[1]:,} columns: give height x width.")


def is_model(path: str) -> bool:
    """A model of Shoal's, or at least something that says so."""
    if not Path(path).is_file():
        return False
    from ..formats.npy import open_zip

    try:
        with open_zip(Path(path)) as archive:
            return "manifest.json" in archive.namelist()
    except Exception:  # a zip file can be wrong in many ways; whoever reads it says how
        return False


def parse_size(path: str) -> int:
    """Bytes on the disk, of all files if it is a folder."""
    return sum(file.stat().st_size for file in _files(Path(path)))


def fingerprint(path: str) -> str:
    """What tells whether a file is still the same."""
    from ..formats.fingerprint import fingerprint

    return fingerprint(Path(path))


def _files(root: Path) -> list[Path]:
    return sorted(file for file in root.rglob("*") if file.is_file()) if root.is_dir() else [root]
