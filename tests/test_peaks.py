"""Fits in processes of their own keep to the limit that Shoal recommends."""

import pytest

from bench.peaks import OVER, ask, cases

QUICK = [
    ("lloyd", "npz", "small, empty"),
    ("spectral-landmarks", "npy", "small"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("peaks")


@pytest.mark.xdist_group("peaks")
@pytest.mark.parametrize("case", QUICK, ids=", ".join)
def test_the_peak_of_a_process_keeps_to_the_limit(folder, case):
    found = ask(folder, *case)
    assert found.get("ratio", 9.0) <= OVER, found


@pytest.mark.slow
@pytest.mark.xdist_group("peaks")
@pytest.mark.parametrize("case", list(cases()), ids=", ".join)
def test_of_every_method(folder, case):
    found = ask(folder, *case)
    assert found.get("ratio", 9.0) <= OVER, found
