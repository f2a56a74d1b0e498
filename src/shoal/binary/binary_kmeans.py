"""`BinaryKMeans`: k-means on bits. Rows and centres are codes; a row goes to the centre that differs in the fewest bits, and
a centre takes the bits that most of its rows have.

Y. Gong, M. Pawlowski, F. Yang, L. Brandy, L. Bourdev, R. Fergus (2015), Web scale photo hash clustering on a single
machine, doi:10.1109/CVPR.2015.7298596 (binary k-means).
X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI, (12) and (13).
Differs from the papers: labels come from XOR and popcount, not from a multi-index hash table, and are exact; where as many
rows have a bit as have not, the centre keeps the bit it had; a centre that loses all its rows moves to the row that is
served worst.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
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
from ..fit.parameters import keep
from ..fit.schema import Number, OneOf, Spec, bools, doubles, frame
from .codes import Codes
from .hamming import HammingSolver
from .seeding import INITIALIZERS

PIECE = 1 << 22  # entries of a sparse block to be unpacked at a time


def _pack_block(start: int, raw: Any, words: Array, threshold: Array | float) -> None:
    check_finite(start, raw)
    if raw.dtype == np.uint64 and raw.max() > 2**53:
        raise ValueError("X holds words of 64 bits, not bits: give packed codes as shoal.binary.Codes(X).")
    step = max(1, PIECE // raw.shape[1]) if is_sparse(raw) else len(raw)
    for a in range(0, len(words), step):
        some = raw[a : a + step]
        words[a : a + step] = packed((some.toarray() if is_sparse(raw) else some) > threshold)


def _zeros_and_ones(start: int, raw: Any) -> bool:
    values = raw.data if is_sparse(raw) else raw
    return values.dtype == bool or bool(((values == 0) | (values == 1)).all())


class BinaryKMeans(BaseCentroidClusterer):
    """K-means on bits, by the number of bits that differ (Hamming distance).

    Parameters
    ----------
    threshold : "auto", "mean", float or array of shape (n_features,), default="auto"
        A number of X counts as a one where it is above this. "mean" is the (weighted) mean of its column; "auto" is 0.5 if
        X holds zeros and ones alone, else "mean". Codes are bits already.
    init : str, array of shape (n_clusters, n_features) or callable, default="k-means++"
        Where the centres start: "k-means++", "random" (rows), or where you say, in X's own numbers. "k-means++" is the
        greedy variant, on a sample of max(20000, 20 n_clusters) rows where there are more. A callable is called as
        `init(X, n_clusters, random_state=...)`, with a RandomState, and returns an array.
    ...

    Attributes
    ----------
    cluster_centers_ : bool array of shape (n_clusters, n_features)
        The bits that most rows of each cluster have; of a bit that half of them have, what it was before.
    inertia_ : float
        In how many bits the rows differ from their centres, added up (by weight).
    threshold_ : float or array of shape (n_features,)
        What was used.
    labels_, n_iter_, n_features_in_, feature_names_in_, stop_reason_
        As in `KMeans`. `labels_` equals `predict(X)`. A fit converges when no centre changes.
    history_ : list of dict
        One record a step of the start that was kept: step, seconds, energy (of the centres that came in), shift (bits of
        the centres that changed), rows (looked at), distances (computed), reassigned (rows), start (which of them, from 0).

    Notes
    -----
    X may be `shoal.binary.Codes`, which are clustered where they are, without a copy. Anything else is packed first, which
    takes one bit a number. `transform` gives numbers of bits.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import BinaryKMeans, binary
    >>> X = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
    >>> model = BinaryKMeans(n_clusters=2, random_state=0).fit(X)
    >>> model.predict([[1, 1, 0, 0]]) == model.labels_[0]
    array([ True])

    Rows of numbers by way of codes:

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

    threshold: Any
    threshold_: float | Array
    _model_parameters = ()
    _prediction_attributes = (*BaseCentroidClusterer._prediction_attributes, "threshold_")

    def _fitted_schema(self) -> dict[str, Spec]:
        own = {"_frame": frame(bits=True), "threshold_": OneOf((Number(), doubles("d"))), "cluster_centers_": bools("k", "d")}
        return {**super()._fitted_schema(), **own}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        threshold: Any = "auto",
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        time_budget: float | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _validate_input(self, X: Any, sample_weight: Any) -> tuple[Rows, Array | None]:
        self.threshold_ = 0.5 if isinstance(X, Codes) else self._find_threshold(X, sample_weight)
        return super()._validate_input(X, sample_weight)

    def _find_threshold(self, X: Any, sample_weight: Any) -> float | Array:
        source = check_rows(self, X, reset=True)
        if not isinstance(self.threshold, str):
            given = floats(self.threshold, "threshold")
            if given.shape not in ((), (source.shape[1],)) or not np.isfinite(given).all():
                raise ValueError(f"threshold must be one finite number, or one for each of {source.shape[1]} columns.")
            return given if given.ndim else float(given)
        weights = check_weights(sample_weight, source.shape[0])
        with on_threads(Rows.of(source, weights), self.n_threads) as rows:
            if self.threshold == "auto" and all(rows.map_raw_blocks(_zeros_and_ones)):
                return 0.5
            return column_means(rows)

    def _source(self, X: Any, *, reset: bool) -> Source:
        """X as codes."""
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
            f"codes{' of positive weight' if rows.has_weights else ''}; n_clusters={found} would do, or codes of more bits."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
