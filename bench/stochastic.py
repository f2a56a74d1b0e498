"""Suites for stochastic methods: time to a given energy, final energy and rows per second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from . import problems
from .adapters import ADAPTERS, RACERS, SPARSE_RACERS
from .measure import Answer, Lab, energy
from .problems import Problem, start_of
from .results import Entry
from .suites import DIFFERENCE, Contest, chosen, entry_of

MAX_ENERGY_RATIO = 1.01  # to the lowest energy
TINY = [problems.TINY, problems.TINY_SPARSE]

Curve = list[tuple[float, float]]  # seconds and energy of fits of several lengths


def is_ours(library: str) -> bool:
    return library.startswith("shoal")


def soonest(curve: Curve, target: float) -> float:
    """Return the time of the shortest fit that reached the energy; infinity if none did."""
    return min((seconds for seconds, e in curve if e <= target), default=np.inf)


def race(lab: Lab, problem: Problem, X: Any, seed: int) -> dict[str, Curve]:
    """Run fits of several lengths by every library from the same initial centroids."""
    files = {"rows": lab.share("rows", X), "start": lab.share("start", start_of(X, problem.k, seed))}
    curves: dict[str, Curve] = {}
    for name in lab.present(["shoal-nested", "shoal", *(SPARSE_RACERS if hasattr(X, "indptr") else RACERS)]):
        if name == "superkmeans-hierarchical" and problem.k <= 128:  # it needs more clusters
            continue
        efforts, out = list(ADAPTERS[name].efforts or problem.lengths), str(lab.folder / f"{name}.npy")
        efforts = efforts[:2] if lab.quick else efforts
        answer = lab.ask({"do": "fit", "library": name, **files, "iters": efforts, "tol": 0.0, "out": out})
        if "error" not in answer:
            energies = [energy(X, C) for C in np.load(out)]
            curves[name] = [(run["wall"], e) for run, e in zip(answer["runs"], energies, strict=True)]
            lab.say(f"  start {seed}: {name}: " + ", ".join(f"{t:.3g} s {e:.5g}" for t, e in curves[name]))
    return curves


def reach(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Time until the energy is within 1% of the lowest energy of any library."""
    measure = (
        "Seconds of the shortest whole fit, of several lengths, whose energy on all rows is within 1% of the lowest that any "
        "fit of any library reached from the same start. (superkmeans and faiss' SuperKMeans start from rows of their own "
        "choice, so what they reach is no goal for others; they race to it all the same.) Medians over starts; "
        "'of the peers' best' leaves our own fits out of what is to be reached."
    )
    for problem, X in chosen(lab, problems.REACH, only, TINY):
        races = [race(lab, problem, X, seed) for seed in range(min(lab.repeats, problem.most_repeats))]
        names = [name for name in races[0] if all(name in curves for curves in races)]
        fair = [name for name in names if ADAPTERS[name].takes_start]
        bests = [min(e for n in fair for _, e in curves[n]) for curves in races]
        peers = [min((e for n in fair if not is_ours(n) for _, e in curves[n]), default=np.inf) for curves in races]
        rows = []
        for name in names:
            lows = [min(e for _, e in curves[name]) / best for curves, best in zip(races, bests, strict=True)]
            row: Entry = {"library": name, "lowest energy / best": median(lows)}
            for what, goals in (("seconds", bests), ("seconds to the peers' best", peers)):
                took = median(soonest(curves[name], MAX_ENERGY_RATIO * e) for curves, e in zip(races, goals, strict=True))
                row[what] = took if np.isfinite(took) else None
            rows.append({**row, "repeats": [curves[name] for curves in races]})
        figures = [*_ratio(races, names, bests, "within 1% of the best"), *_ratio(races, names, peers, "of the peers' best")]
        yield entry_of(lab, problem.name, measure, rows, figures)


def _ratio(races: list[dict[str, Curve]], names: list[str], goals: list[float], what: str) -> list[Entry]:
    """Return the ratio of the shortest times of the peers and of Shoal, per initialization."""
    ratios = []
    for curves, e in zip(races, goals, strict=True):
        ours, theirs = (
            min(soonest(curves[n], MAX_ENERGY_RATIO * e) for n in names if is_ours(n) == mine) for mine in (True, False)
        )
        if np.isfinite(ours):
            ratios.append(theirs / ours)
    if len(ratios) < len(races):
        return [{"what": f"{what}: starts of {len(races)} from which Shoal got there", "value": len(ratios)}]
    if not np.isfinite(median(ratios)):
        return [
            {"what": f"{what}: starts of {len(races)} from which a peer got there", "value": int(np.isfinite(ratios).sum())}
        ]
    return [{"what": f"{what}: shoal against the fastest peer", "ratio": median(ratios)}]


