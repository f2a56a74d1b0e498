"""The common part of estimators that compute leading eigenvectors of the normalized Laplacian L."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..data.pca import signed
from ..data.rows import Rows
from ..data.types import Array, warn
from ..execution.memory import Workload
from ..fit.checkpoint import CheckpointSession
from ..fit.checkpoint_validation import matches_template
from ..fit.context import FitContext
from ..fit.parameters import Count
from .affinity import KernelAffinity
from .affinity_factory import AFFINITIES, AffinityName, AffinityParameters, FittedAffinity, make_affinity
from .base import BaseSpectralClusterer
from .extension import NystromMap
from .graph import affinity_bytes, store_affinity
from .laplacian import Affinity, Laplacian, check_degrees, estimate_degrees
from .solver import Embedding, SpectralResult, SpectralSolver, array_template, positive_eigenvalues

MAX_STORED_BYTES = 1 << 30  # size of the affinity matrix up to which store="auto" stores it
MIN_EXTENDED_EIGENVALUE = 1e-3  # eigenvectors of smaller eigenvalues are not extended to new rows: their entries would be noise
UNIT_EIGENVALUE_TOLERANCE = 1e-5  # rounding error of an eigenvalue of 1
MAX_RESIDUAL = 1e-2  # squared error per eigenvector that is taken for rounding, in `has_more_components`


class EigenProblem(NamedTuple):
    """The eigenvalue problem of a fit: the k leading eigenvectors of L."""

    rows: Rows
    fitted: FittedAffinity
    laplacian: Laplacian
    degree_error: float  # root mean square of the relative standard errors of the degrees
    k: int
    seed: int


class LaplacianSolver(SpectralSolver):
    """Solver that computes an orthonormal basis of the leading eigenvectors of L, and their eigenvalues."""

    def __init__(self, problem: EigenProblem) -> None:
        super().__init__(problem.rows, problem.k, problem.fitted.sigma)
        self.problem, self.laplacian, self.seed = problem, problem.laplacian, problem.seed

    @abstractmethod
    def eigenvectors(self, state: Any) -> tuple[Array, Array]:
        """Return the eigenvectors (n, k) and the eigenvalues (k), in descending order, given the last state."""

    def finalize(self, state: Any) -> Embedding:
        """Return the eigenvectors, and their Nyström extension."""
        L, fitted = self.laplacian, self.problem.fitted
        W, values = self.eigenvectors(state)
        W = signed(W)
        there = positive_eigenvalues(values, MIN_EXTENDED_EIGENVALUE, "new rows get zeros for the other eigenvectors")
        all_one = isinstance(fitted.affinity, KernelAffinity) and np.abs(values - 1).max() < UNIT_EIGENVALUE_TOLERANCE
        if all_one and has_more_components(W, L.s):
            warn(
                f"X has more than n_clusters={len(values)} groups of rows with hardly any affinity to rows outside, so that "
                f"which of them share a cluster is arbitrary: {fitted.remedy}, or ask for more clusters.",
                UserWarning,
            )
        P = L.s * W * np.where(there, 1 / np.where(there, values, 1), 0).astype(W.dtype)
        return Embedding(W, values, NystromMap(fitted.out_of_sample, P, np.ones(L.n, W.dtype)))


class BaseLaplacianClusterer(BaseSpectralClusterer):
    """Base class of estimators whose solver is a `LaplacianSolver`."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseSpectralClusterer._parameter_constraints,
        "affinity": [StrOptions(set(AFFINITIES))],
        "sigma": [Interval(Real, 0, None, closed="neither"), None],
        "n_neighbors": [Count(), None],
        "neighbors": [StrOptions({"exact", "pynndescent"})],
        "degree_samples": [Count(), None],
        "store": ["boolean", StrOptions({"auto"})],
    }

    affinity: AffinityName
    sigma: float | None
    n_neighbors: int | None
    neighbors: Literal["exact", "pynndescent"]
    degree_samples: int | Literal["auto"] | None
    store: bool | Literal["auto"]
    degree_error_: float

    @abstractmethod
    def _make_laplacian_solver(self, problem: EigenProblem) -> LaplacianSolver:
        """Return the solver of the method for an eigenvalue problem."""

    def _make_solver(self, context: FitContext) -> LaplacianSolver:
        """Return the solver of the method, after computing the affinity and the degrees."""
        rows, session = context.rows, context.session
        if self.affinity == "knn" and self.neighbors != "exact" and rows.is_sparse:
            warn(
                f"neighbors='{self.neighbors}' needs dense rows, but X is sparse: neighbors are computed exactly.",
                UserWarning,
            )
        parameters = AffinityParameters(self.affinity, self.sigma, self.n_neighbors, self.neighbors)
        fitted = make_affinity(rows, parameters, self.n_clusters, session.seed)
        affinity = self._store(fitted.affinity)
        degrees, error = self._degrees(affinity, session)
        check_degrees(degrees, fitted.remedy)
        problem = EigenProblem(rows, fitted, Laplacian(affinity, degrees), error, self.n_clusters, session.seed)
        return self._make_laplacian_solver(problem)

    def _store(self, affinity: Affinity) -> Affinity:
        """Return the affinity as a matrix in memory if `store` asks for it."""
        if not isinstance(affinity, KernelAffinity) or not self.store:
            return affinity
        return store_affinity(affinity) if self.store is True or affinity_bytes(affinity) <= MAX_STORED_BYTES else affinity

    def _degrees(self, affinity: Affinity, session: CheckpointSession) -> tuple[Array, float]:
        """Return the degrees, exact or estimated, and the relative error of the estimate."""
        n_columns = self._n_degree_columns(affinity)
        compute = partial(compute_degrees, affinity, n_columns, session.seed)
        degrees, error = session.once("degrees", compute, partial(is_valid_degrees, n=affinity.n))
        return degrees, error

    def _n_degree_columns(self, affinity: Affinity) -> int | None:
        """Return the number of columns from which the degrees are estimated; None for exact degrees."""
        return None if self.degree_samples is None else int(self.degree_samples)

    def _set_fitted_attributes(self, result: SpectralResult) -> None:
        assert isinstance(result.solver, LaplacianSolver)
        super()._set_fitted_attributes(result)
        self.degree_error_ = result.solver.problem.degree_error

    def _memory(self, load: Workload) -> dict[str, float]:
        """Return the bytes that a fit holds for all rows, and for those that they are compared with at a time."""
        held = {"affinities": 3.0 * load.itemsize * load.n**2} if self.store and self.affinity != "knn" else {}
        return {**super()._memory(load), **held}


