"""The record of a run, `run.json`: what was asked for, and the result.

The folder of a run may have been written by another user, so every field is checked for type and size before it is used. Paths
are used only if the record carries this user's signature (see `signing`). The address of a cluster is never stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import click

from .errors import RejectedFileError
from .methods import REGISTRY, is_parameter
from .options import MAX_BYTES, MAX_INT64, MAX_SECONDS, MAX_THREADS, MIN_BYTES, MIN_SECONDS
from .output import to_jsonable, write_json
from .settings import FitSettings
from .signing import is_own, signature

RECORD_FILE = "run.json"
MAX_RECORD_BYTES = 1 << 26  # size of run.json; a list of a million column numbers takes an eighth of it
MAX_TEXT = 1 << 22  # characters; a command line can have two million
WORK_FIELDS = ("tasks", "bytes", "lost")  # totals over the Dask workers, from the history of a fit


class RunRecord(TypedDict):
    """Content of run.json. The keys are part of the file format."""

    format: str
    shoal: str  # version
    status: str
    started: str  # ISO 8601
    command: str
    data: str  # absolute path
    fingerprint: str  # of the data
    settings: FitSettings
    result: NotRequired[dict[str, Any]]


Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and "\0" not in value


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _integer(low: int, high: int = MAX_INT64) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float = 1e308) -> Check:
    return lambda value: type(value) in (int, float) and low <= value <= high  # False for NaN


def _one_of(*values: str) -> Check:
    return lambda value: isinstance(value, str) and value in values


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check, min_length: int = 0, max_length: int = MAX_INT64) -> Check:
    return lambda value: isinstance(value, list) and min_length <= len(value) <= max_length and all(map(check, value))


def _dict_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(_is_text, value)) and all(map(check, value.values()))


RECORD_CHECKS: dict[str, Check] = {
    "format": _one_of("shoal run"),
    "status": _one_of("running", "done"),
    "data": lambda value: _is_text(value) and value != "",
    **dict.fromkeys(("shoal", "started", "command", "fingerprint"), _is_text),
}
SETTINGS_CHECKS: dict[str, Check] = {
    "method": _one_of(*REGISTRY),
    "clusters": _integer(1),
    "seed": _integer(0, 2**32 - 1),
    "extra": _dict_of(is_parameter),
    "metric": _one_of("euclidean", "cosine"),
    "columns": _optional(_list_of(lambda value: _is_text(value) or _integer(0)(value), 1)),
    **dict.fromkeys(("init", "scratch", "array", "delimiter", "id_column", "text_column"), _optional(_is_text)),
    **dict.fromkeys(("header", "zero_based"), _optional(_is_bool)),
    "limit_rows": _optional(_integer(1)),
    "threads": _optional(_integer(1, MAX_THREADS)),
    "time": _optional(_number(MIN_SECONDS, MAX_SECONDS)),
    "memory": _optional(_number(MIN_BYTES, MAX_BYTES)),
    "image": _optional(_list_of(_integer(1, 999_999), 2, 3)),
    **dict.fromkeys(("standardize", "report"), _is_bool),
    "engine": _optional(_one_of("threads", "dask")),  # without the address of the cluster
}
RESULT_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("method", "estimator", "stopped", "summary"), _is_text),
    **dict.fromkeys(("rows", "columns", "clusters", "steps", "seed"), _integer(0)),
    "standardized": _is_bool,
    "seconds": _number(0),
    "energy": _optional(_number(-1e308)),
    "work": lambda value: _dict_of(_number(0))(value) and (not value or sorted(value) == sorted(WORK_FIELDS)),
    "files": _dict_of(_is_text),
    "warnings": _list_of(_is_text),
}


def write_run_record(folder: Path, record: RunRecord) -> None:
    """Write and sign run.json."""
    document = _select_fields(to_jsonable({**record, "settings": record["settings"].to_json()}))
    write_json(folder / RECORD_FILE, {**document, "signature": signature(document)})


def read_run_record(folder: Path) -> tuple[RunRecord, bool]:
    """Return the record of a run, and whether it was signed with this user's key. Unknown fields are dropped."""
    from ..data.regular_files import open_regular

    path = folder / RECORD_FILE
    try:
        with open_regular(path, follow_links=False) as file:
            text = file.read(MAX_RECORD_BYTES + 1)
        if len(text) > MAX_RECORD_BYTES:
            raise ValueError(f"more than {MAX_RECORD_BYTES:,} bytes")
        document = json.loads(text)
        fields = _select_fields(document)
        _check_fields(fields)
        is_signed = is_own(fields, document.get("signature"))
        record: Any = {**fields, "settings": FitSettings.from_json(fields["settings"])}
        return record, is_signed
    except FileNotFoundError as error:
        raise click.UsageError(f"{path}: no such file: name a folder that was written by `shoal fit -o`.") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError, MemoryError) as error:
        reason = f"{error.strerror}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"[:200]
        raise RejectedFileError(
            f"{path}: is not a valid run record ({reason}): start again with `shoal fit --force`."
        ) from error


def _select_fields(document: Any) -> dict[str, Any]:
    """Return the known fields of a record in their fixed order. Raise a KeyError if one is missing."""
    record = {name: document[name] for name in RECORD_CHECKS}
    record["settings"] = {name: document["settings"][name] for name in SETTINGS_CHECKS}
    if record["status"] == "done":
        record["result"] = {name: document["result"][name] for name in RESULT_CHECKS}
    return record


def _check_fields(record: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first field with an invalid value."""
    for section, checks in (("", RECORD_CHECKS), ("settings", SETTINGS_CHECKS), ("result", RESULT_CHECKS)):
        fields = record.get(section, {}) if section else record
        for name, check in checks.items():
            if name in fields and not check(fields[name]):
                raise ValueError(f"invalid value in field {f'{section}.{name}'.lstrip('.')}")
