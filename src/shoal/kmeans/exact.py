"""`KMeans`: exact k-means by Lloyd's method or any of the faster ones that give the same result."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from ..core import partition
from ..core.checks import check_centers, check_rows, check_weights
from ..core.driver import Limits, Outcome, drive
from ..core.estimator import WRAPPED, CentersEstimator, Hooks, all_or_nothing, seed_of, with_callbacks
from ..core.moments import Moments, measure
from ..core.partition import Assign, Found, Partition
from ..core.rows import Frame, Rows
from ..core.seeding import SEEDINGS, generator
from ..core.types import Array
from . import bounded, lloyd, projected

ALGORITHMS: dict[str, Assign] = {
    "lloyd": lloyd.assign,
    "projected": projected.assign,
    **{name: partial(bounded.assign, algorithm=name) for name in ("hamerly", "elkan", "yinyang", "exponion")},
}


WORTHWHILE = 1000  # multiplications a row, centres times columns, from which on bounds pay
RESTLESS = 0.05  # share of the rows that must move for plain steps to be faster than bounds
MEMORY = {True: 1 / 16, False: 3 / 4}  # what bounds may take, as a share of X: less if X is a memory map


def choose_algorithm(rows: Rows, k: int) -> str:
    """What "auto" runs; `python -m bench algorithms` shows why."""
    if rows.is_sparse or k * rows.d < WORTHWHILE:
        return "lloyd"
    size = len(rows) * rows.d * rows.dtype.itemsize
    room = max(size * MEMORY[rows.source.is_map], 1 << 25)
    return "projected" if projected.memory(len(rows), rows.d, k, rows.dtype) <= room else "lloyd"


def assign_auto(rows: Rows, state: Partition) -> tuple[Iterable[Found], Any]:
    """Bounds; but plain steps while many rows move and there are no heads, which alone make open bounds cheap."""
    bounds: projected.Bounds | None = state.bounds
    headless = rows.d <= projected.IDENTITY if bounds is None else bounds.heads.size == 0
    if not headless or state.restless <= RESTLESS * len(rows):
        return projected.assign(rows, state)
    if bounds is not None:
        bounds.forget(slice(None))
    return partition.label_all(rows, state), bounds


class Count(Interval):
    """An integer from 1 on. (True is one to Python, but nobody means it.)"""

    def __init__(self) -> None:
        super().__init__(Integral, 1, None, closed="left")

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and bool(super().is_satisfied_by(val))


class KMeans(CentersEstimator):
    """Exact k-means: Lloyd's result, to the last bit, for less work.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters.
    init : str, array of shape (n_clusters, n_features) or callable, default="k-means++"
        Where the centres start: "k-means++", "k-means||", "afk-mc2", "random" (rows), or where you say. "k-means++" is the
        greedy variant, on a uniform sample of max(20000, 50 n_clusters) rows where there are more, followed by the swaps
        of a local search for up to 256 clusters. A callable is called as `init(X, n_clusters, random_state=...)`, with a
        RandomState, and returns an array.
    n_init : "auto" or int, default="auto"
        How many starts to try; the one of least energy is kept. "auto" is 1, but 10 for "random" and callables. An array
        is one start, whatever n_init says.
    max_iter : int, default=300
        Most steps of one start.
    tol : float, default=1e-4
        Stop when the centres' squared moves add up to no more than this fraction of the mean variance of a column.
    time_budget : float or None, default=None
        Seconds from the call of `fit` after which to stop with the best centres so far. No step is begun unless there is
        time for it and for the final labels, taking each to last as long as the step before; no further start is begun
        when time is up. Not bounded, and waited for: the first look at all rows, seeding, each start's first step, and
        the compilation of the kernels when they are used for the first time.
    algorithm : {"auto", "lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected"}, default="auto"
        How to find Lloyd's labels. All give the same result; "projected" is for dense rows.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" clusters directions: rows are scaled to unit length and so are the centres. Energy is then the sum of
        1 - cosine. Rows of zeros have no direction and are refused.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers, which only the start of the centres depends on: an int gives the same result every
        time, None another one each time (from NumPy's global state, as in scikit-learn). A RandomState or Generator is
        drawn from once a fit.
    n_threads : int or None, default=None
        Threads to use; None for as many as OpenMP would start: the CPUs that the process may use, of which a worker of
        joblib gets its share, or OMP_NUM_THREADS if that is less. The result does not depend on it.
    callback : callable or None, default=None
        Is given a copy of each record of `history_` as it is made; a true result ends the fit.
    verbose : int, default=0
        Print each record.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, n_features_in_, feature_names_in_
        As in scikit-learn. `labels_` equals `predict(X)`.
    history_ : list of dict
        One record a step of the start that was kept: step, seconds, energy (of the centres that came in), shift, rows
        (that bounds did not settle), distances (computed), reassigned (rows), start (which of them, from 0).
    stop_reason_ : str
        Why the kept start ended: "converged", "max_iter", "time_budget" or "callback"; one of the last two also where it
        kept further starts from being tried to their end.
    algorithm_ : str
        What ran.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import KMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]
    >>> model.inertia_
    16.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Count()],
        "init": [StrOptions(set(SEEDINGS)), callable, "array-like"],
        "n_init": [StrOptions({"auto"}), Count()],
        "max_iter": [Count()],
        "tol": [Interval(Real, 0, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="right"), None],
        "algorithm": [StrOptions({"auto", *ALGORITHMS})],
        "metric": [StrOptions({"euclidean", "cosine"})],
        "random_state": ["random_state", np.random.Generator],
        "n_threads": [Count(), None],
        "callback": [callable, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        algorithm: str = "auto",
        metric: str = "euclidean",
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.algorithm = algorithm
        self.metric = metric
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X. If that fails, the model stays what it was.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Real numbers, finite: a NumPy array or memory map, a SciPy sparse matrix, a table of pandas, polars or pyarrow.
            float16, float32 and integers of 8 or 16 bits are clustered in float32, which holds them; all else in float64.
            Sums are float64 either way.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            How much each row counts, as if it were there so many times; None for 1 each. A row of weight 0 gets a label
            and has no say.

        Returns
        -------
        self : KMeans
        """
        started = time.perf_counter()
        self._validate_params()
        deadline = None if self.time_budget is None else started + self.time_budget
        with all_or_nothing(self):
            source = check_rows(self, X, reset=True)
            n, d = source.shape
            weights = check_weights(sample_weight, n)
            if n < self.n_clusters:
                raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}: ask for fewer clusters.")
            given = None
            if not isinstance(self.init, str) and not callable(self.init):
                given = check_centers(self.init, self.n_clusters, d)
            with Rows(source, weights, Frame(unit=self.metric == "cosine"), self.n_threads) as rows:
                if self.algorithm == "projected" and rows.is_sparse:
                    raise ValueError("algorithm='projected' needs dense rows: use 'auto' or 'yinyang' for sparse X.")
                moments = measure(rows)
                rows.frame = moments.frame
                self._fit_rows(rows, moments, given, X, deadline)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.algorithm != "projected"
        return tags

    def _fit_rows(self, rows: Rows, moments: Moments, given: Array | None, X: Any, deadline: float | None) -> None:
        algorithm = choose_algorithm(rows, self.n_clusters) if self.algorithm == "auto" else self.algorithm
        combine = self.algorithm == "auto" and algorithm == "projected"
        assign = assign_auto if combine else ALGORITHMS[algorithm]
        tol = self.tol * moments.variance
        hooks = Hooks(self, X, lambda state: {"cluster_centers_": self._public(rows, state), "_frame": rows.frame})
        limits = Limits(self.max_iter, deadline)
        seed = seed_of(self.random_state)
        best: Outcome | None = None
        least, cut = np.inf, ""
        for attempt in range(self._starts(given)):
            if best is not None and limits.spent(0):
                cut = "time_budget"
                break
            start = partition.begin(rows, self._start(rows, given, X, seed, attempt), moments.square)
            outcome = self._run(rows, start, assign, tol, limits, hooks, attempt)
            outcome, energy = self._settle(rows, outcome, assign)
            if best is None or energy < least:
                best, least = outcome, energy
            if outcome.reason in ("callback", "time_budget"):
                cut = outcome.reason
                break
        assert best is not None
        self._publish(rows, best._replace(reason=cut or best.reason), least, algorithm)
        hooks.close()

    def _starts(self, given: Array | None) -> int:
        if given is not None:
            if self.n_init not in ("auto", 1):
                warnings.warn(
                    f"init gives the centres, so there is one start, not n_init={self.n_init}: leave n_init at 'auto'.",
                    RuntimeWarning,
                    stacklevel=4 + WRAPPED,
                )
            return 1
        if self.n_init == "auto":
            return 10 if self.init == "random" or callable(self.init) else 1
        return int(self.n_init)

    def _start(self, rows: Rows, given: Array | None, X: Any, seed: int, attempt: int) -> Array:
        """Starting centres in the rows' frame."""
        k = self.n_clusters
        if given is None and not callable(self.init):
            C: Any = SEEDINGS[self.init](rows, k, generator(seed, attempt))
        else:
            if given is None:
                state = np.random.RandomState(generator(seed, attempt).integers(2**31))
                given = check_centers(self.init(X, k, random_state=state), k, rows.d, "what init returned")
            if rows.frame.unit and not given.any(axis=1).all():
                raise ValueError(f"init row {int(np.argmin(given.any(axis=1)))} is all zeros: cosine needs a direction.")
            C = rows.convert(given).X
        return np.ascontiguousarray(C, rows.dtype)

    def _run(
        self, rows: Rows, state: Partition, assign: Assign, tol: float, limits: Limits, hooks: Hooks, start: int
    ) -> Outcome:
        """One start, step by step."""

        def step(before: Partition) -> tuple[Partition, partition.Info]:
            hooks.begin()
            latest[0], info = partition.advance(rows, before, assign)
            return latest[0], info

        def tell(record: dict[str, Any]) -> bool:
            record["start"] = start
            for key in ("energy", "shift"):
                record[key] = rows.frame.energy_out_of(record[key])
            if self.verbose:
                print(" ".join(f"{key}={value:.6g}" for key, value in record.items()), file=sys.stderr)
            asked = bool(self.callback(dict(record))) if self.callback is not None else False  # a copy: ours stays ours
            return hooks.end(latest[0]) or asked

        latest: list[Any] = [state]
        return drive(step, state, lambda _, info: info.reassigned == 0 or info.shift <= tol, limits, [tell])

    def _settle(self, rows: Rows, outcome: Outcome, assign: Assign) -> tuple[Outcome, float]:
        """Label the rows by the centres as they will be published, and leave no cluster empty that could have a row.

        Returns their energy too, by distances, in the rows' frame.
        """
        state: Partition = outcome.state
        labelled_by = state.centers if outcome.info.reassigned == outcome.info.shift == 0 else None
        if outcome.reason == "converged" and state.moved:  # sums that rows came to and left have rounded more often
            state, _ = partition.advance(rows, state._replace(moved=len(rows)), partition.keep_labels)
        state = self._as_published(rows, state)
        if labelled_by is None or not np.array_equal(state.centers, labelled_by):
            state = partition.label(rows, state, assign)
            for _ in range(10):
                if np.bincount(state.labels[rows.weights > 0], minlength=self.n_clusters).all():
                    break
                again, info = partition.advance(rows, state._replace(moved=len(rows)), assign)
                if info.reassigned == 0:
                    break
                state = partition.label(rows, self._as_published(rows, again), assign)
        shares = rows.shares(partition.energy_block, rows.prepare(state.centers), per_row=(rows.weights, state.labels))
        return outcome._replace(state=state), sum(shares)

    def _public(self, rows: Rows, state: Partition) -> Array:
        return rows.frame.out_of(state.centers, rows.dtype)

    def _as_published(self, rows: Rows, state: Partition) -> Partition:
        """With centres rounded as the user will see them."""
        return state._replace(centers=rows.frame.into(self._public(rows, state), rows.dtype))

    def _publish(self, rows: Rows, outcome: Outcome, energy: float, algorithm: str) -> None:
        self._frame = rows.frame
        self.algorithm_ = algorithm
        self.inertia_ = rows.frame.energy_out_of(energy)
        self.cluster_centers_ = self._public(rows, outcome.state)
        self.labels_ = outcome.state.labels
        self.history_ = outcome.history
        self.stop_reason_ = outcome.reason
        self.n_iter_ = len(outcome.history)
        found = len(np.unique(self.labels_))
        if found < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}): "
                f"X has too few distinct rows{' of positive weight' if rows.has_weights else ''}; n_clusters={found} would do.",
                ConvergenceWarning,
                stacklevel=4 + WRAPPED,
            )
