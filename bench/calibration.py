"""Suite `calibration`: what `cluster` says is left to gain, compared with what steps to convergence gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shoal import KMeans, cluster
from shoal.papers.data import Missing

from . import problems
from .measure import Lab
from .results import Entry
from .suites import entry_of

PROBLEMS = (
    *(("pendigits", 50), ("usps", 50), ("letter", 50), ("letter", 200), ("mnist", 10), ("mnist", 50), ("gloss", 10)),
    *(("gloss", 50), ("gloss", 200), ("sift", 50), ("sift", 200), ("covtype", 50), ("shuttle", 50), ("birch1", 50)),
    *(("a3", 50), ("noise2", 50), ("noise16", 200), ("noise64", 50), ("power-law", 50), ("duplicates", 50)),
)
MEASURE = (
    "`remaining_` of `cluster` with the default quality, and the share of the energy that `KMeans` gains from its centroids "
    "(tol=0, up to 1000 steps)."
)


def calibration(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """The stated remaining improvement of `cluster` against the true one."""
    stated, true = list[float](), list[float]()
    tiny = [(name, 20) for name in problems.MAP_TINY]
    sets = {**problems.MAP, **problems.MAP_TINY}
    for data, k in tiny if lab.quick else PROBLEMS:
        name = f"{data}-k{k}"
        if only and not any(word in name for word in only):
            continue
        lab.say(name)
        try:
            X = problems.map_rows(sets[data](), k)
        except Missing as missing:
            lab.leave_out(f"{name}: {missing}")
            continue
        rows: list[Entry] = []
        for seed in range(lab.repeats):
            model = cluster(X, k, random_state=seed)
            further = KMeans(k, init=model.cluster_centers_, tol=0, max_iter=1000).fit(X)
            rows.append({"seed": seed, "stated": model.remaining_, "true": 1 - further.inertia_ / model.inertia_})
        stated += [row["stated"] for row in rows]
        true += [row["true"] for row in rows]
        yield entry_of(lab, name, MEASURE, rows, [])
    if stated:
        left, gained = np.array(stated), np.array(true)
        figures: list[Entry] = [
            {
                "what": "fits whose true gain does not exceed the stated one",
                "value": float(np.mean(gained <= left)),
                "least": 0.9,
            },
            {
                "what": "fits whose stated gain is below three times the true one",
                "value": float(np.mean(left < 3 * gained)),
                "least": 0.5,
            },
            {"what": "largest true gain", "value": float(gained.max())},
        ]
        yield entry_of(lab, "all", MEASURE, [], figures)
