"""X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.

K-means on learned binary codes: time, memory and accuracy compared with k-means, spectral methods and random codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import binary
from ...binary.binary_kmeans import BinaryKMeans
from ...binary.code_learner import MIN_SUBSET
from ...binary.compressed import CompressedKMeans
from ...data.types import Array
from ...kmeans.kmeans import KMeans
from ...metrics import accuracy
from ...report.draw import Line, picture
from ...report.words import count_noun
from ...spectral.landmarks import LandmarkSpectral
from ...spectral.nystrom import NystromSpectral
from ..claims import Check, Claim
from ..data import Rows
from ..run import Experiment, Finding, Paper, Run, Shown
from ..show import chart, gallery, grid, ranks
from .letter import ckm

KM, KMPP, NYSTROM, LSC, LSH, CKM = "k-means", "k-means++", "Nyström", "LSC-K", "LSH + bk-means", "CKM"
PAPER_CKM = "CKM (paper variant)"
METHODS = (KM, KMPP, NYSTROM, LSC, LSH, CKM, PAPER_CKM)
SETS = {"news": ("RCV1", 128), "covtype": ("CovType", 32), "mnist": ("MNIST8M", 128)}  # data set in the paper, bits per code
SPEED = {  # published speed-ups over k-means, in the order of METHODS
    "RCV1": (1, 0.75, 3.13, 0.93, 47.75, 11.94), "CovType": (1, 1.55, 0.44, 0.26, 17.0, 5.67),
    "MNIST8M": (1, 3.77, 6.85, 1.90, 96.22, 39.19),
}  # fmt: skip
REDUCTION = {"RCV1": 988, "CovType": 432, "MNIST8M": 392}
BETAS = (0.01, 0.05, 0.1, 0.5, 1.0)
COUNTS = (10, 50, 100, 200)

CLAIMS = (
    Claim(
        "bound",
        "Figure 1",
        "Learning decreases the upper bound and the loss, and both converge within a few iterations.",
        "both decrease and converge within a few iterations",
        (
            Check("last / first upper bound, means of two rounds", most=0.95),
            Check("last / first loss, means of two rounds", most=0.95),
            Check("rounds until both stay within 5% of their last values", most=10),
        ),
    ),
    Claim(
        "fast",
        "Table 2",
        "CKM is several times as fast as k-means.",
        "11.94 (RCV1), 5.67 (CovType) and 39.19 times (MNIST8M)",
        (
            Check("speed-up of CKM over k-means", least=5.0),
            Check("speed-up of CKM (paper variant) over k-means", least=5.0),
        ),
    ),
    Claim(
        "faster-than-spectral",
        "Table 2",
        "CKM is faster than Nyström, LSC-K and k-means++.",
        "second only to LSH + bk-means on all data sets",
        (
            Check("speed-up of CKM over the fastest of Nyström, LSC-K and k-means++", least=1.0),
            Check("speed-up of CKM (paper variant) over the fastest of Nyström, LSC-K and k-means++", least=1.0),
        ),
    ),
    Claim(
        "lsh-fastest",
        "Table 2",
        "LSH with k-means on codes is faster than CKM, as it does not learn codes.",
        "the fastest of all",
        (
            Check("time of CKM / time of LSH + bk-means", least=1.0),
            Check("time of CKM (paper variant) / time of LSH + bk-means", least=1.0),
        ),
    ),
    Claim(
        "better-than-lsh",
        "Figure 2",
        "CKM is clearly more accurate than LSH with k-means on codes.",
        "clearly better on all data sets",
        (
            Check("ACC of CKM minus that of LSH + bk-means", least=0.02),
            Check("ACC of CKM (paper variant) minus that of LSH + bk-means", least=0.02),
        ),
    ),
    Claim(
        "comparable",
        "Figure 2",
        "CKM is about as accurate as the best of the other methods.",
        "generally comparable to the best",
        (Check("ACC of CKM minus the best of the other methods", least=-0.05),),
    ),
    Claim(
        "letter",
        "Figure 2",
        "The same for the paper variant, Algorithm 1 as published.",
        "generally comparable to the best",
        (Check("ACC of CKM (paper variant) minus the best of the other methods", least=-0.05),),
    ),
    Claim(
        "iteration",
        "Figure 3",
        "An iteration of CKM is several times as fast as one of k-means for every number of clusters.",
        "far faster for all k; 25 s against 6500 s for 1000 clusters",
        (Check("time per iteration of k-means / of CKM", least=2.0),),
    ),
    Claim(
        "memory",
        "Table 3",
        "Codes need hundreds of times less memory than rows in float64.",
        "988 (RCV1), 432 (CovType; the sizes in the paper give 108), 392 times (MNIST8M)",
        (Check("bytes of the rows as dense float64 / bytes of their codes", least=100.0),),
    ),
    Claim(
        "beta",
        "Figure 4",
        "The fraction of rows that codes are learned from has little effect on the accuracy.",
        "slightly better as the fraction grows",
        (
            Check("range of ACC over the training fractions", most=0.05),
            Check("ACC with codes learned from all rows minus that with the smallest fraction", least=0.0),
        ),
    ),
)


def estimator(name: str, k: int, bits: int, seed: int, n: int) -> Any:
    """Return the estimator of a method for n rows and k clusters."""
    n_landmarks = min(500, n // 4)  # 500 in the paper
    makers: dict[str, Callable[[], Any]] = {
        KM: lambda: KMeans(k, init="random", n_init=1, random_state=seed),
        KMPP: lambda: KMeans(k, n_init=1, random_state=seed),
        NYSTROM: lambda: NystromSpectral(k, n_samples=n_landmarks, random_state=seed),
        LSC: lambda: LandmarkSpectral(k, n_landmarks=n_landmarks, random_state=seed),
        LSH: lambda: CompressedKMeans(k, n_bits=bits, learn=False, init="random", n_init=1, random_state=seed),
        CKM: lambda: CompressedKMeans(k, n_bits=bits, random_state=seed),
    }
    return makers[name]()


def cluster(name: str, X: Any, k: int, bits: int, seed: int) -> Array:
    """Return the labels that a method finds."""
    if name == PAPER_CKM:
        return ckm(X, k, bits, seed=seed).G
    labels: Array = estimator(name, k, bits, seed, X.shape[0]).fit(X).labels_
    return labels


def learning_curves(name: str, X: Any, k: int, bits: int) -> tuple[Array, Array]:
    """Return the upper bound and the loss after each round of learning."""
    if name == PAPER_CKM:
        result = ckm(X, k, bits)
        return np.array(result.upper_bounds), np.array(result.losses)
    history = [r for r in estimator(name, k, bits, 0, X.shape[0]).fit(X).history_ if "upper_bound" in r]
    return np.array([r["upper_bound"] for r in history]), np.array([r["loss"] for r in history])


def contest(run: Run, name: str) -> Finding:
    """Reproduce Table 2 and Figure 2 on one data set."""
    data = run.load(name, run.of(600, 20_000, None))
    assert data.y is not None
    (theirs, bits), k = SETS[name], int(data.y.max()) + 1
    seconds: dict[str, list[float]] = {m: [] for m in METHODS}
    scores: dict[str, list[float]] = {m: [] for m in METHODS}
    for method in METHODS:
        cluster(method, data.X[:400], 2, bits, 0)  # compile kernels
    for seed in run.seeds(10):
        for method in METHODS:
            started = time.perf_counter()
            labels = cluster(method, data.X, k, bits, seed)
            seconds[method].append(time.perf_counter() - started)
            scores[method].append(accuracy(data.y, labels))
    took = {m: float(np.median(v)) for m, v in seconds.items()}
    acc = {m: float(np.mean(v)) for m, v in scores.items()}
    published = dict(zip(METHODS, SPEED[theirs], strict=False))
    size = f"{data.n:,} rows, k = {k}, {bits} bits"
    table = grid(
        f"Table 2: {name}", ["method", "speed-up over k-means", f"paper ({theirs})"],
        [[m, took[KM] / took[m], published.get(m, "–")] for m in METHODS],
        "CKM is second only to LSH + bk-means in speed.", f"{size}; median of {count_noun(len(seconds[KM]), 'seed')}.",
    )  # fmt: skip
    figure = ranks(
        f"compressed-2-{name}", f"Figure 2: {name}", scores, "ACC",
        "CKM is about as accurate as the best, and clearly better than LSH + bk-means.",
        f"{size}; {count_noun(len(seconds[KM]), 'seed')}{', mean ± standard deviation' if len(seconds[KM]) > 1 else ''}.",
    )  # fmt: skip
    others = max(acc[m] for m in METHODS[:4])
    measured, fastest = dict[str, float](), min(took[m] for m in METHODS[1:4])
    for method in (CKM, PAPER_CKM):
        measured |= {
            f"speed-up of {method} over k-means": took[KM] / took[method],
            f"speed-up of {method} over the fastest of Nyström, LSC-K and k-means++": fastest / took[method],
            f"time of {method} / time of LSH + bk-means": took[method] / took[LSH],
            f"ACC of {method} minus that of LSH + bk-means": acc[method] - acc[LSH],
            f"ACC of {method} minus the best of the other methods": acc[method] - others,
        }
    return Finding([table, figure], {f"{name}: {key}": value for key, value in measured.items()})


def losses(run: Run) -> Finding:
    """Reproduce Figure 1 for the paper variant and for Shoal's default."""
    data = run.load("news", run.of(600, 20_000, None))
    k = run.of(5, 20, 20)
    shown, measured = list[Shown](), dict[str, float]()
    for method, words in ((PAPER_CKM, "paper variant"), (CKM, "Shoal's default")):
        bound, loss = learning_curves(method, data.X, k, 128)
        rounds = np.arange(len(bound)) + 1.0
        shown.append(
            chart(
                f"compressed-1-{len(shown)}", f"Figure 1: {words}, news",
                [Line("upper bound", rounds, bound), Line("loss", rounds, loss)],
                "round", "bits per row", "Both decrease and converge within a few iterations (RCV1).",
                "A round is one batch of rows in the paper variant, and all training rows in Shoal's default. As the loss of "
                "the paper variant oscillates, the checks use means of two rounds.",
            )
        )  # fmt: skip
        bound, loss = (np.convolve(values, [0.5, 0.5], "valid") if len(values) > 1 else values for values in (bound, loss))
        measured |= {
            f"{words}: last / first upper bound, means of two rounds": float(bound[-1] / bound[0]),
            f"{words}: last / first loss, means of two rounds": float(loss[-1] / loss[0]),
            f"{words}: rounds until both stay within 5% of their last values": max(_settled(bound), _settled(loss)),
        }
    return Finding(shown, measured)


