"""Open files, which any thread may read at any place, and of which there may be more than the system lets a process open.

They are read by `pread` into blocks of their own, not mapped: the pages of a map count as the process's memory, and if the
file shrinks, a look at them ends the process.
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

READS_AT = hasattr(os, "preadv")
READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0)
OPEN = 64  # files that stay open while nobody reads them


class Descriptor:
    """Of a file: the system's number for it as long as it is open, and how many threads are reading."""

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd
        self.readers = 0

    def close(self) -> None:
        with LOCK:
            IDLE.pop(id(self), None)
            if self.fd is not None:
                os.close(self.fd)
            self.fd = None


LOCK = threading.RLock()  # a file may be forgotten, and so closed, while another is
IDLE: dict[int, Descriptor] = {}  # open files that nobody reads right now, from the one that was left first on


class File:
    """A file that any thread may read at any place. Those with a path are closed when there are many, and opened again."""

    def __init__(self, fd: int, name: str, path: Path | None = None) -> None:
        self.name, self.path = name, path
        self._descriptor, self._known_by, self._lock = Descriptor(fd), _known_by(fd), threading.Lock()
        weakref.finalize(self, self._descriptor.close)

    @classmethod
    def open(cls, path: Path) -> File:
        return cls(os.open(path, READ_ONLY), str(path), path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The system's number for the file, which stays open meanwhile."""
        this = self._descriptor
        with LOCK:
            IDLE.pop(id(this), None)
            this.fd = fd = self._reopened() if this.fd is None else this.fd
            this.readers += 1
        try:
            yield fd
        finally:
            with LOCK:
                this.readers -= 1
                if not this.readers and self.path is not None:
                    IDLE[id(this)] = this
                    if len(IDLE) > OPEN:
                        next(iter(IDLE.values())).close()

    def _reopened(self) -> int:
        assert self.path is not None
        fd = os.open(self.path, READ_ONLY)
        if _known_by(fd) != self._known_by:
            os.close(fd)
            raise InvalidFileError(f"{self.name}: has changed since it was opened: call open_rows once more.")
        return fd

    @property
    def size(self) -> int:
        with self.opened() as fd:
            return os.fstat(fd).st_size

    def fill(self, view: Any, at: int) -> None:
        """Fill a buffer of bytes from this place on."""
        with self.opened() as fd:
            count = self._read(fd, view, at)
            while count < len(view):
                view, at = view[count:], at + count
                count = self._read(fd, view, at)
                if count == 0:
                    raise InvalidFileError(
                        f"{self.name}: ends at byte {at:,} where rows should be: it has shrunk since it was opened."
                    )

    def _read(self, fd: int, view: Any, at: int) -> int:
        try:
            return self._read_at(fd, view, at)
        except OSError as error:  # which knows no name
            raise OSError(error.errno, f"{error.strerror} at byte {at:,}", self.name) from error

    def _read_at(self, fd: int, view: Any, at: int) -> int:
        if READS_AT:
            return os.preadv(fd, [view], at)
        with self._lock:  # one place at a time
            os.lseek(fd, at, os.SEEK_SET)
            data = os.read(fd, len(view))
        view[: len(data)] = data
        return len(data)


def _known_by(fd: int) -> tuple[int, ...]:
    told = os.fstat(fd)
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns
