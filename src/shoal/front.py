"""The front door: `cluster` chooses the methods, and says what it did and how sure it is."""

from __future__ import annotations

from typing import Any

from .kmeans.nested import NestedKMeans


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
        Stop when the energy is thought to be within this share of what full convergence from the same start would give;
        0 to converge.
    init, metric, sample_weight, random_state, n_threads
        As for `KMeans` and its fit.

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
    options = {"metric": metric, "random_state": random_state, "n_threads": n_threads}
    model = NestedKMeans(k, init=init, quality=quality, time_budget=time_budget, **options)
    model.fit(X, sample_weight=sample_weight)
    model.summary_ = summarise(model)
    return model


WHY = {
    "converged": "good enough",
    "time_budget": "time was up",
    "max_iter": "no more steps allowed",
    "callback": "stopped by a callback",
}


def summarise(model: NestedKMeans) -> str:
    """What a fit did and how sure it is, in one line."""
    n, last = len(model.labels_), model.history_[-1]
    looked = "all of them" if last["batch"] == n else f"{last['batch']:,} of them"
    if model.remaining_ < 1e-6:
        sure = "nothing left to gain"
    elif model.remaining_ == float("inf"):
        sure = "too few steps to tell what is left to gain"
    else:
        sure = f"about {100 * model.remaining_:.2g}% left to gain"
    return (
        f"{model.n_clusters:,} clusters of {n:,} rows: {len(model.history_)} steps on nested batches, the last on {looked}, "
        f"{last['seconds']:.2g} s; energy {model.inertia_:.6g}; {WHY[model.stop_reason_]}: {sure}."
    )