def _settled(values: Array) -> float:
    """Return the first round from which all values are within 5% of the last one."""
    far = np.flatnonzero(np.abs(values / values[-1] - 1) > 0.05)
    return float(far[-1]) + 2 if len(far) else 1.0


def _seconds_per_step(model: Any, X: Any) -> float:
    """Return the seconds of the shortest step."""
    seconds = [record["seconds"] for record in model.fit(X).history_ if "energy" in record]
    return float(min(np.diff([0.0, *seconds])))


def iterations(run: Run) -> Finding:
    """Reproduce Figure 3 and Table 3."""
    series, measured, rows = [], dict[str, float](), list[list[object]]()
    for name, (theirs, bits) in SETS.items():
        data = run.load(name, run.of(600, 10_000, None))
        codes = binary.lsh(data.X, n_bits=bits, random_state=0).encode(data.X)
        counts = [k for k in run.of(COUNTS, COUNTS, (*COUNTS, 1000)) if 2 * k <= data.n]
        times: dict[str, list[float]] = {KM: [], CKM: []}
        for k in counts:
            run.report_progress(0.3 * len(rows) + 0.1 * counts.index(k) / len(counts))
            common: dict[str, Any] = {"init": "random", "n_init": 1, "max_iter": 3, "random_state": 0}
            times[KM].append(_seconds_per_step(KMeans(k, algorithm="lloyd", **common), data.X))
            times[CKM].append(_seconds_per_step(BinaryKMeans(k, **common), codes))
            measured[f"{name}, k = {k}: time per iteration of k-means / of CKM"] = times[KM][-1] / times[CKM][-1]
        series.append(Line(name, np.array(counts, float), np.array(times[KM]) / np.array(times[CKM])))
        size = 8 * data.n * data.X.shape[1] / codes.words.nbytes
        measured[f"{name}: bytes of the rows as dense float64 / bytes of their codes"] = size
        rows.append([name, f"{data.n:,} x {data.X.shape[1]:,}", bits, size, theirs, REDUCTION[theirs]])
    figure = chart(
        "compressed-3", "Figure 3: time per iteration of k-means relative to CKM", series, "number of clusters k",
        "ratio of times", "Iterations of CKM are far shorter for all k, on all four data sets (in seconds, on a log scale).",
    )  # fmt: skip
    table = grid(
        "Table 3: memory of rows relative to codes",
        ["data", "rows x columns", "bits", "ratio", "data in the paper", "paper"], rows,
        "3.07 GB against 3.10 MB (RCV1), 0.25 GB against 2.32 MB (CovType), 50.80 GB against 129.60 MB (MNIST8M).",
        "Rows count 8 bytes per value, including the zeros of sparse rows, as in the paper; codes are stored in 64-bit words.",
    )  # fmt: skip
    return Finding([figure, table], measured)


