"""What is raised for files, and the ways to get there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from ..exceptions import InvalidFileError

BOMB, SMALL = 2000, 1 << 30  # no honest file of numbers unpacks to more than so many times its size, or than this


def need(module: str, extra: str, path: Any) -> Any:
    """An optional package."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"To read {path}, Shoal needs {package}: pip install 'shoal[{extra}]'.") from error


@contextlib.contextmanager
def wrap_read_errors(path: Any, doing: str, remedy: str) -> Iterator[None]:
    """What a package has to say of a file, in one sentence that says which. It may raise anything for a broken one."""
    try:
        yield
    except (InvalidFileError, ImportError):
        raise
    except MemoryError as error:  # of a file that lies about its size, most likely
        raise InvalidFileError(
            f"{path}: {doing} takes more memory than there is: it is broken, or has too large parts; {remedy}."
        ) from error
    except Exception as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError) and error.errno is not None:
            raise  # of the system: those of zarr have no number, and do not name the file
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise InvalidFileError(f"{path}: {doing} failed ({why.rstrip('.')}): {remedy}.") from error


def check_unpacked(path: Any, unpacked: int, stored: int) -> None:
    """Refuse a file that claims to hold far more than its bytes could tell."""
    if unpacked > max(SMALL, BOMB * stored):
        raise InvalidFileError(
            f"{path}: its {stored:,} bytes claim to hold {unpacked:,}: it is broken, or made to fill your disk."
        )
