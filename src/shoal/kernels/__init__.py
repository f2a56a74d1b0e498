"""Numba kernels: serial, nogil, compiled on first use and cached on disk.

Arguments are tagged with their shapes: ``# IN`` is read, ``# OUT`` is overwritten, ``# ADD`` is read and updated in place.
Kernels do not validate their arguments; public functions do that before calling them. A cached kernel calls only kernels of its
own file, because Numba's cache is not invalidated by a change in another file.

Compilation is most of the time of a first fit. Kernels copy arrays by loops: for an assignment to a slice, Numba compiles the
message about shapes that differ, which takes 1.4 s. Callers pass the same types everywhere (`read_only` and `contiguous` in
`data.types`), because a kernel is compiled again for other integers, another layout, or arrays that are writeable.
"""

import functools
import hashlib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import IndexDataCacheFile

# Distance bounds are stored as float32. An upper bound u is stored as u * UP + TINY and a lower bound l as l * DOWN - TINY, so
# that it remains a bound after rounding. The relative margin is 2 float32 epsilons; TINY (a distance) covers subnormal values.
# With smaller margins a bound may exclude the nearest centroid.
UP, DOWN = 1 + 2.0**-22, 1 - 2.0**-22
TINY = 2.0**-125

F = TypeVar("F", bound=Callable[..., object])


@functools.cache
def _warn_uncached() -> None:
    """Warn, once per process, that compiled kernels cannot be stored."""
    warnings.warn(
        "Shoal compiles its kernels again in every process because neither the package folder nor the user cache folder is "
        "writable; set NUMBA_CACHE_DIR to a writable folder.",
        RuntimeWarning,
        stacklevel=2,
    )


class _Cache(IndexDataCacheFile):  # type: ignore[misc]
    """A Numba cache whose data files are named after a hash of the argument types.

    Numba numbers its data files consecutively. Two processes that compile a kernel for different types at the same time may
    choose the same number, and every later process would then load the wrong one.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the compiled code, then the index."""
        name = self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:16], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})  # an entry lost to a concurrent write is compiled again


def _compile(fn: F, **options: Any) -> F:
    """Compile a function on its first call, with a cache on disk if a folder is writable."""
    options |= {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}  # C code never calls kernels by address
    try:
        compiled = njit(cache=True, **options)(fn)
        if hasattr(compiled, "_cache"):  # absent if NUMBA_DISABLE_JIT is set
            compiled._cache._cache_file.__class__ = _Cache
        return compiled  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "no locator" not in str(error):
            raise
        _warn_uncached()
        return njit(**options)(fn)  # type: ignore[no-any-return]


def kernel(fn: F) -> F:
    """Compile a kernel with strict IEEE arithmetic: sums are evaluated in the order written."""
    return _compile(fn)


def fast_kernel(fn: F) -> F:
    """Compile a kernel that may reorder and fuse additions, so that sums are vectorized; NaN and infinity are still honoured.

    Use it only for sums over the columns of one row: a row's result then does not depend on other rows, on its block or on
    its thread. Scores and distances are two to three times as fast as with `kernel`.
    """
    return _compile(fn, fastmath={"contract", "reassoc"})
