"""J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS.

Validation energy over time of nested mini-batches, mini-batches and exact methods, and the effect of the doubling threshold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import MiniBatchKMeans as Peer

from ...data.types import Array
from ...kmeans.kmeans import KMeans
from ...kmeans.minibatch import MiniBatchKMeans
from ...kmeans.nested import NestedKMeans
from ...metrics import energy
from ...report.draw import Line
from ..curves import MIN_TIME_RATIO, at, over_seeds, record_trajectory, soonest
from ..made import deformed
from ..run import Experiment, Finding, Paper, Run
from ..show import averaged, chart, grid
from . import letter
from .claims import CLAIMS, DENSE, LEVELS, LLOYD, MBATCH, NEAR, NEARER, NMBATCH, SPARSE, UNITS, YINYANG, ratio

RHO, SEEDS, EPOCHS = 100.0, 20, 5
LETTER, SHOAL = "the letter", "Shoal"
METHODS = (LLOYD, YINYANG, MBATCH, NMBATCH)
RHOS = (0.1, 1.0, 10.0, 100.0, 1000.0)
SIZES = {"mnist": 100_000, "sift": 200_000}  # training rows in a full run; 400,000 and 960,000 in the paper
FIRST_BATCHES = {"dense": 80, "sparse": 156}  # first batches per training set in the paper: 400,000 and 781,265 rows by 5,000
TIMES = (2, 10)  # seconds of Figure 3
WORK = 400_000 * 50 * 784  # rows, clusters and columns of Figure 3, by which its seconds are scaled
MBATCH_RATIO = 100.0  # time of mini-batches relative to that of nested batches to within 2%, so that their ratio can show
BOOTSTRAPS = 200


class Curve(NamedTuple):
    """Cost and validation energy of a run after some of its iterations."""

    seconds: Array
    distances: Array
    energies: Array

    def cost(self, unit: str) -> Array:
        """Return the seconds or the distances."""
        return self.seconds if unit == "seconds" else self.distances


class Split:
    """Training and validation rows of a data set."""

    def __init__(self, run: Run, name: str) -> None:
        wanted = run.of(500, 6000, SIZES.get(name))
        found = run.load(name)
        X = found.X
        if name == "mnist" and wanted is not None and wanted > 0.9 * found.n:
            run.note(f"mnist: {found.n:,} images, extended to {int(1.1 * wanted):,} by random deformations as in INFMNIST.")
            X = deformed(X, int(1.1 * wanted))
        n = min(wanted or X.shape[0], int(X.shape[0] / 1.1))
        self.X, self.test = X[:n], X[n : n + n // 10]
        self.k = run.of(5, 20, 50)
        self.kind = "sparse" if name in SPARSE else "dense"
        self.batch = max(2 * self.k, n // FIRST_BATCHES[self.kind])
        self.longest = run.of(0.2, 6.0, 3600.0)  # seconds of a run of mini-batches


def thinned(path: Iterator[tuple[Array, letter.Iteration]], test: Any, budget: float) -> Curve:
    """Compute the validation energy of a run at times that grow by a factor, outside the clock, and at its end."""
    found, due, last = [], 0.0, None
    for c, cost in path:
        last = (c.copy(), cost) if cost.seconds < due else None
        if last is None:
            due = MIN_TIME_RATIO * cost.seconds
            found.append((cost.seconds, cost.distances, energy(test, c.astype(np.float64)) / test.shape[0]))
        if cost.seconds > budget:
            break
    if last is not None:
        found.append((last[1].seconds, last[1].distances, energy(test, last[0].astype(np.float64)) / test.shape[0]))
    return Curve(*np.array(found, float).T)


def curves_of_letter(split: Split, seed: int) -> dict[str, Curve]:
    """Run the algorithms as printed. There is no yinyang among them."""
    X, k = letter.shuffled(split.X, seed), split.k
    nested = ((s.c, s.history[-1]) for s in letter.nmbatch_iterations(X, k, RHO, b=split.batch))
    found = {LLOYD: thinned(letter.lloyd(X, k, 100), split.test, np.inf), NMBATCH: thinned(nested, split.test, np.inf)}
    batches = ((c, cost) for c, _, cost in letter.mbatch_iterations(X, k, b=split.batch, seed=seed))
    found[MBATCH] = thinned(batches, split.test, _mbatch_budget(found, split))
    return found


def _mbatch_budget(found: dict[str, Curve], split: Split) -> float:
    """Return the seconds that mini-batches get: more than Lloyd's algorithm, and 100 times those of nested batches to 2%."""
    nested = found[NMBATCH]
    there = soonest(nested.seconds, nested.energies, LEVELS[NEAR] * float(nested.energies.min()))
    return min(split.longest, max(1.2 * float(found[LLOYD].seconds[-1]), MBATCH_RATIO * there))


