"""Stable tags of the classes that models and checkpoints hold.

A file names a class by its tag, never by its module, so that code can move without making files unreadable. A tag that was
released is never given to another class; a class whose fields change in a way that old files can't follow gets a new tag, and
`archive.VERSION` counts up where the layout of the file itself changes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

CLASSES = {  # tag -> where the class is
    "binary_kmeans": "shoal.binary.binary_kmeans:BinaryKMeans",
    "compressed_kmeans": "shoal.binary.compressed:CompressedKMeans",
    "compressed_kmeans.codes": "shoal.binary.code_learner:LearnedCode",
    "compressed_kmeans.info": "shoal.binary.learning:LearningInfo",
    "compressed_kmeans.state": "shoal.binary.learning:LearningState",
    "exact_spectral": "shoal.spectral.exact:ExactSpectral",
    "fit": "shoal.fit.checkpoint:FitProgress",
    "fit.restarts": "shoal.fit.restarts:RestartState",
    "fit.run": "shoal.fit.loop:RunResult",
    "frame": "shoal.data.frame:Frame",
    "gradient_kmeans": "shoal.kmeans.gradient:GradientKMeans",
    "gradient_kmeans.state": "shoal.kmeans.gradient:GradientState",
    "hierarchical_kmeans": "shoal.kmeans.hierarchical:HierarchicalKMeans",
    "hierarchical_kmeans.level": "shoal.kmeans.center_tree:Level",
    "hierarchical_kmeans.neighborhoods": "shoal.kmeans.center_tree:Neighborhoods",
    "hierarchical_kmeans.state": "shoal.kmeans.hierarchical:HierarchicalState",
    "kmeans": "shoal.kmeans.kmeans:KMeans",
    "kmeans.info": "shoal.fit.partition:PartitionInfo",
    "kmeans.state": "shoal.fit.partition:Partition",
    "landmark_spectral": "shoal.spectral.landmarks:LandmarkSpectral",
    "landmark_spectral.map": "shoal.spectral.landmarks:LandmarkMap",
    "landmark_spectral.state": "shoal.spectral.landmarks:LandmarkState",
    "lanczos.state": "shoal.spectral.lanczos:LanczosState",
    "linear_code": "shoal.binary.linear_code:LinearCode",
    "mini_batch_kmeans": "shoal.kmeans.minibatch:MiniBatchKMeans",
    "mini_batch_kmeans.info": "shoal.kmeans.minibatch:MiniBatchInfo",
    "mini_batch_kmeans.state": "shoal.kmeans.minibatch:MiniBatchState",
    "mini_batch_spectral": "shoal.spectral.minibatch:MiniBatchSpectral",
    "mini_batch_spectral.state": "shoal.spectral.minibatch:MiniBatchSpectralState",
    "nested_kmeans": "shoal.kmeans.nested:NestedKMeans",
    "nested_kmeans.info": "shoal.kmeans.nested:NestedInfo",
    "nested_kmeans.state": "shoal.kmeans.nested:NestedState",
    "nystrom_spectral": "shoal.spectral.nystrom:NystromSpectral",
    "nystrom_spectral.state": "shoal.spectral.nystrom:NystromState",
    "online_kmeans": "shoal.kmeans.online:OnlineKMeans",
    "online_kmeans.state": "shoal.kmeans.online:OnlineState",
    "power_spectral": "shoal.spectral.power:PowerSpectral",
    "power_spectral.state": "shoal.spectral.power:PowerState",
    "preprocessing": "shoal.data.preprocessing:Preprocessing",
    "preprocessing.column": "shoal.data.preprocessing:ColumnEncoding",
    "spectral.affinity.kernel": "shoal.spectral.affinity:KernelAffinity",
    "spectral.affinity.neighbors": "shoal.spectral.affinity_factory:NeighborAffinity",
    "spectral.affinity.precomputed": "shoal.spectral.affinity_factory:PrecomputedAffinity",
    "spectral.extension": "shoal.spectral.extension:Extension",
    "spectral.info": "shoal.spectral.solver:SpectralInfo",
    "spectral.map": "shoal.spectral.extension:NystromMap",
    "spherical_mixture": "shoal.kmeans.mixture:SphericalMixture",
    "spherical_mixture.info": "shoal.kmeans.mixture:MixtureInfo",
    "spherical_mixture.state": "shoal.kmeans.mixture:MixtureState",
    "standardized": "shoal.fit.standardized:Standardized",
    "stream": "shoal.fit.streaming:StreamState",
    "streaming_means.dense": "shoal.fit.streaming_means:DenseMeans",
    "streaming_means.sparse": "shoal.fit.streaming_means:SparseMeans",
    "variance_reduced_kmeans": "shoal.kmeans.variance_reduced:VarianceReducedKMeans",
    "variance_reduced_kmeans.info": "shoal.kmeans.variance_reduced:VarianceReducedInfo",
    "variance_reduced_kmeans.state": "shoal.kmeans.variance_reduced:VarianceReducedState",
}
TAGS = {place: tag for tag, place in CLASSES.items()}


def tag_of(cls: type, name: str) -> str:
    """Return the tag of a class; `name` says in an error message what is of that class."""
    try:
        return TAGS[f"{cls.__module__}:{cls.__qualname__}"]
    except KeyError:
        message = f"{name} is a {cls.__qualname__} of {cls.__module__}, which a Shoal file cannot hold: remove it first."
        raise TypeError(message) from None


def class_of(tag: Any) -> type:
    """Return the class that a file names by its tag."""
    if not isinstance(tag, str) or tag not in CLASSES:
        raise ValueError(f"{str(tag)[:60]!r} is not the tag of a Shoal class")
    module, _, name = CLASSES[tag].partition(":")
    found: type = getattr(import_module(module), name)
    return found
