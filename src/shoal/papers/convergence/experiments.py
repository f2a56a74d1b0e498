"""L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS.

Six centroids on iris: speed of convergence of batch and online k-means, batch and online gradient descent, and EM to the local
minimum that each reaches. The paper ran twenty trials; here samples of twenty trials are repeated, and a statement is judged by
its median over the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...data.types import Array
from ...kmeans.gradient import GradientKMeans
from ...kmeans.kmeans import KMeans
from ...kmeans.mixture import SphericalMixture
from ...kmeans.online import OnlineKMeans
from ...metrics import energy
from ...report.draw import Line
from ..curves import first_rows, record_trajectory
from ..run import Experiment, Finding, Paper, Run, Shown
from ..show import chart, grid
from . import letter
from .claims import BATCH, BATCH_GRADIENT, BOTH, CLAIMS, EM, LEAST, ONLINE, ONLINE_GRADIENT, SPAN

K, EPOCHS, TRIALS = 6, 20, 20
FURTHER_EPOCHS = 40  # further epochs to find the local minimum that a run converges to
RATE = 0.03  # learning rate of the gradient methods in the first epoch
ALGORITHMS = (ONLINE, BATCH, ONLINE_GRADIENT, BATCH_GRADIENT)
RESIDUAL_ROUNDING = 1e-9  # residuals below this fraction of the first one count as zero
ARMS = {"letter": "the letter", "shoal": "Shoal"}
VARIANCES = ("variance per column", "total variance")  # readings of "average cluster variance"
ORDERS = ("file order", "one shuffle", "a shuffle per epoch", "independent draws")
ORDER = ORDERS[2]  # of the figures
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)

CRITERIA = ((0, "residual"), (1, "error"))  # by which a rate may be optimal


class Trial(NamedTuple):
    """Errors E_0 to E_20 of each method from one initialization, and the local minimum that each reaches."""

    curves: dict[str, Array]
    ends: dict[str, float]


def presentation(order: str, P: int, seed: int) -> Callable[[], Array]:
    """Return a function that returns the order in which the patterns of the next epoch are presented."""
    rng = np.random.default_rng([seed, 1])
    once = rng.permutation(P)
    return {
        ORDERS[0]: lambda: np.arange(P),
        ORDERS[1]: lambda: once,
        ORDERS[2]: lambda: rng.permutation(P),
        ORDERS[3]: lambda: rng.integers(P, size=P),
    }[order]


def trial_of_letter(x: Array, seed: int, variances: dict[str, float], order: str = ORDER) -> Trial:
    """Run the algorithms as printed. A prototype without patterns keeps its position."""
    start, picks = first_rows(x, K, seed).astype(float), {m: presentation(order, len(x), seed) for m in (*ALGORITHMS, BOTH)}
    counts = {ONLINE: np.zeros(K), BOTH: np.zeros(K)}
    steps: dict[str, Callable[[Array, int], Array]] = {
        ONLINE: lambda w, t: letter.online_kmeans(x[picks[ONLINE]()], w, counts[ONLINE]),
        BATCH: lambda w, t: letter.batch_kmeans(x, w),
        ONLINE_GRADIENT: lambda w, t: letter.online_gradient(x[picks[ONLINE_GRADIENT]()], w, RATE / t),
        BATCH_GRADIENT: lambda w, t: letter.batch_gradient(x, w, RATE / t),
        BOTH: lambda w, t: letter.online_kmeans(x[picks[BOTH]()], w, counts[BOTH]) if t == 1 else letter.batch_kmeans(x, w),
    }
    curves, ends = {}, {}
    for name, step in steps.items():
        curves[name], w = _follow(x, start, step)
        ends[name] = _minimum(x, w)
    for words, variance in variances.items():
        likely, w = [], start
        for _ in range(EPOCHS + FURTHER_EPOCHS + 1):
            w, cost = letter.em(x, w, variance)
            likely.append(cost)
        curves[f"{EM}, {words}"], ends[f"{EM}, {words}"] = np.array(likely[: EPOCHS + 1]), likely[-1]
    return Trial(curves, ends)


def _follow(x: Array, w: Array, step: Callable[[Array, int], Array]) -> tuple[Array, Array]:
    """Return the errors before and after each epoch, and the last prototypes."""
    found = [letter.quantization_error(x, w)]
    for t in range(1, EPOCHS + 1):
        w = step(w, t)
        found.append(letter.quantization_error(x, w))
    return np.array(found), w


def _minimum(x: Array, w: Array) -> float:
    """Return the error after further epochs of batch k-means."""
    for _ in range(FURTHER_EPOCHS):
        w = letter.batch_kmeans(x, w)
    return letter.quantization_error(x, w)


def trial_of_shoal(x: Array, seed: int, variances: dict[str, float]) -> Trial:
    """Run Shoal's estimators. Centroids without rows are moved to rows at the end of a fit."""
    start = first_rows(x, K, seed)
    common: dict[str, Any] = {"init": start, "max_iter": EPOCHS, "tol": 0.0, "random_state": seed, "n_threads": 1}
    models = {
        ONLINE: OnlineKMeans(K, **common),
        BATCH: KMeans(K, **common),
        ONLINE_GRADIENT: GradientKMeans(K, mode="online", learning_rate=RATE, **common),
        BATCH_GRADIENT: GradientKMeans(K, mode="batch", learning_rate=RATE, **common),
        BOTH: OnlineKMeans(K, then="batch", **common),
    }
    curves, ends = {}, {}
    for name, model in models.items():
        found = [energy(x, C) / 2 for C in (start, *record_trajectory(model, x, every=True).centers)]
        curves[name] = np.array([*found, *[found[-1]] * (EPOCHS + 1 - len(found))])
        ends[name] = _minimum(x, np.asarray(model.cluster_centers_))
    for words, variance in variances.items():
        mixture = SphericalMixture(K, variance=variance, **{**common, "max_iter": EPOCHS + FURTHER_EPOCHS + 1}).fit(x)
        likely = -np.array([record["log_likelihood"] for record in mixture.history_])
        likely = np.pad(likely, (0, EPOCHS + FURTHER_EPOCHS + 1 - len(likely)), mode="edge")
        curves[f"{EM}, {words}"], ends[f"{EM}, {words}"] = likely[: EPOCHS + 1], float(likely[-1])
    return Trial(curves, ends)


