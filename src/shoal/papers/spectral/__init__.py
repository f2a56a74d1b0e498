"""Mini-batch spectral clustering (Han and Filippone 2017): the algorithms as printed, and the experiments."""

from . import authors
from .letter import (
    gradient_variance,
    htild,
    laplacian_by_columns,
    mini_batch_spectral,
    normalized_laplacian,
    nystrom,
    nystrom_cost,
    power_cost,
    power_method,
    random_vectors,
    rbf_affinity,
    shuffled_vectors,
    step_cost,
)

__all__ = [
    "authors",
    "gradient_variance",
    "htild",
    "laplacian_by_columns",
    "mini_batch_spectral",
    "normalized_laplacian",
    "nystrom",
    "nystrom_cost",
    "power_cost",
    "power_method",
    "random_vectors",
    "rbf_affinity",
    "shuffled_vectors",
    "step_cost",
]