def shares(run: Run) -> Finding:
    """Reproduce Figure 4: the fraction of rows that codes are learned from. Fractions of fewer than 5000 rows are left out."""
    series, measured = [], {}
    for name in ("mnist", "covtype"):
        data = run.load(name, run.of(600, 20_000, None))
        bits, found = SETS[name][1], []
        assert data.y is not None
        k, betas = int(data.y.max()) + 1, [beta for beta in BETAS if beta == 1 or beta * data.n >= MIN_SUBSET]
        for seed in run.seeds(run.of(1, 3, 10)):
            options: dict[str, Any] = {"n_bits": bits, "random_state": seed}
            labels = [CompressedKMeans(k, beta=beta, **options).fit(data.X).labels_ for beta in betas]
            found.append([accuracy(data.y, some) for some in labels])
        mean = np.mean(found, axis=0)
        series.append(Line(name, np.array(betas), mean, np.std(found, axis=0)))
        if len(betas) > 1:
            few = f"{name}, from {betas[0]:g} on"
            measured[f"{few}: range of ACC over the training fractions"] = float(np.ptp(mean))
            measured[f"{few}: ACC with codes learned from all rows minus that with the smallest fraction"] = float(
                mean[-1] - mean[0]
            )
    shown = chart(
        "compressed-4", "Figure 4: fraction of rows that codes are learned from", series, "beta", "ACC",
        "Slightly better as beta grows.", "CKM learns from at least 5000 rows, so smaller fractions are left out.",
    )  # fmt: skip
    return Finding([shown], measured)