def fixed_variances(x: Array) -> dict[str, float]:
    """Return the variance of the Gaussians in both readings: that of a cluster, averaged over runs, per column and in total.

    The paper scales the patterns once, so that the average cluster variance is about one.
    """
    minima = [2 * _minimum(x, first_rows(x, K, seed).astype(float)) / len(x) for seed in range(TRIALS)]
    return dict(zip(VARIANCES, (float(np.mean(minima)) / x.shape[1], float(np.mean(minima))), strict=True))


def samples(trials: list[Trial]) -> list[list[Trial]]:
    """Return samples of twenty trials; one smaller sample if there are fewer."""
    return [trials[a : a + TRIALS] for a in range(0, max(len(trials) - TRIALS, 0) + 1, TRIALS)]


def race(run: Run, arm: str) -> Finding:
    """Reproduce Figures 1 and 2 with one arm."""
    x, words = np.asarray(run.load("iris").X, np.float64), ARMS[arm]
    variances = fixed_variances(x)
    trial = trial_of_letter if arm == "letter" else trial_of_shoal
    trial(x, 0, variances)  # compile kernels before the seeds are timed
    wanted = {"letter": (40, 1000, 1000), "shoal": (5, 60, 200)}[arm]
    trials = [trial(x, seed, variances) for seed in run.seeds(run.of(*wanted), every=True)]
    each = [measure(sample, words) for sample in samples(trials)]
    measured: dict[str, Any] = {key: [found[key] for found in each] for key in each[0]}
    minima = [np.concatenate([[t.ends[m] for m in ALGORITHMS] for t in sample]) for sample in samples(trials)]
    spans, averages = [e.max() / e.min() <= SPAN for e in minima], [e.mean() / e.min() <= LEAST for e in minima]
    share = f"{words}: share of samples in which the"
    measured[f"{share} largest / the smallest minimum is at most 1.76"] = float(np.mean(spans))
    measured[f"{share} average / the smallest minimum is at most 1.23"] = float(np.mean(averages))
    if arm == "letter":
        every = np.array([t.ends[BATCH] for t in trials])
        spreads = [np.std([t.ends[BATCH] for t in sample], ddof=1) / every.std(ddof=1) for sample in samples(trials)]
        measured["standard deviation of the minima over 20 runs / over all runs"] = [float(s) for s in spreads]
    return Finding(_figures(trials, arm, each), measured)


