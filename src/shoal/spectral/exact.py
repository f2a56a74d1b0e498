"""`ExactSpectral`: spectral clustering by the leading eigenvectors themselves.

A. Ng, M. Jordan, Y. Weiss (2002), On spectral clustering: analysis and an algorithm, NIPS.
Differs from the paper: rows of the embedding are scaled to unit length only if asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..data.types import Array
from ..fit.checkpoint import CheckpointSession
from ..fit.loop import RunResult
from ..fit.parameters import keep
from .laplacian import Laplacian
from .laplacian_operator import BaseLaplacianClusterer


class ExactSpectral(BaseLaplacianClusterer):
    """Spectral clustering by the exact leading eigenvectors (ARPACK's, through SciPy).

    Parameters
    ----------
    store : bool or "auto", default="auto"
        Keep all affinities in memory, n_samples x n_samples of them, rather than compute columns whenever they are needed.
        "auto" does so where they take up to a gigabyte (some 16,000 float32 rows). A graph ("knn", "precomputed") is in memory
        already, and stays sparse if it is.
    ...

    Attributes
    ----------
    ...

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import ExactSpectral
    >>> angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    >>> rings = np.concatenate([r * np.column_stack([np.cos(angles), np.sin(angles)]) for r in (1, 4)])
    >>> labels = ExactSpectral(n_clusters=2, sigma=0.5, random_state=0).fit_predict(rings)
    >>> len(set(labels[:200])), len(set(labels[200:])), len(set(labels))
    (1, 1, 2)
    """

    _not_distributable_because = (
        "it compares all rows with all others: take NystromSpectral, LandmarkSpectral or MiniBatchSpectral"
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        neighbors: str = "exact",
        degree_samples: int | None = None,
        store: bool | str = "auto",
        normalize: bool = False,
        n_init: int = 10,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _solve(self, L: Laplacian, session: CheckpointSession, deadline: float | None) -> tuple[Array, Array, RunResult]:
        return self._solve_at_once(L, session)
