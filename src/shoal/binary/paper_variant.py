"""Clusters of codes that are learned by the letter of the paper: found among the codes themselves, anew in each round.

X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI, Algorithm 1.
Differs from the paper: where as many rows have a bit as have not, it stays what it was, and a centre without rows moves to the
code that is served worst.
"""

from __future__ import annotations

from collections.abc import Callable

from ..data.bits import packed
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.types import Array
from ..execution.deadline import Deadline
from ..execution.threads import on_threads
from ..fit import partition
from ..fit.loop import Limits, drive
from .codes import Codes
from .hamming import HammingSolver, assign
from .learning import LearningState, signs
from .sample import Centered

STEPS = 300  # of (12) and (13) in one round, at most


def _codes(F: Array, weights: Array) -> Rows:
    """The codes of rows whose products with W these are, to be clustered."""
    return Rows.of(Codes(packed(F > 0), F.shape[1]), weights, Frame.of("hamming"))


def begin(
    lesson: Centered, W: Array, place: Callable[[Rows, Deadline], Array], n_threads: int, deadline: Deadline
) -> LearningState:
    """Rows at the nearest of the codes that `place` chooses, given all of them."""
    with on_threads(_codes(lesson.along(W), lesson.weights), n_threads) as codes:
        C = place(codes, deadline)
        labels = partition.label(codes, partition.initial_partition(codes, C), assign).labels
    return LearningState(W, signs(2 * C.astype(W.dtype) - 1), labels)


def clusters(
    F: Array, state: LearningState, weights: Array, alpha: float, n_threads: int, limits: Limits
) -> tuple[Array, Array]:
    """(10), then (12) and (13) in turn until nothing changes: the clusters of the loss-augmented codes."""
    E = F.dtype.type(alpha) * F - 2 * state.C[state.labels]
    with on_threads(_codes(E, weights), n_threads) as codes:
        kmeans = HammingSolver(codes)
        begun = kmeans.init((state.C > 0).astype(codes.dtype), 0)
        found = drive(kmeans.step, begun, kmeans.converged, limits._replace(max_iter=STEPS)).state
    return signs(2 * found.centers.astype(F.dtype) - 1), found.labels