def models(split: Split, X: Any, seed: int, budget: float | None) -> dict[str, Any]:
    """Return Shoal's estimators, with the same initial centroids. Mini-batches run until the time budget ends."""
    start = X[: split.k].toarray() if split.kind == "sparse" else np.asarray(X[: split.k])
    common: dict[str, Any] = {"n_clusters": split.k, "init": start, "random_state": seed, "tol": 0.0}
    return {
        LLOYD: KMeans(algorithm="lloyd", max_iter=100, **common),
        YINYANG: KMeans(algorithm="yinyang", max_iter=100, **common),
        NMBATCH: NestedKMeans(rho=RHO, batch_size=split.batch, max_iter=1000, **common),
        MBATCH: MiniBatchKMeans(
            batch_size=split.batch, max_no_improvement=None, max_iter=100_000, time_budget=budget, **common
        ),
    }


def curve_of_shoal(model: Any, X: Any, test: Any) -> Curve:
    """Fit an estimator and compute the validation energy at times that grow by a factor."""
    trajectory = record_trajectory(model, X)
    distances = np.cumsum([record.get("distances", np.nan) for record in model.history_])
    at_steps = np.minimum(trajectory.steps, len(distances)) - 1
    return Curve(trajectory.seconds, distances[at_steps].astype(float), trajectory.energies(test))


def curves_of_shoal(split: Split, seed: int) -> dict[str, Curve]:
    """Fit Shoal's estimators."""
    X, found = letter.shuffled(split.X, seed), dict[str, Curve]()
    for name in (LLOYD, YINYANG, NMBATCH):
        found[name] = curve_of_shoal(models(split, X, seed, None)[name], X, split.test)
    budget = _mbatch_budget(found, split)
    found[MBATCH] = curve_of_shoal(models(split, X, seed, budget)[MBATCH], X, split.test)
    return found


ARMS: dict[str, Callable[[Split, int], dict[str, Curve]]] = {LETTER: curves_of_letter, SHOAL: curves_of_shoal}


def race(run: Run, name: str) -> Finding:
    """Reproduce Figure 2 on one data set, with both arms."""
    split = Split(run, name)
    warm = Split(run, name)
    warm.X, warm.test, warm.batch, warm.longest = split.X[:100], split.test[:50], 10, 0.01
    for curves in ARMS.values():
        curves(warm, 0)  # compile kernels
    runs: dict[str, list[dict[str, Curve]]] = {arm: [] for arm in ARMS}
    for seed in run.seeds(SEEDS):
        for arm, curves in ARMS.items():
            runs[arm].append(curves(split, seed))
    for own, other in zip(runs[LETTER], runs[SHOAL], strict=True):
        own[YINYANG] = other[YINYANG]  # the paper compares with an exact method with bounds, for which Shoal's stands
    best = min(float(c.energies.min()) for found in [*runs[LETTER], *runs[SHOAL]] for c in found.values())
    shown, measured = [], dict[str, Any]()
    for arm, each in runs.items():
        measured |= {f"{name}: {key}": value for key, value in measure(arm, split, each, best).items()}
        shown.append(_figure(name, arm, split, each, best))
    return Finding(shown, measured)


def _figure(name: str, arm: str, split: Split, runs: list[dict[str, Curve]], best: float) -> Any:
    """Return Figure 2 of one arm."""
    unit = float(np.mean([found[LLOYD].seconds[0] for found in runs]))  # of the first iteration of Lloyd's algorithm
    times = np.geomspace(
        max(min(c.seconds[0] for c in found.values()) for found in runs), max(found[LLOYD].seconds[-1] for found in runs), 60
    )
    series = []
    for method in METHODS:
        mean, spread = over_seeds([at(times, f[method].seconds, f[method].energies) / best - 1 for f in runs])
        known = np.isfinite(mean)
        series.append(Line(method, times[known] / unit, 100 * mean[known], 100 * spread[known]))
    return chart(
        f"nested-2-{name}-{'letter' if arm == LETTER else 'shoal'}", f"Figure 2: {name}, {arm}", series,
        "time, in units of the first iteration of lloyd", "percent above E*",
        "nmbatch is lowest almost from the start; mbatch levels off above it; exact methods are slowest.",
        f"Energy of the validation rows; {averaged(len(runs))}. E* is the lowest energy of all runs and both arms. "
        f"{split.X.shape[0]:,} training rows, k = {split.k}, first batches of {split.batch:,} rows. yinyang is Shoal's.",
    )  # fmt: skip