def _residuals(trials: list[Trial]) -> dict[str, Array]:
    """Return the mean residuals of each method; what is a rounding error is zero."""
    left = {m: np.mean([t.curves[m] - t.ends[m] for t in trials], axis=0) for m in trials[0].curves}
    return {m: np.where(r > RESIDUAL_ROUNDING * r[0], r, 0.0) for m, r in left.items()}


def _ratios(residual: Array) -> Array:
    """Return the ratios of successive residuals; 0 once the residual is zero."""
    return np.divide(residual[1:], residual[:-1], out=np.zeros(len(residual) - 1), where=residual[:-1] > 0)


def _last_move(curve: Array) -> int:
    """Return the last epoch that changed the error."""
    return int(np.flatnonzero(np.diff(curve))[-1]) + 1 if np.diff(curve).any() else 0


def _quotient(a: float, b: float) -> float:
    """Return a / b, where 0 / 0 is 1."""
    return a / b if b > 0 else (1.0 if a == 0 else np.inf)


def measure(trials: list[Trial], arm: str) -> dict[str, float]:
    """Return the measurements of a sample, by the names used in the claims."""
    left = _residuals(trials)
    ratios = {m: _ratios(r) for m, r in left.items()}
    moves = {m: [_last_move(t.curves[m]) for t in trials] for m in (BATCH, BOTH)}
    crossed = np.flatnonzero(ratios[BATCH] < ratios[ONLINE])
    slow = [ratios[m] for m in (ONLINE, ONLINE_GRADIENT, BATCH_GRADIENT)]
    of_runs = np.mean([_ratios(np.maximum(t.curves[BATCH] - t.ends[BATCH], 0)) for t in trials], axis=0)
    averages = [float(np.mean([t.ends[m] for t in trials])) for m in ALGORITHMS]
    out = {
        f"epoch {t}: {arm}: residual of {m} / lowest residual of the other methods": _quotient(
            left[m][t], min(left[o][t] for o in ALGORITHMS if o != m)
        )
        for m, span in ((ONLINE, range(1, 6)), (BATCH, range(6, EPOCHS + 1)))
        for t in span
    }
    for words, t in product(VARIANCES, range(5, 20)):
        name = f"{arm}, {words}: ratio of EM / lowest ratio of the online and gradient methods"
        out[f"epoch {t}: {name}"] = float(ratios[f"{EM}, {words}"][t - 1] / min(r[t - 1] for r in slow))
    for t in range(11, EPOCHS + 1):
        out[f"epoch {t}: {arm}: ratio of successive residuals of online k-means, epochs 11 to 20"] = float(
            ratios[ONLINE][t - 1]
        )
    rest = {
        "last epoch in which any run of batch k-means changed": max(moves[BATCH]),
        "first epoch in which batch k-means has a lower ratio than online k-means": crossed[0] + 1 if len(crossed) else np.inf,
        "epoch after which the residual of batch k-means is zero": (left[BATCH] > 0).sum(),
        "smallest ratio of successive residuals of the other methods, epochs 9 to 19": min(r[8:19].min() for r in slow),
        "mean ratio of a run of batch k-means in epoch 10 / in epoch 5": _quotient(of_runs[9], of_runs[4]),
        "range of the average minima / their mean": (max(averages) - min(averages)) / np.mean(averages),
        "mean epochs to convergence, one online epoch then batch / batch only": np.mean(moves[BOTH]) / np.mean(moves[BATCH]),
        "residual of one online epoch then batch / lower residual of online and batch, epochs 2 to 9": max(
            _quotient(left[BOTH][t], min(left[ONLINE][t], left[BATCH][t])) for t in range(2, 10)
        ),
        "largest increase of the error of batch k-means in an epoch / error": max(
            (np.diff(t.curves[BATCH]) / t.curves[BATCH][:-1]).max() for t in trials
        ),
        "residual of batch gradient / residual of online k-means after 20 epochs": left[BATCH_GRADIENT][-1] / left[ONLINE][-1],
        "residual of online gradient / residual of online k-means after 20 epochs": left[ONLINE_GRADIENT][-1]
        / left[ONLINE][-1],
        "residual of online gradient / residual of batch gradient after epoch 1": left[ONLINE_GRADIENT][1]
        / left[BATCH_GRADIENT][1],
        "residual of online gradient / residual of batch gradient after 20 epochs": left[ONLINE_GRADIENT][-1]
        / left[BATCH_GRADIENT][-1],
    }
    return out | {f"{arm}: {key}": float(value) for key, value in rest.items()}


