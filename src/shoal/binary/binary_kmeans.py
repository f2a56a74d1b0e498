"""`BinaryKMeans`: k-means on bits, with the Hamming distance and binary centroids.

Y. Gong, M. Pawlowski, F. Yang, L. Brandy, L. Bourdev, R. Fergus (2015), Web scale photo hash clustering on a single
machine, doi:10.1109/CVPR.2015.7298596 (binary k-means).
X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI, (12) and (13).

Differs from the papers: distances are exact, from XOR and popcount, without a multi-index hash table; bits with tied votes keep
their value; an empty cluster moves to the row with the largest error.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data

from ..data.bits import packed, words_for
from ..data.rows import Rows
from ..data.source import Source
from ..data.statistics import check_finite, column_means
from ..data.types import Array, is_sparse
from ..data.validation import check_weights, floats
from ..execution.threads import on_threads
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.input import check_rows
from ..fit.schema import Number, OneOf, Spec, bools, doubles, frame
from .codes import Codes
from .hamming import HammingSolver
from .seeding import INITIALIZERS

MAX_DENSE_ENTRIES = 1 << 22  # entries of a sparse block that are made dense at a time
MAX_EXACT_INTEGER = 2**53  # larger uint64 values in X must be packed words: no column of numbers needs them


def _pack_block(start: int, raw: Any, words: Array, threshold: Array | float) -> None:
    """Write the packed bits of one block to `words`."""
    check_finite(start, raw)
    if raw.dtype == np.uint64 and raw.max() > MAX_EXACT_INTEGER:
        raise ValueError("X holds 64-bit words, not bits: pass packed codes as shoal.binary.Codes(X).")
    step = max(1, MAX_DENSE_ENTRIES // raw.shape[1]) if is_sparse(raw) else len(raw)
    for a in range(0, len(words), step):
        piece = raw[a : a + step]
        words[a : a + step] = packed((piece.toarray() if is_sparse(raw) else piece) > threshold)


def _is_zeros_and_ones(start: int, raw: Any) -> bool:
    """Return whether one block holds only zeros and ones."""
    values = raw.data if is_sparse(raw) else raw
    return values.dtype == bool or bool(((values == 0) | (values == 1)).all())


class BinaryKMeans(BaseCentroidClusterer):
    """K-means on bits with the Hamming distance.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    threshold : "auto", "mean", float or array-like of shape (n_features,), default="auto"
        Numbers of X above it are ones. "mean" is the weighted mean of each column. "auto" is 0.5 if X holds only zeros and
        ones, and "mean" otherwise. Has no effect on `Codes`, which are bits already.
    init : {"k-means++", "random"}, array-like of shape (n_clusters, n_features) or callable, default="k-means++"
        Initialization method, or the initial centroids, in the units of X. "random" chooses random rows; "k-means++" is the
        greedy variant. Both use a sample of max(20000, 20 n_clusters) rows if there are more. A callable is called as
        ``init(X, n_clusters, random_state=random_state)`` with a RandomState and returns an array.
    n_init : int or "auto", default="auto"
        Number of initializations, of which the one with the lowest inertia is used. "auto" is 10 for "random" and callables,
        and 1 otherwise. An array is one initialization.
    max_iter : int, default=300
        Maximum number of steps per initialization.
    time_budget : float or None, default=None
        Seconds from the call of `fit` within which to finish, with the best centroids so far. None for no limit.
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
    cluster_centers_ : ndarray of bool of shape (n_clusters, n_features)
        Majority of each bit over the rows of each cluster. Bits with tied votes keep their value.
    labels_ : ndarray of int32 of shape (n_samples,)
        Cluster of each row. Equal to ``predict(X)``.
    inertia_ : float
        Weighted sum of the Hamming distances of the rows to their centroids.
    threshold_ : float or ndarray of shape (n_features,)
        Threshold that was used.
    n_iter_ : int
        Number of steps of the best initialization.
    history_ : list of dict
        One record per step of the best initialization: step, seconds, energy (of the centroids before the step), shift (number
        of bits of centroids that changed), rows (number of rows compared with centroids), distances (number of distances
        computed), reassigned (number of rows that changed cluster) and start (index of the initialization).
    stop_reason_ : {"converged", "max_iter", "time_budget", "callback"}
        Why the fit ended. It converges when no centroid changes.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during `fit`. Defined only if X has feature names that are all strings.

    See Also
    --------
    CompressedKMeans : Learns the codes from rows of numbers.
    shoal.binary.lsh : Codes of random hyperplanes.
    shoal.binary.itq : Codes that are fitted to the rows.

    Notes
    -----
    X may be `shoal.binary.Codes`, which are used without a copy. Other input is packed first, into one bit per number.
    Distances are computed by XOR and popcount, 64 bits at a time. `transform` returns Hamming distances.

    Differs from [1]_: distances are exact, without a multi-index hash table.

    References
    ----------
    .. [1] Y. Gong, M. Pawlowski, F. Yang, L. Brandy, L. Bourdev and R. Fergus (2015), Web scale photo hash clustering on a
       single machine, doi:10.1109/CVPR.2015.7298596.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import BinaryKMeans, binary
    >>> X = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
    >>> model = BinaryKMeans(n_clusters=2, random_state=0).fit(X)
    >>> model.predict([[1, 1, 0, 0]]) == model.labels_[0]
    array([ True])

    Codes of rows of numbers:

    >>> X = np.random.default_rng(0).normal(size=(1000, 50))
    >>> codes = binary.lsh(X, n_bits=64, random_state=0).encode(X)
    >>> BinaryKMeans(n_clusters=3, random_state=0).fit(codes).cluster_centers_.shape
    (3, 64)
    """

    metric = "hamming"
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: rule for name, rule in BaseCentroidClusterer._parameter_constraints.items() if name not in ("metric", "tol")},
        "init": [StrOptions(set(INITIALIZERS.methods)), callable, "array-like", "sparse matrix"],
        "threshold": [StrOptions({"auto", "mean"}), Interval(Real, None, None, closed="neither"), "array-like"],
    }

    threshold_: float | NDArray[np.float64]
    cluster_centers_: NDArray[np.bool_]
    _model_parameters = ()
    _prediction_attributes = (*BaseCentroidClusterer._prediction_attributes, "threshold_")

    def _fitted_schema(self) -> dict[str, Spec]:
        own = {"_frame": frame(bits=True), "threshold_": OneOf((Number(), doubles("d"))), "cluster_centers_": bools("k", "d")}
        return {**super()._fitted_schema(), **own}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        threshold: Literal["auto", "mean"] | float | ArrayLike = "auto",
        init: Literal["k-means++", "random"] | ArrayLike | Callable[..., ArrayLike] = "k-means++",
        n_init: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        time_budget: float | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.threshold = threshold
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.time_budget = time_budget
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    def _validate_input(self, X: Any, sample_weight: Any) -> tuple[Rows, Array | None]:
        self.threshold_ = 0.5 if isinstance(X, Codes) else self._find_threshold(X, sample_weight)
        return super()._validate_input(X, sample_weight)

    def _find_threshold(self, X: Any, sample_weight: Any) -> float | Array:
        """Return the threshold that the parameter `threshold` asks for."""
        source = check_rows(self, X, reset=True)
        if not isinstance(self.threshold, str):
            given = floats(self.threshold, "threshold")
            if given.shape not in ((), (source.shape[1],)) or not np.isfinite(given).all():
                raise ValueError(f"threshold must be a finite number, or {source.shape[1]} of them, one per column.")
            return given if given.ndim else float(given)
        weights = check_weights(sample_weight, source.shape[0])
        with on_threads(Rows.of(source, weights), self.n_threads) as rows:
            if self.threshold == "auto" and all(rows.map_raw_blocks(_is_zeros_and_ones)):
                return 0.5
            return column_means(rows)

    def _source(self, X: Any, *, reset: bool) -> Source:
        """Return X as codes."""
        if isinstance(X, Codes):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        source = check_rows(self, X, reset=reset)
        words = np.empty((source.shape[0], words_for(source.shape[1])), np.uint64)
        with on_threads(Rows.of(source), self.n_threads) as rows:
            rows.for_each_raw(_pack_block, getattr(self, "threshold_", 0.5), per_row=(words,))
        codes = Codes(words, source.shape[1])
        codes.held_bytes += source.held_bytes
        return codes

    def _given_in_frame(self, rows: Rows, C: Array) -> Array:
        return np.greater(C, self.threshold_)

    def _make_solver(self, context: FitContext) -> HammingSolver:
        return HammingSolver(context.rows)

    def _explain_empty_clusters(self, found: int, rows: Rows) -> str:
        return (
            f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}): X has too few distinct "
            f"codes{' of positive weight' if rows.has_weights else ''}: use n_clusters={found} or fewer, or codes of more bits."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
