"""The folder of a run: what is in it, and that one process at a time works there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from .errors import Turned
from .methods import METHODS
from .output import keep_apart, saving

NOTES, CHECKPOINT, LOCK = "run.json", "checkpoint.npz", ".lock"
FILES = (NOTES, CHECKPOINT, "model.npz", "labels.npy", "labels.parquet", "history.csv", "report.html")

NOTED: dict[str, Any] = dict.fromkeys(("shoal", "status", "begun", "command", "data", "fingerprint"), str)
NOTED |= {"settings": dict}
CHOSEN: dict[str, Any] = {
    "method": str,
    "clusters": int,
    "seed": int,
    "extra": dict,
    "init": str | None,
    "metric": str,
    "scratch": str | None,
    "columns": list | None,
    **dict.fromkeys(("array", "delimiter"), str | None),
    **dict.fromkeys(("header", "zero_based"), bool | None),
    **dict.fromkeys(("id_column", "text_column"), str | None),
    **dict.fromkeys(("limit_rows", "threads"), int | None),
    **dict.fromkeys(("time", "memory"), float | int | None),
    "image": list | None,
    **dict.fromkeys(("standardize", "report"), bool),
}
FOUND: dict[str, Any] = dict.fromkeys(("method", "estimator", "stopped", "summary"), str)
FOUND |= dict.fromkeys(("rows", "columns", "clusters", "steps", "seed"), int)
FOUND |= {"seconds": float | int, "energy": float | int | None, "files": dict, "warnings": list}


def _is_like(kinds: dict[str, Any], told: dict[str, Any]) -> bool:
    return all(isinstance(told[name], kind) for name, kind in kinds.items())


def check(folder: Path, force: bool, *inputs: str) -> None:
    """If anything is there already, only on demand; and never what is read."""
    if folder.is_file():
        raise click.UsageError(f"{folder}: is a file: name a folder.")
    keep_apart(folder, inputs)
    for given in inputs:
        if Path(given).resolve() in [(folder / name).resolve() for name in FILES]:
            raise click.UsageError(f"{given}: would be replaced by what a fit writes to {folder}: name another folder.")
    with saving(folder):
        there = folder.exists() and any(file.name != LOCK for file in folder.iterdir())
    if there and not force:
        raise click.UsageError(
            f"{folder}: is not empty: go on with `shoal resume`, name another folder, or say --force to replace what is there."
        )


def clear(folder: Path, keep: set[str]) -> None:
    """Remove what an earlier run has left and this one has not made; nothing else."""
    with saving(folder):
        for name in set(FILES) - keep:
            (folder / name).unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what a run that was killed has left half written."""
    from ..io.archive import tidy

    with saving(folder):
        for name in FILES:
            tidy(folder / name)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make it, and keep other processes out. The system opens the lock when the process ends, however it does.

    If nothing comes of it, a folder that was not there before is not there afterwards.
    """
    with saving(folder):
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    with saving(folder):
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise click.UsageError(
                f"{folder}: another process is at work there: wait for it, or name another folder."
            ) from error
        try:
            yield
        except Exception:
            if new and os.listdir(folder) == [LOCK]:
                (folder / LOCK).unlink()
                folder.rmdir()
            raise
    finally:
        os.close(fd)


def read_notes(folder: Path) -> dict[str, Any]:
    """What the run was asked to do, if it can be believed."""
    path = folder / NOTES
    try:
        if path.exists() and not path.is_file():
            raise ValueError("no file")
        notes = json.loads(path.read_bytes())
        good = notes["format"] == "shoal run" and _is_like(NOTED, notes) and _is_like(CHOSEN, notes["settings"])
        good = good and notes["settings"]["method"] in METHODS and "\0" not in notes["data"]
        good = good and (notes["status"] != "done" or _is_like(FOUND, notes["result"]))
    except FileNotFoundError as error:
        raise click.UsageError(f"{path}: there is no such file: name a folder that `shoal fit -o` has made.") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise Turned(f"{path}: can't be read as the notes of a run ({error}): begin anew with `shoal fit --force`.") from error
    if not good:
        raise Turned(f"{path}: holds no notes of a run: begin anew with `shoal fit --force`.")
    return dict(notes)
