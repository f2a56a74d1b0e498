"""Shoal: clustering for data too big, too wide or too slow for the usual tools."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "BinaryKMeans",
    "Checkpoint",
    "CompressedKMeans",
    "Engine",
    "ExactSpectral",
    "GradientKMeans",
    "KMeans",
    "LandmarkSpectral",
    "MemoryLimit",
    "MiniBatchKMeans",
    "MiniBatchSpectral",
    "NestedKMeans",
    "NystromSpectral",
    "OnlineKMeans",
    "PowerSpectral",
    "SphericalMixture",
    "Standardized",
    "VarianceReducedKMeans",
    "binary",
    "cluster",
    "load",
    "metrics",
    "open_rows",
    "save",
    "spectral",
]

if TYPE_CHECKING:
    from . import binary as binary
    from . import metrics as metrics
    from . import spectral as spectral
    from ._cluster import cluster as cluster
    from .binary.binary_kmeans import BinaryKMeans as BinaryKMeans
    from .binary.compressed import CompressedKMeans as CompressedKMeans
    from .execution.engine import Engine as Engine
    from .execution.memory import MemoryLimit as MemoryLimit
    from .fit.standardized import Standardized as Standardized
    from .formats.checkpoint import Checkpoint as Checkpoint
    from .formats.files import open_rows as open_rows
    from .formats.models import load as load
    from .formats.models import save as save
    from .kmeans.gradient import GradientKMeans as GradientKMeans
    from .kmeans.kmeans import KMeans as KMeans
    from .kmeans.minibatch import MiniBatchKMeans as MiniBatchKMeans
    from .kmeans.mixture import SphericalMixture as SphericalMixture
    from .kmeans.nested import NestedKMeans as NestedKMeans
    from .kmeans.online import OnlineKMeans as OnlineKMeans
    from .kmeans.variance_reduced import VarianceReducedKMeans as VarianceReducedKMeans
    from .spectral.exact import ExactSpectral as ExactSpectral
    from .spectral.landmarks import LandmarkSpectral as LandmarkSpectral
    from .spectral.minibatch import MiniBatchSpectral as MiniBatchSpectral
    from .spectral.nystrom import NystromSpectral as NystromSpectral
    from .spectral.power import PowerSpectral as PowerSpectral

_HOMES = {  # imported on first use: scikit-learn and Numba take half a second
    "BinaryKMeans": "shoal.binary.binary_kmeans",
    "Checkpoint": "shoal.formats.checkpoint",
    "CompressedKMeans": "shoal.binary.compressed",
    "Engine": "shoal.execution.engine",
    "ExactSpectral": "shoal.spectral.exact",
    "GradientKMeans": "shoal.kmeans.gradient",
    "KMeans": "shoal.kmeans.kmeans",
    "LandmarkSpectral": "shoal.spectral.landmarks",
    "MemoryLimit": "shoal.execution.memory",
    "MiniBatchKMeans": "shoal.kmeans.minibatch",
    "MiniBatchSpectral": "shoal.spectral.minibatch",
    "NestedKMeans": "shoal.kmeans.nested",
    "NystromSpectral": "shoal.spectral.nystrom",
    "OnlineKMeans": "shoal.kmeans.online",
    "PowerSpectral": "shoal.spectral.power",
    "SphericalMixture": "shoal.kmeans.mixture",
    "Standardized": "shoal.fit.standardized",
    "VarianceReducedKMeans": "shoal.kmeans.variance_reduced",
    "cluster": "shoal._cluster",
    "load": "shoal.formats.models",
    "open_rows": "shoal.formats.files",
    "save": "shoal.formats.models",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("binary", "metrics", "spectral"):
        return import_module(f"shoal.{name}")
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