def mean_curve_ratio(runs: list[dict[str, Curve]], rival: str, goal: float, unit: str) -> float:
    """Return the cost of a rival / of nested batches until the energy, averaged over runs, is at a goal.

    A rival that never reaches it counts with its last cost, so that the ratio is a lower bound; 0 if nested batches do not.
    """
    costs = {}
    for method in (rival, NMBATCH):
        curves = [found[method] for found in runs]
        grid_points = np.unique(np.concatenate([c.cost(unit) for c in curves]))
        first = max(float(c.cost(unit)[0]) for c in curves)
        grid_points = grid_points[grid_points >= first]
        mean = np.mean([at(grid_points, c.cost(unit), c.energies) for c in curves], axis=0)
        costs[method] = min(soonest(grid_points, mean, goal), np.inf if method == NMBATCH else float(grid_points[-1]))
    return 0.0 if np.isinf(costs[NMBATCH]) else costs[rival] / costs[NMBATCH]


def bootstrapped(runs: list[dict[str, Curve]], value: Callable[[list[dict[str, Curve]]], float]) -> list[float]:
    """Return the 5th percentile, the median and the 95th percentile of a value over resampled seeds.

    With fewer than three seeds, the value itself: one number decides nothing.
    """
    if len(runs) < 3:
        return [value(runs)]
    rng = np.random.default_rng(0)
    found = [value([runs[i] for i in rng.integers(len(runs), size=len(runs))]) for _ in range(BOOTSTRAPS)]
    return [float(v) for v in np.quantile(found, [0.05, 0.5, 0.95], method="inverted_cdf")]


def measure(arm: str, split: Split, runs: list[dict[str, Curve]], best: float) -> dict[str, Any]:
    """Return the measurements of Figure 2: relative to E*, on mean curves, and relative to each start, by seed."""
    out: dict[str, Any] = {}
    kind, bests = split.kind, [min(float(c.energies.min()) for c in found.values()) for found in runs]
    for unit, rival, (level, factor) in product(UNITS, (LLOYD, YINYANG, MBATCH), LEVELS.items()):
        name = ratio(rival, level, kind, unit).replace("{arm}", arm)
        out[name] = bootstrapped(runs, partial(mean_curve_ratio, rival=rival, goal=factor * best, unit=unit))
        out[ratio(rival, level, kind, unit, "start").replace("{arm}", arm)] = [
            mean_curve_ratio([found], rival, factor * e, unit) for found, e in zip(runs, bests, strict=True)
        ]

    def below(some: list[dict[str, Curve]]) -> float:
        ups = [mean_curve_ratio(some, MBATCH, LEVELS[level] * best, "seconds") for level in (NEARER, NEAR)]
        return ups[0] / ups[1] if ups[1] else 0.0

    if kind == "dense":
        out[f"{arm}: speed-up within 1% / within 2%, seconds"] = bootstrapped(runs, below)
    ends = {m: np.array([found[m].energies[-1] for found in runs]) for m in (LLOYD, NMBATCH)}
    spread = float(ends[LLOYD].std(ddof=1)) if len(runs) > 1 else 0.0
    if spread > 0:
        name = f"{arm}: final energy of nmbatch minus that of lloyd, in standard deviations of lloyd"
        out[name] = [float(v) for v in (ends[NMBATCH] - ends[LLOYD]) / spread]
    excess = []
    for found in runs:
        cost, reached = found[LLOYD].distances[0], {}
        for m in (LLOYD, NMBATCH):
            reached[m] = (
                float(at(np.array([max(cost, found[m].distances[0])]), found[m].distances, found[m].energies)[0]) - best
            )
        excess.append(reached[NMBATCH] / max(reached[LLOYD], 1e-12 * best))
    out[f"{arm}: excess over E* of nmbatch / of lloyd after the distances of one iteration of lloyd"] = excess
    return out


