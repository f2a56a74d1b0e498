"""The folder of a run: what is in it, and that one process at a time works there."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import click

from .errors import NoRoom
from .notes import NOTES
from .output import keep_apart, saving

CHECKPOINT, LOCK, STAGE = "checkpoint.npz", ".lock", ".shoal-new."
FILES = (NOTES, CHECKPOINT, "model.npz", "labels.npy", "labels.parquet", "history.csv", "report.html")


def check(folder: Path, force: bool, *inputs: str) -> None:
    """If anything is there already, only on demand; and never what is read."""
    if folder.is_file():
        raise click.UsageError(f"{folder}: is a file: name a folder.")
    keep_apart(folder, inputs)
    for given in inputs:
        if Path(given).resolve() in [(folder / name).resolve() for name in FILES]:
            raise click.UsageError(f"{given}: would be replaced by what a fit writes to {folder}: name another folder.")
    check_regular_files(folder)
    with saving(folder):
        there = folder.exists() and any(file.name != LOCK for file in folder.iterdir())
    if there and not force:
        raise click.UsageError(
            f"{folder}: is not empty: go on with `shoal resume`, name another folder, or say --force to replace what is there."
        )


def check_regular_files(folder: Path) -> None:
    """Refuse a folder in which a link, a pipe or a folder has the name of a file of a run: links lead anywhere, pipes block."""
    for path in (folder / name for name in (*FILES, LOCK)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise click.UsageError(f"{path}: is a link, a pipe, a device or a folder, not a file of a run: remove it.")


def clear(folder: Path, keep: set[str]) -> None:
    """Remove what an earlier run has left and this one has not made; nothing else."""
    with saving(folder):
        for name in set(FILES) - keep:
            (folder / name).unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what a run that was killed has left half written."""
    from ..formats.archive import tidy

    with saving(folder):
        for name in FILES:
            tidy(folder / name)
        for left in folder.glob(f"{STAGE}*.tmp"):
            shutil.rmtree(left, ignore_errors=True)  # which follows no links


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Give a folder for new files, from which `put` moves them when all are written. It is removed in the end."""
    stage = folder / f"{STAGE}{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with saving(folder):
            stage.mkdir()
        yield stage
    except NoRoom as error:
        raise NoRoom(error.message.replace(str(stage), str(folder))) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def put(stage: Path, folder: Path, name: str) -> None:
    """Move a new file to its place, which takes no room."""
    with saving(folder / name):
        os.replace(stage / name, folder / name)


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
    check_regular_files(folder)
    with saving(folder):
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
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
