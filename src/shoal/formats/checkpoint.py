"""The state of a running fit in a file, from which another process goes on to the very same result.

A fit's state is arrays and numbers alone (see `core.driver`), random numbers depend on nothing but the seed and the place in
the fit, and what rows remember to save work is left out: their labels do not depend on it. So the file is small, four bytes
a row and the centres, and what is found after a resume differs in nothing but the times (and the counts of rows and
distances that bounds would have spared) in `history_`.
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
from .archive import read, tidy, write
from .values import Reader, Writer

FREE = ("time_budget", "max_iter", "n_threads", "callback", "verbose")  # parameters that another run may change

SHARE = 0.01  # of the time that may go into writing


class Checkpoint(Scoped):
    """Keep the state of a fit in a file, now and then; and if there is one already, go on from there.

    Parameters
    ----------
    path : str or path
        The file. It is removed when the `with` block ends without an error, so save the model inside it.
    every : float, default=60.0
        Seconds from one write, after a step, to the next; the first is made before any step. Longer, if writing would else
        take more than 1% of the time.

    Notes
    -----
    One fit in a `with` block, of any estimator: its `fit`, not `partial_fit`. Rows and parameters must be those of the fit that
    was kept, or it is refused; but `time_budget`, which counts anew, `max_iter`, `n_threads`, `callback` and `verbose` may
    change. Rows are known again by their shape, their type and some of them, or by pieces of a packed file; a seed that was
    drawn is kept. No byte of the file is unpickled, and a crash while it is written leaves the one before.

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
        self._next = -np.inf  # a fit that begins is kept at once
        self._asked = False
        self._bare = False  # does the file say no more than that a fit has begun?

    def _setting(self) -> CheckpointStore:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        super().__exit__()
        failed = kind is not None and issubclass(kind, Exception)
        if self._about is not None and (kind is None or (failed and self._bare)):  # what fails at once will fail again
            self.path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Let the fit write its state after the step that it is in, and raise `Stopped`: for handlers of signals."""
        self._asked = True

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        if self._about is not None:
            raise ValueError("One Checkpoint keeps one fit: begin another `with` block, with another file, for the next.")
        tidy(self.path)
        self._about = {name: _print_of(value) for name, value in about.items() if name not in FREE}
        if not self.path.exists():
            return None
        stored, arrays = read(self.path, "checkpoint")
        kept, content = stored if isinstance(stored, list) and len(stored) == 2 else (None, None)
        if not isinstance(kept, dict):
            raise InvalidModelError(f"{self.path}: holds no state of a fit: name another file.")
        for name in {**self._about, **kept}:
            if self._about.get(name) != kept.get(name):
                self.refuse(name)
        progress = Reader(arrays, str(self.path)).decode(content)
        if not isinstance(progress, FitProgress):
            raise InvalidModelError(f"{self.path}: holds no state of a fit: name another file.")
        self._next = time.monotonic() + self.every
        return progress

    def refuse(self, name: str) -> None:
        raise InvalidModelError(
            f"{self.path}: is of another fit, where {name} was not the same: set it back, or name another file."
        )

    def told(self) -> str:
        if not self.path.exists():
            return f"The fit had not come as far as to leave anything in {self.path}: begin it anew."
        return f"{self.path} holds the state of the fit: run it again with that file, and it goes on from there."

    def offer(self, progress: FitProgress) -> None:
        begun = time.monotonic()
        if begun < self._next and not self._asked:
            return
        writer = Writer()
        content = writer.encode(progress, "fit")
        write(self.path, "checkpoint", [self._about, content], writer.arrays)
        self._bare = not progress.pages
        now = time.monotonic()
        self._next = now + max(self.every, (now - begun) / SHARE)
        if self._asked:
            raise FitInterrupted(f"stopped; {self.path} holds the state of the fit")


def _print_of(value: Any) -> str:
    """A short text that is the same for equal values."""
    if callable(value) or isinstance(value, np.random.RandomState | np.random.Generator):
        return type(value).__name__
    if hasattr(value, "__array__") and not isinstance(value, np.generic | np.ndarray):
        value = np.asarray(value)
    writer = Writer()
    digest = hashlib.sha256(json.dumps(writer.encode(value, "a parameter")).encode())
    for array in writer.arrays.values():
        digest.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
