"""`cluster`: cluster rows with one call, to a requested quality or within a time budget."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, Literal

from sklearn.utils._param_validation import validate_parameter_constraints

from .execution.memory_limit import MemoryLimit
from .fit.parameters import Count
from .formats.files import open_rows
from .kmeans.nested import NestedKMeans

CHECKS = {"k": [Count()], "quality": NestedKMeans._parameter_constraints["quality"]}


def cluster(
    X: Any,
    k: int,
    *,
    time_budget: float | None = None,
    quality: float = 0.01,
    init: Any = "k-means++",
    metric: str = "euclidean",
    sample_weight: Any = None,
    random_state: Any = None,
    n_init: int | Literal["auto"] = "auto",
    n_threads: int | None = None,
    callback: Callable[..., Any] | None = None,
    verbose: int = 0,
    memory_limit: Any = None,
    engine: Any = None,
) -> NestedKMeans:
    """Cluster the rows of X with nested mini-batch k-means and stop once the result is good enough.

    Parameters
    ----------
    X : array, sparse matrix, table, file source of shape (n_samples, n_features), or path
        Rows to cluster: a NumPy array or memory map, a SciPy sparse matrix, a pandas, polars or pyarrow table, a dask
        collection, rows of a file (`open_rows`), or the path of a file, which is opened without options.
    k : int
        Number of clusters.
    time_budget : float or None, default=None
        Stop after this many seconds with the best centroids so far. None for no limit.
    quality : float, default=0.01
        Stop when the estimated remaining relative improvement of the energy is below this value; 0 to run to convergence.
    init : str, callable or array-like of shape (k, n_features), default="k-means++"
        Initialization method ("k-means++", "k-means||", "afk-mc2", "random" or a callable), or the initial centroids.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" scales rows to unit length first.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weight of each row; equivalent to repeating the row.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed of the initialization and of the order of the rows. Pass an int for reproducible results.
    n_threads : int or None, default=None
        Number of threads; None for all cores. Does not affect the result.
    n_init : int or "auto", default="auto"
        Number of initializations, of which the result with the lowest energy is kept. "auto" is 10 for "random" and
        callables, and 1 otherwise. An array has a single initialization.
    callback : callable or None, default=None
        Function called with a copy of each record of `history_`. The fit stops if it returns a true value.
    verbose : int, default=0
        Whether to print each record of `history_`.
    memory_limit : int, str or None, default=None
        Memory limit of the whole process, in bytes or as a string such as "512MB". Intended for rows of a file; see
        `MemoryLimit`.
    engine : dask.distributed.Client or None, default=None
        Client whose workers to use; see `Engine`. None for the workers of the current client if X is a dask collection,
        and for threads otherwise.

    Returns
    -------
    model : NestedKMeans
        Fitted estimator with `cluster_centers_`, `labels_`, `inertia_` (exact, over all rows), `predict`, and `summary_`:
        one line on what was done and how much improvement may remain.

    See Also
    --------
    NestedKMeans : The estimator that is fitted.
    KMeans : Exact k-means.
    MiniBatchSpectral : Spectral clustering, for non-convex clusters.

    Notes
    -----
    The first steps use a sample of the rows, which doubles once centroid noise dominates centroid movement. The fit therefore
    often stops before it has used all rows; the final labels and energy always cover all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import cluster
    >>> X = np.random.default_rng(0).normal(size=(3000, 2)) + 20 * np.arange(3000)[:, None] % 60
    >>> cluster(X, 3, random_state=0).summary_.split(":")[0]
    '3 clusters of 3,000 rows'
    """
    validate_parameter_constraints(CHECKS, {"k": k, "quality": quality}, caller_name="cluster")
    options: dict[str, Any] = {"metric": metric, "random_state": random_state, "n_threads": n_threads}
    options |= {"n_init": n_init, "callback": callback, "verbose": verbose}
    if isinstance(X, str | os.PathLike):
        X = open_rows(X)
    model = NestedKMeans(k, init=init, quality=quality, time_budget=time_budget, **options)
    with contextlib.ExitStack() as stack:
        if memory_limit is not None:
            stack.enter_context(MemoryLimit(memory_limit))
        model.fit(X, sample_weight=sample_weight, engine=engine)
    return model
