"""Failing disks: each system call that writes a file fails once, and no stored result may be lost."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from .signals import is_sound

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
SITES = ("open", "write", "flush", "fsync", "replace")
MAX_CALLS = 1000  # upper limit of the n-th call made to fail; the loops end at the first n without such a call


def saves(folder: Path, number: int) -> tuple[int, int]:
    """Overwrite a model; return the number of failed calls and of cases in which the old file was damaged."""
    import shoal

    path, X = folder / "model.npz", np.random.default_rng(0).normal(size=(300, 4))
    model = shoal.KMeans(3, random_state=0).fit(X)
    shoal.save(model, path)
    before, tried, harmed = path.read_bytes(), 0, 0
    for site in SITES:
        for call in range(1, MAX_CALLS):
            with failing_at(site, call, number) as failed, contextlib.suppress(OSError):
                shoal.save(model, path)
            if not failed():
                break
            tried += 1
            harmed += path.read_bytes() != before or list(folder.iterdir()) != [path]
    return tried, harmed


def fits(folder: Path, number: int, quick: bool) -> tuple[int, int]:
    """Do the same for all files of `shoal fit --force`."""
    rows, old, out = folder / "rows.npy", folder / "old", folder / "out"
    np.save(rows, np.random.default_rng(0).normal(size=(60, 2)))
    command = ["fit", str(rows), "--method", "lloyd", "--threads", "1", "-q"]
    assert _ended([*command, "-k", "2", "-o", str(old)]) == 0
    tried = harmed = 0
    for site in SITES[3:] if quick else SITES:
        for call in range(1, MAX_CALLS):
            shutil.copytree(old, out)
            with failing_at(site, call, number) as failed:
                code = _ended([*command, "-k", "3", "-o", str(out), "--force"])
            right = (code == 4 and _is_intact(old, out)) if failed() else code == 0
            tried, harmed = tried + failed(), harmed + (not right)
            shutil.rmtree(out)
            if not failed():
                break
    return tried, harmed


def _ended(command: list[str]) -> int:
    """Return the exit code of a command, with its output discarded."""
    from shoal.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(command)
        except SystemExit as end:
            return int(end.code or 0)
    return 99


def _is_intact(old: Path, out: Path) -> bool:
    """Return whether the old result is intact, or marked as unfinished with complete files, and no other files exist."""
    before, after = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (old, out))
    new = {name for name in before if after.get(name) != before[name]}
    is_result = json.loads(after["run.json"])["status"] == "done"
    return is_sound(out) and before.keys() == after.keys() and (not new if is_result else len(new) > 1)


class Failing:
    """A file whose n-th write or flush fails."""

    def __init__(self, file: Any, site: str, tick: Callable[[], None]) -> None:
        self._file, self._site, self._tick = file, site, tick

    def __getattr__(self, name: str) -> Any:
        if name == self._site:
            self._tick()
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextlib.contextmanager
def failing_at(site: str, call: int, number: int) -> Iterator[Callable[[], bool]]:
    """Make the n-th call fail; yield a function that returns whether it was reached."""
    left = [call]

    def tick() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(number, os.strerror(number))

    def failing(inner: Any) -> Any:
        return lambda *args, **options: (tick(), inner(*args, **options))[1]

    def opened(path: Any, mode: str = "r") -> Any:
        if site == "open":
            tick()
        return Failing(open(path, mode), site, tick)

    patches = [mock.patch("shoal.data.atomic_write.open", opened, create=True)]
    if site in ("fsync", "replace"):
        patches = [mock.patch(f"shoal.data.atomic_write.os.{site}", failing(getattr(os, site)))]
    patches.append(mock.patch("shoal.data.atomic_write.sync_folder"))  # not supported by all systems, and not required
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield lambda: left[0] <= 0
