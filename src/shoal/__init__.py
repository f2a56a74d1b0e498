"""Shoal: clustering for data too big, too wide or too slow for the usual tools."""

import lazy_loader

from . import _deferred

__version__ = "0.1.0"

_deferred.install()

# The public names are listed in __init__.pyi and imported on first use: scikit-learn and Numba take half a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

del lazy_loader