def _figures(trials: list[Trial], arm: str, each: list[dict[str, float]]) -> list[Shown]:
    """Return Figures 1 and 2, averaged over all trials, and the minima by method."""
    left, words, epochs = _residuals(trials), ARMS[arm], np.arange(1, EPOCHS + 1)
    there = {m: np.where(r > 0, r, np.nan)[1:] for m, r in left.items()}
    mixtures = [f"{EM}, {variance}" for variance in VARIANCES]
    caption = f"Mean over {len(trials):,} trials, of {words}, in square millimetres. A line ends where the residual is zero."
    return [
        chart(
            f"convergence-1-{arm}", f"Figure 1, {words}: residual error over epochs",
            [Line(m, epochs, there[m]) for m in (*ALGORITHMS, BOTH)], "epoch t", "E_t − E_∞",
            "Online k-means is lowest up to epoch 5, then batch k-means; both gradient methods stay far above.", caption,
        ),
        chart(
            f"convergence-1em-{arm}", f"Figure 1, right scale, {words}: EM of the mixture",
            [Line(m, epochs, there[m]) for m in mixtures], "epoch t", "−log L_t + log L_∞",
            "Falls steadily over the 20 epochs.",
            "Negative log-likelihood minus its final value, with the variance fixed in two readings.",
        ),
        chart(
            f"convergence-2-{arm}", f"Figure 2, {words}: ratio of successive residuals",
            [Line(m, epochs, _ratios(left[m])) for m in (*ALGORITHMS, *mixtures)], "epoch t",
            "(E_t − E_∞) / (E_t−1 − E_∞)",
            "The ratio of batch k-means falls to zero; all others level off, EM at the lowest value.",
        ),
        grid(
            f"Local minima by method, {words}", ["method", "mean minimum", "smallest", "largest"],
            [[m, *(float(f([t.ends[m] for t in trials])) for f in (np.mean, np.min, np.max))] for m in (*ALGORITHMS, BOTH)],
            "Averages from 4050 to 4080, individual minima from 3300 to 5800.", "Half the sum of squared distances.",
        ),
        _shares(each, words),
    ]  # fmt: skip


