"""How good a clustering is."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from .core.blocks import Centers
from .core.checks import check_centers, check_rows, check_weights
from .core.moments import check_values
from .core.partition import energy_block
from .core.rows import Frame, Rows
from .core.types import Array

__all__ = ["accuracy", "adjusted_rand_score", "energy", "normalized_mutual_info_score", "purity"]


def _numbered(labels: Any, name: str) -> Array:
    """Labels of any kind as the numbers 0, 1, ..."""
    try:
        array = np.asarray(labels)
        if array.ndim != 1 or not len(array):
            raise ValueError(f"its shape is {array.shape}")
        missing = [v is None or v != v for v in array] if array.dtype == object else array != array
        if np.any(missing):
            raise ValueError(f"that of row {int(np.argmax(missing))} is missing")
        numbers: Array = np.unique(array, return_inverse=True)[1]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of labels, one for each of one or more rows: {error}.") from error
    return numbers


def _crossed(labels_true: Any, labels_pred: Any) -> Array:
    """How many rows are of class i (a line) and in cluster j (a column)."""
    true, pred = _numbered(labels_true, "labels_true"), _numbered(labels_pred, "labels_pred")
    if len(true) != len(pred):
        raise ValueError(f"labels_true has {len(true)} labels and labels_pred {len(pred)}: give both for the same rows.")
    table: Array = contingency_matrix(true, pred)
    return table


def accuracy(labels_true: Any, labels_pred: Any) -> float:
    """Share of rows that are right under the best one-to-one map of clusters to classes.

    >>> accuracy([0, 0, 1, 1], [5, 5, 5, 2])
    0.75
    """
    table = _crossed(labels_true, labels_pred)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def purity(labels_true: Any, labels_pred: Any) -> float:
    """Share of rows that belong to the commonest class of their cluster.

    >>> purity([0, 0, 1, 1], [5, 5, 5, 2])
    0.75
    """
    table = _crossed(labels_true, labels_pred)
    return float(table.max(axis=0).sum() / table.sum())


def _energy_block(start: int, raw: Any, weights: Array, rows: Rows, centers: Centers) -> float:
    check_values(start, raw, rows.frame.unit)
    block = rows.convert(raw)
    return energy_block(block, weights, block.nearest(centers), centers)


def energy(
    X: Any, centers: Any, sample_weight: Any = None, *, metric: str = "euclidean", n_threads: int | None = None
) -> float:
    """Sum of squared distances of the rows from their nearest centre, in float64, block by block.

    For metric="cosine" it is the sum of 1 - cosine: either way what KMeans calls `inertia_`.

    >>> energy([[0.0], [1.0], [10.0]], [[0.0], [10.0]])
    1.0
    >>> energy([[5.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]], metric="cosine")
    1.0
    """
    allowed = {"metric": [StrOptions({"euclidean", "cosine"})], "n_threads": [Interval(Integral, 1, None, closed="left"), None]}
    validate_parameter_constraints(allowed, {"metric": metric, "n_threads": n_threads}, "energy")
    source = check_rows(None, X, reset=False)
    weights = check_weights(sample_weight, source.shape[0])
    C = check_centers(centers, None, source.shape[1], "centers")
    frame = Frame(unit=metric == "cosine")
    if frame.unit and not C.any(axis=1).all():
        raise ValueError(f"centers row {int(np.argmin(C.any(axis=1)))} is all zeros: cosine needs a direction.")
    with Rows(source, weights, frame, n_threads) as rows:
        rows.dtype = np.dtype(np.float64)
        placed: Any = rows.convert(C).X  # dense, as C is
        shares = rows.raw_shares(_energy_block, rows, rows.prepare(placed), per_row=(rows.weights,))
        return frame.energy_out_of(sum(shares))
