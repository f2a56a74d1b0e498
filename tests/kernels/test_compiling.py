"""Kernels where nothing can be kept on disk."""

import pytest
from numba.core import caching

from shoal import kernels


@pytest.mark.parametrize("compile_it", [kernels.kernel, kernels.fast_kernel])
def test_they_work_without_a_cache(monkeypatch, compile_it):
    """As on a read-only mount without a home."""
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    kernels._warn_uncached.cache_clear()
    with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR") as caught:
        double, triple = compile_it(lambda x: 2 * x), compile_it(lambda x: 3 * x)
    assert len(caught) == 1
    assert (double(2.0), triple(2.0)) == (4.0, 6.0)


def test_other_errors_pass_through(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("another one")

    monkeypatch.setattr(kernels, "njit", fail)
    with pytest.raises(RuntimeError, match="another one"):
        kernels.kernel(lambda x: x)