def thresholds(run: Run, name: str) -> Finding:
    """Reproduce Figure 3 with the letter: the energy at two times, for each rho, with and without bounds."""
    split = Split(run, name)
    scale = split.X.shape[0] * split.k * split.X.shape[1] / WORK
    limits = [t * scale for t in TIMES]
    errors: dict[tuple[bool, float], list[Array]] = {key: [] for key in product((True, False), RHOS)}
    for seed in run.seeds(SEEDS):
        X = letter.shuffled(split.X, seed)
        for (test, rho), found in errors.items():
            path = letter.nmbatch_iterations(X, split.k, rho, b=split.batch, test=test, max_iter=1000)
            curve = thinned(((s.c, s.history[-1]) for s in path), split.test, limits[-1])
            found.append(at(np.maximum(limits, curve.seconds[0]), curve.seconds, curve.energies))
    best = min(float(e.min()) for found in errors.values() for e in found)
    error = {key: 100 * (np.array(found) / best - 1) for key, found in errors.items()}  # (seeds, times)
    words = {True: "with bounds", False: "without bounds"}
    series = [
        Line(f"{words[test]}, t = {t} s", np.array(RHOS), np.array([error[test, rho][:, i].mean() for rho in RHOS]))
        for test, (i, t) in product(words, enumerate(TIMES))
    ]
    shown = chart(
        f"nested-3-{name}", f"Figure 3: doubling threshold rho, {name}", series, "rho", "percent above the lowest energy",
        "With bounds, large rho works well; without bounds, rho = 10 is generally best.",
        f"{averaged(len(error[True, RHO])).capitalize()}. The times are scaled by rows x clusters x columns.",
    )  # fmt: skip
    measured: dict[str, list[float]] = {}
    for i, t in enumerate(TIMES):
        table = {key: values[:, i] for key, values in error.items()}
        large, every = (np.ptp([table[True, rho] for rho in rhos], axis=0) for rhos in (RHOS[2:], RHOS))
        less = table[False, 10.0] - np.minimum(table[False, 100.0], table[False, 1000.0])
        case = f"{name}, t = {t} s"
        name_ = "range of the errors at rho = 10, 100 and 1000 / range over all rho, with bounds"
        measured[f"{case}: {name_}"] = list(large / np.maximum(every, 1e-12))
        measured[f"{case}: error at rho = 10 minus the lower error at 100 and 1000, without bounds, in percent"] = list(less)
        measured[f"{case}: error at rho = 100 with bounds minus without, in percent"] = list(
            table[True, RHO] - table[False, RHO]
        )
    return Finding([shown], measured)


def _seconds(make: Callable[[int], Any]) -> float:
    """Return the seconds of four epochs: a long run minus a short one; NaN if the difference is noise."""
    taken = []
    for epochs in (1, EPOCHS):
        started = time.perf_counter()
        make(epochs)
        taken.append(time.perf_counter() - started)
    return taken[1] - taken[0] if taken[1] > 1.2 * taken[0] else float("nan")


def _fit_peer(X: Any, options: dict[str, Any], epochs: int) -> None:
    """Fit scikit-learn's mini-batches for some epochs."""
    Peer(max_iter=epochs, **options).fit(X)


def _fit_shoal(X: Any, options: dict[str, Any], steps: int, epochs: int) -> None:
    """Fit Shoal's mini-batches for some epochs."""
    MiniBatchKMeans(max_iter=epochs * steps, random_state=0, **options).fit(X)


def _run_letter(X: Any, k: int, b: int, steps: int, epochs: int) -> None:
    """Run Algorithm 4 for some epochs."""
    letter.mbatch(X, k, b=b, T=epochs * steps)


