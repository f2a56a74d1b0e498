"""Spectral clustering by the exact leading eigenvectors of the normalized Laplacian.

References
----------
A. Ng, M. Jordan, Y. Weiss (2002), On spectral clustering: analysis and an algorithm, NIPS.

Differs from the paper: rows of the embedding are scaled to unit length only if `normalize` is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from .affinity_factory import AffinityName
from .lanczos import LanczosSolver
from .laplacian_operator import BaseLaplacianClusterer, EigenProblem


class ExactSpectral(BaseLaplacianClusterer):
    """Spectral clustering by the exact leading eigenvectors.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, and of eigenvectors in the embedding.
    affinity : {"rbf", "self-tuning", "knn", "precomputed"}, default="rbf"
        Affinity between two rows. The affinity of a row to itself is zero.

        - "rbf": ``exp(-|x - y|^2 / sigma^2)``.
        - "self-tuning": ``exp(-|x - y|^2 / (s_x s_y))``, where ``s_x`` is the distance from row x to its nearest neighbor
          number `n_neighbors`.
        - "knn": graph that connects each row with its `n_neighbors` nearest neighbors.
        - "precomputed": X holds the affinities, dense or sparse, symmetric and non-negative. New rows hold their affinities
          to the rows of the fit.
    sigma : float or None, default=None
        Scale of the affinity "rbf". None estimates it from a sample of the rows: the median distance within which the nearer
        half of a row's cluster lies, if all clusters have the same size. Non-convex clusters, such as rings, need a smaller
        value.
    n_neighbors : int or None, default=None
        Number of neighbors for the affinities "knn" (None is 10) and "self-tuning" (None is 7).
    neighbors : {"exact", "pynndescent"}, default="exact"
        Neighbor search for the affinity "knn": all pairwise distances, in blocks, or the approximate search of the package
        pynndescent (dense rows only).
    degree_samples : int or None, default=None
        Number of random columns from which to estimate the degrees (the row sums of the affinity matrix). None computes them
        from all pairs of rows, which is also done if the affinities are stored. `degree_error_` is the estimated error. The
        degrees of new rows are exact: if those of the fit are inaccurate, similar rows may get different embeddings.
    store : bool or "auto", default="auto"
        Whether to keep the full matrix of n_samples x n_samples affinities in memory instead of computing columns when they
        are needed. "auto" stores up to 1 GiB (about 16,000 rows of float32). Graphs ("knn", "precomputed") are in memory
        anyway, and stay sparse if they are sparse.
    normalize : bool, default=False
        Whether to scale the rows of the embedding to unit length before k-means, as Ng, Jordan and Weiss do.
    n_init : int, default=10
        Number of k-means initializations on the embedding.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers. Pass an int for reproducible results.
    n_threads : int or None, default=None
        Number of threads. None uses as many as OpenMP would. The result does not depend on it.
    callback : callable or None, default=None
        Function called with a copy of each record of `history_`. The fit stops if it returns a true value.
    verbose : int, default=0
        Whether to print each record of `history_`.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row. Equal to ``predict(X)``, unless the affinity is precomputed.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Leading eigenvectors, one per column.
    eigenvalues_ : ndarray of shape (n_clusters,)
        Eigenvalues of D^-1/2 A D^-1/2 in descending order. Values above 1 occur only if they, or the degrees, are estimates.
    kmeans_ : KMeans
        Model fitted to the embedding.
    sigma_ : float or None
        Scale that was used; None if there is no common scale.
    degree_error_ : float
        Root mean square of the relative standard errors of the degrees; 0 if they are exact.
    history_ : list of dict
        One record per step: step, seconds, objective (-1/2 Tr(W' L W) or an estimate of it), change (root mean square of the
        sines of the angles between the subspaces before and after the step), columns (number of columns of the affinity matrix
        used) and flops (operation count by the formulas of [2]_, given the affinities).
    n_iter_ : int
        Number of steps.
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the steps ended.
    extension_ : Extension
        Nyström extension used by `predict` and `transform`. It refers to X, which is not copied and must not be
        modified.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    LandmarkSpectral : Approximation by nearest landmarks; the fastest.
    MiniBatchSpectral : Stochastic gradients on a few columns per step.
    NystromSpectral : Approximation from the affinities to a random sample.
    PowerSpectral : Block power iteration.

    Notes
    -----
    The eigenvectors of L = D^-1/2 A D^-1/2 are computed by ARPACK, or by LAPACK for small inputs. Each of its products with L
    uses all pairs of rows, so the cost grows with the square of the number of rows. For many rows, use `MiniBatchSpectral`,
    `NystromSpectral` or `LandmarkSpectral`.

    Differs from [1]_: rows of the embedding are scaled to unit length only if `normalize` is set.

    References
    ----------
    .. [1] A. Ng, M. Jordan and Y. Weiss (2002), On spectral clustering: analysis and an algorithm, NIPS.
    .. [2] Y. Han and M. Filippone (2017), Mini-batch spectral clustering, IJCNN. doi:10.1109/IJCNN.2017.7966346

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
        "it compares all rows with all others: use NystromSpectral, LandmarkSpectral or MiniBatchSpectral"
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: AffinityName = "rbf",
        sigma: float | None = None,
        n_neighbors: int | None = None,
        neighbors: Literal["exact", "pynndescent"] = "exact",
        degree_samples: int | None = None,
        store: bool | Literal["auto"] = "auto",
        normalize: bool = False,
        n_init: int = 10,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.neighbors = neighbors
        self.degree_samples = degree_samples
        self.store = store
        self.normalize = normalize
        self.n_init = n_init
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _make_laplacian_solver(self, problem: EigenProblem) -> LanczosSolver:
        return LanczosSolver(problem)
