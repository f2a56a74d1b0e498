"""`CompressedKMeans`: short binary codes that are learned together with the clusters, then k-means on the codes.

X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI, Algorithm 1.

Differs from the paper, unless `learn="paper"`:
- Clusters of the subset come from k-means in few float coordinates (see `sketch`), not from the codes, and stay while the
  hyperplanes learn. The loss (5) has no use for the truth: it falls for whatever clusters come first, and is least when all
  rows have one code. From codes of random hyperplanes, learning makes bad clusters sure of themselves.
- x is (y, 1): coordinates of unit variance along the leading directions, which is what alpha=10 and a step of 0.001 are made
  for, and a threshold for each bit. Hyperplanes start halfway between two clusters, not at the mean.
- A round is an epoch of batches, not one; learning ends when an epoch lowers the bound by less than a tenth, or would give
  two clusters one code.
Differs from the paper in any case: hyperplanes of LSH go through the mean (through the origin, the bits of rows that lie on
one side of it are all alike); the subset has at least 5000 rows, and 10 a cluster; a cluster of codes keeps a bit where as many
rows have it as have not, and one without rows moves to the code that is served worst.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..data.cancellation import TimeUp, time_limit
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.source import Source
from ..data.statistics import enter_frame
from ..data.types import Array
from ..execution.deadline import Deadline
from ..execution.memory import Workload
from ..execution.threads import on_threads
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.callbacks import report_step
from ..fit.checkpoint import CheckpointSession
from ..fit.checkpoint_validation import is_valid_run, matches_template
from ..fit.context import FitContext
from ..fit.finalize import finalize, published_centers, round_as_published
from ..fit.initializers import ArrayStarts, Initialization, Initializers
from ..fit.input import check_rows
from ..fit.loop import Limits, RunResult
from ..fit.parameters import Count, keep
from ..fit.random_streams import generator
from ..fit.restarts import FitResult
from ..fit.schema import OneOf, Parts, Spec, bools, frame, matches
from ..kmeans import lloyd
from ..kmeans.init import INITIALIZERS as FLOAT_INITIALIZERS
from . import learning
from . import paper_variant as letter
from .codes import LINEAR_CODE, LinearCode, random_code
from .hamming import HammingSolver
from .learning import LearningState, Rule
from .sample import Centered, Sample, draw
from .seeding import INITIALIZERS
from .sketch import cluster, hyperplanes, sketch

LEAST, PER_CENTER = 5000, 10  # rows of the subset, at least
FEW = 100  # clusters for which three starts on the sketch take next to no time
SAMPLE, DIRECTIONS, CENTERS, HYPERPLANES, BATCHES = range(5)  # streams of random numbers


class Learned(NamedTuple):
    """A code, the codes of the clusters that it was learned from, and how that went."""

    code: LinearCode
    centers: Array  # (k, n_bits) bool
    outcome: RunResult  # without its state


class CompressedKMeans(BaseCentroidClusterer):
    """K-means on short binary codes: rows are compressed to a few bytes, once, and clustered by popcount.

    Parameters
    ----------
    n_bits : int, default=128
        Bits of a code.
    learn : {True, False, "paper"}, default=True
        How codes come about. True: hyperplanes learn, from some of the rows, to leave their clusters whole, as in the paper
        but from a better start; "paper": by the letter of the paper, if init is "random" and n_init is 1; False: random
        hyperplanes (LSH), without learning; alpha, nu, beta and learning_rate then have no part in it.
    alpha : float, default=10.0
        Bits whose product with the hyperplane's direction is below 2 / alpha are in doubt and are learned from.
    nu : float, default=1.0
        Squared length of a direction, at most.
    beta : float, default=0.01
        Which share of the rows to learn from; at least 5000 rows and 10 a cluster, if there are as many.
    learning_rate : float, default=0.001
        Size of a step.
    refine : bool, default=False
        End with one exact step in the space of X: centres are means of the rows there, rows go to the nearest of them.
    init : {"k-means++", "random"}, array of shape (n_clusters, n_features) or callable, default="k-means++"
        Where the clusters start, before there are codes: among the rows, or where you say. A callable is called as
        `init(X, n_clusters, random_state=...)`, with a RandomState, and returns an array.
    n_init : "auto" or int, default="auto"
        How many starts to try before there are codes (if learn is False: on the codes); the best is kept. "auto" is 10 for
        "random" and callables; for "k-means++" it is 3 if learn is True and there are up to 100 clusters, else 1. An array is
        one start, whatever n_init says.
    max_iter : int, default=300
        Most rounds of learning, and most steps of k-means on the codes.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine" scales rows to unit length first. Rows of zeros have no direction and are refused.
    ...

    Attributes
    ----------
    code_ : LinearCode
        `code_.encode(X)` gives the codes of rows (of unit length, for metric="cosine").
    cluster_centers_ : bool array of shape (n_clusters, n_bits)
        Codes that most bits of a cluster's rows agree with. With refine: means of the rows, (n_clusters, n_features).
    inertia_ : float
        In how many bits the codes differ from their centres, added up. With refine: as in `KMeans`.
    labels_, n_features_in_, feature_names_in_
        As in scikit-learn. `labels_` equals `predict(X)`.
    n_iter_ : int
        Steps of k-means on the codes.
    stop_reason_ : str
        Why it ended: "converged", "max_iter", "time_budget" or "callback".
    history_ : list of dict
        First a record for each round of learning: step, seconds, upper_bound and loss (8 and 5 of the paper, in bits a row of
        the subset); then one for each step of k-means on the codes, as in `BinaryKMeans`.

    Notes
    -----
    While codes are clustered they take n_bits / 8 bytes a row, beside the labels; X is read once before, in blocks, and with
    refine twice after. `transform` gives numbers of bits; with refine, distances.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import CompressedKMeans
    >>> X = np.random.default_rng(0).normal(size=(3000, 50)) + 3 * (np.arange(3000)[:, None] % 3 == np.arange(50) % 3)
    >>> model = CompressedKMeans(n_clusters=3, n_bits=64, random_state=0).fit(X)
    >>> model.cluster_centers_.shape, model.predict(X[:3]) == model.labels_[:3]
    ((3, 64), array([ True,  True,  True]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: rule for name, rule in BaseCentroidClusterer._parameter_constraints.items() if name != "tol"},
        "n_bits": [Count()],
        "learn": ["boolean", StrOptions({"paper"})],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "nu": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="right")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "refine": ["boolean"],
        "init": [StrOptions(set(INITIALIZERS.methods)), callable, "array-like", "sparse matrix"],
    }

    _initializers = INITIALIZERS
    _metric_of_centers = "hamming"
    n_bits: int
    learn: bool | str
    alpha: float
    nu: float
    beta: float
    learning_rate: float
    refine: bool
    code_: LinearCode
    _required_attributes = ("code_", "cluster_centers_")
    _prediction_attributes = (*BaseCentroidClusterer._prediction_attributes, "code_")

    def _fitted_schema(self) -> dict[str, Spec]:
        shared, bits = super()._fitted_schema(), self._centers_frame.bits
        centers = bools("k", "r") if bits else shared["cluster_centers_"]
        own = {"_frame": OneOf((frame(bits=True), frame())), "code_": LINEAR_CODE, "cluster_centers_": centers}
        return {**shared, **own}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_bits: int = 128,
        learn: bool | str = True,
        alpha: float = 10.0,
        nu: float = 1.0,
        beta: float = 0.01,
        learning_rate: float = 0.001,
        refine: bool = False,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        time_budget: float | None = None,
        metric: str = "euclidean",
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _source(self, X: Any, *, reset: bool) -> Source:
        """X; its codes, if there are any yet and the model is about them."""
        source = check_rows(self, X, reset=reset)
        if not reset:
            check_is_fitted(self, "code_")
        if reset or not self._centers_frame.bits:
            return source
        with on_threads(Rows.of(source, None, Frame.of(self.metric)), self.n_threads) as rows:
            return self.code_.encode_rows(rows)

    def _prepare(self, context: FitContext) -> FitContext:
        """Learn a code, encode the rows, and let the solver work on the codes."""
        rows, seed, limits = context.input_rows, context.seed, context.limits
        given = self._given_starts(context)
        self.history_, self.stop_reason_ = [], ""
        learned = self._learned(rows, given, limits, context.session, context.skipped) if self.learn else None
        initialization: Initialization = super()._initialization(context.X, None, seed)
        if learned is not None:
            self.code_, C, found = learned
            self.history_ = found.history
            self.stop_reason_ = found.reason if found.reason in ("callback", "time_budget") else ""
            initialization = ArrayStarts([C])
        else:
            self.code_ = random_code(rows, self.n_bits, generator(seed, DIRECTIONS))
            if given[0] is not None:
                initialization = ArrayStarts([np.asarray(self.code_.encode(C)) for C in given])
        if self.stop_reason_ == "callback":  # the user has asked to stop: only label the rows
            limits = limits._replace(max_iter=1)
        weights = rows.weights if rows.has_weights else None
        codes = rows.sibling(self.code_.encode_rows(rows), weights, Frame.of("hamming"))
        return replace(context, rows=codes, initialization=initialization, limits=limits).prepared(self)

    def _given_starts(self, context: FitContext) -> list[Array | None]:
        """Return the initial centroids of every start in the space of X, or None where `init` names a method."""
        starts = context.initialization
        n_starts = starts.n_starts
        if isinstance(self.init, str):
            several = self.n_init == "auto" and n_starts == 1 and self.learn not in (False, "paper")
            return [None] * (3 if several and self.n_clusters <= FEW else n_starts)
        return [starts.centers(context.input_rows, start) for start in range(n_starts)]

    def _learned(
        self, rows: Rows, told: list[Array | None], limits: Limits, session: CheckpointSession, skipped: list[str]
    ) -> Learned | None:
        """A code that suits the rows, if half of the time that is left is enough to learn one."""
        learn = self._learn_by_the_letter if self.learn == "paper" else self._learn_from_a_sketch
        lesson = partial(learn, rows, told, limits, session, skipped)
        try:
            with time_limit(limits.stage().end):
                found: Learned = session.once("the code", lesson, partial(self._could_have_learned, rows.d))
                return found
        except TimeUp:
            self.stop_reason_ = "time_budget"
            skipped[:] = ["the code is not learned, but made of random hyperplanes"]
            return None

    def _could_have_learned(self, d: int, kept: Any) -> bool:
        sizes = {"d": d, "k": self.n_clusters, "r": self.n_bits}
        spec = Parts(Learned, {"code": LINEAR_CODE, "centers": bools("k", "r")})
        return matches(spec, kept, sizes) and is_valid_run(kept.outcome, None, 0, self.n_clusters, learning.LearningInfo)

    def _memory(self, load: Workload) -> dict[str, float]:
        count = min(load.n, max(LEAST, PER_CENTER * self.n_clusters, self.beta * load.n))
        learned = {"codes": load.n * self.n_bits / 8, "rows to learn from": count * load.numbers * 2.0 * load.wide}
        return {**super()._memory(load), **learned}

    def _given_in_frame(self, rows: Rows, C: Array) -> Array:
        if not rows.frame.unit:
            return C  # of any scale: they are encoded as the rows are
        return super()._given_in_frame(rows, C)

    def _make_solver(self, context: FitContext) -> HammingSolver:
        return HammingSolver(context.rows)

    def _subset(self, rows: Rows, seed: int) -> Sample:
        size = max(LEAST, PER_CENTER * self.n_clusters, int(np.ceil(self.beta * len(rows))))
        return draw(rows, size, generator(seed, SAMPLE))

    def _places(
        self, told: list[Array | None], put: Callable[[Array], Array], initializers: Initializers, seed: int
    ) -> list[Callable[[Rows, Deadline], Array]]:
        """Where each start's centres are among the rows to cluster: those that the user has told are put there."""

        def place(start: int, C: Array | None) -> Callable[[Rows, Deadline], Array]:
            if C is None:
                rng = partial(generator, seed, CENTERS, start)
                return lambda rows, deadline: initializers.methods[self.init](rows, self.n_clusters, rng(), deadline)
            return lambda rows, deadline: put(C).astype(rows.dtype)

        return [place(start, C) for start, C in enumerate(told)]

    def _learn_from_a_sketch(
        self, rows: Rows, told: list[Array | None], limits: Limits, session: CheckpointSession, skipped: list[str]
    ) -> Learned:
        seed = session.seed
        short = sketch(self._subset(rows, seed), generator(seed, DIRECTIONS))
        places = self._places(told, short.place, FLOAT_INITIALIZERS, seed)
        find = partial(cluster, short, self.n_clusters, places, limits, rows.n_threads, skipped)
        m = len(short.rows.weights)
        labels = session.once(
            "clusters of the sketch", find, lambda kept: matches_template(kept, np.zeros(m, np.int32), m, self.n_clusters)
        )
        W = hyperplanes(short, labels, self.n_clusters, self.n_bits, generator(seed, HYPERPLANES))
        C = np.ones((self.n_clusters, self.n_bits), W.dtype)
        clusters = partial(learning.majority, weights=short.rows.weights)
        found = self._learn(short.rows, LearningState(W, C, labels), clusters, limits.part(), session, 0)
        return Learned(short.code(found.state.W), found.state.C > 0, found._replace(state=None))

    def _learn_by_the_letter(
        self, rows: Rows, told: list[Array | None], limits: Limits, session: CheckpointSession, skipped: list[str]
    ) -> Learned:
        seed = session.seed
        subset = self._subset(rows, seed)
        lesson = subset.centered(rows.dtype, scaled=False)
        W = generator(seed, DIRECTIONS).standard_normal((rows.d, self.n_bits)).astype(rows.dtype)
        limits = limits.part()  # the other half is for the clusters of the codes
        clusters = partial(letter.clusters, weights=lesson.weights, alpha=self.alpha, n_threads=rows.n_threads, limits=limits)
        best: Any = None
        for start, place in enumerate(self._places(told, lambda C: (C - subset.mean) @ W > 0, INITIALIZERS, seed)):
            deadline = limits.stage()
            begun = letter.begin(lesson, W, place, rows.n_threads, deadline)
            found = self._learn(lesson, begun, clusters, limits, session, start)
            if best is None or (found.info is not None and found.info.loss < best.info.loss):
                best = found
                skipped[:] = deadline.skipped
            if found.reason in ("callback", "time_budget"):
                best = best._replace(reason=found.reason)
                break
        code = LinearCode(subset.mean, best.state.W.astype(np.float32))
        return Learned(code, best.state.C > 0, best._replace(state=None))

    def _learn(
        self,
        lesson: Centered,
        state: LearningState,
        clusters: learning.Clusters,
        limits: Limits,
        session: CheckpointSession,
        start: int,
    ) -> RunResult:
        """Round by round."""
        rule = Rule(self.alpha, self.nu, self.learning_rate)
        m, letter = len(state.labels), self.learn == "paper"
        batches, epoch = (learning.one_batch, -(-m // learning.BATCH)) if letter else (learning.whole_epoch, 1)
        advance = learning.step if letter else learning.careful_step

        def step(state: LearningState) -> tuple[LearningState, learning.LearningInfo]:
            some = batches(m, generator(session.seed, BATCHES, start, state.rounds))
            state, info = advance(lesson, state, rule, clusters, some)
            if not np.isfinite(state.W).all():
                raise ValueError(
                    f"learning_rate={self.learning_rate} takes hyperplanes beyond what floats hold: make it smaller."
                )
            return state, info

        def tell(record: dict[str, Any], _: Any) -> bool:
            record["start"] = start
            return report_step(self, record)

        begin = partial(learning.begin, lesson, state, clusters)
        page, done = f"lessons of start {start}", lambda state, _: learning.done(state, epoch)
        return session.drive(page, step, begin, done, limits, [tell], partial(self._is_lesson, state))

    def _is_lesson(self, fresh: LearningState, kept: Any) -> bool:
        return is_valid_run(kept, fresh, len(fresh.labels), self.n_clusters, learning.LearningInfo)

    def _set_fitted_attributes(self, result: FitResult) -> None:
        learning_history, cut = self.history_, self.stop_reason_
        super()._set_fitted_attributes(result._replace(run=result.run._replace(reason=cut or result.run.reason)))
        self.history_ = learning_history + self.history_
        if self.refine:
            self._refine(result.context)

    def _refine(self, context: FitContext) -> None:
        """One step in the space of X, from the clusters of the codes. Those without codes are given rows, as in any fit."""
        rows, _ = enter_frame(context.input_rows)
        state = partition.initial_partition(rows, np.zeros((self.n_clusters, rows.d), rows.dtype))._replace(labels=self.labels_)
        state, _ = partition.advance(rows, state, partition.keep_labels, fill=False)
        filled = state.counts > 0
        centers = np.where(filled[:, None], state.centers, state.centers[filled.argmax()])  # an empty one lies nowhere yet
        outcome = RunResult(state._replace(centers=centers), self.history_, self.stop_reason_, None)
        publish = partial(round_as_published, rows)
        (state, *_), energy = finalize(rows, outcome, lloyd.assign, publish, context.limits, context.skipped)
        self._frame, self.labels_ = rows.frame, state.labels
        self.cluster_centers_ = published_centers(rows, state.centers)
        self.inertia_ = rows.frame.energy_out_of(energy)

    def _other_cause_of_empty_clusters(self) -> str:
        return f", or n_bits={self.n_bits} are too few to tell them apart"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