def variance(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Time of VRKM and VRKM++ to the final energy of Lloyd's algorithm (tol=1e-4)."""
    measure = (
        "Seconds of a whole fit that ends at the energy at which plain Lloyd stops; for the first three, of that fit. "
        "Distances as a share of Lloyd's. Medians. 'vrkm++-4' has four times the learning rate of the paper."
    )
    exact, ours = ["shoal-lloyd", "shoal", "sklearn"], ["shoal-vrkm++", "shoal-vrkm++-4", "shoal-vrkm"]
    for problem, X in chosen(lab, problems.VARIANCE, only, TINY[:1]):
        files = {"rows": lab.share("rows", X), "start": lab.share("start", start_of(X, problem.k))}
        target = 0.0
        answers = {name: list[Answer]() for name in lab.present([*exact, *ours])}
        for _ in range(min(lab.repeats, problem.most_repeats)):
            for name in answers:
                goal, out = [target if name in ours else 1000], str(lab.folder / f"{name}.npy")
                answer = lab.ask({"do": "fit", "library": name, **files, "iters": goal, "tol": 1e-4, "out": out})
                if "error" not in answer:
                    answers[name].append(answer)
                    target = target or answer["runs"][0]["energy"]  # Lloyd's algorithm runs first
                    lab.say(f"  {name}: {answer['runs'][0]['wall']:.3g} s, {answer['runs'][0]['n_iter']} steps")
        first = {name: found[0]["runs"][0] for name, found in answers.items() if found}
        seconds = {name: median(a["runs"][0]["wall"] for a in answers[name]) for name in first}
        lloyd = first[exact[0]]
        rows = [
            {
                "library": name,
                "seconds": seconds[name],
                "steps": run["n_iter"],
                "energy / Lloyd's": run["energy"] / lloyd["energy"],
                "distances": run["distances"] / lloyd["distances"] if run["distances"] else None,
                "repeats": [a["runs"][0]["wall"] for a in answers[name]],
            }
            for name, run in first.items()
        ]
        pairs = [(a, b) for a in ours[:2] for b in exact if b in seconds] + [(ours[0], ours[2])]
        figures = [{"what": f"{a} against {b}", "ratio": seconds[b] / seconds[a]} for a, b in pairs]
        yield entry_of(lab, problem.name, measure, rows, figures)


def stream(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Rows per second of mini-batch (batches of 1024) and online k-means."""
    for problem, X in chosen(lab, problems.STREAM, only, TINY):
        contest = Contest(lab, problem, X, ["shoal-minibatch", "shoal-online", "sklearn-minibatch-1024"])
        contest.run([1, 3])
        rows = [{**row, "rows a second": X.shape[0] / row["seconds"]} for row in contest.rows()]
        figures = contest.against(["sklearn-minibatch-1024"])
        if len(contest.answers) == 3:
            ratio = contest.seconds("sklearn-minibatch-1024") / contest.seconds("shoal-online")
            figures.append({"what": "shoal-online against sklearn-minibatch-1024", "ratio": ratio})
        yield entry_of(lab, problem.name, DIFFERENCE.replace("iteration", "epoch"), rows, figures)


def ends(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Final energy of NestedKMeans and Lloyd's algorithm from the same ten initializations."""
    measure = "Energy of NestedKMeans over that of KMeans, both to tol=1e-4, from ten starts of random rows."
    for problem, X in chosen(lab, problems.ENDS, only, TINY):
        rows: list[Entry] = []
        path = lab.share("rows", X)
        for seed in range(2 if lab.quick else 10):
            found: dict[str, float] = {}
            start = lab.share("start", start_of(X, problem.k, seed))
            for name, effort in (("shoal", 1000), ("shoal-nested", 0.0)):
                out = str(lab.folder / f"{name}.npy")
                task = {"do": "fit", "library": name, "rows": path, "start": start, "iters": [effort], "tol": 1e-4, "out": out}
                if "error" not in lab.ask(task):
                    found[name] = energy(X, np.load(out)[-1])
            if len(found) == 2:
                rows.append({"start": seed, "energy / Lloyd's": found["shoal-nested"] / found["shoal"]})
                lab.say(f"  start {seed}: {found['shoal-nested'] / found['shoal']:.5f}")
        over = fmean(row["energy / Lloyd's"] for row in rows)
        yield entry_of(lab, problem.name, measure, rows, [{"what": "mean energy / Lloyd's", "value": over, "limit": 1.002}])
