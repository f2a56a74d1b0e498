"""L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS.

Six centroids on iris, twenty trials: speed of convergence of batch and online k-means, batch and online gradient descent, and
EM to the local minimum that each reaches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.types import Array
from ...kmeans.gradient import GradientKMeans
from ...kmeans.kmeans import KMeans
from ...kmeans.mixture import SphericalMixture
from ...kmeans.online import OnlineKMeans
from ...metrics import energy
from ...report.draw import Line
from ...report.words import count_noun
from ..claims import Check, Claim
from ..curves import first_rows, record_trajectory
from ..run import Experiment, Finding, Paper, Run
from ..show import chart, grid

K, EPOCHS, TRIALS = 6, 20, 20
FURTHER_EPOCHS = 40  # further epochs to find the local minimum that a run converges to
RATE = 0.03  # learning rate of the gradient methods in the first epoch
ONLINE, BATCH, ONLINE_GRADIENT, BATCH_GRADIENT = "online k-means", "batch k-means", "online gradient", "batch gradient"
EM, BOTH = "EM of a mixture", "one online epoch, then batch"
ALGORITHMS = (ONLINE, BATCH, ONLINE_GRADIENT, BATCH_GRADIENT)
MIN_RESIDUAL_RATIO = 1e-9  # residuals below this fraction of the first one count as zero

CLAIMS = (
    Claim(
        "online-first",
        "Figure 1",
        "Online k-means has the lowest residual in the first five epochs.",
        "lowest in epochs 1 to 5",
        (Check("residual of online k-means / lowest residual of the other methods", most=1.0),),
    ),
    Claim(
        "batch-later",
        "Figure 1",
        "Batch k-means has the lowest residual after five epochs.",
        "lowest from epoch 6 on",
        (Check("residual of batch k-means / lowest residual of the other methods", most=1.0),),
    ),
    Claim(
        "batch-converges",
        "section 5",
        "All runs of batch k-means converge before epoch 15.",
        "all 20 runs before epoch 15",
        (Check("last epoch in which any run of batch k-means changed", most=14),),
    ),
    Claim(
        "crossing",
        "Figure 2",
        "The ratios of successive residuals of online and batch k-means cross during epoch 2.",
        "epoch 2",
        (Check("first epoch in which batch k-means has a lower ratio than online k-means", 2, 2),),
    ),
    Claim(
        "superlinear",
        "Figure 2",
        "The ratio of successive residuals goes to zero for batch k-means and for no other method.",
        "to zero for batch k-means only; EM is the best of the others",
        (
            Check(
                "largest ratio of successive residuals of batch k-means, from epoch 9 until the last run converges", most=0.5
            ),
            Check("smallest ratio of successive residuals of any other method, epochs 9 to 19", least=0.5),
            Check("smallest ratio of EM / smallest ratio of the online and gradient methods, epochs 5 to 19", most=1.0),
        ),
    ),
    Claim(
        "gradients",
        "Figure 1",
        "Both gradient methods converge slowly; online gradient is faster at first and slower in the long run.",
        "poor convergence; online faster at first, batch later",
        (
            Check("residual of batch gradient / residual of online k-means after 20 epochs", least=1.0),
            Check("residual of online gradient / residual of online k-means after 20 epochs", least=1.0),
            Check("residual of online gradient / residual of batch gradient after epoch 1", most=1.0),
            Check("residual of online gradient / residual of batch gradient after 20 epochs", least=1.0),
        ),
    ),
    Claim(
        "minima",
        "section 5",
        "All algorithms reach equally good minima on average; individual minima depend on the initialization.",
        "averages from 4050 to 4080 (0.7%), individual minima from 3300 to 5800 (factor 1.76); the unit is not stated",
        (
            Check("range of the average minima / their mean", most=0.02),
            Check("largest minimum / smallest minimum", least=1.2),
        ),
    ),
    Claim(
        "newton",
        "section 4",
        "The Hessian of the energy is diag(N_k), so a step of batch k-means is a Newton step.",
        "proved",
        (
            Check("largest deviation of diag(N_k) from a numerical Hessian / largest N_k", most=1e-4),
            Check("largest difference between a batch k-means step and a Newton step, relative to the step", most=1e-4),
        ),
    ),
    Claim(
        "hybrid",
        "section 5",
        "One online epoch followed by the batch algorithm converges fastest.",
        "suggested by the crossing in epoch 2",
        (
            Check("mean epochs to convergence, one online epoch then batch / batch only", most=1.0),
            Check(
                "largest residual of one online epoch then batch / lower residual of online and batch, from epoch 2 on",
                most=1.0,
            ),
        ),
    ),
)


def trial(X: Array, seed: int) -> tuple[dict[str, Array], dict[str, float]]:
    """Return the energies E_0 to E_20 of each method from one initialization, and the local minimum that each reaches."""
    start = first_rows(X, K, seed)
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
        found = [energy(X, C) for C in (start, *record_trajectory(model, X, every=True).centers)]
        curves[name] = np.array([*found, *[found[-1]] * (EPOCHS + 1 - len(found))])
        further = {**common, "init": model.cluster_centers_, "max_iter": FURTHER_EPOCHS}
        ends[name] = float(KMeans(K, **further).fit(X).inertia_)
    variance = ends[BATCH] / X.size  # per column within clusters; the paper scales it to one
    model = SphericalMixture(K, variance=variance, **{**common, "max_iter": EPOCHS + FURTHER_EPOCHS + 1}).fit(X)
    likely = -np.array([record["log_likelihood"] for record in model.history_])
    curves[EM] = np.pad(likely, (0, EPOCHS + FURTHER_EPOCHS + 1 - len(likely)), mode="edge")[: EPOCHS + 1]
    ends[EM] = float(likely[-1])
    return curves, ends


def _last_move(curve: Array) -> int:
    """Return the last epoch that changed the energy."""
    return int(np.flatnonzero(np.diff(curve))[-1]) + 1 if np.diff(curve).any() else 0


def race(run: Run) -> Finding:
    """Reproduce Figures 1 and 2."""
    X = run.load("iris").X
    trial(X, 0)  # compile kernels before the seeds are timed
    trials = [trial(X, seed) for seed in run.seeds(TRIALS)]
    left = {name: np.mean([curves[name] - ends[name] for curves, ends in trials], axis=0) for name in trials[0][0]}
    minima = {name: np.array([ends[name] for _, ends in trials]) for name in left}
    moves = {name: [_last_move(curves[name]) for curves, _ in trials] for name in (BATCH, BOTH)}
    gains = {name: _gains(residual) for name, residual in left.items()}
    epochs = np.arange(1, EPOCHS + 1)
    there = {name: np.where(left[name] > MIN_RESIDUAL_RATIO * left[name][0], left[name], np.nan)[1:] for name in left}
    first = [Line(name, epochs, there[name]) for name in (*ALGORITHMS, BOTH)]
    second = [Line(name, epochs, gains[name]) for name in (*ALGORITHMS, EM)]
    shown = [
        chart(
            "convergence-1", "Figure 1: residual energy over epochs", first, "epoch t", "E_t − E_∞",
            "Online k-means is lowest up to epoch 5, then batch k-means; both gradient methods stay far above.",
            f"Mean over {count_noun(len(trials), 'trial')}, in square millimetres. A line ends where the residual is zero.",
        ),
        chart(
            "convergence-1em", "Figure 1, right scale: EM of the mixture", [Line(EM, epochs, there[EM])],
            "epoch t", "−log L_t + log L_∞", "Falls steadily over the 20 epochs.",
            "Negative log-likelihood minus its final value.",
        ),
        chart(
            "convergence-2", "Figure 2: ratio of successive residuals", second, "epoch t", "(E_t − E_∞) / (E_t−1 − E_∞)",
            "The ratio of batch k-means falls to zero; all others level off, EM at the lowest value.",
        ),
        grid(
            "Local minima by method", ["method", "mean minimum", "smallest", "largest"],
            [[name, *(float(f(minima[name])) for f in (np.mean, np.min, np.max))] for name in (*ALGORITHMS, BOTH)],
            "Averages from 4050 to 4080, individual minima from 3300 to 5800.", "Energy in square millimetres.",
        ),
    ]  # fmt: skip
    return Finding(shown, measure(left, gains, minima, moves))


def _gains(residual: Array) -> Array:
    """Return the ratios of successive residuals; NaN once the residual is zero."""
    there = residual[:-1] > MIN_RESIDUAL_RATIO * residual[0]
    return np.asarray(np.divide(residual[1:], residual[:-1], out=np.full(len(there), np.nan), where=there))


def measure(
    left: dict[str, Array], gains: dict[str, Array], minima: dict[str, Array], moves: dict[str, list[int]]
) -> dict[str, float]:
    """Return the measurements from the figures, by the names used in the claims."""
    rest = {name: np.min([left[other] for other in ALGORITHMS if other != name], axis=0) for name in ALGORITHMS}
    tiny = MIN_RESIDUAL_RATIO * left[BATCH][0]
    out = {
        f"epoch {t}: residual of {name} / lowest residual of the other methods": float(
            (left[name][t] + tiny) / (rest[name][t] + tiny)
        )
        for name, span in ((ONLINE, range(1, 6)), (BATCH, range(6, EPOCHS + 1)))
        for t in span
    }
    crossed = np.flatnonzero(np.nan_to_num(gains[BATCH]) < gains[ONLINE])
    others = [gains[name] for name in (*ALGORITHMS, EM) if name != BATCH]
    slow = np.nanmin([gains[name][4:19] for name in (ONLINE, ONLINE_GRADIENT, BATCH_GRADIENT)])
    averages = [float(minima[name].mean()) for name in ALGORITHMS]
    every = np.concatenate([minima[name] for name in ALGORITHMS])
    best = np.minimum(left[ONLINE], left[BATCH])
    last, end = EPOCHS, max(moves[BATCH])
    return out | {
        "last epoch in which any run of batch k-means changed": float(max(moves[BATCH])),
        "first epoch in which batch k-means has a lower ratio than online k-means": float(crossed[0] + 1)
        if len(crossed)
        else np.inf,
        "largest ratio of successive residuals of batch k-means, from epoch 9 until the last run converges": float(
            gains[BATCH][8 : end - 1].max(initial=0.0)
        ),
        "smallest ratio of successive residuals of any other method, epochs 9 to 19": float(
            np.nanmin([gain[8:19] for gain in others])
        ),
        "smallest ratio of EM / smallest ratio of the online and gradient methods, epochs 5 to 19": float(
            np.nanmin(gains[EM][4:19]) / slow
        ),
        "residual of batch gradient / residual of online k-means after 20 epochs": left[BATCH_GRADIENT][last]
        / left[ONLINE][last],
        "residual of online gradient / residual of online k-means after 20 epochs": left[ONLINE_GRADIENT][last]
        / left[ONLINE][last],
        "residual of online gradient / residual of batch gradient after epoch 1": left[ONLINE_GRADIENT][1]
        / left[BATCH_GRADIENT][1],
        "residual of online gradient / residual of batch gradient after 20 epochs": left[ONLINE_GRADIENT][last]
        / left[BATCH_GRADIENT][last],
        "range of the average minima / their mean": (max(averages) - min(averages)) / float(np.mean(averages)),
        "largest minimum / smallest minimum": float(every.max() / every.min()),
        "mean epochs to convergence, one online epoch then batch / batch only": float(np.mean(moves[BOTH]))
        / max(float(np.mean(moves[BATCH])), 1.0),
        "largest residual of one online epoch then batch / lower residual of online and batch, from epoch 2 on": float(
            ((left[BOTH] + tiny) / (best + tiny))[2:end].max(initial=0.0)
        ),
    }


def newton(run: Run) -> Finding:
    """Reproduce section 4: compare a numerical Hessian and a Newton step with a step of batch k-means."""
    X = run.load("iris").X
    errors, apart = [], []
    for seed in run.seeds(5):
        C = first_rows(X, K, seed) + np.random.default_rng(seed).normal(
            size=(K, X.shape[1])
        )  # perturbed, so that no row is at a cluster boundary
        labels = ((X[:, None] - C) ** 2).sum(axis=2).argmin(axis=1)
        N = np.bincount(labels, minlength=K).astype(float)
        gradient, H = derivatives(X, C)
        errors.append(np.abs(H - np.diag(np.repeat(N, X.shape[1]))).max() / N.max())
        stepped = KMeans(K, init=C, max_iter=1, tol=0.0, n_threads=1).fit(X).cluster_centers_
        move = -np.linalg.solve(H, gradient).reshape(C.shape)
        apart.append(np.abs(C + move - stepped).max() / np.abs(move).max())
    measured = {
        "largest deviation of diag(N_k) from a numerical Hessian / largest N_k": float(max(errors)),
        "largest difference between a batch k-means step and a Newton step, relative to the step": float(max(apart)),
    }
    shown = grid(
        "Section 4: Newton's method", ["measurement", "value"], [[k, v] for k, v in measured.items()], "Both are 0 (proved)."
    )
    return Finding([shown], measured)


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
    "Five algorithms with six centroids on Fisher's iris: the residual, that is the difference between the energy after each "
    "epoch and the energy of the local minimum that the run converges to. The learning rate of the gradient methods is "
    "0.03 / t; t counts epochs here, while the paper does not define it.",
    CLAIMS,
    (Experiment("Figures 1 and 2", (15, 15), race), Experiment("Newton's method", (3, 3), newton)),
    ("iris",),
)
