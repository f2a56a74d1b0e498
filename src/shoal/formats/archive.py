"""Values in one file that nothing but the values can come out of: an npz file with a manifest.

A zip file of NumPy arrays, none of them packed, and of `manifest.json`, which says what they are part of and has the
SHA-256 of each. The last bytes are the SHA-256 of all bytes before them, so that a changed bit is found wherever it is. It is
checked before anything else is believed; then sizes are, before anything is allocated. No byte is ever unpickled.

A file is written under another name, synced and renamed: there is the old one or the new one, never a part of one.
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

from ..data.atomic_write import atomic_write
from ..data.regular_files import open_regular
from ..data.types import Array
from ..exceptions import InvalidFileError, InvalidModelError
from .npy import open_zip, read_header

VERSION = 2  # 1, which named classes by their modules, was never released
SEAL = b"shoal sha256 "
MANIFEST = "manifest.json"
CHUNK = 1 << 20
MAX_NAME = 256  # characters of an array's name
ANEW = "it was cut or changed; take another copy or write it anew"


def write(path: Path, kind: str, content: Any, arrays: dict[str, Array]) -> None:
    """The content may be anything that JSON knows; it refers to the arrays by name."""
    with atomic_write(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            told = {name: _put(archive, name, array) for name, array in arrays.items()}
            manifest = {
                "format": f"shoal {kind}",
                "version": VERSION,
                "arrays": told,
                "content": content,
            }
            archive.writestr(_info(MANIFEST), json.dumps(manifest, allow_nan=False))
            archive.comment = SEAL + b"0" * 64
        file.seek(-64, os.SEEK_END)
        end = file.tell()
        file.seek(0)
        seal = _digest(file, end)
        file.seek(end)
        file.write(seal.encode())


def tidy(path: Path) -> None:
    """Remove what processes that were killed have left half written."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        pid = left.name.split(".")[-3]
        if pid.isdecimal() and not _is_alive(int(pid)):
            left.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    if os.name != "posix":  # where there is no way to ask without harm
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _info(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name)  # of no date: equal models are equal files


def _put(archive: zipfile.ZipFile, name: str, array: Array) -> dict[str, Any]:
    """Write an array; what there is to say of it."""
    digest = hashlib.sha256()
    info = _info(f"{name}.npy")
    info.file_size = array.nbytes + 256  # so that large ones get room for their sizes
    with archive.open(info, "w") as stream:

        class Both:
            def write(self, data: Any) -> None:
                digest.update(data)
                stream.write(data)

        np.lib.format.write_array(Both(), array, allow_pickle=False)
    return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest.hexdigest()}


def _digest(file: IO[bytes], size: int) -> str:
    """Of the next so many bytes."""
    digest = hashlib.sha256()
    while size and (data := file.read(min(CHUNK, size))):
        digest.update(data)
        size -= len(data)
    return digest.hexdigest()


def read(path: Path, kind: str) -> tuple[Any, dict[str, Array]]:
    """Content and arrays, or `Rejected`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_seal(path, file, size)
        try:
            with open_zip(path, file) as archive:
                manifest = _manifest(path, archive, kind, size)
                arrays = {name: _get(path, archive, name, told) for name, told in manifest["arrays"].items()}
        except InvalidModelError:
            raise
        except Exception as error:  # a zip file can be wrong in many ways
            raise InvalidModelError(f"{path}: is no {kind} of Shoal's ({type(error).__name__}: {error}): {ANEW}.") from error
    return manifest["content"], arrays


def _check_seal(path: Path, file: IO[bytes], size: int) -> None:
    length = len(SEAL) + 64
    if size < length:
        raise InvalidModelError(f"{path}: has {size} bytes, too few for a file of Shoal's: {ANEW}.")
    found = _digest(file, size - 64).encode()
    seal = file.read()
    file.seek(size - length)
    if file.read(len(SEAL)) != SEAL:
        raise InvalidModelError(f"{path}: is no file that shoal.save or a checkpoint wrote, or it was cut: name one that is.")
    if seal != found:
        raise InvalidModelError(f"{path}: does not hold the bytes that were written: {ANEW}.")


def _manifest(path: Path, archive: zipfile.ZipFile, kind: str, size: int) -> dict[str, Any]:
    """What the file says of itself, and whether that can be."""
    infos = archive.infolist()
    packed = [
        i.filename for i in infos if i.compress_type != zipfile.ZIP_STORED or i.file_size != i.compress_size or i.flag_bits & 1
    ]
    if packed or sum(i.file_size for i in infos) > size:
        raise InvalidModelError(f"{path}: holds packed members, which Shoal does not write: {ANEW}.")
    try:
        manifest = json.loads(archive.read(MANIFEST))
        form, version, told = manifest["format"], manifest["version"], manifest["arrays"]
        good = isinstance(version, int) and isinstance(told, dict) and "content" in manifest
    except (ValueError, TypeError) as error:
        raise InvalidModelError(f"{path}: has a manifest that can't be read ({error}): {ANEW}.") from error
    if form != f"shoal {kind}":
        raise InvalidModelError(f"{path}: is {str(form)[:40]!r}, where 'shoal {kind}' is wanted: name another file.")
    if good and version > VERSION:
        raise InvalidModelError(
            f"{path}: was written by a newer Shoal (format {version}, this one reads {VERSION}): update Shoal."
        )
    if good and version < VERSION:
        raise InvalidModelError(
            f"{path}: was written by an earlier Shoal (format {version}, this one reads {VERSION}): fit again."
        )
    names = [f"{name}.npy" for name in told]
    if not good or sorted([*names, MANIFEST]) != sorted(i.filename for i in infos) or any(not _is_name(n) for n in told):
        raise InvalidModelError(f"{path}: has other members than its manifest says: {ANEW}.")
    return dict(manifest)


def _is_name(name: str) -> bool:
    return re.fullmatch(r"\w+(\.\w+)*(-[0-9]{1,9})?", name, re.ASCII) is not None and len(name) <= MAX_NAME


def _get(path: Path, archive: zipfile.ZipFile, name: str, told: Any) -> Array:
    """An array that is what the manifest says."""
    data = archive.read(f"{name}.npy")
    try:
        header = read_header(f"{path}, array {name}", data[: 1 << 16], len(data), "biufSU")
    except InvalidFileError as error:
        raise InvalidModelError(str(error)) from error
    found = {"dtype": header.dtype.str, "shape": list(header.shape), "sha256": hashlib.sha256(data).hexdigest()}
    if told != found:
        raise InvalidModelError(f"{path}: array {name} is not the one that was written: {ANEW}.")
    return np.load(io.BytesIO(data), allow_pickle=False) if header.bytes else np.empty(header.shape, header.dtype)
