"""The notes of a run, `run.json`: what it was asked to do and what came of it.

Whoever gives away a folder may have written its notes, so every field is checked for type and size before it is used. Paths
are used only if the notes carry this user's signature (see `signing`). How to reach a cluster is never written down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from .errors import Turned
from .methods import METHODS, is_parameter
from .options import MAX_THREADS
from .output import plain, write_json
from .signing import is_own, signature

NOTES = "run.json"
MAX_BYTES = 1 << 26  # of run.json; a million numbers of columns take an eighth of it
MAX_TEXT = 1 << 22  # characters; a command line can have two million
LARGEST = 2**63 - 1
WORK = ("tasks", "bytes", "lost")  # what workers of a cluster have taken

Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and "\0" not in value


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _integer(low: int, high: int = LARGEST) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float = 1e308) -> Check:
    return lambda value: type(value) in (int, float) and low <= value <= high  # which NaN is not


def _one_of(*values: str) -> Check:
    return lambda value: isinstance(value, str) and value in values


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check, fewest: int = 0, most: int = LARGEST) -> Check:
    return lambda value: isinstance(value, list) and fewest <= len(value) <= most and all(map(check, value))


def _dict_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(_is_text, value)) and all(map(check, value.values()))


RUN: dict[str, Check] = {
    "format": _one_of("shoal run"),
    "status": _one_of("running", "done"),
    "data": lambda value: _is_text(value) and value != "",
    **dict.fromkeys(("shoal", "begun", "command", "fingerprint"), _is_text),
}
SETTINGS: dict[str, Check] = {
    "method": _one_of(*METHODS),
    "clusters": _integer(1),
    "seed": _integer(0, 2**32 - 1),
    "extra": _dict_of(is_parameter),
    "metric": _one_of("euclidean", "cosine"),
    "columns": _optional(_list_of(lambda value: _is_text(value) or _integer(0)(value), 1)),
    **dict.fromkeys(("init", "scratch", "array", "delimiter", "id_column", "text_column"), _optional(_is_text)),
    **dict.fromkeys(("header", "zero_based"), _optional(_is_bool)),
    "limit_rows": _optional(_integer(1)),
    "threads": _optional(_integer(1, MAX_THREADS)),
    "time": _optional(_number(1e-9, 1e18)),
    "memory": _optional(_number(1, 1e18)),
    "image": _optional(_list_of(_integer(1, 999_999), 2, 3)),
    **dict.fromkeys(("standardize", "report"), _is_bool),
    "engine": _optional(_one_of("threads", "dask")),  # of a cluster, only that there was one
}
RESULT: dict[str, Check] = {
    **dict.fromkeys(("method", "estimator", "stopped", "summary"), _is_text),
    **dict.fromkeys(("rows", "columns", "clusters", "steps", "seed"), _integer(0)),
    "standardized": _is_bool,
    "seconds": _number(0),
    "energy": _optional(_number(-1e308)),
    "work": lambda value: _dict_of(_number(0))(value) and (not value or sorted(value) == sorted(WORK)),
    "files": _dict_of(_is_text),
    "warnings": _list_of(_is_text),
}


def write_notes(folder: Path, notes: Mapping[str, Any]) -> None:
    """Write and sign the notes. Settings that they have no field for, such as the address of a cluster, are left out."""
    document = _known(plain(notes))
    write_json(folder / NOTES, {**document, "signature": signature(document)})


def read_notes(folder: Path) -> tuple[dict[str, Any], bool]:
    """Return the notes of a run, and whether this user's key has signed them. Fields that are not known are left out."""
    from ..data.regular_files import open_regular

    path = folder / NOTES
    try:
        with open_regular(path, follow_links=False) as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        document = json.loads(text)
        notes = _known(document)
        _check(notes)
        return notes, is_own(notes, document.get("signature"))
    except FileNotFoundError as error:
        raise click.UsageError(f"{path}: there is no such file: name a folder that `shoal fit -o` has made.") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError, MemoryError) as error:
        why = f"{error.strerror}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"[:200]
        raise Turned(f"{path}: can't be read as the notes of a run ({why}): start again with `shoal fit --force`.") from error


def _known(document: Any) -> dict[str, Any]:
    """Return the fields that notes have; what is missing is a KeyError."""
    notes = {name: document[name] for name in RUN}
    notes["settings"] = {name: document["settings"][name] for name in SETTINGS}
    if notes["status"] == "done":
        notes["result"] = {name: document["result"][name] for name in RESULT}
    return notes


def _check(notes: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first field that no run has written."""
    for where, checks in (("", RUN), ("settings", SETTINGS), ("result", RESULT)):
        fields = notes.get(where, {}) if where else notes
        for name, check in checks.items():
            if name in fields and not check(fields[name]):
                raise ValueError(f"its field {f'{where}.{name}'.lstrip('.')} holds what no run writes there")