def cases(run: Run) -> Finding:
    """Reproduce Figure 5: rows nearest to the centroids of some clusters."""
    data = run.load("mnist", run.of(600, 20_000, None))
    fitted = estimator(CKM, 10, 128, 0, data.n).fit(data.X)
    distances = np.asarray(fitted.transform(data.X)).min(axis=1)
    lines = []
    for j in range(8):
        members = np.flatnonzero(fitted.labels_ == j)
        nearest = members[np.argsort(distances[members])][:10]
        lines.append((f"Cluster {j}, {len(members):,} rows", [_picture(data, i) for i in nearest]))
    caption = "The ten rows of each cluster whose codes are nearest to the centroid."
    published = "Photographs of ILSVRC2012; similar ones are in one cluster."
    return Finding([gallery("Figure 5: clusters of digits", lines, published, caption)], {})


def _picture(data: Rows, i: int) -> str:
    """Return row i, a square image, as a data URL."""
    row: Array = data.X[i]
    side = int(np.sqrt(len(row)))
    return picture(row.reshape(side, side), 0.0, 1.0)


PAPER = Paper(
    "compressed",
    "Compressed k-means for large-scale clustering",
    "X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.",
    "Compressed k-means (CKM) learns short binary codes from some of the rows and runs k-means on the codes with the Hamming "
    "distance. Time, memory and accuracy are compared with k-means, two spectral methods and codes of random hyperplanes "
    "(LSH). CKM is Shoal's default: k-means++ initialization, the best of three starts, learning in epochs. The paper variant "
    "is Algorithm 1, initialized with random rows. MNIST replaces MNIST8M; 20 Newsgroups with its full vocabulary replaces "
    "RCV1, of which the paper uses 1,979 words; ILSVRC2012 is left out.",
    CLAIMS,
    (
        Experiment("Figure 1", (8, 30), losses),
        *(Experiment(f"Table 2 and Figure 2, {name}", (22, 600), partial(contest, name=name)) for name in SETS),
        Experiment("Figure 3 and Table 3", (15, 300), iterations),
        Experiment("Figure 4", (20, 1200), shares),
        Experiment("Figure 5", (5, 30), cases),
    ),
    tuple(SETS),
)
