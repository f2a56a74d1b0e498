"""J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS.

Validation energy over time of nested mini-batches, mini-batches and exact methods, and the effect of the doubling threshold.
"""

from __future__ import annotations

import time
from copy import copy
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.cluster import MiniBatchKMeans as Peer
from threadpoolctl import threadpool_limits

from ...data.types import Array
from ...kmeans.dispatch import Algorithm
from ...kmeans.kmeans import KMeans
from ...kmeans.minibatch import MiniBatchKMeans
from ...kmeans.nested import NestedKMeans
from ...report.draw import Line
from ..claims import Check, Claim
from ..curves import Trajectory, at, first_rows, over_seeds, record_trajectory, soonest
from ..made import deformed
from ..run import Experiment, Finding, Paper, Run
from ..show import averaged, chart, grid

RHO, SEEDS, EPOCHS = 100.0, 20, 5
LLOYD, YINYANG, MBATCH, NMBATCH, OURS = "lloyd", "yinyang", "mbatch", "nmbatch", "nmbatch with Shoal's bounds"
NEAR_ENERGY_RATIO, NEARER_ENERGY_RATIO = (
    1.02,
    1.005,
)  # target energies, relative to the lowest energy from the same initialization
BOUNDED: Algorithm = "elkan"  # as in the paper: one bound for every row and centroid
UNBOUNDED: Algorithm = "lloyd"
RHOS = (0.1, 1.0, 10.0, 100.0, 1000.0)
DENSE, SPARSE = ("mnist", "sift"), ("news", "glosses")  # the last one in full runs only
QUICK_DATA_SETS = (*DENSE, SPARSE[0])
SIZES = {"mnist": 400_000, "sift": 520_000}  # training rows in a full run

CLAIMS = (
    Claim(
        "dense-speed",
        "Figure 2",
        "On dense data, nested batches get within 2% of the best energy 10 to 100 times as fast as mini-batches.",
        "10 to 100 times",
        (Check("time of mbatch / time of nmbatch to within 2% of the best energy, dense", least=10.0, cases=DENSE),),
    ),
    Claim(
        "dense-sooner",
        "Figure 2",
        "On dense data, nested batches get within 2% of the best energy faster than mini-batches and both exact methods.",
        "consistently faster than all baselines",
        (
            Check("time of mbatch / time of nmbatch to within 2% of the best energy, dense", least=1.0, cases=DENSE),
            Check("time of lloyd / time of nmbatch to within 2% of the best energy, dense", least=1.0, cases=DENSE),
            Check("time of yinyang / time of nmbatch to within 2% of the best energy, dense", least=1.0, cases=DENSE),
        ),
    ),
    Claim(
        "ours-sooner",
        "Figure 2",
        "The same for nested batches with the bounds that Shoal uses.",
        "consistently faster than all baselines",
        tuple(
            Check(
                f"time of {rival} / time of nmbatch with Shoal's bounds to within 2% of the best energy, dense",
                least=1.0,
                cases=DENSE,
            )
            for rival in (MBATCH, LLOYD, YINYANG)
        ),
    ),
    Claim(
        "sparse-speed",
        "Figure 2",
        "On sparse data, nested batches get within 0.5% of the best energy faster than mini-batches.",
        "noticeably faster within 0.5%",
        (
            Check("time of mbatch / time of nmbatch to within 0.5% of the best energy, sparse", least=1.0),
            Check("time of mbatch / time of nmbatch with Shoal's bounds to within 0.5% of the best energy, sparse", least=1.0),
        ),
    ),
    Claim(
        "same-minima",
        "section 4",
        "Final energies of nested batches and exact methods differ by less than one standard deviation over initializations.",
        "consistently within one standard deviation",
        (Check("final energy of nmbatch minus that of lloyd, in standard deviations of lloyd", -1.0, 1.0, QUICK_DATA_SETS),),
    ),
    Claim(
        "large-rho",
        "Figure 3",
        "With bounds, doubling thresholds of 10, 100 and 1000 give similar results.",
        "little difference",
        (Check("range of the errors at rho = 10, 100 and 1000 / range over all rho, with bounds", most=0.5),),
    ),
    Claim(
        "rho-without-bounds",
        "Figure 3",
        "Without bounds, a threshold of 10 is generally better than larger ones.",
        "rho = 10 is generally better",
        (Check("error at rho = 10 minus the lower error at 100 and 1000, without bounds, in percent of the energy", most=0.0),),
    ),
    Claim(
        "baseline",
        "Table 1",
        "The mini-batch baseline is competitive: it processes rows faster than scikit-learn.",
        "1.7 times as fast on dense rows, 4.2 times on sparse rows",
        (Check("rows per second of Shoal's mbatch / scikit-learn's", least=1.0, cases=("mnist", "news")),),
    ),
)


