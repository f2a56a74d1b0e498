"""Sign run records, so that `shoal resume` can recognize the records that this user wrote on this machine.

The key is a file of random bytes that only this user can read. A signed record contains paths that this user entered; paths in
any other record are never opened.
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

KEY_BYTES = 32  # key of HMAC-SHA256; keys of another length are rejected


def signature(document: Any) -> str | None:
    """Return the signature of a JSON document, or None if no key can be stored. The key is created on first use."""
    path = _key_path()
    if path is not None and not path.exists():
        with contextlib.suppress(OSError):
            _create_key(path)
    key = _read_key(path)
    return None if key is None else _digest(key, document)


def is_own(document: Any, signed: object) -> bool:
    """Return True if the document was signed with this user's key."""
    key = _read_key(_key_path())
    return key is not None and isinstance(signed, str) and hmac.compare_digest(_digest(key, document).encode(), signed.encode())


def _digest(key: bytes, document: Any) -> str:
    """Return the HMAC of the document in canonical form, as hexadecimal text."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, b"shoal run\n" + text.encode(), hashlib.sha256).hexdigest()


def _key_path() -> Path | None:
    """Return the path of the key file, or None if there is no place for it."""
    state = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        return (Path(state) if state and os.path.isabs(state) else Path.home() / ".local" / "state") / "shoal" / "key"
    except RuntimeError:  # the home folder cannot be determined
        return None


def _create_key(path: Path) -> None:
    """Create the key. It is written under a temporary name, then linked: if processes compete, the first key is kept."""
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
    """Return the key, or None if it is missing, has the wrong length, or could be read or written by other users."""
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
