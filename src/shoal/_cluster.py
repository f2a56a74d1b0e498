"""The front door: `cluster` chooses the methods, and says what it did and how sure it is."""

from __future__ import annotations

import contextlib
from typing import Any

from sklearn.utils._param_validation import validate_parameter_constraints

from .execution.memory import MemoryLimit
from .fit.parameters import Count
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
    n_threads: int | None = None,
    memory_limit: Any = None,
    engine: Any = None,
) -> NestedKMeans:
    """Cluster the rows of X into k clusters, as well as asked or as well as time allows.

    Parameters
    ----------
    X : array, sparse matrix or table of shape (n_samples, n_features)
        As for `KMeans.fit`.
    k : int
        How many clusters.
    time_budget : float or None, default=None
        Seconds after which to stop with the best centres so far (see `KMeans`).
    quality : float, default=0.01
        Stop when going on to full convergence is thought to lower the energy by less than this share; 0 to converge.
    init, metric, sample_weight, random_state, n_threads
        As for `KMeans` and its fit.
    memory_limit : int, str or None, default=None
        What the process may take, as "512MB", for rows that come from a file (see `MemoryLimit`).
    engine : dask.distributed.Client or None, default=None
        Whose workers to use (see `Engine`); None for those of the current client, if X is a dask collection, else threads.

    Returns
    -------
    model : NestedKMeans
        With `cluster_centers_`, `labels_`, `inertia_` (of all rows, exact), `predict` and all else that a model has, and
        `summary_`: in one line, what was done and how sure it is.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import cluster
    >>> X = np.random.default_rng(0).normal(size=(3000, 2)) + 20 * np.arange(3000)[:, None] % 60
    >>> cluster(X, 3, random_state=0).summary_.split(":")[0]
    '3 clusters of 3,000 rows'
    """
    validate_parameter_constraints(CHECKS, {"k": k, "quality": quality}, caller_name="cluster")
    options = {"metric": metric, "random_state": random_state, "n_threads": n_threads}
    model = NestedKMeans(k, init=init, quality=quality, time_budget=time_budget, **options)
    with contextlib.ExitStack() as stack:
        if memory_limit is not None:
            stack.enter_context(MemoryLimit(memory_limit))
        model.fit(X, sample_weight=sample_weight, engine=engine)
    return model
