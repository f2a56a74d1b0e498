"""Benchmarks run on small data, with the other libraries that are installed."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bench import pages
from bench.results import FOLDER, escaped, render
from bench.rivals import Fit, shorter
from shoal.cli.reproduce import PAPERS


@pytest.mark.parametrize(
    ("suites", "expected"),
    [
        (["lloyd"], ["shoal-lloyd against "]),  # the fastest peer depends on what is installed and on the machine
        pytest.param(
            ["nmi", "speed", "--repeats", "1"],
            ["the paper's NMI less ours", "MiniBatchSpectral against sklearn-arpack"],
            marks=pytest.mark.slow,
        ),
        (
            ["bigfile", "faults", "--only", "limited", "--only", "flips", "--repeats", "1"],
            ["peak MB under a limit", "checkpoint: harmed"],
        ),
        pytest.param(["scaleout", "--only", "overhead"], ["a step on workers"], marks=pytest.mark.slow),
        (["plan"], ["GB of a machine", "added up on each machine"]),
    ],
    ids=["kmeans", "spectral", "files", "dask", "plan"],
)
def test_a_tiny_benchmark(suites, expected):
    command = [sys.executable, "-m", "bench", *suites, "--quick"]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for words in expected:
        assert words in done.stdout, done.stdout


def test_figures_name_their_limits():
    wanted = [{"what": "at most", "value": 2.0, "limit": 1.5}, {"what": "at least", "value": 4.0, "least": 5}]
    entry = {"problem": "p", "measure": "m", "rows": [{"a": 1}], "figures": wanted, "left out": [], "others": None}
    made = {"command": "c", "date": "d", "revision": "r", "cpu": "x", "cores": 1, "versions": {}}
    text = render("suite", [{**entry, "made": made}])
    assert "2 (over the limit of 1.5)" in text
    assert "4 (below the 5 that it should be)" in text


@pytest.mark.parametrize(("page", "place"), [("scale", "bench plan: rounds"), ("papers", "claims spectral")])
def test_pages_show_the_tracked_results(page, place):
    text = (pages.PAGES / f"{page}.md").read_text()
    assert pages.filled(text) == text, "run `python -m bench page`"
    assert f"<!-- {place} -->" in text


def test_the_page_lists_all_claims_of_the_papers():
    text = (pages.PAGES / "papers.md").read_text()
    for name in PAPERS:
        for claim in import_module(f"shoal.papers.{name}").PAPER.claims:
            assert f"| {escaped(claim.statement)} ({escaped(claim.where)}) |" in text, "run it again, with --full"


@pytest.mark.parametrize("name", PAPERS)
def test_every_check_of_a_claim_was_measured(name):
    """A misspelled name of a measurement would leave its check untested."""
    (stored,) = json.loads((FOLDER / f"claims_{name}.json").read_text())["papers"]
    measured = {claim["key"]: claim["measured"] for claim in stored["claims"]}
    for claim in import_module(f"shoal.papers.{name}").PAPER.claims:
        for check in claim.checks:
            there = check.values(measured[claim.key])
            assert there or claim.key == "same-minima", (
                f"{check.name}: run it again, with --full"
            )  # this claim needs several seeds


def test_libraries_are_timed_to_the_same_energy():
    """The time is that of the shortest fit with a low enough energy."""
    X = np.array([[0.0], [1.0]])

    def fit(seed, steps=100):
        return Fit(float(steps), np.array([[0.5 + (100 - steps) / 100]]), steps)

    whole = fit(0)
    goal = 2 * (0.25 + 0.5**2)  # at 50 steps
    assert 50 <= shorter(fit, 0, whole, goal, X) <= 55
