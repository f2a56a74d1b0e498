"""Estimators that look for the leading eigenvectors of L: which affinity, its degrees, and the way back to new rows."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.pca import signed
from ..data.rows import Rows
from ..data.statistics import enter_frame
from ..data.types import Array, warn
from ..execution.memory import Workload
from ..fit.checkpoint import CheckpointSession
from ..fit.checkpoint_validation import matches_template
from ..fit.loop import RunResult
from ..fit.parameters import Count
from .affinity import KernelAffinity
from .affinity_factory import KINDS, Choice, Kind, find
from .embedding import BaseSpectralClusterer, EmbeddingResult, Map, SpectralInfo, tell_of_flat, zeros
from .graph import affinity_bytes, stored
from .lanczos import leading
from .laplacian import Affinity, Laplacian, check_degrees, estimate_degrees

APART, MUCH = 1e-5, 1e-2  # an eigenvalue of 1, but for rounding; and what is more than noise, of the squares of an eigenvector
LITTLE = 1 << 30  # bytes of affinities that are stored without being asked for
FLAT = 1e-3  # eigenvectors of values up to this are not extended to new rows, whose entries would be noise, or turned around


class BaseLaplacianClusterer(BaseSpectralClusterer):
    """A subclass finds an orthonormal basis of the leading eigenvectors, with its eigenvalues."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseSpectralClusterer._parameter_constraints,
        "affinity": [StrOptions(set(KINDS))],
        "sigma": [Interval(Real, 0, None, closed="neither"), None],
        "n_neighbors": [Count(), None],
        "neighbors": [StrOptions({"exact", "pynndescent"})],
        "degree_samples": [Count(), None],
        "store": ["boolean", StrOptions({"auto"})],
    }

    affinity: Literal["rbf", "rbf-norm", "self-tuning", "knn", "precomputed"]
    sigma: float | None
    n_neighbors: int | None
    neighbors: Literal["exact", "pynndescent"]
    degree_samples: Any
    store: bool | Literal["auto"]

    @abstractmethod
    def _solve(self, L: Laplacian, session: CheckpointSession, deadline: float | None) -> tuple[Array, Array, RunResult]:
        """Eigenvectors (n, k), eigenvalues (k), the largest first, and how they were found."""

    def _solve_at_once(self, L: Laplacian, session: CheckpointSession) -> tuple[Array, Array, RunResult]:
        """The same by Lanczos' method."""

        def step() -> tuple[tuple[Array, Array], SpectralInfo]:
            vectors, values, products = leading(L, self.n_clusters, session.seed)
            return (vectors, values), SpectralInfo(-float(values.sum()) / 2, 0.0, products * L.n, products * (2 * L.n**2 - L.n))

        outcome = self._at_once(session, step, (zeros((L.n, self.n_clusters)), zeros((self.n_clusters,))))
        vectors, values = outcome.state
        return vectors.astype(L.dtype), values, outcome

    def _embed(self, rows: Rows, X: Any, session: CheckpointSession, deadline: float | None) -> EmbeddingResult:
        if self.affinity == "knn" and self.neighbors != "exact" and rows.is_sparse:
            warn(
                f"neighbors='{self.neighbors}' is for dense rows; those of X are sparse: their neighbours are found exactly.",
                UserWarning,
            )
        if self.affinity != "precomputed":
            rows, _ = enter_frame(rows)
        kind = find(rows, Choice(self.affinity, self.sigma, self.n_neighbors, self.neighbors), self.n_clusters, session.seed)
        self.sigma_ = kind.sigma
        L = self._laplacian(kind, session)
        W, values, outcome = self._solve(L, session, deadline)
        W = signed(W)
        there = tell_of_flat(values, FLAT, "new rows get zeros for the other eigenvectors")
        if isinstance(kind.affinity, KernelAffinity) and np.abs(values - 1).max() < APART and in_more_pieces(W, L.s):
            warn(
                f"X falls into more than n_clusters={len(values)} groups of rows that are like hardly any row outside: which "
                f"of them share a cluster is arbitrary; {kind.remedy}, or ask for more clusters.",
                UserWarning,
            )
        P = L.s * W * np.where(there, 1 / np.where(there, values, 1), 0).astype(W.dtype)
        return EmbeddingResult(W, values, rows, Map(kind.reach, P, np.ones(L.n, W.dtype)), outcome)

    def _memory(self, load: Workload) -> dict[str, float]:
        held = {"affinities": 3.0 * load.wide * load.n**2} if self.store and self.affinity != "knn" else {}
        return {**super()._memory(load), **held}

    def _degree_columns(self, affinity: Affinity) -> int | None:
        """How many columns the degrees are estimated from; None for all."""
        return None if self.degree_samples is None else int(self.degree_samples)

    def _laplacian(self, kind: Kind, session: CheckpointSession) -> Laplacian:
        affinity = kind.affinity
        if isinstance(affinity, KernelAffinity) and (self.store is True or (self.store and affinity_bytes(affinity) <= LITTLE)):
            affinity = stored(affinity)
        count = self._degree_columns(affinity)

        def sums() -> tuple[Array, float]:
            return (affinity.degrees(), 0.0) if count is None else estimate_degrees(affinity, count, session.seed)

        def is_sound(kept: Any) -> bool:
            return matches_template(kept, (zeros((affinity.n,)), 0.0), 0, 0) and bool(kept[0].min() >= 0)

        degrees, self.degree_error_ = session.once("degrees", sums, is_sound)
        check_degrees(degrees, kind.remedy)
        return Laplacian(affinity, degrees)


def in_more_pieces(W: Array, s: Array) -> bool:
    """All rows of a piece have the same entries in eigenvectors of the value 1, over the root of their degree, 1 / s.

    So one row of each of the k pieces, farthest first, stands for all, and nothing is left of W.
    """
    there = s[:, 0] > 0
    Y, degrees = (s * W)[there], s[there, 0] ** -2.0
    left = degrees * np.einsum("ij,ij->i", Y, Y)
    for _ in range(W.shape[1]):
        left = np.minimum(left, degrees * ((Y - Y[left.argmax()]) ** 2).sum(axis=1))
    return bool(left.sum() > MUCH * W.shape[1])


def rotated(W: Array, T: Array) -> tuple[Array, Array]:
    """A basis of a subspace turned into the best eigenvectors in it, and their values, the largest first: T = W' L W."""
    values, V = np.linalg.eigh((T + T.T) / 2)
    return W @ V[:, ::-1].astype(W.dtype), values[::-1]
