"""The peak memory of fits stays within the recommended limit."""

import pytest

from bench.peaks import MAX_RATIO, ask, cases

QUICK = [
    ("lloyd", "npz", "small, empty"),
    ("spectral-landmarks", "npy", "small"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("peaks")


@pytest.mark.xdist_group("peaks")
@pytest.mark.parametrize("case", QUICK, ids=", ".join)
def test_peak_is_within_the_limit(folder, case):
    found = ask(folder, *case)
    assert found.get("ratio", 9.0) <= MAX_RATIO, found


@pytest.mark.slow
@pytest.mark.xdist_group("peaks")
@pytest.mark.parametrize("case", list(cases()), ids=", ".join)
def test_every_method(folder, case):
    found = ask(folder, *case)
    assert found.get("ratio", 9.0) <= MAX_RATIO, found
