"""Sealed archives: JSON and arrays in one npz file that can be read without unpickling anything.

An archive is an uncompressed zip file of NumPy arrays and of `manifest.json`, which holds the content, and dtype, shape and
SHA-256 of each array. Its last bytes are the SHA-256 of all bytes before them (the seal), so that any changed bit is detected.
The seal is checked first, then all sizes, before anything is allocated.

Files are replaced atomically (see `data.atomic_write`).
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..data.atomic_write import atomic_write, temporary_prefix
from ..data.regular_files import open_regular
from ..data.types import Array
from ..exceptions import InvalidFileError, InvalidModelError
from .npy import HEADER_BYTES, read_header
from .npz import open_zip

VERSION = 2  # of the layout of the file; version 1, which named classes by their modules, was never released
SEAL = b"shoal sha256 "
DIGEST_CHARACTERS = 64  # SHA-256 as hexadecimal digits
MANIFEST = "manifest.json"
HASH_BYTES = 1 << 20  # bytes hashed at a time
MAX_NAME = 256  # characters of an array's name
REMEDY = "it was truncated or changed; use another copy, or write it again"


def write(path: Path, kind: str, content: Any, arrays: dict[str, Array]) -> None:
    """Write an archive of this kind ("model" or "checkpoint"). The content is JSON, and refers to the arrays by name."""
    with atomic_write(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            manifest = {
                "format": f"shoal {kind}",
                "version": VERSION,
                "arrays": {name: _write_array(archive, name, array) for name, array in arrays.items()},
                "content": content,
            }
            archive.writestr(_zip_info(MANIFEST), json.dumps(manifest, allow_nan=False))
            archive.comment = SEAL + b"0" * DIGEST_CHARACTERS
        file.seek(-DIGEST_CHARACTERS, os.SEEK_END)
        end = file.tell()
        file.seek(0)
        seal = _digest(file, end)
        file.seek(end)
        file.write(seal.encode())


def remove_stale_files(path: Path) -> None:
    """Delete temporary files that killed processes left when they were writing this archive."""
    for temporary in path.parent.glob(f"{glob.escape(temporary_prefix(path))}*.tmp"):
        pid = temporary.name.split(".")[-3]
        if pid.isdecimal() and not _is_alive(int(pid)):
            temporary.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    """Return whether a process exists; True where this is unknown."""
    if os.name != "posix":  # os.kill would end the process
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _zip_info(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name)  # without the current date, so that equal models are equal files


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> dict[str, Any]:
    """Write an array as a member of the archive, and return its entry in the manifest."""
    digest = hashlib.sha256()
    info = _zip_info(f"{name}.npy")
    info.file_size = array.nbytes + 256  # zipfile reserves 64-bit size fields if this is large
    with archive.open(info, "w") as stream:

        class HashingStream:
            def write(self, data: Any) -> None:
                digest.update(data)
                stream.write(data)

        np.lib.format.write_array(HashingStream(), array, allow_pickle=False)
    return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest.hexdigest()}


def _digest(file: IO[bytes], size: int) -> str:
    """Return the SHA-256 of the next `size` bytes."""
    digest = hashlib.sha256()
    while size and (data := file.read(min(HASH_BYTES, size))):
        digest.update(data)
        size -= len(data)
    return digest.hexdigest()


def read(path: Path, kind: str) -> tuple[Any, dict[str, Array]]:
    """Return content and arrays of an archive of this kind, or raise `InvalidModelError`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_seal(path, file, size)
        try:
            with open_zip(path, file) as archive:
                manifest = _read_manifest(path, archive, kind, size)
                arrays = {name: _read_array(path, archive, name, entry) for name, entry in manifest["arrays"].items()}
        except InvalidModelError:
            raise
        except Exception as error:  # zipfile raises exceptions of many types for invalid files
            raise InvalidModelError(f"{path}: is not a Shoal {kind} ({type(error).__name__}: {error}): {REMEDY}.") from error
    return manifest["content"], arrays


def _check_seal(path: Path, file: IO[bytes], size: int) -> None:
    """Compare the SHA-256 at the end of the file with that of all bytes before it."""
    length = len(SEAL) + DIGEST_CHARACTERS
    if size < length:
        raise InvalidModelError(f"{path}: has {size} bytes, too few for a Shoal file: {REMEDY}.")
    found = _digest(file, size - DIGEST_CHARACTERS).encode()
    seal = file.read()
    file.seek(size - length)
    if file.read(len(SEAL)) != SEAL:
        raise InvalidModelError(f"{path}: was not written by shoal.save or a checkpoint, or was truncated: use another file.")
    if seal != found:
        raise InvalidModelError(f"{path}: its content does not match its checksum: {REMEDY}.")


def _read_manifest(path: Path, archive: zipfile.ZipFile, kind: str, size: int) -> dict[str, Any]:
    """Return the manifest, after checking it against the members of the archive and their sizes."""
    infos = archive.infolist()
    packed = [
        i.filename for i in infos if i.compress_type != zipfile.ZIP_STORED or i.file_size != i.compress_size or i.flag_bits & 1
    ]
    if packed or sum(i.file_size for i in infos) > size:
        raise InvalidModelError(f"{path}: has compressed members, which Shoal does not write: {REMEDY}.")
    try:
        manifest = json.loads(archive.read(MANIFEST))
        form, version, entries = manifest["format"], manifest["version"], manifest["arrays"]
        is_valid = isinstance(version, int) and isinstance(entries, dict) and "content" in manifest
    except (ValueError, TypeError) as error:
        raise InvalidModelError(f"{path}: has a manifest that cannot be read ({error}): {REMEDY}.") from error
    if form != f"shoal {kind}":
        raise InvalidModelError(f"{path}: is a {str(form)[:40]!r} file, not a 'shoal {kind}' file: use another file.")
    if is_valid and version != VERSION:
        age, remedy = ("a newer", "update Shoal") if version > VERSION else ("an earlier", "fit again")
        raise InvalidModelError(
            f"{path}: was written by {age} version of Shoal (format {version}, supported {VERSION}): {remedy}."
        )
    members = sorted([*(f"{name}.npy" for name in entries), MANIFEST]) if is_valid else []
    if members != sorted(i.filename for i in infos) or not all(map(_is_array_name, entries)):
        raise InvalidModelError(f"{path}: its members differ from those that its manifest lists: {REMEDY}.")
    return dict(manifest)


def _is_array_name(name: str) -> bool:
    """Return whether `save` could have written an array of this name."""
    return re.fullmatch(r"\w+(\.\w+)*(-[0-9]{1,9})?", name, re.ASCII) is not None and len(name) <= MAX_NAME


def _read_array(path: Path, archive: zipfile.ZipFile, name: str, entry: Any) -> Array:
    """Return an array, after comparing it with its entry in the manifest."""
    data = archive.read(f"{name}.npy")
    try:
        header = read_header(f"{path}, array {name}", data[:HEADER_BYTES], len(data), "biufSU")
    except InvalidFileError as error:
        raise InvalidModelError(str(error)) from error
    found = {"dtype": header.dtype.str, "shape": list(header.shape), "sha256": hashlib.sha256(data).hexdigest()}
    if entry != found:
        raise InvalidModelError(f"{path}: array {name} differs from its entry in the manifest: {REMEDY}.")
    return np.load(io.BytesIO(data), allow_pickle=False) if header.bytes else np.empty(header.shape, header.dtype)
