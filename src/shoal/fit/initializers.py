"""Initial centroids: the methods of a family, and the starts that `init` and `n_init` ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..data.rows import Rows
from ..data.types import Array, warn
from ..data.validation import check_centers
from ..execution.deadline import NO_DEADLINE, Deadline
from ..execution.memory import Workload
from .random_streams import generator


class Initializer(Protocol):
    """Chooses k initial centroids before a deadline."""

    def __call__(self, rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = ..., /) -> Array: ...


class Initializers(NamedTuple):
    """Initialization methods by the names that `init` may have, and the memory they take."""

    methods: Mapping[str, Initializer]
    memory: Callable[[Workload, int, Any], float]  # workload, number of centroids, init -> bytes


class Initialization(Protocol):
    """Initial centroids of all starts of a fit."""

    @property
    def k(self) -> int: ...

    @property
    def n_starts(self) -> int: ...

    def centers(self, rows: Rows, start: int, deadline: Deadline = NO_DEADLINE) -> Array:
        """Return the initial centroids of a start, in the frame of the rows."""


class ArrayStarts(NamedTuple):
    """Starts from given centroids, which are in the frame of the rows."""

    arrays: Sequence[Array]

    @property
    def k(self) -> int:
        return len(self.arrays[0])

    @property
    def n_starts(self) -> int:
        return len(self.arrays)

    def centers(self, rows: Rows, start: int, deadline: Deadline = NO_DEADLINE) -> Array:
        return np.ascontiguousarray(self.arrays[start], rows.dtype)


class InitParameters(NamedTuple):
    """Starts as the parameters `init` and `n_init` describe them."""

    k: int
    init: Any  # name of a method, or a function of (X, n_clusters, random_state)
    n_init: int | str
    methods: Mapping[str, Initializer]
    to_frame: Callable[[Rows, Array], Array]  # converts centroids in the units of X
    X: Any
    given: Array | None  # centroids in the units of X, if `init` is an array
    seed: int

    @property
    def n_starts(self) -> int:
        if self.given is not None:
            if self.n_init not in ("auto", 1):
                message = f"init gives the centroids, so there is one start, not n_init={self.n_init}: leave n_init at 'auto'."
                warn(message, RuntimeWarning)
            return 1
        if self.n_init == "auto":
            return 10 if callable(self.init) or self.init == "random" else 1
        return int(self.n_init)

    def centers(self, rows: Rows, start: int, deadline: Deadline = NO_DEADLINE) -> Array:
        rng = generator(self.seed, start)
        if self.given is not None:
            C = self.to_frame(rows, self.given)
        elif callable(self.init):
            state = np.random.RandomState(rng.integers(2**31))
            found = check_centers(self.init(self.X, self.k, random_state=state), self.k, rows.d, "what init returned")
            C = self.to_frame(rows, found)
        else:
            C = self.methods[self.init](rows, self.k, rng, deadline)
        return np.ascontiguousarray(C, rows.dtype)
