"""Open files for positional reads from any thread, and keep only a limited number of them open.

Files are read with `pread` into new buffers and are not memory-mapped: mapped pages count as memory of the process, and if
the file is truncated, access to them kills the process.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..exceptions import InvalidFileError
from .errors import changed_error

HAS_PREAD = hasattr(os, "preadv")
READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0)

# Files that stay open while nobody reads them. Larger values may exceed the system's limit for folders of many files.
MAX_IDLE_FILES = 64


class Descriptor:
    """A file descriptor, None while the file is closed, and the number of threads that are reading."""

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd
        self.readers = 0

    def close(self) -> None:
        with LOCK:
            IDLE.pop(id(self), None)
            if self.fd is not None:
                os.close(self.fd)
            self.fd = None


LOCK = threading.RLock()  # reentrant: a finalizer may close one file while this thread closes another
IDLE: dict[int, Descriptor] = {}  # open files without readers, least recently used first


class File:
    """A file for positional reads from any thread. If it has a path, it may be closed while idle, and is then reopened."""

    def __init__(self, fd: int, name: str, path: Path | None = None) -> None:
        self.name, self.path = name, path
        self._descriptor, self._version, self._lock = Descriptor(fd), version_of(os.fstat(fd)), threading.Lock()
        weakref.finalize(self, self._descriptor.close)

    @classmethod
    def open(cls, path: Path) -> File:
        """Open a file for reading."""
        return cls(os.open(path, READ_ONLY), str(path), path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a file descriptor that stays open inside the `with` block; raise afterwards if the file has changed."""
        this = self._descriptor
        with LOCK:
            IDLE.pop(id(this), None)
            this.fd = fd = self._reopen() if this.fd is None else this.fd
            this.readers += 1
        try:
            yield fd
            if self.path is not None:  # a scratch file changes while it is written
                self._check_unchanged(fd)
        finally:
            with LOCK:
                this.readers -= 1
                if not this.readers and self.path is not None:
                    IDLE[id(this)] = this
                    if len(IDLE) > MAX_IDLE_FILES:
                        next(iter(IDLE.values())).close()

    def _reopen(self) -> int:
        assert self.path is not None
        fd = os.open(self.path, READ_ONLY)
        try:
            self._check_unchanged(fd)
        except InvalidFileError:
            os.close(fd)
            raise
        return fd

    def _check_unchanged(self, fd: int) -> None:
        if version_of(os.fstat(fd)) != self._version:
            raise changed_error(self.name)

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        with self.opened() as fd:
            return os.fstat(fd).st_size

    def fill(self, view: Any, at: int) -> None:
        """Fill a byte buffer from a byte offset of the file."""
        with self.opened() as fd:
            count = self._read(fd, view, at)
            while count < len(view):
                view, at = view[count:], at + count
                count = self._read(fd, view, at)
                if count == 0:
                    raise InvalidFileError(
                        f"{self.name}: ends at byte {at:,}, inside the rows: it was truncated after it was opened; "
                        "restore it, then call open_rows again."
                    )

    def _read(self, fd: int, view: Any, at: int) -> int:
        try:
            return self._read_at(fd, view, at)
        except OSError as error:  # it does not name the file
            raise OSError(error.errno, f"{error.strerror} at byte {at:,}", self.name) from error

    def _read_at(self, fd: int, view: Any, at: int) -> int:
        if HAS_PREAD:
            return os.preadv(fd, [view], at)
        with self._lock:  # the position of the descriptor is shared by all threads
            os.lseek(fd, at, os.SEEK_SET)
            data = os.read(fd, len(view))
        view[: len(data)] = data
        return len(data)


def version_of(status: os.stat_result) -> tuple[int, ...]:
    """Return device, inode, size and modification time, which differ if the file was replaced or changed."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
