"""How good a clustering is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils._param_validation import StrOptions, validate_parameter_constraints

from .data.blocks import Block, Centers, DenseBlock, nearest_others, rounding
from .data.frame import Frame
from .data.rows import Rows
from .data.source import FileSource
from .data.tables import column_names
from .data.types import Array
from .data.validation import check_centers, check_same_columns, check_weights
from .execution.threads import on_threads
from .fit.centroid_model import near_block
from .fit.input import check_rows
from .fit.parameters import MAX_THREADS, Count
from .fit.partition import energy_block

__all__ = [
    "accuracy",
    "adjusted_rand_score",
    "davies_bouldin",
    "energy",
    "knee",
    "normalized_mutual_info_score",
    "purity",
    "simplified_silhouette",
]

AT_ONCE = 1 << 20  # scores of centres against all centres at a time
CLEAR = 2.5  # a knee is where the energy falls so many times as steeply before as anywhere after


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


def _frame_for(centers: Array, metric: str) -> Frame:
    """Scaled where squares of the centres would leave the range of float64."""
    if metric == "cosine":
        return Frame(unit=True)
    reach = float(np.abs(centers).max())
    in_range = reach == 0 or 2.0**-300 < reach < 2.0**300
    return Frame(exponent=0 if in_range else -int(np.clip(np.frexp(reach)[1], -1000, 1000)))


def _placed(X: Any, centers: Any, weights: Any, metric: str, n_threads: int | None, caller: str) -> tuple[Rows, Array]:
    """Checked rows, in float64, and the centres in their frame."""
    allowed = {"metric": [StrOptions({"euclidean", "cosine"})], "n_threads": [Count(MAX_THREADS), None]}
    validate_parameter_constraints(allowed, {"metric": metric, "n_threads": n_threads}, caller)
    source = check_rows(None, X, reset=False)
    check_same_columns(centers, X.feature_names if isinstance(X, FileSource) else column_names(X), "centers")
    C = check_centers(centers, None, source.shape[1], "centers")
    frame = _frame_for(C, metric)
    if frame.unit and not C.any(axis=1).all():
        raise ValueError(f"centers row {int(np.argmin(C.any(axis=1)))} is all zeros: cosine needs a direction.")
    rows = Rows.of(source, check_weights(weights, source.shape[0]), frame).with_dtype(np.dtype(np.float64))
    placed: Any = rows.convert(C).X  # dense, as C is
    return rows, placed


def _energy_block(start: int, raw: Any, weights: Array, rows: Rows, centers: Centers) -> float:
    block, centers = near_block(start, raw, rows, centers)
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
    rows, placed = _placed(X, centers, sample_weight, metric, n_threads, "energy")
    with on_threads(rows, n_threads) as rows:
        shares = rows.map_raw_blocks(_energy_block, rows, rows.prepare(placed), per_row=(rows.weights,))
        return rows.frame.energy_out_of(sum(shares))


class _Share(NamedTuple):
    """What a block has to say of each centre's rows."""

    sizes: Array  # (k)
    distances: Array  # (k): added up
    silhouettes: Array  # (k): added up


def silhouettes(block: Block, labels: Array, centers: Centers, frame: Frame) -> Array:
    """Of each row: how much nearer its own centre is than the next one, from -1 to 1."""
    pairs = (labels, nearest_others(block, labels, centers))
    own, other = (frame.distances_out_of(block.pair_distances(np.arange(len(block)), ids, centers)) for ids in pairs)
    most = np.maximum(own, other)
    return np.asarray((other - own) / np.where(most > 0, most, 1))


def _silhouette_block(start: int, raw: Any, labels: Array, rows: Rows, centers: Centers, near: bool) -> _Share:
    block, centers = near_block(start, raw, rows, centers)
    k = len(centers.C)
    labels = block.nearest(centers) if near else labels
    far = rows.frame.distances_out_of(block.pair_distances(np.arange(len(block)), labels, centers))
    per_row = (np.ones(len(block)), far, silhouettes(block, labels, centers, rows.frame))
    return _Share(*(np.bincount(labels, values, k) for values in per_row))


def _shares(X: Any, centers: Any, labels: Any, metric: str, n_threads: int | None, caller: str) -> tuple[_Share, Array, Frame]:
    rows, C = _placed(X, centers, None, metric, n_threads, caller)
    n, k = len(rows), len(C)
    if k < 2:
        raise ValueError(f"centers has {k} row, and {caller} compares at least 2: give those of all clusters.")
    names = np.zeros(n, np.intp) if labels is None else np.asarray(labels)
    if names.shape != (n,) or names.dtype.kind not in "iu" or names.min() < 0 or names.max() >= k:
        raise ValueError(f"labels must be {n} numbers, one for each row, from 0 to {k - 1}: the places of rows in centers.")
    total = _Share(*np.zeros((3, k)))
    with on_threads(rows, n_threads) as rows:
        for share in rows.map_raw_blocks(_silhouette_block, rows, rows.prepare(C), labels is None, per_row=(names,)):
            for sums, part in zip(total, share, strict=True):
                sums += part
    return total, C, rows.frame


