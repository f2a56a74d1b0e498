"""Benchmarks run on small data, with the other libraries that are installed."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bench import map_page, pages
from bench.ladders import RUNGS, Contender, Ladder, Point, climb_all, fastest
from bench.map_figures import Race, figures_of
from bench.results import FOLDER, escaped, render
from bench.rivals import Fit, shorter


@pytest.mark.parametrize(
    ("suites", "expected"),
    [
        (  # one command, since a process for each library is started once
            ["lloyd", "plan", "map", "calibration", "many"],
            [
                "shoal-lloyd against ",  # the fastest peer depends on what is installed and on the machine
                "sgemm of this machine",
                "GB of a machine",
                "added up on each machine",
                "cluster against the fastest peer",
                "auto over the best single algorithm",
                "largest true gain",
                "exponent of the number of clusters in the seconds",
            ],
        ),
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
    ],
    ids=["kmeans", "spectral", "files", "dask"],
)
@pytest.mark.timeout(600)  # processes of six libraries; about 20 s of CPU time
def test_a_tiny_benchmark(suites, expected):
    command = [sys.executable, "-m", "bench", *suites, "--quick"]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=580, check=False)
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


@pytest.mark.parametrize(
    ("page", "place"), [("scale", "bench plan: rounds"), ("papers", "claims spectral"), ("speed", "bench map")]
)
def test_pages_show_the_tracked_results(page, place):
    text = (pages.PAGES / f"{page}.md").read_text()
    assert pages.filled(text) == text, "run `python -m bench page`"
    assert f"<!-- {place} -->" in text


MEASURED = ("convergence",)  # papers whose tracked run has both arms; the others wait for a full run on an idle machine


def test_the_page_lists_all_claims_of_the_papers():
    text = (pages.PAGES / "papers.md").read_text()
    for name in MEASURED:
        for claim in import_module(f"shoal.papers.{name}.experiments").PAPER.claims:
            assert f"| {escaped(claim.statement)} ({escaped(claim.where)}) |" in text, "run it again, with --full"


@pytest.mark.parametrize("name", MEASURED)
def test_every_check_of_a_claim_was_measured(name):
    """A misspelled name of a measurement would leave its check untested."""
    (stored,) = json.loads((FOLDER / f"claims_{name}.json").read_text())["papers"]
    measured = {claim["key"]: claim["measured"] for claim in stored["claims"]}
    for claim in import_module(f"shoal.papers.{name}.experiments").PAPER.claims:
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


def lloyd_like(seconds, final, converges_at=300):
    """Return a function that runs steps whose energy decreases to `final`, and the list of the numbers of steps that it ran."""
    asked = []

    def run(steps):
        asked.append(steps)
        done = min(steps, converges_at)
        return Point(steps, seconds * done, final + 1 / done, done < steps)

    return run, asked


@pytest.mark.parametrize("needed", [1, 2, 3, 10, 50, 290])
def test_a_ladder_finds_the_fewest_steps_that_reach_an_energy(needed):
    run, asked = lloyd_like(0.1, final=1.0)
    ladder = Ladder(run)
    ladder.climb((1 + 1 / needed) / 1.0001, limit=100)
    point = ladder.first_to((1 + 1 / needed) / 1.0001)
    assert point.steps == min(steps for steps in RUNGS if steps >= needed)
    assert len(asked) == len(set(asked)) <= 8


def test_a_ladder_leaves_out_fits_that_would_take_too_long():
    run, asked = lloyd_like(1.0, final=1.0)
    ladder = Ladder(run)
    ladder.climb(1.001, limit=20)
    assert max(asked) <= 20
    assert ladder.cut
    assert ladder.first_to(1.001) is None


def test_a_library_that_needs_too_long_for_its_shortest_fit_is_not_run_again():
    run, asked = lloyd_like(1.0, final=1.0)
    ladder = Ladder(run, expected=3.0)
    ladder.climb(1.5, limit=2.0)
    assert ladder.cut
    assert not asked
    ladder.climb(1.5, limit=4.0)
    assert ladder.first_to(1.5).steps == 2


def test_a_ladder_ends_when_its_library_has_converged():
    run, asked = lloyd_like(0.01, final=1.0, converges_at=20)
    ladder = Ladder(run)
    ladder.climb(1.04, limit=100)
    assert max(asked) == 32
    assert not ladder.cut


def test_the_envelope_is_the_fastest_library_that_reaches_the_energy():
    libraries = {"fast but poor": (0.01, 1.1), "slow": (0.2, 1.0), "good": (0.1, 1.0)}
    ladders = {name: Ladder(lloyd_like(*options)[0]) for name, options in libraries.items()}
    climb_all(ladders, [(1.05, 100.0), (1.02, 100.0)])
    assert fastest(ladders, 1.05)[0] == "good"
    assert fastest(ladders, 1.3)[0] == "fast but poor"
    assert fastest(ladders, 0.9) is None


def test_samples_as_large_as_all_rows_are_left_out():
    sampled = Contender("sampled", "numpy", None, rows_per_centroid=64)
    assert sampled.fits(10_000, 100, is_sparse=False)
    assert not sampled.fits(5_000, 100, is_sparse=False)
    assert not sampled.fits(10_000, 100, is_sparse=True)


def race_of(ours, peer):
    ladder = Ladder(lloyd_like(*peer)[0])
    climb_all({"peer": ladder}, [(ours.energy, 100.0)])
    return Race({"cluster": ours, "KMeans": ours}, {"peer": ladder}, {"auto": 1.2, "lloyd": 1.0}, frozenset(), {})


def test_the_page_of_the_map_names_means_and_worst_problems():
    made = {"command": "c", "date": "d", "revision": "r", "cpu": "x", "cores": 1, "versions": {}}
    common = {"made": made, "others": None, "rows": [], "shape": "1 x 1", "seeds": 1, "k": 200}
    problems = {
        "even": (Point(1, 1.0, 1.1), (0.4, 1.0)),
        "bad": (Point(1, 1.0, 1.1), (0.1, 1.0)),
        "never": (Point(1, 1.0, 0.5), (0.1, 1.0)),
    }
    entries = [{**common, "problem": name, "figures": figures_of([race_of(*pair)])} for name, pair in problems.items()]
    text = map_page.page(entries)
    assert "| 2.20x | 1.10x, bad | 0 of 3 below 1; 0 lower bounds; no peer in 1 |" in text
    assert "no peer reaches it" in text
    assert "1.20 (lloyd)" in text
