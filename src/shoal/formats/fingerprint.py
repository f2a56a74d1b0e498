"""Whether files are those that were there before, or that another machine has."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.regular_files import open_regular

PRINT, PRINTS = 1 << 16, 64  # bytes of the pieces that a file is known again by, and how many
EDGE = 1 << 12  # bytes at both ends of a file that are looked at to see whether another machine has the same one


class FileSignature(NamedTuple):
    """What a file, or those of a folder, look like from outside: quick, even if there are many."""

    files: int
    size: int  # of all
    digest: str  # of their names and sizes, and of both ends of some

    @classmethod
    def of(cls, path: Path) -> FileSignature:
        files = _all_files(path)
        sizes = [file.stat().st_size for file in files]
        digest = hashlib.sha256()
        for file, size in zip(files, sizes, strict=True):
            digest.update(_named(file, path, size))
        for i in sorted({round(j) for j in np.linspace(0, len(files) - 1, min(len(files), PRINTS))}):
            with open_regular(files[i]) as stream:
                for at in (0, max(sizes[i] - EDGE, 0)):
                    stream.seek(at)
                    digest.update(stream.read(EDGE))
        return cls(len(files), sum(sizes), digest.hexdigest())

    def __str__(self) -> str:
        return f"{self.files:,} file{'s' * (self.files != 1)} of {self.size:,} bytes"


def _all_files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _named(file: Path, path: Path, size: int) -> bytes:
    return f"{file.relative_to(path)} {size}\n".encode(errors="surrogateescape")


def fingerprint(path: Path) -> str:
    """Of the sizes of a file, or of all in a folder, and of 64 pieces of each: quick, and it finds most changes."""
    digest = hashlib.sha256()
    for file in _all_files(path):
        size = file.stat().st_size
        digest.update(_named(file, path, size))
        with open_regular(file) as stream:
            for at in sorted({(size - PRINT) * i // (PRINTS - 1) if size > PRINT else 0 for i in range(PRINTS)}):
                stream.seek(at)
                digest.update(stream.read(PRINT))
    return digest.hexdigest()
