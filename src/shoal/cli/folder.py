"""The output folder of a run: its files, and a lock that admits one process at a time."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import click

from .errors import ResourceLimitError
from .output import check_outside_inputs, reporting_write_errors
from .run_record import RECORD_FILE

CHECKPOINT, MODEL, LOCK, STAGE = "checkpoint.npz", "model.npz", ".lock", ".shoal-new."
LABELS = ("labels.npy", "labels.parquet", "labels.csv")
FILES = (RECORD_FILE, CHECKPOINT, MODEL, *LABELS, "history.csv", "report.html")


def check_output_folder(folder: Path, force: bool, *inputs: str) -> None:
    """Raise a usage error if the folder is not empty (unless forced) or if an input would be overwritten."""
    if folder.is_file():
        raise click.UsageError(f"{folder}: is a file: name a folder.")
    check_outside_inputs(folder, inputs)
    for given in inputs:
        if Path(given).resolve() in [(folder / name).resolve() for name in FILES]:
            raise click.UsageError(f"{given}: would be overwritten by the files of a fit in {folder}: name another folder.")
    check_regular_files(folder)
    with reporting_write_errors(folder):
        has_files = folder.exists() and any(file.name != LOCK for file in folder.iterdir())
    if has_files and not force:
        raise click.UsageError(
            f"{folder}: is not empty: continue with `shoal resume`, name another folder, or use --force to overwrite it."
        )


def check_regular_files(folder: Path) -> None:
    """Raise if a file of a run is a link, a pipe or a folder: a link may lead anywhere, and reading a pipe blocks."""
    for path in (folder / name for name in (*FILES, LOCK)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise click.UsageError(f"{path}: is a link, a pipe, a device or a folder, not a file of a run: remove it.")


def remove_stale_files(folder: Path, current: set[str]) -> None:
    """Remove files of an earlier run that this run did not write. Other files in the folder stay."""
    with reporting_write_errors(folder):
        for name in set(FILES) - current:
            (folder / name).unlink(missing_ok=True)


def remove_temporary_files(folder: Path) -> None:
    """Remove partially written files of a run that was killed."""
    from ..formats.archive import remove_stale_files as remove_stale_archives

    with reporting_write_errors(folder):
        for name in FILES:
            remove_stale_archives(folder / name)
        for left in folder.glob(f"{STAGE}*.tmp"):
            shutil.rmtree(left, ignore_errors=True)  # does not follow links


@contextlib.contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder for new files; `publish` moves them in place once all are written."""
    stage = folder / f"{STAGE}{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with reporting_write_errors(folder):
            stage.mkdir()
        yield stage
    except ResourceLimitError as error:
        raise ResourceLimitError(error.message.replace(str(stage), str(folder))) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def publish(stage: Path, folder: Path, name: str) -> None:
    """Move a new file in place. Renaming needs no disk space."""
    with reporting_write_errors(folder / name):
        os.replace(stage / name, folder / name)


def _is_file_of(fd: int, path: Path) -> bool:
    """Return whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create the folder and lock it. The system releases the lock when the process ends, for any reason.

    If the body fails without writing a file, a folder that was created here is removed again.
    """
    with reporting_write_errors(folder):
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # this system has no such locks
        yield
        return
    check_regular_files(folder)
    in_use = f"{folder}: another process is using this folder: wait for it, or name another folder."
    with reporting_write_errors(folder):
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise click.UsageError(in_use) from error
        if not _is_file_of(fd, folder / LOCK):  # another process has removed the file since it was opened
            raise click.UsageError(in_use)
        try:
            yield
        except Exception:
            if is_new and os.listdir(folder) == [LOCK]:
                (folder / LOCK).unlink()
                with contextlib.suppress(OSError):  # another process may have started to use the folder
                    folder.rmdir()
            raise
    finally:
        os.close(fd)