def _shares(each: list[dict[str, float]], words: str) -> Shown:
    """Return the share of samples in which each statement is true."""
    checks = [check for claim in CLAIMS for check in claim.checks if words in check.name]
    rows = []
    for check in checks:
        kept = [[bool(check.decide(found[key])) for key in check.values(found)] for found in each]
        if kept[0]:
            rows.append([check.name.removeprefix(f"{words}: "), check.range, float(np.mean([all(k) for k in kept]))])
    return grid(
        f"Samples of {TRIALS} trials in which a statement is true, {words}", ["measurement", "required", "share of samples"],
        rows, "One sample of 20 trials.", f"{len(each)} samples.",
    )  # fmt: skip


def rates(run: Run) -> Finding:
    """Compare learning rates of the gradient methods, for each reading of the presentation order and of t."""
    x = np.asarray(run.load("iris").X, np.float64)
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for seed in run.seeds(run.of(2, 20, 100), every=True):
        w = first_rows(x, K, seed).astype(float)
        for rate in RATES:
            for words, step in _gradient_steps(x, rate, seed).items():
                curve, end = _follow(x, w, step)
                found.setdefault((words, rate), []).append((curve[-1] - _minimum(x, end), curve[-1]))
    readings = list(dict.fromkeys(words for words, _ in found))
    mean = {(*key, criterion): float(np.mean(values, axis=0)[i]) for key, values in found.items() for i, criterion in CRITERIA}
    best = {(words, c): min((mean[words, rate, c], rate) for rate in RATES)[1] for words in readings for _, c in CRITERIA}
    shown = [
        grid(
            f"Learning rates: mean {criterion} after 20 epochs", ["reading", *(f"{rate:g} / t" for rate in RATES), "best rate"],
            [
                [words, *(mean[words, rate, criterion] for rate in RATES), f"{best[words, criterion]:g} / t"]
                for words in readings
            ],
            "0.03 / t is optimal.", "The paper says neither what t counts nor in which order patterns are presented.",
        )
        for _, criterion in CRITERIA
    ]  # fmt: skip
    measured = {}
    for words, (_, criterion) in product(readings, CRITERIA):
        name, _, order = words.partition("; ")
        key = f"{name}: {criterion} at {RATE:g} / t / lowest of all rates"
        least = mean[words, best[words, criterion], criterion]
        measured[f"{order}: {key}" if order else key] = mean[words, RATE, criterion] / least
    return Finding(shown, measured)


def _gradient_steps(x: Array, rate: float, seed: int) -> dict[str, Callable[[Array, int], Array]]:
    """Return an epoch of each gradient method, for each reading."""
    steps: dict[str, Callable[[Array, int], Array]] = {BATCH_GRADIENT: lambda w, t: letter.batch_gradient(x, w, rate / t)}

    def online(pick: Callable[[], Array], patterns: bool, w: Array, t: int) -> Array:
        P = len(x)
        return letter.online_gradient(x[pick()], w, rate / (np.arange(1, P + 1) + (t - 1) * P) if patterns else rate / t)

    for order, patterns in product(ORDERS, (False, True)):
        pick = presentation(order, len(x), seed)
        words = f"{ONLINE_GRADIENT}, t counts {'patterns' if patterns else 'epochs'}; {order}"
        steps[words] = partial(online, pick, patterns)
    return steps


