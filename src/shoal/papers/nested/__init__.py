"""Nested mini-batch k-means (Newling and Fleuret 2016): the algorithms as printed, and the experiments."""

from .letter import Iteration, NestedState, lloyd, mbatch, mbatch_iterations, nmbatch, nmbatch_iterations, shuffled

__all__ = [
    "Iteration",
    "NestedState",
    "lloyd",
    "mbatch",
    "mbatch_iterations",
    "nmbatch",
    "nmbatch_iterations",
    "shuffled",
]
