"""Imports at start-up: what a fit loads, and packages whose import is deferred."""

import subprocess
import sys

import pytest

from shoal._deferred import StandIn, deferred

FIT = """
import sys, numpy, shoal
rows = numpy.random.default_rng(0).random((100, 3))
shoal.KMeans(2).fit(rows).predict(rows)
shoal.load, shoal.save, shoal.open_rows, shoal.cluster
print(*[name for name in {unused} if name in sys.modules])
import scipy.stats, pandas, sklearn.utils.fixes as fixes
from scipy import stats
assert type(stats) is type(pandas) is type(sys) and scipy.stats is stats, "real modules"
assert stats.mode([1, 1, 2]).mode == 1 and fixes.pd.DataFrame is pandas.DataFrame and fixes._mode(numpy.ones(2))[0] == 1
"""
UNUSED = [
    "pandas",
    "scipy.stats",
    "scipy.optimize",
    "dask",
    "distributed",
    "matplotlib",
    "pyarrow",
    "polars",
    "zarr",
    "h5py",
    "jinja2",
]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package that counts how often it is executed, in a list of this process."""
    (tmp_path / "plankton.py").write_text("import sys\nsys.plankton.append(1)\nsize = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "plankton", [], raising=False)
    yield sys.plankton
    sys.modules.pop("plankton", None)


def test_a_fit_imports_no_more_than_it_needs():
    """Afterwards, all packages can be imported as usual, and scikit-learn can use them."""
    command = [sys.executable, "-c", FIT.format(unused=UNUSED)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split() == []


def test_a_deferred_package_is_loaded_when_it_is_used(package):
    with deferred(["plankton"]):
        import plankton
    assert isinstance(plankton, StandIn)
    assert not package
    assert "plankton" not in sys.modules
    assert (plankton.size, plankton.size, len(package)) == (3, 3, 1)
    assert type(sys.modules["plankton"]) is not StandIn
    with pytest.raises(AttributeError, match="color"):
        _ = plankton.color


def test_other_code_may_import_a_deferred_package_meanwhile(package):
    with deferred(["plankton"]):
        from plankton import size

        real = sys.modules["plankton"]
    assert (size, len(package)) == (3, 1)
    assert sys.modules["plankton"] is real
    assert type(real) is not StandIn


def test_packages_that_are_loaded_or_missing_are_not_deferred(package):
    import plankton

    with deferred(["plankton", "no_such_package"]):
        assert sys.modules["plankton"] is plankton
        with pytest.raises(ModuleNotFoundError):
            import no_such_package  # noqa: F401
    assert sys.modules["plankton"] is plankton
