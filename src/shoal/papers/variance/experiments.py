"""Y. Zhao et al. (2018), Large-scale k-means clustering via variance reduction, doi:10.1016/j.neucom.2018.03.059.

Loss (energy) over time of batch, mini-batch, SGD, nested ("growbatch-rho") and variance-reduced k-means.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...kmeans.kmeans import KMeans
from ...kmeans.minibatch import MiniBatchKMeans
from ...kmeans.nested import NestedKMeans
from ...kmeans.online import OnlineKMeans
from ...kmeans.variance_reduced import VarianceReducedKMeans
from ...metrics import accuracy, normalized_mutual_info_score, purity
from ...report.draw import Line
from ...report.words import count_noun
from ..claims import Check, Claim
from ..curves import Trajectory, at, first_rows, record_trajectory, soonest
from ..run import Experiment, Finding, Paper, Run
from ..show import chart, grid
from .blocks import VRKM
from .letter import random_epochs, svrg

BATCH, MINI, SGD, GROW, VR, VRPP = "batch KM", "mini-batch KM", "SGD-KM", "growbatch-rho", "VRKM", "VRKM++"
METHODS = (BATCH, MINI, SGD, GROW, VR, VRPP)
SETS = ("sift", "mnist")
BOUNDED = "batch KM with bounds"  # not in the paper; added because the other methods use bounds here
STEPS = 30  # of batch k-means; the paper stops it after a given time
SEEDS = 5
EQUAL_LOSS_RATIO, NEAR_LOSS_RATIO = (
    1 + 1e-6,
    1.01,
)  # target losses relative to the final loss of batch k-means: equal up to rounding, and 1% above
TIME_BUDGET_RATIO = (
    1.5  # time budget relative to batch k-means, as part of it is reserved for final labels; losses are compared at 1
)
SIZES = (0.25, 0.5, 1.0, 2.0)  # rows per epoch, relative to all rows
PASSES = (5.0, 10.0, 20.0)  # passes over the rows after which epoch sizes are compared
RATES = (1.0, 5.0, 10.0, 50.0, 100.0)  # learning rates in units of K / n
SPEED = {VR: "2.07, 2.57, 2.04, 2.00", VRPP: "4.14, 5.54, 4.30, 3.60", BATCH: "1", GROW: "1.26, –, –, –", MINI: "–", SGD: "–"}
QUALITY = {  # ACC, NMI and purity on CIFAR-100
    BATCH: (0.2148, 0.3701, 0.2410), MINI: (0.2122, 0.3546, 0.2267), SGD: (0.1968, 0.3357, 0.2079),
    GROW: (0.2155, 0.3592, 0.2303), VR: (0.2246, 0.3742, 0.2488), VRPP: (0.2246, 0.3742, 0.2488),
}  # fmt: skip

CLAIMS = (
    Claim(
        "drift",
        "Figure 3",
        "Without position correction, variance reduction diverges.",
        "the objective rises",
        (
            Check("last energy / first energy, without position correction", least=1.01),
            Check("last energy without / with position correction", least=1.1),
        ),
    ),
    Claim(
        "vrkm",
        "Table 3",
        "VRKM reaches the final loss of batch k-means at least twice as fast.",
        "2.07, 2.57, 2.04 and 2.00 times",
        (Check("speed-up of VRKM to the final loss of batch KM", least=2.0, cases=SETS),),
    ),
    Claim(
        "vrkm++",
        "Table 3",
        "VRKM++ reaches the final loss of batch k-means about four times as fast.",
        "4.14, 5.54, 4.30 and 3.60 times",
        (Check("speed-up of VRKM++ to the final loss of batch KM", least=3.6, cases=SETS),),
    ),
    Claim(
        "plusplus-faster",
        "Table 3",
        "VRKM++ is faster than VRKM, which computes batch gradients.",
        "about twice as fast",
        (Check("time of VRKM / time of VRKM++ to within 1% of the final loss of batch KM", least=1.0, cases=SETS),),
    ),
    Claim(
        "lower",
        "Figure 5, Table 3",
        "In the time of batch k-means, VRKM and VRKM++ reach a lower loss than all other methods.",
        "lowest on all four data sets",
        (
            Check("final loss of VRKM / lowest final loss of the other methods", most=1.0),
            Check("final loss of VRKM++ / lowest final loss of the other methods", most=1.0),
        ),
    ),
    Claim(
        "noise",
        "Table 3",
        "Mini-batches and SGD never reach the final loss of batch k-means.",
        "no speed-up on any data set",
        (
            Check("final loss of mini-batch KM / final loss of batch KM", least=1.0),
            Check("final loss of SGD-KM / final loss of batch KM", least=1.0),
        ),
    ),
    Claim(
        "epoch-size",
        "Figure 6",
        "The epoch size has little effect between a quarter of the rows and twice the rows.",
        "a slight impact",
        (Check("largest range of the losses over epoch sizes after 5, 10 and 20 passes, in percent", most=1.0),),
    ),
    Claim(
        "learning-rate",
        "Figure 7",
        "Learning rates above K / n converge faster; very large ones may be worse.",
        "100 K / n is still better on Oxford; too large on the smaller data sets",
        (
            Check("loss at 5 K / n relative to K / n, after equally many epochs", most=1.0),
            Check("loss at 10 K / n relative to K / n, after equally many epochs", most=1.0),
            Check("loss at 100 K / n relative to the lowest at smaller rates, after equally many epochs", least=1.0),
        ),
    ),
    Claim(
        "quality",
        "Table 4",
        "VRKM and VRKM++ are at least as good as all other methods in ACC, NMI and purity, and SGD is worst.",
        "NMI 0.3742 against 0.3701 for batch k-means and 0.3357 for SGD (CIFAR-100)",
        (
            Check("score of VRKM minus the best of the other four methods", least=0.0),
            Check("score of VRKM++ minus the best of the other four methods", least=0.0),
            Check("score of SGD-KM minus the lowest of the other methods", most=0.0),
        ),
    ),
)


def model(name: str, k: int, start: Any, seed: int, budget: float | None, **more: Any) -> Any:
    """Return a method by its name. Methods that do not converge run until the time budget ends."""
    common: dict[str, Any] = {"init": start, "random_state": seed, "time_budget": budget, **more}
    endless = {"max_iter": 100_000, "tol": 0.0}
    if name in (BATCH, BOUNDED):
        return KMeans(k, algorithm="lloyd" if name == BATCH else "auto", **{"max_iter": 100, **common})
    if name == MINI:
        return MiniBatchKMeans(k, max_no_improvement=None, **{**endless, **common})
    if name == SGD:
        return OnlineKMeans(k, **{**endless, **common})
    if name == GROW:
        return NestedKMeans(k, rho=100.0, **{**endless, **common})
    cls = VRKM if name == VR else VarianceReducedKMeans
    return cls(k, **{"max_iter": 300, "tol": 0.0, **common})


def one_seed(X: Any, k: int, seed: int, time_ratio: float) -> dict[str, tuple[Trajectory, Any]]:
    """Return the trajectory and the losses of each method, all with the time budget of STEPS steps of batch k-means."""
    start, budget, found = first_rows(X, k, seed), None, {}
    for method in (*METHODS, BOUNDED):
        most = {"max_iter": STEPS, "tol": 0.0} if method in (BATCH, BOUNDED) else {}
        trajectory = record_trajectory(model(method, k, start, seed, budget, **most), X, time_ratio=time_ratio)
        found[method] = trajectory.without_centers(), trajectory.energies(X)
        budget = budget or TIME_BUDGET_RATIO * float(trajectory.seconds[-1]) + 0.05
    return found


def race(run: Run, name: str) -> Finding:
    """Reproduce Figure 5 and Table 3 on one data set."""
    X = run.load(name, run.of(600, 20_000 if name == "sift" else 10_000, None)).X
    k = run.of(10, 50, 1000 if name == "sift" else 100)
    warm = X[: 20 * k]
    for method in (*METHODS, BOUNDED):
        model(method, k, first_rows(warm, k, 0), 0, 0.1).fit(warm)  # compile kernels
    runs = [one_seed(X, k, seed, run.of(1.1, 1.1, 1.2)) for seed in run.seeds(SEEDS)]
    unit = float(np.mean([found[BATCH][0].seconds[-1] for found in runs]))
    goal = [float(found[BATCH][1][-1]) for found in runs]
    times = unit * np.linspace(0.02, 1.0, 60)
    series = []
    for method in (*METHODS, BOUNDED):
        curves = [at(times, found[method][0].seconds, found[method][1]) / e - 1 for found, e in zip(runs, goal, strict=True)]
        mean = np.mean(curves, axis=0)
        series.append(Line(method, times[np.isfinite(mean)] / unit, 100 * mean[np.isfinite(mean)]))
    figure = chart(
        f"variance-5-{name}", f"Figure 5: {name}, k = {k}", series, "time relative to batch KM",
        "percent above final loss of batch KM",
        "VRKM++ falls first, then VRKM; mini-batch and SGD stay above batch KM.",
        f"Loss of all {X.shape[0]:,} rows, mean over {count_noun(len(runs), 'seed')}. Batch KM runs for {STEPS} steps.",
    )  # fmt: skip
    ends = {m: float(np.mean([_in_time(found, m) / e for found, e in zip(runs, goal, strict=True)])) for m in runs[0]}
    speed = {m: _speed_up(runs, goal, m) for m in runs[0]}
    table = grid(
        f"Table 3: {name}",
        ["method", "speed-up", "paper", "loss relative to batch KM"],
        [[m, speed[m] or "–", SPEED.get(m, "–"), f"{ends[m]:.5f}"] for m in runs[0]],
        "VRKM is twice, VRKM++ four times as fast as batch KM; mini-batch and SGD never reach its loss (Oxford, Pittsburgh, "
        "CIFAR-100, Caltech-256).",
    )  # fmt: skip
    least = min(ends[m] for m in METHODS[:4])
    measured = {
        "speed-up of VRKM to the final loss of batch KM": speed[VR],
        "speed-up of VRKM++ to the final loss of batch KM": speed[VRPP],
        "final loss of VRKM / lowest final loss of the other methods": ends[VR] / least,
        "final loss of VRKM++ / lowest final loss of the other methods": ends[VRPP] / least,
        "final loss of mini-batch KM / final loss of batch KM": ends[MINI],
        "final loss of SGD-KM / final loss of batch KM": ends[SGD],
    }
    near = [_speed_up(runs, goal, m, NEAR_LOSS_RATIO) for m in (VR, VRPP)]  # as they may not reach the loss itself
    if near[0] or near[1]:
        measured["time of VRKM / time of VRKM++ to within 1% of the final loss of batch KM"] = (
            near[1] / near[0] if near[0] else np.inf
        )
    return Finding([figure, table], {f"{name}: {key}": value for key, value in measured.items()})


def _in_time(found: dict[str, tuple[Trajectory, Any]], method: str) -> float:
    """Return the loss of a method at the time when batch k-means ends."""
    trajectory, losses = found[method]
    return float(np.interp(found[BATCH][0].seconds[-1], trajectory.seconds, losses))


def _speed_up(
    runs: list[dict[str, tuple[Trajectory, Any]]], goals: list[float], method: str, far: float = EQUAL_LOSS_RATIO
) -> float:
    """Return the median speed-up over batch k-means to `far` times its final loss; 0 if most runs do not reach it."""
    taken, batch = (
        np.array([soonest(found[m][0].seconds, found[m][1], far * e) for found, e in zip(runs, goals, strict=True)])
        for m in (method, BATCH)
    )
    return float(np.median(batch / taken))


def drift(run: Run) -> Finding:
    """Reproduce Figure 3."""
    X = run.load("mnist", run.of(600, 10_000, None)).X
    k, epochs = run.of(10, 50, 100), run.of(4, 10, 20)
    model(VR, k, first_rows(X, k, 0), 0, None, max_iter=1).fit(X[: 20 * k])  # compile kernels
    curves: dict[bool, list[Any]] = {True: [], False: []}
    for seed in run.seeds(3):
        start, n = first_rows(X, k, seed), X.shape[0]
        history = model(VR, k, start, seed, None, max_iter=epochs).fit(X).history_
        plain_svrg = [epoch.energy for epoch in svrg(X, start, random_epochs(n, n, epochs, seed), k / n)]
        for correct, energies in ((True, [record["energy"] for record in history]), (False, plain_svrg)):
            curves[correct].append(np.pad(energies, (0, epochs - len(energies)), mode="edge") / energies[0])
    corrected, plain = (np.mean(found, axis=0) for found in curves.values())
    names = {"with position correction": corrected, "without position correction": plain}
    series = [Line(words, np.arange(epochs) + 1.0, mean) for words, mean in names.items()]
    measured = {
        "last energy / first energy, without position correction": float(plain[-1]),
        "last energy without / with position correction": float(plain[-1] / corrected[-1]),
    }
    shown = chart(
        "variance-3", f"Figure 3: position correction, mnist, k = {k}", series, "epoch", "energy relative to the first epoch",
        "Without the correction, the objective rises (CIFAR-100).", f"VRKM, mean over {count_noun(len(curves[True]), 'seed')}.",
    )  # fmt: skip
    return Finding([shown], measured)


def _work(history: list[dict[str, Any]], n: int) -> tuple[Any, Any]:
    """Return the number of passes over the rows before each epoch, and the energy at that time."""
    rows = np.cumsum([0, *(record["rows"] for record in history)])[:-1]
    return rows / n, np.array([record["energy"] for record in history])


def settings(run: Run) -> Finding:
    """Reproduce Figures 6 and 7: epoch size and learning rate of VRKM++."""
    X = run.load("mnist", run.of(600, 10_000, None)).X
    runs = [_settings(X, run.of(10, 50, 100), seed, run.of(5, 12, 30)) for seed in run.seeds(run.of(1, 3, 5))]
    sizes, rates = runs[0]
    goal = min(e[-1] for _, e in (*sizes.values(), *rates.values()))
    sixth = chart(
        "variance-6", "Figure 6: epoch size T, mnist",
        [Line(f"T = {size:g} n", x, 100 * (e / goal - 1)) for size, (x, e) in sizes.items()],
        "passes over the rows", "percent above the best loss", "All epoch sizes converge alike.",
        f"The first of {count_noun(len(runs), 'seed')}.",
    )  # fmt: skip
    seventh = chart(
        "variance-7", "Figure 7: learning rate, mnist",
        [Line(f"{rate:g} K / n", np.arange(len(e)), 100 * (e / goal - 1)) for rate, (_, e) in rates.items()],
        "epoch", "percent above the best loss", "Larger rates converge faster, up to a point.",
        f"The first of {count_noun(len(runs), 'seed')}.",
    )  # fmt: skip
    each = [_compared(*found) for found in runs]
    return Finding([sixth, seventh], {name: float(np.mean([measured[name] for measured in each])) for name in each[0]})


def _settings(X: Any, k: int, seed: int, epochs: int) -> tuple[dict[float, Any], dict[float, Any]]:
    """Return the losses by epoch size, for about equal work, and by learning rate."""
    start, n = first_rows(X, k, seed), X.shape[0]
    sizes, rates = {}, {}
    for size in SIZES:
        steps = max(3, round(2 * epochs / (1 + size)))
        sizes[size] = _work(model(VRPP, k, start, seed, None, epoch_size=size, max_iter=steps).fit(X).history_, n)
    for rate in RATES:
        rates[rate] = _work(model(VRPP, k, start, seed, None, learning_rate=rate, max_iter=epochs).fit(X).history_, n)
    return sizes, rates


def _compared(sizes: dict[float, Any], rates: dict[float, Any]) -> dict[str, float]:
    """Return the measurements of Figures 6 and 7."""
    common = min(float(x[-1]) for x, _ in sizes.values())
    passes = [some for some in PASSES if some <= common] or [common]
    reached = np.array([np.interp(passes, x, e) for x, e in sizes.values()])
    last = {rate: float(e[-1]) for rate, (_, e) in rates.items()}
    least = min(last[rate] for rate in RATES[:4])
    return {
        "largest range of the losses over epoch sizes after 5, 10 and 20 passes, in percent": 100
        * float((reached.max(axis=0) / reached.min(axis=0) - 1).max()),
        "loss at 5 K / n relative to K / n, after equally many epochs": last[5.0] / last[1.0],
        "loss at 10 K / n relative to K / n, after equally many epochs": last[10.0] / last[1.0],
        "loss at 100 K / n relative to the lowest at smaller rates, after equally many epochs": last[100.0] / least,
    }


def quality(run: Run) -> Finding:
    """Reproduce Table 4 on digits, with the time of batch k-means as budget."""
    data = run.load("mnist", run.of(600, 10_000, None))
    k, scores = 10, {m: list[tuple[float, float, float]]() for m in METHODS}
    for seed in run.seeds(10):
        start, budget = first_rows(data.X, k, seed), None
        for method in METHODS:
            fitted = model(method, k, start, seed, budget).fit(data.X)
            budget = budget or float(fitted.history_[-1]["seconds"]) + 0.05
            nmi = float(normalized_mutual_info_score(data.y, fitted.labels_))
            scores[method].append((accuracy(data.y, fitted.labels_), nmi, purity(data.y, fitted.labels_)))
    mean = {m: np.mean(found, axis=0) for m, found in scores.items()}
    rows = [[m, *(float(v) for v in mean[m]), *QUALITY[m]] for m in METHODS]
    head = ["method", "ACC", "NMI", "purity", "paper: ACC (CIFAR-100)", "paper: NMI", "paper: purity"]
    shown = grid(
        "Table 4: digits, k = 10",
        head,
        rows,
        "VRKM and VRKM++ are best, SGD is worst.",
        "The data differ from the paper, so only ranks are comparable.",
    )
    measured = {}
    for i, score in enumerate(("ACC", "NMI", "purity")):
        best, least = max(mean[m][i] for m in METHODS[:4]), min(mean[m][i] for m in METHODS if m != SGD)
        for method in (VR, VRPP):
            measured[f"{score}: score of {method} minus the best of the other four methods"] = float(mean[method][i] - best)
        measured[f"{score}: score of SGD-KM minus the lowest of the other methods"] = float(mean[SGD][i] - least)
    return Finding([shown], measured)


PAPER = Paper(
    "variance",
    "Large-scale k-means clustering via variance reduction",
    "Y. Zhao et al. (2018), Large-scale k-means clustering via variance reduction, doi:10.1016/j.neucom.2018.03.059.",
    "Variance-reduced k-means alternates full passes with stochastic updates that are corrected by the last full pass. It is "
    "compared with batch k-means, mini-batches, SGD and nested batches from the same random initial centroids in the same "
    "time. A speed-up of 0 means that the loss was not reached. Times between two records of a fit are interpolated. The "
    "paper updates by one row at a time; Shoal by blocks of an eighth of the rows, at least 1024, with bounded step sizes. "
    "Full passes and nested batches skip distance computations by bounds; batch k-means is shown without bounds, as in the "
    "paper, and with them. SIFT descriptors of photographs replace Oxford and Pittsburgh, MNIST replaces CIFAR-100 and "
    "Caltech-256.",
    CLAIMS,
    (
        Experiment("Figure 3", (10, 200), drift),
        Experiment("Figure 5 and Table 3, sift", (22, 1200), partial(race, name="sift")),
        Experiment("Figure 5 and Table 3, mnist", (15, 700), partial(race, name="mnist")),
        Experiment("Figures 6 and 7", (15, 300), settings),
        Experiment("Table 4", (15, 600), quality),
    ),
    SETS,
)