def compute_degrees(affinity: Affinity, n_columns: int | None, seed: int) -> tuple[Array, float]:
    """Return the degrees and the relative error of their estimate. They are exact if `n_columns` is None."""
    return (affinity.degrees(), 0.0) if n_columns is None else estimate_degrees(affinity, n_columns, seed)


def is_valid_degrees(saved: Any, n: int) -> bool:
    """Return whether degrees from a checkpoint are n numbers that are not negative, and an error."""
    return matches_template(saved, (array_template((n,)), 0.0), 0, 0) and bool(saved[0].min() >= 0)


def has_more_components(W: Array, s: Array) -> bool:
    """Return whether the graph has more connected components than W has columns, all of eigenvalue 1.

    In such eigenvectors, all rows of a component have the same entries, up to the root 1 / s of their degree. If there are at
    most k components, nothing remains after subtracting from each row the nearest of k rows, chosen farthest first.
    """
    there = s[:, 0] > 0
    Y, degrees = (s * W)[there], s[there, 0] ** -2.0
    residual = degrees * np.einsum("ij,ij->i", Y, Y)
    for _ in range(W.shape[1]):
        residual = np.minimum(residual, degrees * ((Y - Y[residual.argmax()]) ** 2).sum(axis=1))
    return bool(residual.sum() > MAX_RESIDUAL * W.shape[1])


def rayleigh_ritz(W: Array, T: Array) -> tuple[Array, Array]:
    """Return the Ritz vectors of the span of W and their values in descending order, given T = W' L W."""
    values, V = np.linalg.eigh((T + T.T) / 2)
    return W @ V[:, ::-1].astype(W.dtype), values[::-1]