def baseline(run: Run) -> Finding:
    """Reproduce Table 1, all three in turn."""
    published = {"mnist": ("INFMNIST", 20.6 / 12.4), "news": ("RCV1", 63.6 / 15.2)}
    rows, measured = [], dict[str, Any]()
    for name, (theirs, factor) in published.items():
        split = Split(run, name)
        X, k = split.X, run.of(5, 50, 50)
        n, b = X.shape[0], min(5000, X.shape[0] // 4)
        start = X[:k].toarray() if split.kind == "sparse" else X[:k]
        common: dict[str, Any] = {"n_clusters": k, "init": start, "batch_size": b, "tol": 0.0, "max_no_improvement": None}
        quiet: dict[str, Any] = {"n_init": 1, "reassignment_ratio": 0.0, "compute_labels": False}
        steps = n // b
        makers: dict[str, Callable[[int], Any]] = {
            "scikit-learn": partial(_fit_peer, X, {**common, **quiet}),
            SHOAL: partial(_fit_shoal, X, common, steps),
            LETTER: partial(_run_letter, X, k, b, steps),
        }
        makers[LETTER](1)
        seconds: dict[str, list[float]] = {who: [] for who in makers}
        for _ in run.seeds(5, parts=len(published)):
            for who, make in makers.items():
                seconds[who].append(_seconds(make))
        for who, words in ((LETTER, "the letter's"), (SHOAL, "Shoal's")):
            ratios = [p / s for p, s in zip(seconds["scikit-learn"], seconds[who], strict=True) if np.isfinite(p / s)]
            if ratios:
                measured[f"{name}: rows per second of {words} mbatch / scikit-learn's"] = ratios
            rows.append([f"{name}, {who}", f"{b:,}", float(np.median(ratios)) if ratios else float("nan"), theirs, factor])
    shown = grid(
        "Table 1: speed of mini-batches relative to scikit-learn",
        ["data", "batch size", "here", "data in the paper", "paper"], rows,
        "12.4 s against 20.6 s of scikit-learn on INFMNIST, 15.2 s against 63.6 s on RCV1. sofia is not run here.",
        "Ratio of rows processed per second; one thread, median of several runs.",
    )  # fmt: skip
    return Finding([shown], measured)


def theory(run: Run) -> Finding:
    """Check the supplements: the share of revisits, and sigma_C as an estimate of the displacement."""
    split = Split(run, "sift")
    N, found = split.X.shape[0], dict[str, list[float]]()
    for seed in run.seeds(SEEDS):
        rng, seen, again = np.random.default_rng(seed), np.zeros(N, bool), 0
        for _ in range(N // split.batch):
            M = rng.choice(N, split.batch, replace=False)
            again += int(seen[M].sum())
            seen[M] = True
        X = letter.shuffled(split.X, seed)
        values = {
            "share of revisits in the first epoch": again / (N // split.batch * split.batch),
            "displacement by doubling the batch / half of sigma_C, median of the centroids": _displacement(X, split.k, N // 2),
        }
        for key, value in values.items():
            found.setdefault(key, []).append(value)
    rows = [[key, float(np.median(values)), min(values), max(values)] for key, values in found.items()]
    shown = grid("Supplements SM-A and SM-B", ["measurement", "median", "least", "largest"], rows, "At most 1/e; about 1.")
    return Finding([shown], found)


def _displacement(X: Array, k: int, b: int) -> float:
    """Return |c(j|2b) - c(j|b)| / (sigma_C / 2), the median over centroids, after some iterations on b rows."""
    c = X[:k].astype(np.float64)
    for _ in range(5):
        c, _ = _update(X[:b], c)
    (once, sigma), (twice, _) = _update(X[:b], c), _update(X[: 2 * b], c)
    apart = np.linalg.norm(twice - once, axis=1)
    return float(np.median(apart[sigma > 0] / (sigma[sigma > 0] / 2)))


def _update(X: Array, c: Array) -> tuple[Array, Array]:
    """Return the means of the clusters of some rows, and sigma_C (equation 4)."""
    a = ((c**2).sum(axis=1) - 2 * X @ c.T).argmin(axis=1)
    n = np.bincount(a, minlength=len(c)).astype(float)
    sums, sse = np.zeros_like(c), np.zeros(len(c))
    np.add.at(sums, a, X)
    np.add.at(sse, a, ((X - c[a]) ** 2).sum(axis=1))
    return np.where(n[:, None] > 0, sums / np.maximum(n, 1)[:, None], c), np.sqrt(sse) / np.maximum(n, 1)


PAPER = Paper(
    "nested",
    "Nested mini-batch k-means",
    "J. Newling, F. Fleuret (2016), Nested mini-batch k-means, NIPS.",
    "Nested batches contain all earlier ones, so that bounds on distances stay valid. They are compared with mini-batches and "
    "exact methods from the same initial centroids, the first rows of one shuffle, by the energy of validation rows. In the "
    "arm "
    "of the letter all methods are those of the paper, with the same compiled loop over distances; in Shoal's arm distances "
    "are "
    "matrix products, and nested batches choose bounds by cost. E* is the lowest energy of all runs, as in the paper: costs "
    "are "
    "those until the energy, averaged over the seeds, is within 2%, 1% or 0.5% of it. Intervals of these are 5th to 95th "
    "percentiles over resampled seeds. Ratios relative to the lowest energy from the same start stand beside. A rival that "
    "never "
    "reaches the level counts with its last cost, so the ratio is a lower bound; 0 means that nested batches did not reach it. "
    "The paper's implementation of yinyang is not available; Shoal's, which is slower than its Lloyd's algorithm on these "
    "rows, "
    "stands for it in both arms. First batches are the paper's share of the rows. INFMNIST is generated by deforming MNIST. "
    "KDDC98, STL10P and RCV1 are replaced by SIFT descriptors of photographs and sparse text.",
    CLAIMS,
    (
        *(Experiment(f"Figure 2, {name}", (25, 1800), partial(race, name=name)) for name in (*DENSE, *SPARSE)),
        *(Experiment(f"Figure 3, {name}", (15, 900), partial(thresholds, name=name)) for name in DENSE),
        Experiment("Table 1", (12, 120), baseline),
        Experiment("Supplements", (5, 30), theory),
    ),
    (*DENSE, *SPARSE),
)
