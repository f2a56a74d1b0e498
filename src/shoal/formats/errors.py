"""Errors of files: optional packages that are missing, exceptions of other packages, and files that declare too much."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from ..exceptions import InvalidFileError

# A file may declare an array of this many bytes, or of this many times its own size, whichever is larger. Smaller limits
# would reject compressed files of mostly equal numbers; larger ones would let a small file fill memory or disk.
MAX_SMALL_ARRAY, MAX_EXPANSION = 1 << 30, 2000

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the quota of the user, or the largest size of a file

MAX_REASON = 300  # characters of another package's error message that are quoted


def need(module: str, extra: str, path: Any) -> Any:
    """Import an optional package, or raise ImportError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"Reading {path} requires {package}: pip install 'shoal[{extra}]'.") from error


@contextlib.contextmanager
def wrap_read_errors(path: Any, action: str, remedy: str) -> Iterator[None]:
    """Turn whatever another package raises for a broken file into InvalidFileError with the path and a remedy."""
    try:
        yield
    except (InvalidFileError, ImportError):
        raise
    except MemoryError as error:  # most likely, the file declares sizes that are too large
        raise InvalidFileError(
            f"{path}: {action} takes more memory than is available: it is damaged, or its parts are too large; {remedy}."
        ) from error
    except Exception as error:
        # Errors of the operating system name the file. Those that zarr raises have no errno, and do not.
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())[:MAX_REASON] or type(error).__name__
        raise InvalidFileError(f"{path}: {action} failed ({reason.rstrip('.')}): {remedy}.") from error


def changed_error(name: Any) -> InvalidFileError:
    """Return the error for a file whose parts were read before and after it was changed, and may not fit together."""
    return InvalidFileError(f"{name}: has changed since it was opened: call open_rows again.")


def check_unpacked(path: Any, unpacked: int, stored: int) -> None:
    """Raise if a file declares far more bytes than its own size can hold (a decompression bomb)."""
    if unpacked > max(MAX_SMALL_ARRAY, MAX_EXPANSION * stored):
        raise InvalidFileError(
            f"{path}: declares {unpacked:,} bytes of data in {stored:,} bytes of file: it is damaged or a decompression bomb; "
            "use another copy."
        )
