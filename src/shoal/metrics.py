"""How good a clustering is."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from .core.blocks import Centers
from .core.checks import check_centers, check_rows, check_weights
from .core.moments import check_values
from .core.partition import energy_block
from .core.rows import Rows
from .core.types import Array

__all__ = ["accuracy", "adjusted_rand_score", "energy", "normalized_mutual_info_score", "purity"]


def accuracy(labels_true: Any, labels_pred: Any) -> float:
    """Share of rows that are right under the best one-to-one map of clusters to classes.

    >>> accuracy([0, 0, 1, 1], [5, 5, 5, 2])
    0.75
    """
    table = contingency_matrix(labels_true, labels_pred)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def purity(labels_true: Any, labels_pred: Any) -> float:
    """Share of rows that belong to the commonest class of their cluster.

    >>> purity([0, 0, 1, 1], [5, 5, 5, 2])
    0.75
    """
    table = contingency_matrix(labels_true, labels_pred)
    return float(table.max(axis=0).sum() / table.sum())


def _energy_block(start: int, raw: Any, weights: Array, rows: Rows, centers: Centers) -> float:
    check_values(start, raw, unit=False)
    block = rows.convert(raw)
    return energy_block(block, weights, block.nearest(centers), centers)


def energy(X: Any, centers: Any, sample_weight: Any = None, n_threads: int | None = None) -> float:
    """Sum of squared distances of the rows from their nearest centre, in float64, block by block.

    >>> energy([[0.0], [1.0], [10.0]], [[0.0], [10.0]])
    1.0
    """
    source = check_rows(None, X, reset=False)
    weights = check_weights(sample_weight, source.shape[0])
    with Rows(source, weights, n_threads=n_threads) as rows:
        rows.dtype = np.dtype(np.float64)
        C = rows.prepare(check_centers(centers, np.shape(centers)[0] if np.ndim(centers) else 0, source.shape[1], "centers"))
        return sum(rows.raw_shares(_energy_block, rows, C, per_row=(rows.weights,)))
