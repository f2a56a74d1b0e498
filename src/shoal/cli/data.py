"""Open the data of a command and identify files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from .errors import reporting_open_errors
from .settings import FitSettings, RowSettings

MAX_SCALE_ROWS = 65_536  # rows from which the variances of columns are estimated
DOMINANT_SHARE = 0.9  # of the variance
MAX_NAMED = 5  # columns named in a warning
QUICK_BYTES = 1 << 26  # size of data whose errors are reported before slow imports


def open_data(path: str, settings: RowSettings) -> Any:
    """Open the rows of a file or folder."""
    with reporting_open_errors(path):
        from ..formats.files import open_rows

        return open_rows(path, **settings.open_rows_arguments())


def scale_warning(rows: Any, settings: FitSettings) -> str:
    """Return a warning if few columns of a table make up most of the variance, so that they alone decide the clusters.

    The first rows are looked at, which are read anyway.
    """
    import numpy as np

    if settings.standardize or settings.metric == "cosine" or rows.feature_names is None:
        return ""
    rows.prepare_multi_pass()  # as the fit does
    block = rows.read(0, min(rows.shape[0], MAX_SCALE_ROWS))
    if hasattr(block, "indptr"):
        return ""
    with np.errstate(over="ignore", invalid="ignore"):
        variances = np.var(block, axis=0, dtype=np.float64)
        total = float(variances.sum())
    if not 0 < total < math.inf:
        return ""
    shares = dict(zip(rows.feature_names, (variances / total).tolist(), strict=True))
    top = dominant_columns(shares)
    if not top:
        return ""
    columns = f"column {top[0]!r} makes" if len(top) == 1 else f"columns {', '.join(map(repr, top[:MAX_NAMED]))} make"
    return (
        f"{columns} up {100 * sum(shares[name] for name in top):.0f}% of the variance, so the clusters follow almost nothing "
        "else: use --standardize to give all columns the same weight."
    )


def dominant_columns(shares: Mapping[str, float]) -> list[str]:
    """Return the columns that make up nine tenths of the variance, if they are at most a quarter of all, or one of two."""
    ordered = sorted(shares, key=lambda name: -shares[name])
    found, covered = list[str](), 0.0
    for name in ordered[: max(1, len(ordered) // 4)]:
        found.append(name)
        covered += shares[name]
        if covered >= DOMINANT_SHARE and len(ordered) > 1:
            return found
    return []


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


def is_small(path: str) -> bool:
    """Return whether the data take so little time to open that their errors can be reported before slow imports."""
    return disk_bytes(path) < QUICK_BYTES


def disk_bytes(path: str) -> int:
    """Return the size of a file, or of all files in a folder, in bytes."""
    root = Path(path)
    files = (file for file in root.rglob("*") if file.is_file()) if root.is_dir() else [root]
    return sum(file.stat().st_size for file in files)


def fingerprint(path: str) -> str:
    """Return a string that changes when the content of the file or folder changes."""
    from ..formats.fingerprint import fingerprint

    return fingerprint(Path(path))
