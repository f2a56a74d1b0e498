"""Stochastic gradient descent on the hyperplanes of a code, so that clusters keep their rows.

X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI, equations (10), (12),
(14) and (15). Letters are those of the paper: hyperplanes W (d, r), codes C (k, r) of the clusters, products F (m, r) of rows
and hyperplanes. Codes are -1 and +1; bound and loss are in bits per row, a quarter of the squared distances of the paper.

Differs from the paper: the clusters stay the same; a round is a pass over all rows; a gradient is scaled to a full batch, so
that an integer weight is equivalent to repeating the row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..data.cancellation import check_cancelled
from ..data.types import Array
from ..fit import partition
from ..kernels import learning
from .sample import Centered

BATCH_SIZE = 128  # rows per gradient, as in the paper
MIN_DECREASE = 0.1  # relative decrease of the upper bound per round below which learning has converged


class LearningParameters(NamedTuple):
    """Parameters of the paper."""

    alpha: float  # weight of the products with the hyperplanes against the loss
    nu: float  # maximum squared norm of a hyperplane
    eta: float  # learning rate


class LearningState(NamedTuple):
    """State of learning after a round."""

    W: Array  # (d, r)
    C: Array  # (k, r) of -1 and +1
    labels: Array  # (m) int32: cluster of each row, which does not change
    rounds: int = 0
    bounds: tuple[float, ...] = ()  # upper bound after each round
    ended: bool = False  # whether another round would give two clusters the same code


class LearningInfo(NamedTuple):
    """Measurements of one round, in bits per row."""

    upper_bound: float
    loss: float


def signs(F: Array) -> Array:
    """Return the signs of F as -1 and +1, with -1 for zero (equation 6)."""
    h: Array = np.where(F > 0, F.dtype.type(1), F.dtype.type(-1))
    return h


def cluster_codes(F: Array, C: Array, labels: Array, weights: Array) -> Array:
    """Return the code that most rows of each cluster agree with (equation 12); bits with tied votes are those of C."""
    votes, weight_sums = np.zeros(C.shape), np.bincount(labels, weights, len(C))
    learning.votes(F, labels, weights, votes)
    return signs(partition.majority(votes, weight_sums, C))


def initial_state(rows: Centered, W: Array, labels: Array, k: int) -> LearningState:
    """Return the state before the first round, with the clusters' codes under W."""
    C = np.ones((k, W.shape[1]), W.dtype)
    return LearningState(W, cluster_codes(rows.along(W), C, labels, rows.weights), labels)


def descend(rows: Centered, C: Array, labels: Array, W: Array, parameters: LearningParameters) -> Array:
    """Return W after a gradient step on a batch (equations 10, 14 and 15)."""
    F = rows.along(W)
    D = np.empty_like(F)
    step_sizes = rows.weights * (parameters.eta * BATCH_SIZE / rows.weights.sum())
    learning.doubts(F, C, labels, step_sizes, parameters.alpha, D)
    W = W - rows.back(D)
    norms = np.linalg.norm(W, axis=0)
    return np.asarray(W * np.minimum(1, np.sqrt(parameters.nu) / np.where(norms > 0, norms, 1)).astype(W.dtype))


def step(
    rows: Centered, state: LearningState, parameters: LearningParameters, rng: np.random.Generator
) -> tuple[LearningState, LearningInfo]:
    """Run one round: descend on every batch, then update the codes of the clusters.

    A round after which two clusters would have the same code is discarded, and is the last one.
    """
    W, labels, n_batches = state.W, state.labels, -(-len(state.labels) // BATCH_SIZE)
    for ids in np.array_split(rng.permutation(len(labels)), n_batches):
        check_cancelled()
        W = descend(rows.take(ids), state.C, labels[ids], W, parameters)
    F = rows.along(W)
    C = cluster_codes(F, state.C, labels, rows.weights)
    if _n_distinct(C) != _n_distinct(state.C):
        return state._replace(ended=True), _measure(rows.along(state.W), state.C, labels, rows.weights, parameters)
    info = _measure(F, C, labels, rows.weights, parameters)
    return LearningState(W, C, labels, state.rounds + 1, (*state.bounds, info.upper_bound)), info


def _n_distinct(C: Array) -> int:
    return len(np.unique(C, axis=0))


def _measure(F: Array, C: Array, labels: Array, weights: Array, parameters: LearningParameters) -> LearningInfo:
    """Return the upper bound (8) and the loss (5)."""
    sums = learning.bound_and_loss(F, C, labels, weights, parameters.alpha)
    return LearningInfo(*(total / float(weights.sum()) for total in sums))


def has_converged(state: LearningState, info: LearningInfo) -> bool:
    """Return whether the last round has hardly decreased the upper bound, or another one would merge two clusters."""
    return state.ended or (len(state.bounds) > 1 and state.bounds[-1] >= (1 - MIN_DECREASE) * state.bounds[-2])
