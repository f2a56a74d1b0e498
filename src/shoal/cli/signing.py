"""Signatures on the notes of a run, by which `shoal resume` tells this user's own notes from anybody else's.

The key is a file of random bytes that only this user can read. Notes that it has signed name paths that this user typed;
the paths in all others are never opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

KEY_BYTES = 32


def signature(document: Any) -> str | None:
    """Sign a JSON document with this user's key, which is made on first use; None if none can be stored."""
    path = _key_path()
    if path is not None and not path.exists():
        with contextlib.suppress(OSError):
            _make_key(path)
    key = _read_key(path)
    return None if key is None else _digest(key, document)


def is_own(document: Any, signed: object) -> bool:
    """Whether this user's key made the signature of the document."""
    key = _read_key(_key_path())
    return key is not None and isinstance(signed, str) and hmac.compare_digest(_digest(key, document).encode(), signed.encode())


def _digest(key: bytes, document: Any) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, b"shoal run\n" + text.encode(), hashlib.sha256).hexdigest()


def _key_path() -> Path | None:
    state = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        return (Path(state) if state and os.path.isabs(state) else Path.home() / ".local" / "state") / "shoal" / "key"
    except RuntimeError:  # nobody knows where the home folder is
        return None


def _make_key(path: Path) -> None:
    """Write the key under another name and link it, so that of several processes the first one's key is the only one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_key(path: Path | None) -> bytes | None:
    """Return the key, unless there is none or others than this user could have read or written it."""
    from ..data.regular_files import open_regular

    if path is None:
        return None
    try:
        with open_regular(path, follow_links=False) as file:
            status, key = os.fstat(file.fileno()), file.read(KEY_BYTES + 1)
    except OSError:
        return None
    is_private = os.name != "posix" or (status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077)
    return key if is_private and len(key) == KEY_BYTES else None