class Split:
    """Training and validation rows of a data set."""

    def __init__(self, run: Run, name: str) -> None:
        wanted = run.of(500, 30_000, SIZES.get(name))
        found = run.load(name)
        X = found.X
        if name == "mnist" and wanted is not None and wanted > 0.5 * found.n:
            run.note(f"mnist: {found.n:,} images, extended to {int(1.1 * wanted):,} by random deformations as in INFMNIST.")
            X = deformed(X, int(1.1 * wanted))
        n = min(wanted or X.shape[0], int(X.shape[0] / 1.1))
        self.X, self.test = X[:n], X[n : n + n // 10]
        self.k = run.of(5, 10, 50)
        self.batch = run.of(50, 500, 5000)

    def part(self) -> Split:
        """Return a small subset, to compile kernels with."""
        some = copy(self)
        some.X, some.test, some.batch = self.X[: 20 * self.k], self.test[:50], 5 * self.k
        return some


def models(split: Split, seed: int, budget: float | None) -> dict[str, Any]:
    """Return all methods, with the same initial centroids. Mini-batches run until the time budget ends."""
    start = first_rows(split.X, split.k, seed)
    common: dict[str, Any] = {"n_clusters": split.k, "init": start, "random_state": seed, "tol": 1e-6}
    return {
        LLOYD: KMeans(algorithm="lloyd", max_iter=100, **common),
        YINYANG: KMeans(algorithm="yinyang", max_iter=100, **common),
        NMBATCH: NestedKMeans(rho=RHO, algorithm=BOUNDED, batch_size=split.batch, max_iter=1000, **common),
        OURS: NestedKMeans(rho=RHO, batch_size=split.batch, max_iter=1000, **common),
        MBATCH: MiniBatchKMeans(
            batch_size=split.batch,
            max_no_improvement=None,
            max_iter=100_000,
            time_budget=budget,
            **{**common, "tol": 0.0},
        ),
    }


def one_seed(split: Split, seed: int) -> dict[str, tuple[Trajectory, Array]]:
    """Return the trajectory and the validation energies of each method.

    Mini-batches do not converge. They get 1.2 times the time of Lloyd's algorithm, or 12 times that of nested batches,
    whichever is longer.
    """
    found: dict[str, tuple[Trajectory, Array]] = {}
    budget: float | None = None
    for name in (LLOYD, YINYANG, NMBATCH, OURS, MBATCH):
        trajectory = record_trajectory(models(split, seed, budget)[name], split.X)
        found[name] = trajectory.without_centers(), (values := trajectory.energies(split.test))
        if name == LLOYD:
            budget = 1.2 * float(trajectory.seconds[-1]) + 0.2
        elif name == NMBATCH:
            budget = max(budget or 0.0, 12 * soonest(trajectory.seconds, values, NEAR_ENERGY_RATIO * float(values.min())))
    return found


def race(run: Run, name: str) -> Finding:
    """Reproduce Figure 2 on one data set."""
    if name == "glosses" and run.effort.rows is not None:
        return Finding([], {})
    split = Split(run, name)
    kind = "sparse" if name in SPARSE else "dense"
    one_seed(split.part(), 0)  # compile kernels
    runs = [one_seed(split, seed) for seed in run.seeds(SEEDS)]
    best = min(values.min() for found in runs for _, values in found.values())
    unit = float(np.mean([found[LLOYD][0].seconds[0] for found in runs]))  # of the first step of Lloyd's algorithm
    first = max(min(found[m][0].seconds[0] for m in found) for found in runs)
    last = max(found[LLOYD][0].seconds[-1] for found in runs)
    times = np.geomspace(first, last, 60)
    series = []
    for method in (LLOYD, YINYANG, MBATCH, NMBATCH, OURS):
        curves = [at(times, found[method][0].seconds, found[method][1]) / best - 1 for found in runs]
        mean, spread = over_seeds(curves)
        known = np.isfinite(mean)
        series.append(Line(method, times[known] / unit, 100 * mean[known], 100 * spread[known]))
    shown = chart(
        f"nested-2-{name}", f"Figure 2: {name}", series, "time, in units of the first step of lloyd",
        "percent above the best energy",
        "nmbatch is lowest almost from the start; mbatch levels off above it; exact methods are slowest."
        if kind == "dense"
        else "nmbatch is faster than mbatch within 0.5% of the best energy; exact methods are slowest.",
        f"Energy of the validation rows; {averaged(len(runs))}. The best energy is that over all initializations. "
        f"{split.X.shape[0]:,} training rows, batches of {split.batch:,} rows.",
    )  # fmt: skip
    return Finding([shown], _measure(name, kind, runs))


def _measure(name: str, kind: str, runs: list[dict[str, tuple[Trajectory, Array]]]) -> dict[str, float]:
    """Return the measurements of Figure 2.

    The best energy is the lowest of all methods from the same initialization, as another one may lead to a better minimum. A
    rival that never reaches the target counts with the time of its last record, so that ratios are lower bounds.
    """
    out, bests = {}, [min(values.min() for _, values in found.values()) for found in runs]
    for goal, words in ((NEAR_ENERGY_RATIO, "2%"), (NEARER_ENERGY_RATIO, "0.5%")):
        taken = {
            m: np.array([soonest(found[m][0].seconds, found[m][1], goal * e) for found, e in zip(runs, bests, strict=True)])
            for m in runs[0]
        }
        for rival, method in product((LLOYD, YINYANG, MBATCH), (NMBATCH, OURS)):
            longest = [found[rival][0].seconds[-1] for found in runs]
            ratio = np.median(np.minimum(taken[rival], longest) / taken[method])
            out[f"{name}: time of {rival} / time of {method} to within {words} of the best energy, {kind}"] = float(ratio)
    ends = {m: np.array([found[m][1][-1] for found in runs]) for m in runs[0]}
    deviation = float(ends[LLOYD].std(ddof=1)) if len(runs) > 2 else float("nan")
    less = float(ends[NMBATCH].mean() - ends[LLOYD].mean())
    if deviation > 0:
        out[f"{name}: final energy of nmbatch minus that of lloyd, in standard deviations of lloyd"] = less / deviation
    return out


def thresholds(run: Run, name: str = "mnist") -> Finding:
    """Reproduce Figure 3: the energy at two times, for each rho, with and without bounds."""
    split = Split(run, name)
    ends: dict[tuple[Algorithm, float], list[list[float]]] = {(b, rho): [] for b in (BOUNDED, UNBOUNDED) for rho in RHOS}
    best = np.inf
    for seed in run.seeds(SEEDS):
        start = first_rows(split.X, split.k, seed)
        common: dict[str, Any] = {"init": start, "random_state": seed, "tol": 0.0, "batch_size": split.batch, "max_iter": 1000}
        once = record_trajectory(KMeans(split.k, init=start, algorithm="lloyd", max_iter=2), split.X).seconds[-1] / 2
        for (algorithm, rho), found in ends.items():
            model = NestedKMeans(split.k, rho=rho, algorithm=algorithm, time_budget=20 * once, **common)
            trajectory = record_trajectory(model, split.X)
            values = at(
                np.maximum(np.array([2, 10]) * once, trajectory.seconds[0]), trajectory.seconds, trajectory.energies(split.test)
            )
            best = min(best, float(values[-1]))
            found.append(list(values))
    error = {key: 100 * (np.mean(found, axis=0) / best - 1) for key, found in ends.items()}
    words = {BOUNDED: "with bounds", UNBOUNDED: "without bounds"}
    series = [
        Line(f"{words[b]}, t = {t}", np.array(RHOS), np.array([error[b, rho][i] for rho in RHOS]))
        for b in words
        for i, t in enumerate((2, 10))
    ]
    shown = chart(
        "nested-3", f"Figure 3: doubling threshold rho, {name}", series, "rho", "percent above the best energy",
        "With bounds, large rho works well; without bounds, rho = 10 is generally best.", "t is the time in steps of lloyd.",
    )  # fmt: skip
    bounded = [error[BOUNDED, rho] for rho in RHOS]
    none = [error[UNBOUNDED, rho] for rho in RHOS[2:]]
    span = "range of the errors at rho = 10, 100 and 1000 / range over all rho, with bounds"
    less = "error at rho = 10 minus the lower error at 100 and 1000, without bounds, in percent of the energy"
    ranges = {t: [float(np.ptp([e[i] for e in some])) for some in (bounded[2:], bounded)] for i, t in enumerate((2, 10))}
    measured = {f"t = {t}: {span}": some / max(all_of_them, 1e-12) for t, (some, all_of_them) in ranges.items()}
    measured |= {f"t = {t}: {less}": float(none[0][i] - min(none[1][i], none[2][i])) for i, t in enumerate((2, 10))}
    return Finding([shown], measured)


def _epoch(make: Any, X: Any, steps: int) -> float:
    """Return the seconds of four epochs of `steps` iterations: a long fit minus a short one; NaN if the difference is noise."""
    taken = []
    for times in (1, EPOCHS):
        started = time.perf_counter()
        make(max_iter=times * steps).fit(X)
        taken.append(time.perf_counter() - started)
    return taken[1] - taken[0] if taken[1] > 1.2 * taken[0] else float("nan")


def baseline(run: Run) -> Finding:
    """Reproduce Table 1, with one thread, both libraries in turn."""
    published = {"mnist": ("INFMNIST", 20.6 / 12.4), "news": ("RCV1", 63.6 / 15.2)}
    rows, measured = [], {}
    for name, (theirs, ratio) in published.items():
        split = Split(run, name)
        n, split.k = split.X.shape[0], run.of(5, 50, 50)
        split.batch, start = min(5000, n // 4), first_rows(split.X, split.k, 0)  # scikit-learn needs at least two steps
        common: dict[str, Any] = {"n_clusters": split.k, "init": start, "random_state": 0}
        common |= {"batch_size": split.batch, "tol": 0.0, "max_no_improvement": None}
        quiet: dict[str, Any] = {"n_init": 1, "reassignment_ratio": 0.0, "compute_labels": False}

        ours = partial(MiniBatchKMeans, n_threads=1, **common)
        peers = partial(Peer, **common, **quiet)
        with threadpool_limits(1):
            ratios = [_epoch(peers, split.X, 1) / _epoch(ours, split.X, n // split.batch) for _ in run.seeds(5)]
        middle = float(np.median([r for r in ratios if np.isfinite(r)] or [np.nan]))
        if np.isfinite(middle):
            measured[f"{name}: rows per second of Shoal's mbatch / scikit-learn's"] = middle
        rows.append([name, f"{split.batch:,}", middle, theirs, ratio])
    shown = grid(
        "Table 1: speed of mini-batches relative to scikit-learn",
        ["data", "batch size", "Shoal", "data in the paper", "paper"], rows,
        "12.4 s against 20.6 s of scikit-learn on INFMNIST, 15.2 s against 63.6 s on RCV1.",
        f"Ratio of rows processed per second; {split.k} clusters, one thread, median of several runs.",
    )  # fmt: skip
    return Finding([shown], measured)


PAPER = Paper(
    "nested",
    "Nested mini-batch k-means",
    "J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS.",
    "Nested batches contain all earlier ones, so that bounds on distances stay valid. They are compared with mini-batches and "
    "exact methods from the same random initial centroids (50 clusters in a full run, 10 in a quick one), by the energy of "
    "validation rows. The best energy is the lowest of all methods from the same initialization. A rival that never reaches "
    "the target counts with the time of its last record, so the ratio is a lower bound; a ratio of 0 means that nested batches "
    "did not reach it. nmbatch has bounds for all rows and centroids, as in the paper; with Shoal's bounds, the kind is chosen "
    "by cost. Lloyd's algorithm and yinyang run for at most 100 steps, mini-batches about as long as Lloyd's algorithm. "
    "INFMNIST is generated by deforming MNIST. KDDC98, STL10P and RCV1 are replaced by SIFT descriptors of photographs and "
    "sparse text. Figure 3 uses digits only.",
    CLAIMS,
    (
        *(Experiment(f"Figure 2, {name}", (22, 700), partial(race, name=name)) for name in QUICK_DATA_SETS),
        Experiment(f"Figure 2, {SPARSE[1]}", (0, 700), partial(race, name=SPARSE[1])),
        Experiment("Figure 3", (22, 700), thresholds),
        Experiment("Table 1", (12, 120), baseline),
    ),
    (*DENSE, *SPARSE),
)
