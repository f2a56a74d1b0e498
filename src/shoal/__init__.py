"""Shoal: clustering for data too big, too wide or too slow for the usual tools."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["KMeans", "NestedKMeans", "SphericalMixture", "VarianceReducedKMeans", "cluster", "metrics"]

if TYPE_CHECKING:
    from . import metrics as metrics
    from .front import cluster as cluster
    from .kmeans.exact import KMeans as KMeans
    from .kmeans.mixture import SphericalMixture as SphericalMixture
    from .kmeans.nested import NestedKMeans as NestedKMeans
    from .kmeans.variance_reduced import VarianceReducedKMeans as VarianceReducedKMeans

_HOMES = {  # imported on first use: scikit-learn and Numba take half a second
    "KMeans": "shoal.kmeans.exact",
    "NestedKMeans": "shoal.kmeans.nested",
    "SphericalMixture": "shoal.kmeans.mixture",
    "VarianceReducedKMeans": "shoal.kmeans.variance_reduced",
    "cluster": "shoal.front",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "metrics":
        return import_module("shoal.metrics")
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