def theory(run: Run) -> Finding:
    """Reproduce section 4: the Hessian, Newton steps, the final jump, and the first patterns."""
    x = np.asarray(run.load("iris").X, np.float64)
    found: dict[str, list[float]] = {}
    for seed in run.seeds(run.of(2, 10, 20), every=True):
        noise = np.random.default_rng(seed).normal(size=(K, x.shape[1]))
        w = first_rows(x, K, seed) + noise  # perturbed, so that no row is at a cluster boundary
        gradient, H = derivatives(x, w)
        N = np.diag(letter.hessian(x, w))
        step = -np.linalg.solve(H, gradient).reshape(w.shape)
        fitted = KMeans(K, init=w, max_iter=1, tol=0.0, n_threads=1).fit(x).cluster_centers_
        values = {
            "largest deviation of diag(N_k) from a numerical Hessian / largest N_k": np.abs(H - np.diag(N)).max() / N.max()
        }
        for words, moved in (("the letter", letter.batch_kmeans(x, w)), ("Shoal", fitted)):
            name = f"{words}: largest difference between an epoch of batch k-means and a Newton step / the step"
            values[name] = np.abs(w + step - moved).max() / np.abs(step).max()
        values["residual one epoch after the last change of an assignment / residual before"] = _jump(x, w)
        name = "patterns that online k-means needs for the error after one batch epoch / all patterns"
        values[name] = _patterns(x, w, seed)
        for key, value in values.items():
            found.setdefault(key, []).append(float(value))
    shown = grid(
        "Section 4: theory", ["measurement", "median", "largest"],
        [[key, float(np.median(values)), max(values)] for key, values in found.items()], "The first four are 0 (proved).",
    )  # fmt: skip
    return Finding([shown], found)


def _jump(x: Array, w: Array) -> float:
    """Return the residual of batch k-means one epoch after its assignment is final, relative to the residual before."""
    path = [w]
    for _ in range(EPOCHS + FURTHER_EPOCHS):
        path.append(letter.batch_kmeans(x, path[-1]))
    errors = np.array([letter.quantization_error(x, w) for w in path])
    names = [((x[:, None] - w) ** 2).sum(axis=2).argmin(axis=1) for w in path]
    final = next(t for t in range(len(path)) if all(np.array_equal(name, names[-1]) for name in names[t:]))
    before, after = errors[final] - errors[-1], errors[final + 1] - errors[-1]
    return float(abs(after) / before) if before > RESIDUAL_ROUNDING * errors[0] else 0.0


def _patterns(x: Array, w: Array, seed: int) -> float:
    """Return the share of an epoch after which online k-means is as good as batch k-means after a whole one."""
    goal, order, n = letter.quantization_error(x, letter.batch_kmeans(x, w)), presentation(ORDER, len(x), seed)(), np.zeros(K)
    for i, pattern in enumerate(order, 1):
        w = letter.online_kmeans(x[[pattern]], w, n)
        if letter.quantization_error(x, w) <= goal:
            return i / len(x)
    return np.inf


def derivatives(X: Array, C: Array, h: float = 1e-4) -> tuple[Array, Array]:
    """Return gradient and Hessian of half the energy, equation (2), by central differences, independently of N_k."""

    def E(w: Array) -> float:
        return float(((X[:, None] - w.reshape(C.shape)) ** 2).sum(axis=2).min(axis=1).sum() / 2)

    w, m = C.ravel(), C.size
    steps = h * np.eye(m)
    gradient = np.array([(E(w + s) - E(w - s)) / (2 * h) for s in steps])
    H = np.array([[E(w + a + b) - E(w + a - b) - E(w - a + b) + E(w - a - b) for b in steps] for a in steps]) / (4 * h * h)
    return gradient, H


PAPER = Paper(
    "convergence",
    "Convergence properties of the k-means algorithms",
    "L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS.",
    "Five algorithms with six centroids on Fisher's iris: the residual, that is the difference between the error after each "
    "epoch and the error of the local minimum that the run converges to. The paper ran 20 trials. Here samples of 20 trials "
    "are repeated, 50 times for the letter; a claim is judged by the median over the samples, and a table shows in which share "
    "of them each statement is true. Patterns are shuffled in each epoch, and t in 0.03 / t counts epochs; the paper defines "
    "neither, and a table compares the readings. A prototype without patterns keeps its position in the letter.",
    CLAIMS,
    (
        Experiment("Figures 1 and 2, the letter", (25, 25), partial(race, arm="letter")),
        Experiment("Figures 1 and 2, Shoal", (15, 60), partial(race, arm="shoal")),
        Experiment("Learning rates", (10, 40), rates),
        Experiment("Theory", (5, 10), theory),
    ),
    ("iris",),
)
