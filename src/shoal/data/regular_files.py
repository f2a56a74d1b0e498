"""Open regular files only: opening a pipe may block, and reading a device may never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO


def open_regular(path: Path, follow_links: bool = True) -> IO[bytes]:
    """Open a file for reading, or raise an OSError if it is a pipe, a socket or a device (or a link, if those are refused).

    The type is checked before the file is opened, since opening a device can have effects, and again afterwards.
    """
    check_regular(os.stat(path, follow_symlinks=follow_links), path)
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    fd = os.open(path, flags if follow_links else flags | getattr(os, "O_NOFOLLOW", 0))
    try:
        check_regular(os.fstat(fd), path)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def check_regular(status: os.stat_result, path: Path) -> None:
    """Raise an OSError that says what the path is instead of a regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    kind = "a link" if stat.S_ISLNK(status.st_mode) else "a pipe, a socket or a device"
    raise OSError(errno.EINVAL, f"is {kind}, not a file", str(path))
