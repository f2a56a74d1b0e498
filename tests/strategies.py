"""Small data sets, and Hypothesis strategies that generate difficult ones."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

ALGORITHMS = ("lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected")


class Problem(NamedTuple):
    """Input of a fit."""

    X: np.ndarray
    start: np.ndarray
    weights: np.ndarray | None


def blobs(n=600, d=4, k=5, spread=0.3, seed=0, dtype=np.float64):
    """Return rows around k centers at least about ten apart, and the center of each row."""
    rng = np.random.default_rng(seed)
    places = np.concatenate([rng.uniform(-3, 3, (k, d - 1)), 12.0 * rng.permutation(k)[:, None]], axis=1)
    y = rng.permutation(np.arange(n) % k)
    return (places[y] + rng.normal(0, spread, (n, d))).astype(dtype), y


def cloud(n=400, d=4, seed=0, dtype=np.float64):
    """Return rows without clusters, for which bounds help little and many steps are needed."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def hidden_clusters(n=2000, d=120, k=6, seed=0):
    """Return rows whose clusters show in few columns, far from the origin, and the cluster of each row."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % k)
    X = rng.normal(size=(n, d)) + 5
    X[:, :8] += 6 * rng.normal(size=(k, 8))[y]
    return X, y


def first_rows(X, k):
    """Return fixed initial centroids."""
    return np.asarray(X[:k], np.float64)


def spread_rows(X, y):
    """Return one row of each group, so that k-means finds all groups."""
    return np.asarray(X, np.float64)[np.unique(y, return_index=True)[1]]


def _integers(rng, n, d):
    """Draw rows with few distinct values, so that rows coincide and distances tie."""
    return rng.integers(-2, 3, (n, d)).astype(float)


def _duplicates(rng, n, d):
    few = rng.normal(size=(max(1, n // 3), d))
    return few[rng.integers(len(few), size=n)]


def _groups(rng, n, d):
    return 10 * rng.normal(size=(4, d))[rng.integers(4, size=n)] + rng.normal(size=(n, d))


def _line(rng, n, d):
    """Draw rows in which only one column varies."""
    X = np.full((n, d), 3.0)
    X[:, rng.integers(d)] = rng.normal(size=n)
    return X


def _cloud(rng, n, d):
    return rng.normal(size=(n, d))


KINDS = (_integers, _duplicates, _groups, _line, _cloud)


@st.composite
def problems(draw, widths=(1, 2, 3, 7, 17, 49), dtypes=(np.float32, np.float64), kinds=KINDS, weighted=True):
    """Draw rows, initial centroids among them, and optional weights that include zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 60)), draw(st.sampled_from(widths))
    X = draw(st.sampled_from(kinds))(rng, n, d).astype(draw(st.sampled_from(dtypes)))
    k = draw(st.integers(1, min(n, 12)))
    weights = rng.integers(0, 4, n).astype(float) if weighted and draw(st.booleans()) else None
    if weights is not None:
        weights[rng.integers(n)] = 1
    return Problem(X, X[rng.choice(n, k, replace=False)].astype(float), weights)


grids = problems(dtypes=(np.float64,), kinds=(_integers,))
"""Integer rows: distances are exact, so that ties are exact, too."""
