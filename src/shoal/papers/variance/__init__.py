"""K-means via variance reduction (Zhao et al. 2018): the algorithms as printed, and the experiments."""

from .letter import (
    Epoch,
    algorithm_1,
    batch_kmeans,
    doubling_epochs,
    random_epochs,
    sgd_kmeans,
    svrg,
    vrkm,
    vrkm_plus_plus,
)

__all__ = [
    "Epoch",
    "algorithm_1",
    "batch_kmeans",
    "doubling_epochs",
    "random_epochs",
    "sgd_kmeans",
    "svrg",
    "vrkm",
    "vrkm_plus_plus",
]
