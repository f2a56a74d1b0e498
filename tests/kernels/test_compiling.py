"""The cache of compiled kernels: unwritable folders and concurrent processes; how many versions a fit compiles."""

import subprocess
import sys

import numpy as np
import pytest
from numba.core import caching

from shoal import kernels


@pytest.mark.parametrize("compile_it", [kernels.kernel, kernels.fast_kernel])
def test_kernels_work_without_a_cache(monkeypatch, compile_it):
    """Simulate a read-only file system without a home folder."""
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    kernels._warn_uncached.cache_clear()
    with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR") as caught:
        double, triple = compile_it(lambda x: 2 * x), compile_it(lambda x: 3 * x)
    assert len(caught) == 1
    assert (double(2.0), triple(2.0)) == (4.0, 6.0)


def test_other_errors_are_raised(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("another one")

    monkeypatch.setattr(kernels, "njit", fail)
    with pytest.raises(RuntimeError, match="another one"):
        kernels.kernel(lambda x: x)


def test_concurrent_processes_do_not_mix_cache_entries(monkeypatch):
    """One process saves an entry while the other is saving, and neither has read an index with the other's entry."""
    one, other = caches = [kernels.kernel(lambda x: x[0])._cache._cache_file for _ in range(2)]
    one.flush()
    save_data = one._save_data

    def interrupted(name, data):
        other.save("of the other", "of the other")
        save_data(name, data)

    with monkeypatch.context() as patch:
        patch.setattr(one, "_save_data", interrupted)
        patch.setattr(other, "_load_index", dict)
        one.save("of one", "of one")
    for cache in caches:
        assert cache.load("of one") in ("of one", None)  # never the wrong entry; a missing one is compiled again
        assert cache.load("of the other") in ("of the other", None)
    one.save("of one", "of one")
    assert [other.load(key) for key in ["of one", "of the other"]] == ["of one", "of the other"]


def test_compiled_kernel_is_loaded_from_disk():
    """Check Numba's own count of cache hits."""
    compiled = [kernels.kernel(lambda x: x[0]) for _ in range(2)]
    compiled[0]._cache.flush()
    compiled[0](np.ones(1))
    compiled[1](np.ones(1))
    assert [sum(one.stats.cache_hits.values()) for one in compiled] == [0, 1]


FIT = """
import numpy, shoal
from shoal.kernels import choice, dense, exact, means, tiles
wide, narrow = numpy.random.default_rng(0).random((2, 2000, 64), numpy.float32)
model = shoal.KMeans(100, algorithm="projected", max_iter=8, random_state=0).fit(wide)
model.predict(wide), model.transform(wide), shoal.KMeans(5, random_state=0).fit(narrow[:, :3])
for module in (choice, dense, exact, means, tiles):
    for name, kernel in vars(module).items():
        if not name.startswith("_") and len(getattr(kernel, "overloads", ())) > 1:
            print(name, kernel.signatures)
"""


def test_a_fit_compiles_one_version_of_each_kernel():
    """Callers pass arrays of the same layout and integers of the same size."""
    assert subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True, timeout=300).stdout == ""