def simplified_silhouette(
    X: Any, centers: Any, labels: Any = None, *, metric: str = "euclidean", n_threads: int | None = None
) -> float:
    """How much nearer rows are to their own centre than to the next one: the mean of (b - a) / max(a, b), from -1 to 1.

    The silhouette, with distances from centres in place of those from all rows (E. R. Hruschka, L. N. de Castro,
    R. J. G. B. Campello 2004, Evolutionary algorithms for clustering gene-expression data, ICDM). Labels are the places of
    rows in centers; None for the nearest. A row alone in its cluster counts as 0. Rows are read block by block.

    >>> simplified_silhouette([[0.0], [2.0], [9.0], [11.0]], [[1.0], [10.0]])
    0.8875
    """
    total, _, _ = _shares(X, centers, labels, metric, n_threads, "simplified_silhouette")
    return float(total.silhouettes[total.sizes > 1].sum() / total.sizes.sum())


def davies_bouldin(
    X: Any, centers: Any, labels: Any = None, *, metric: str = "euclidean", n_threads: int | None = None
) -> float:
    """How wide clusters are for their distance from the most similar other one, in the mean: the lower, the better.

    D. L. Davies, D. W. Bouldin (1979), A cluster separation measure, doi:10.1109/TPAMI.1979.4766909. Labels are the places of
    rows in centers; None for the nearest. Clusters without rows do not count. Rows are read block by block.

    >>> davies_bouldin([[0.0], [2.0], [9.0], [11.0]], [[1.0], [10.0]])
    0.2222222222222222
    """
    total, C, frame = _shares(X, centers, labels, metric, n_threads, "davies_bouldin")
    filled = total.sizes > 0
    return overlap(C[filled], total.distances[filled] / total.sizes[filled], frame)


def overlap(C: Array, widths: Array, frame: Frame) -> float:
    """The Davies-Bouldin index of centres (k, d) in a frame, whose rows are so far from them in the mean.

    Distances from products narrow down which cluster is the most similar; what rounding leaves open, the distances themselves
    decide. Of two centres at one place the index is infinite, unless their rows are there, too.
    """
    block, centers = DenseBlock(C), DenseBlock.prepare(C)
    norms2, off = centers.norms2, rounding(C.dtype, C.shape[1])
    worst = np.zeros(len(C))

    def ratios(sums: Array, squares: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(sums / frame.distances_out_of(np.maximum(squares, 0)), nan=0.0, posinf=np.inf)

    step = max(1, AT_ONCE // len(C))
    for a in range(0, len(C), step):
        some = np.arange(a, min(a + step, len(C)))
        sums, scale = widths[some, None] + widths, norms2[some, None] + norms2
        squares = scale - 2 * (C[some] @ C.T).astype(np.float64)
        least, most = ratios(sums, squares + off * scale), ratios(sums, squares - off * scale)
        for bound in (least, most):
            bound[np.arange(len(some)), some] = -1
        line, other = np.nonzero(most >= np.maximum(least.max(axis=1), 0)[:, None])
        np.maximum.at(worst, some[line], ratios(sums[line, other], block.pair_distances(some[line], other, centers)))
    return float(worst.mean()) if len(C) > 1 else 0.0


def knee(k: Any, energy: Any) -> int | None:
    """The number of clusters up to which the energy falls steeply and after which it does not; None if there is none.

    On rows without clusters the energy falls like a power of k (P. Zador 1982, Asymptotic quantization error of continuous
    signals, doi:10.1109/TIT.1982.1056490): a straight line, where both axes are logarithms. A knee is where it falls at least
    2.5 times as steeply before, from either of the two k that go ahead, as from there to any later k, of which some must
    be 1.3 times as large: one energy that is too high or too low, or the end of the curve, makes no knee.

    >>> knee([1, 2, 3, 4, 5, 6], [100, 60, 10, 9, 8.2, 7.6])
    3
    >>> knee([1, 2, 4, 8, 16], [100, 50, 25, 12.5, 6.25]) is None
    True
    """
    counts, costs = np.asarray(k, np.float64), np.asarray(energy, np.float64)
    if counts.ndim != 1 or counts.shape != costs.shape or not (np.diff(counts) > 0).all() or (counts < 1).any():
        raise ValueError("k must be numbers of clusters from 1 on, each greater than the one before, with one energy for each.")
    if not np.isfinite(costs).all() or (costs < 0).any():
        raise ValueError("energy must be finite and not negative: leave out what is not known.")
    x, y = np.log(counts), np.log(np.maximum(costs, max(costs.max(initial=0), 1e-300) * 1e-12))
    best, found = CLEAR, None
    for i in range(1, int(np.searchsorted(x, x.max(initial=0) - np.log(1.3), "right"))):
        two = slice(max(i - 2, 0), i)
        before = ((y[two] - y[i]) / (x[i] - x[two])).min()
        after = max(((y[i] - y[i + 1 :]) / (x[i + 1 :] - x[i])).max(), 1e-3)
        if before / after >= best:
            best, found = before / after, int(counts[i])
    return found
