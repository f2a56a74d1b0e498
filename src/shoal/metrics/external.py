"""Measures of a clustering against known classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from ..data.types import Array

__all__ = ["accuracy", "adjusted_rand_score", "normalized_mutual_info_score", "purity"]  # two are those of scikit-learn


def _encode_labels(labels: Any, name: str) -> Array:
    """Return labels of any type as integers 0, 1, ..."""
    try:
        array = np.asarray(labels)
        if array.ndim != 1 or not len(array):
            raise ValueError(f"its shape is {array.shape}")
        missing = [v is None or v != v for v in array] if array.dtype == object else array != array
        if np.any(missing):
            raise ValueError(f"the label of row {int(np.argmax(missing))} is missing")
        codes: Array = np.unique(array, return_inverse=True)[1]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of labels, one for each of one or more rows: {error}.") from error
    return codes


def _contingency(labels_true: Any, labels_pred: Any) -> Array:
    """Return the contingency table: number of rows of class i in cluster j."""
    true, pred = _encode_labels(labels_true, "labels_true"), _encode_labels(labels_pred, "labels_pred")
    if len(true) != len(pred):
        raise ValueError(f"labels_true has {len(true)} labels and labels_pred has {len(pred)}: pass both for the same rows.")
    table: Array = contingency_matrix(true, pred)
    return table


def accuracy(labels_true: Any, labels_pred: Any) -> float:
    """Fraction of correctly labelled rows under the best one-to-one matching of clusters to classes.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        Classes of the rows, of any type.
    labels_pred : array-like of shape (n_samples,)
        Clusters of the rows, of any type.

    Returns
    -------
    score : float
        Between 0 and 1; higher is better.

    Examples
    --------
    >>> from shoal.metrics import accuracy
    >>> accuracy([0, 0, 1, 1], [5, 5, 5, 2])
    0.75
    """
    table = _contingency(labels_true, labels_pred)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def purity(labels_true: Any, labels_pred: Any) -> float:
    """Fraction of rows that belong to the most frequent class of their cluster.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        Classes of the rows, of any type.
    labels_pred : array-like of shape (n_samples,)
        Clusters of the rows, of any type.

    Returns
    -------
    score : float
        Between 0 and 1; higher is better.

    Examples
    --------
    >>> from shoal.metrics import purity
    >>> purity([0, 0, 1, 1], [5, 5, 5, 2])
    0.75
    """
    table = _contingency(labels_true, labels_pred)
    return float(table.max(axis=0).sum() / table.sum())
