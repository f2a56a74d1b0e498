"""Convergence properties of the k-means algorithms (Bottou and Bengio 1995): the algorithms as printed, and the experiments."""

from .letter import (
    batch_gradient,
    batch_kmeans,
    em,
    hessian,
    online_gradient,
    online_kmeans,
    quantization_error,
)

__all__ = ["batch_gradient", "batch_kmeans", "em", "hessian", "online_gradient", "online_kmeans", "quantization_error"]
