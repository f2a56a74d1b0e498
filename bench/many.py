"""Suite `many`: thousands of clusters, hierarchical methods against each other and against flat k-means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from . import problems
from .ladders import CONTENDERS
from .measure import Answer, Lab, energy
from .results import Entry
from .suites import entry_of, problem_rows

OURS, FLAT, FLAT_STEPS = "HierarchicalKMeans", "superkmeans", 25
HIERARCHICAL = (OURS, "superkmeans-hierarchical", "faiss-two-level")
MAX_ENERGY, LEAST_SPEEDUP = 1.01, 20.0  # energy over that of flat k-means, and how much sooner than that
ENERGY_ROWS = 60_000  # rows that energies are compared on; all rows would take longer than the fits
MEASURE = (
    "Seconds of whole fits with default settings, in turn, medians; ours label the rows and measure their gap, too. Flat "
    f"k-means makes {FLAT_STEPS} steps on all rows and runs once, as does BisectingKMeans. Energies of the centroids over the "
    f"same {ENERGY_ROWS:,} random rows, by float64."
)
GROWTH_CLUSTERS = (1000, 3162, 10_000, 31_623, 100_000)
GROWTH_MEASURE = (
    "One fit of each number of clusters; the exponent is the slope of the logarithm of the seconds over that of the number of "
    "clusters."
)


class ManyProblem(NamedTuple):
    """Rows and a number of clusters."""

    name: str
    k: int
    load: Callable[[], Any]
    once: tuple[str, ...] = (FLAT,)  # slow contenders


MANY = [
    ManyProblem("sift-300k-k5000", 5000, lambda: problems.sift()[:300_000]),
    ManyProblem("gloss-k2000", 2000, problems.gloss),
    ManyProblem("gloss-k10000", 10_000, problems.gloss),
    ManyProblem("gloss-slow-peers", 2000, problems.gloss, (FLAT, "faiss-256", "sklearn-bisecting")),
]
TINY = ManyProblem("tiny", 300, lambda: problems.blobs(4000, 32, 200))


def many(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Hierarchical k-means with thousands of clusters: energy and time against peers and flat k-means."""
    chosen = [TINY] if lab.quick else [p for p in MANY if not only or any(word in p.name for word in only)]
    for problem in chosen:
        for X in problem_rows(lab, problem.load):
            lab.say(problem.name)
            yield _contest(lab, problem, X)
    if lab.quick or not only or any(word in "growth" for word in only):
        for X in problem_rows(lab, TINY.load if lab.quick else problems.sift):
            yield _growth(lab, X)


def _run(lab: Lab, name: str, path: str, k: int, seed: int, steps: int) -> Answer | None:
    """Return the answer of one fit, in a new process unless the run is quick; None if it failed."""
    contender = CONTENDERS[name]
    out = str(lab.folder / f"{name}.npy")
    task = {"do": "rung", "library": contender.package, "contender": name, "rows": path, "k": k, "seed": seed, "steps": steps}
    answer = lab.ask_again(contender.package, {**task, "out": out, "warm": True, "repeat": False})
    if "error" in answer:
        lab.leave_out(f"{name}: {answer['error']}")
        return None
    lab.say(f"  {name} {answer['wall']:.2f} s")
    return answer


def _contest(lab: Lab, problem: ManyProblem, X: Any) -> Entry:
    """Return the result of all contenders on one problem."""
    path, seconds, energies = lab.share("rows", X), dict[str, list[float]](), dict[str, float]()
    cpu: dict[str, list[float]] = {}
    some = X[np.sort(np.random.default_rng(0).choice(len(X), min(len(X), ENERGY_ROWS), replace=False))]
    present = [name for name in (*HIERARCHICAL, *problem.once) if CONTENDERS[name].fits(len(X), problem.k, False)]
    for turn in range(lab.repeats):
        for name in present:
            if turn and name in problem.once:
                continue
            steps = FLAT_STEPS if name in problem.once else 1
            answer = _run(lab, name, path, problem.k, turn, steps)
            if answer is None:
                continue
            seconds.setdefault(name, []).append(answer["wall"])
            cpu.setdefault(name, []).append(answer["cpu"])
            if name not in energies:
                energies[name] = energy(some, np.load(lab.folder / f"{name}.npy"))
    rows: list[Entry] = [
        {
            "library": name,
            "seconds": median(times),
            "CPU seconds": median(cpu[name]),
            "energy / flat": energies[name] / energies[FLAT] if FLAT in energies else None,
            "shoal is": median(times) / median(seconds[OURS]) if name != OURS and OURS in seconds else None,
            "repeats": times,
        }
        for name, times in seconds.items()
    ]
    figures: list[Entry] = []
    limits = {} if lab.quick else {"limit": MAX_ENERGY}
    if OURS in seconds and FLAT in seconds:
        figures.append({"what": "our energy over that of flat k-means", "value": energies[OURS] / energies[FLAT], **limits})
        least = {} if lab.quick else {"least": LEAST_SPEEDUP}
        ratio = median(seconds[FLAT]) / median(seconds[OURS])
        figures.append({"what": "times sooner than flat k-means", "value": ratio, **least})
    peers = [name for name in HIERARCHICAL[1:] if OURS in seconds and name in seconds]
    for what, spent in (("", seconds), (", CPU seconds", cpu)):
        ratios = {name: median(spent[name]) / median(spent[OURS]) for name in peers}
        figures += [{"what": f"{OURS} against {name}{what}", "ratio": ratio} for name, ratio in ratios.items()]
    return entry_of(lab, problem.name, MEASURE, rows, figures)


def _growth(lab: Lab, X: Any) -> Entry:
    """Return how seconds and distances grow with the number of clusters."""
    path, rows = lab.share("rows", X), list[Entry]()
    for k in (100, 300) if lab.quick else GROWTH_CLUSTERS:
        answer = _run(lab, OURS, path, k, 0, 1)
        if answer is not None:
            rows.append({"clusters": k, "seconds": answer["wall"], "steps": answer["n_iter"]})
    for row in rows:
        row["times the first"] = row["seconds"] / rows[0]["seconds"]
    figures: list[Entry] = []
    if len(rows) > 1:
        slope = np.polyfit(np.log([row["clusters"] for row in rows]), np.log([row["seconds"] for row in rows]), 1)[0]
        figures.append({"what": "exponent of the number of clusters in the seconds", "value": float(slope)})
    return entry_of(lab, "growth", f"{len(X):,} rows. {GROWTH_MEASURE}", rows, figures)
