"""Suites for binary codes: speed of assignment, and time, accuracy and memory of compressed k-means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

import numpy as np

from shoal.papers.data import Missing

from . import problems
from .measure import Lab
from .problems import start_of
from .resources import map_of_blobs
from .results import Entry
from .suites import chosen, entry_of

Array = np.ndarray[Any, Any]
MB = 1e6


def popcount(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """One assignment of rows to centroids: 128-bit codes against floats."""
    measure = (
        "Seconds of `predict` for all rows, from the second call on, medians: float rows by KMeans and by scikit-learn, "
        "their packed codes of 128 bits by BinaryKMeans (the codes being there already)."
    )
    for problem, X in chosen(lab, problems.WIDE[:1], only, [problems.TINY]):
        files = {"rows": lab.share("rows", X), "start": lab.share("start", start_of(X, problem.k))}
        names = ["shoal-codes", "shoal", "sklearn"]
        taken: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(lab.repeats):
            for name in names:
                answer = lab.ask({"do": "predict", "library": name, **files})
                if "error" not in answer:
                    taken[name] += answer["seconds"]
                    lab.say(f"  {name}: {median(answer['seconds']):.4f} s")
        rows = [{"library": name, "seconds": median(times), "repeats": times} for name, times in taken.items() if times]
        seconds = {row["library"]: row["seconds"] for row in rows}
        peers = [name for name in names[1:] if name in seconds]
        figures = [{"what": f"shoal-codes against {name}", "ratio": seconds[name] / seconds[names[0]]} for name in peers]
        yield entry_of(lab, problem.name, measure, rows, figures)


def compress(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """A whole fit of CompressedKMeans against Shoal's k-means to convergence."""
    measure = (
        "Seconds of a whole fit: CompressedKMeans as it comes, with its codes learned and the rows compressed, and k-means to "
        "tol=1e-4 from random rows. 'refined' ends with one exact pass over the float rows, whose energy is compared."
    )
    names = ["shoal-compressed", "shoal-compressed-refined", "shoal", "shoal-lloyd"]
    for problem, X in chosen(lab, problems.COMPRESS, only, [problems.TINY]):
        files = {"rows": lab.share("rows", X), "start": lab.share("start", start_of(X, problem.k))}
        taken: dict[str, list[Any]] = {name: [] for name in names}
        for _ in range(min(lab.repeats, problem.most_repeats)):
            for name in names:
                out = str(lab.folder / "centers.npy")
                answer = lab.ask({"do": "fit", "library": name, **files, "iters": [300], "tol": 1e-4, "out": out})
                if "error" not in answer:
                    taken[name].append(answer["runs"][0])
                    lab.say(f"  {name}: {answer['runs'][0]['wall']:.3g} s")
        seconds = {name: median(run["wall"] for run in runs) for name, runs in taken.items() if runs}
        exact = taken["shoal"][0]["energy"]
        rows = [
            {
                "library": name,
                "seconds": seconds[name],
                "CPU seconds": median(run["cpu"] for run in taken[name]),
                "iterations": taken[name][0]["n_iter"],
                "energy / k-means'": None if name == names[0] else taken[name][0]["energy"] / exact,
                "repeats": [run["wall"] for run in taken[name]],
            }
            for name in seconds
        ]
        figures = [{"what": f"{names[0]} against {name}", "ratio": seconds[name] / seconds[names[0]]} for name in names[2:]]
        yield entry_of(lab, problem.name, measure, rows, figures)


def _methods(k: int, n_bits: int) -> dict[str, Callable[[Any, int], Array]]:
    """Return functions (X, seed) -> labels by name."""
    from shoal import CompressedKMeans, KMeans
    from shoal.papers.compressed import ckm

    def compressed(n_bits: int = n_bits, **options: Any) -> Callable[[Any, int], Array]:
        return lambda X, seed: CompressedKMeans(k, n_bits=n_bits, random_state=seed, **options).fit(X).labels_

    return {
        "k-means": lambda X, seed: KMeans(k, random_state=seed).fit(X).labels_,
        "LSH + bk-means": compressed(learn=False),
        "compressed": compressed(),
        "compressed, 32 bits": compressed(n_bits=32),
        "compressed, beta=0.1": compressed(beta=0.1),
        "compressed, beta=1": compressed(beta=1.0),
        "compressed, refined": compressed(refine=True),
        "compressed, as published": lambda X, seed: ckm(X, k, n_bits, seed=seed).G,
    }


def accuracy(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Accuracy of k-means, LSH with k-means on bits, and compressed k-means on labelled data."""
    from shoal.metrics import accuracy as accuracy_score

    seeds = 2 if lab.quick else 10
    measure = f"Share of rows in the class that their cluster is matched with (ACC); codes of 128 bits; {seeds} seeds."
    for name, load in problems.CLASSES.items() if not lab.quick else [("tiny", problems.tiny_classes)]:
        if only and not any(word in name for word in only):
            continue
        lab.say(name)
        try:
            X, y = load()
        except Missing as missing:
            lab.leave_out(f"{name}: {missing}")
            continue
        rows: list[Entry] = []
        for method, find_labels in _methods(len(np.unique(y)), 128).items():
            found = [accuracy_score(y, find_labels(X, seed)) for seed in range(seeds)]
            rows.append({"library": method, "ACC": fmean(found), "deviation": pstdev(found), "repeats": found})
            lab.say(f"  {method}: {fmean(found):.3f} +- {pstdev(found):.3f}")
        acc = {row["library"]: row["ACC"] for row in rows}
        figures = [{"what": f"compressed / {other}", "value": acc["compressed"] / acc[other]} for other in list(acc)[:2]]
        yield entry_of(lab, name, measure, rows, figures)


def codes_memory(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Memory and time to compress and cluster a 4 GB file."""
    if not Path("/proc/self/status").exists():
        lab.leave_out("codes_memory: resident memory can only be read on Linux")
        return
    n, d, k = (20_000, 128, 20) if lab.quick else (8_000_000, 128, 100)
    files = map_of_blobs(lab, n, d, k)
    answer = lab.ask({"do": "memory", "library": "shoal-compressed", **files, "iters": 300}, watch=True)
    Path(files["rows"]).unlink()
    if "error" in answer:
        return
    extra, codes = (answer["most"] - answer["before"]) / MB, n * 16 / MB
    row = {"library": "shoal-compressed", "peak MB": answer["peak"] / MB, "extra MB": extra, "seconds": answer["wall"]}
    figures = [{"what": "resident MB at most", "value": row["peak MB"], "limit": 500}]
    figures.append({"what": "extra MB over the codes'", "value": extra / codes})
    sizes = f"its codes of 128 bits take {codes:.0f} MB, labels {n * 4 / MB:.0f}"
    measure = f"A float32 memory map of {n * d * 4 / MB:.0f} MB, k={k}; {sizes}."
    yield entry_of(lab, "codes-of-a-map", measure, [row], figures)
