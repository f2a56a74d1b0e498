"""Save the state of a running fit to a file, and resume it in another process with the same result.

The state of a fit consists of arrays and numbers only (see `fit.checkpoint`), and random numbers depend only on the seed and
the position in the fit. Distance bounds are not saved, because labels do not depend on them. The file is therefore small:
four bytes per row and the centroids. After a resume, only `history_` differs: its times, and its counts of rows and of
distances, which are higher until the bounds are rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..data.scoped import Scoped
from ..exceptions import FitInterrupted, InvalidModelError
from ..fit.checkpoint import CHECKPOINT_STORE, CheckpointStore, FitProgress
from .archive import read, remove_stale_files, write
from .values import Reader, Writer

# Parameters that may differ between the interrupted and the resumed run: they do not change the result of a step.
CHANGEABLE_PARAMETERS = ("time_budget", "max_iter", "n_threads", "callback", "verbose")

SHARE = 0.01  # largest fraction of the elapsed time spent on writing checkpoints


class Checkpoint(Scoped):
    """Save the state of a fit to a file at intervals, and resume from the file if it exists.

    Parameters
    ----------
    path : str or path
        Checkpoint file. It is deleted when the `with` block ends without an error, so save the model inside the block.
    every : float, default=60.0
        Minimum number of seconds between two writes, which happen after a step. The first write is before the first step.
        The interval is extended so that writing takes at most 1% of the time.

    Notes
    -----
    Use one `with` block per call of `fit`, of any estimator; `partial_fit` is not checkpointed. Rows and parameters must equal
    those of the saved fit, otherwise `InvalidModelError` is raised. `max_iter`, `n_threads`, `callback`, `verbose` and
    `time_budget`, which starts again at zero, may change. Rows are compared by shape, dtype and a sample of them, or by parts
    of the file if it is compressed. A seed that was drawn at random is saved. The file is never unpickled, and a crash
    during a write leaves the previous checkpoint intact.

    Examples
    --------
    >>> import tempfile, numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with shoal.Checkpoint(f"{folder}/checkpoint.npz", every=30):
    ...         model = shoal.KMeans(n_clusters=3, random_state=0).fit(X)
    """

    _variable = CHECKPOINT_STORE

    def __init__(self, path: Any, every: float = 60.0) -> None:
        if isinstance(every, bool) or not isinstance(every, int | float) or not every >= 0:
            raise ValueError(f"every={every!r} must be a number of seconds, 0 or more.")
        self.path, self.every = Path(path), float(every)
        self._about: dict[str, str] | None = None
        self._next = -np.inf  # the first checkpoint is written before the first step
        self._asked = False
        self._bare = False  # whether the file records only that a fit has started

    def _setting(self) -> CheckpointStore:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        super().__exit__()
        failed = kind is not None and issubclass(kind, Exception)
        if self._about is not None and (
            kind is None or (failed and self._bare)
        ):  # a fit that failed before any result has nothing to resume
            self.path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Make the fit save its state after the current step and raise `FitInterrupted`; safe to call in signal handlers."""
        self._asked = True

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        if self._about is not None:
            raise ValueError("A Checkpoint is for one fit: use another `with` block, with another file, for the next fit.")
        remove_stale_files(self.path)
        self._about = {name: _fingerprint(value) for name, value in about.items() if name not in CHANGEABLE_PARAMETERS}
        if not self.path.exists():
            return None
        stored, arrays = read(self.path, "checkpoint")
        saved_about, content = stored if isinstance(stored, list) and len(stored) == 2 else (None, None)
        if not isinstance(saved_about, dict):
            raise InvalidModelError(f"{self.path}: does not hold the state of a fit: use another file.")
        for name in {**self._about, **saved_about}:
            if self._about.get(name) != saved_about.get(name):
                self.refuse(name)
        progress = Reader(arrays, str(self.path)).decode(content)
        if not isinstance(progress, FitProgress):
            raise InvalidModelError(f"{self.path}: does not hold the state of a fit: use another file.")
        self._next = time.monotonic() + self.every
        return progress

    def refuse(self, name: str) -> None:
        raise InvalidModelError(
            f"{self.path}: belongs to another fit, where {name} was different: restore it, or use another file."
        )

    def describe(self) -> str:
        if not self.path.exists():
            return f"No checkpoint was written to {self.path} yet: start the fit again."
        return f"{self.path} holds the state of the fit: run the fit again with that file to resume it."

    def offer(self, progress: FitProgress) -> None:
        write_start = time.monotonic()
        if write_start < self._next and not self._asked:
            return
        writer = Writer()
        content = writer.encode(progress, "fit")
        write(self.path, "checkpoint", [self._about, content], writer.arrays)
        self._bare = not progress.sections
        now = time.monotonic()
        self._next = now + max(self.every, (now - write_start) / SHARE)
        if self._asked:
            raise FitInterrupted(f"stopped; {self.path} holds the state of the fit")


def _fingerprint(value: Any) -> str:
    """Return a short text that is equal for equal values."""
    if callable(value) or isinstance(value, np.random.RandomState | np.random.Generator):
        return type(value).__name__
    if hasattr(value, "__array__") and not isinstance(value, np.generic | np.ndarray):
        value = np.asarray(value)
    writer = Writer()
    digest = hashlib.sha256(json.dumps(writer.encode(value, "a parameter")).encode())
    for array in writer.arrays.values():
        digest.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
