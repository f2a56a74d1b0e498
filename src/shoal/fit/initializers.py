"""What a family of initialization methods provides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..data.rows import Rows
from ..data.types import Array
from ..execution.deadline import Deadline
from ..execution.memory import Workload


class Initializer(Protocol):
    """Chooses k initial centroids before a deadline."""

    def __call__(self, rows: Rows, k: int, rng: np.random.Generator, deadline: Deadline = ..., /) -> Array: ...


class Initializers(NamedTuple):
    """Initialization methods by the names that `init` may have, and the memory they take."""

    methods: Mapping[str, Initializer]
    memory: Callable[[Workload, int, Any], float]  # workload, number of centroids, init -> bytes
