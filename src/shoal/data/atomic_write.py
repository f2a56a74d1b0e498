"""Atomic file writes: write to a temporary file, sync it, then rename it over the target."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MAX_NAME_BYTES = 200  # of the target in the name of a temporary file; file systems allow 255 bytes in all


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` once all of its content is on disk.

    If anything fails, the temporary file is deleted and the previous content of `path` is unchanged.
    """
    temporary = path.with_name(f"{temporary_prefix(path)}{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb+") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror or error}; the previous content was left as it was", str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)


def temporary_prefix(path: Path) -> str:
    """Return the start of the names of temporary files for `path`; shortened, so that these names are not too long."""
    return f".{os.fsdecode(os.fsencode(path.name)[:MAX_NAME_BYTES])}."


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a renamed file survives a crash. Systems that cannot sync folders are ignored."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
