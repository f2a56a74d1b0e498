"""Recognise files: whether they are unchanged since a checkpoint, or the same on another machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.regular_files import open_regular
from .errors import changed_error
from .file_cache import version_of

# Bytes of a sample, and samples of each file. Larger values find more changes and take longer. Changing either changes every
# fingerprint, so checkpoints of compressed files could no longer be resumed.
SAMPLE_BYTES, N_SAMPLES = 1 << 16, 64

# Bytes compared at both ends of a file, and files of a folder that are opened. Names and sizes of all files are compared.
SIGNATURE_BYTES, SIGNATURE_FILES = 1 << 12, 64


class FileSignature(NamedTuple):
    """Number, total size and digest of a file or of all files in a folder; fast even for many large files."""

    files: int
    size: int  # bytes of all files
    digest: str  # of all names and sizes, and of both ends of some files

    @classmethod
    def of(cls, path: Path) -> FileSignature:
        """Compute the signature of a file or a folder."""
        files = _all_files(path)
        sizes = [file.stat().st_size for file in files]
        digest = hashlib.sha256()
        for file, size in zip(files, sizes, strict=True):
            digest.update(_name_and_size(file, path, size))
        for i in sorted({round(j) for j in np.linspace(0, len(files) - 1, min(len(files), SIGNATURE_FILES))}):
            with open_regular(files[i]) as stream:
                for at in (0, max(sizes[i] - SIGNATURE_BYTES, 0)):
                    stream.seek(at)
                    digest.update(stream.read(SIGNATURE_BYTES))
        return cls(len(files), sum(sizes), digest.hexdigest())

    def __str__(self) -> str:
        return f"{self.files:,} file{'s' * (self.files != 1)} of {self.size:,} bytes"


def watch(path: Path) -> Callable[[], None]:
    """Return a function that raises InvalidFileError if the file, or a file of the folder, is no longer as it is now.

    For files that are read more than once by their path: rows of one version would be combined with columns of another.
    """
    before = _versions(path)

    def check() -> None:
        if _versions(path) != before:
            raise changed_error(path)

    return check


def _versions(path: Path) -> list[tuple[int, ...]]:
    return [version_of(file.stat()) for file in _all_files(path)] if path.exists() else []


def _all_files(path: Path) -> list[Path]:
    """Return the file itself, or all files in a folder and its subfolders, sorted by name."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _name_and_size(file: Path, path: Path, size: int) -> bytes:
    return f"{file.relative_to(path)} {size}\n".encode(errors="surrogateescape")


def fingerprint(path: Path) -> str:
    """Return a digest of the names, the sizes and samples of the content of all files; small changes may be missed."""
    digest = hashlib.sha256()
    for file in _all_files(path):
        size = file.stat().st_size
        digest.update(_name_and_size(file, path, size))
        step, last = max(size - SAMPLE_BYTES, 0), N_SAMPLES - 1
        with open_regular(file) as stream:
            for at in sorted({step * i // last for i in range(N_SAMPLES)}):
                stream.seek(at)
                digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()
