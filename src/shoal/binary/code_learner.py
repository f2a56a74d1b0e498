"""The first stage of compressed k-means: cluster a subset of the rows and learn a code that keeps these clusters apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.cancellation import TimeUp, time_limit
from ..data.rows import Rows
from ..data.types import Array
from ..execution.deadline import Deadline
from ..fit.checkpoint_validation import is_valid_run, matches_template
from ..fit.context import FitContext
from ..fit.loop import RunResult
from ..fit.random_streams import Stream, generator
from ..fit.schema import Parts, bools, matches
from ..kmeans.init import INITIALIZERS
from .learning import LearningInfo, LearningParameters, LearningState, has_converged, initial_state, step
from .linear_code import LINEAR_CODE, LinearCode
from .sample import draw
from .sketch import Sketch, cluster, hyperplanes, sketch

# The subset must hold enough rows of every cluster to estimate the bits of its code.
MIN_SUBSET, MIN_SUBSET_PER_CLUSTER = 5000, 10  # rows
TIME_BUDGET_FALLBACK = "the code is not learned, but made of random hyperplanes"


class LearnedCode(NamedTuple):
    """A code, the codes of the clusters that it was learned from, and the run of the learning."""

    code: LinearCode
    centers: Array  # (k, n_bits) bool
    run: RunResult  # without its state


def subset_size(n: int, k: int, beta: float) -> int:
    """Return how many of n rows a code for k clusters is learned from."""
    return min(n, max(MIN_SUBSET, MIN_SUBSET_PER_CLUSTER * k, int(np.ceil(beta * n))))


@dataclass(frozen=True)
class CodeLearner:
    """Learns a code within half of the remaining time."""

    context: FitContext
    starts: Sequence[Array | None]  # (k, d) initial centroids in the space of X; None for those of the method `init`
    init: Any  # name of an initialization method, if there are no initial centroids
    k: int
    n_bits: int
    beta: float  # fraction of the rows to learn from
    parameters: LearningParameters
    report: Callable[[dict[str, Any]], bool]  # receives a record per round; returns whether to stop

    @property
    def rows(self) -> Rows:
        """Rows to learn from, in the space of X."""
        return self.context.input_rows

    def _random(self, *stream: int) -> np.random.Generator:
        return generator(self.context.seed, *stream)

    def run(self) -> LearnedCode | None:
        """Return the learned code, or None if the time is too short to learn one."""
        try:
            with time_limit(self.context.limits.stage().end):
                found: LearnedCode = self.context.session.once("the code", self._learn, self._could_be_learned)
                return found
        except TimeUp:
            self.context.skipped[:] = [TIME_BUDGET_FALLBACK]
            return None

    def _could_be_learned(self, value: Any) -> bool:
        """Return whether a value from a checkpoint is a code that this fit could have learned."""
        sizes = {"d": self.rows.d, "k": self.k, "r": self.n_bits}
        spec = Parts(LearnedCode, {"code": LINEAR_CODE, "centers": bools("k", "r")})
        return matches(spec, value, sizes) and is_valid_run(value.run, None, 0, self.k, LearningInfo)

    def _learn(self) -> LearnedCode:
        """Cluster the subset in a few coordinates, then learn hyperplanes that keep its clusters apart."""
        subset = draw(self.rows, subset_size(len(self.rows), self.k, self.beta), self._random(Stream.CODE_SAMPLE))
        short = sketch(subset, self._random(Stream.CODE_DIRECTIONS))
        state = self._initial_state(short, self._cluster_labels(short))
        run = self.context.session.drive(
            "the hyperplanes",
            partial(self._step, short),
            lambda: state,
            has_converged,
            self.context.limits.part(),
            [self._report],
            lambda value: is_valid_run(value, state, len(state.labels), self.k, LearningInfo),
        )
        return LearnedCode(short.code(run.state.W), run.state.C > 0, run._replace(state=None))

    def _cluster_labels(self, short: Sketch) -> Array:
        """Return the cluster of each row of the subset."""
        starts = [partial(self._initial_centers, short, start) for start in range(len(self.starts))]
        find = partial(cluster, short, self.k, starts, self.context.limits, self.rows.n_threads, self.context.skipped)
        m = len(short.rows.weights)
        template = np.zeros(m, np.int32)
        labels: Array = self.context.session.once(
            "clusters of the sketch", find, lambda value: matches_template(value, template, m, self.k)
        )
        return labels

    def _initial_centers(self, short: Sketch, start: int, rows: Rows, deadline: Deadline) -> Array:
        """Return the initial centroids of a start among the rows of the sketch."""
        C = self.starts[start]
        if C is not None:
            return short.place(C).astype(rows.dtype)
        return INITIALIZERS.methods[self.init](rows, self.k, self._random(Stream.CODE_CENTERS, start), deadline)

    def _initial_state(self, short: Sketch, labels: Array) -> LearningState:
        W = hyperplanes(short, labels, self.k, self.n_bits, self._random(Stream.CODE_HYPERPLANES))
        return initial_state(short.rows, W, labels, self.k)

    def _step(self, short: Sketch, state: LearningState) -> tuple[LearningState, LearningInfo]:
        """Run one round of learning."""
        state, info = step(short.rows, state, self.parameters, self._random(Stream.CODE_BATCHES, 0, state.rounds))
        if not np.isfinite(state.W).all():
            raise ValueError(f"learning_rate={self.parameters.eta} makes hyperplanes overflow: use a smaller learning_rate.")
        return state, info

    def _report(self, record: dict[str, Any], _: Any) -> bool:
        """Report a round to the user; return whether the callback requests a stop."""
        record["start"] = 0
        return self.report(record)
