"""Hyperplanes that learn to leave clusters whole: the loss-augmented codes, the bound and the gradient step of compressed
k-means.

X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI, equations (7), (10),
(12), (14) and (15). Codes are -1 and +1 here; bound and loss are in bits a row, a quarter of the paper's squared distances.
Differs from the paper: fewer rows than a batch has pull as that many would, so that a weight does what repetition would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..data.cancellation import check_cancelled
from ..data.types import Array
from ..fit import partition
from ..kernels import learning
from .sample import Centered

BATCH = 128  # rows in a batch, as in the paper
ENOUGH = 0.1  # learning is done when an epoch has lowered the bound by less than this share


class Rule(NamedTuple):
    """The paper's parameters."""

    alpha: float
    nu: float
    eta: float


class LearningState(NamedTuple):
    """Everything needed to go on."""

    W: Array  # (d, r)
    C: Array  # (k, r) of -1 and +1
    labels: Array  # (m) int32: which of them each row belongs to
    rounds: int = 0
    bounds: tuple[float, ...] = ()  # after each round
    ended: bool = False  # another round would make one of two clusters


class LearningInfo(NamedTuple):
    """What one round learned, in bits a row."""

    upper_bound: float
    loss: float


Clusters = Callable[[Array, LearningState], tuple[Array, Array]]  # products with W, state -> C, labels


def signs(F: Array) -> Array:
    """(6): the codes of rows whose products with W these are."""
    h: Array = np.where(F > 0, F.dtype.type(1), F.dtype.type(-1))
    return h


def majority(F: Array, state: LearningState, weights: Array) -> tuple[Array, Array]:
    """(12), the rows staying where they are. Where as many have a bit as have not, it stays what it was."""
    votes, weight_sums = np.zeros(state.C.shape), np.bincount(state.labels, weights, len(state.C))
    learning.votes(F, state.labels, weights, votes)
    return signs(partition.majority(votes, weight_sums, state.C)), state.labels


def descend(rows: Centered, C: Array, labels: Array, W: Array, rule: Rule) -> Array:
    """(10), (14) and (15): one step on a batch."""
    F = rows.along(W)
    D = np.empty_like(F)
    learning.doubts(F, C, labels, rows.weights * (rule.eta * BATCH / rows.weights.sum()), rule.alpha, D)
    W = W - rows.back(D)
    lengths = np.linalg.norm(W, axis=0)
    shrunk: Array = W * np.minimum(1, np.sqrt(rule.nu) / np.where(lengths > 0, lengths, 1)).astype(W.dtype)
    return shrunk


def begin(rows: Centered, state: LearningState, clusters: Clusters) -> LearningState:
    """Before the first round: the clusters, by the codes that W gives."""
    C, labels = clusters(rows.along(state.W), state)
    return state._replace(C=C, labels=labels)


def step(
    rows: Centered, state: LearningState, rule: Rule, clusters: Clusters, batches: list[Any]
) -> tuple[LearningState, LearningInfo]:
    """One round: W by its batches, then the clusters. What is told is of the state that comes out."""
    W = state.W
    for ids in batches:
        check_cancelled()
        W = descend(rows.take(ids), state.C, state.labels[ids], W, rule)
    F = rows.along(W)
    C, labels = clusters(F, state)
    info = _info(F, C, labels, rows.weights, rule)
    return LearningState(W, C, labels, state.rounds + 1, (*state.bounds, info.upper_bound)), info


def careful_step(
    rows: Centered, before: LearningState, rule: Rule, clusters: Clusters, batches: list[Any]
) -> tuple[LearningState, LearningInfo]:
    """The same, but a round that would give two clusters one code is not made, and the last."""
    after, info = step(rows, before, rule, clusters, batches)
    if len(np.unique(after.C, axis=0)) == len(np.unique(before.C, axis=0)):
        return after, info
    return before._replace(ended=True), _info(rows.along(before.W), before.C, before.labels, rows.weights, rule)


def _info(F: Array, C: Array, labels: Array, weights: Array, rule: Rule) -> LearningInfo:
    sums = learning.bound_and_loss(F, C, labels, weights, rule.alpha)
    return LearningInfo(*(total / float(weights.sum()) for total in sums))


def done(state: LearningState, epoch: int) -> bool:
    """Has an epoch of so many rounds lowered the bound by little?"""
    return state.ended or (len(state.bounds) > epoch and state.bounds[-1] >= (1 - ENOUGH) * state.bounds[-1 - epoch])


def one_batch(m: int, rng: np.random.Generator) -> list[Array]:
    """A batch of m rows, drawn anew in each round."""
    return [np.arange(m) if m <= BATCH else rng.choice(m, BATCH, replace=False, shuffle=False)]


def whole_epoch(m: int, rng: np.random.Generator) -> list[Array]:
    """All m rows in a random order, batch by batch."""
    return np.array_split(rng.permutation(m), -(-m // BATCH))
