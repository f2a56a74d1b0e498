"""Shoal: clustering for data too big, too wide or too slow for the usual tools."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["KMeans", "metrics"]

if TYPE_CHECKING:
    from . import metrics as metrics
    from .kmeans.exact import KMeans as KMeans

_HOMES = {"KMeans": "shoal.kmeans.exact"}  # imported on first use: scikit-learn and Numba take half a second


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "metrics":
        return import_module("shoal.metrics")
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
