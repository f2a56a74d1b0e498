"""X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.

K-means on learned binary codes: time, memory and accuracy beside k-means, spectral methods and random codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import binary
from ..binary.binary_kmeans import BinaryKMeans
from ..binary.compressed import LEAST as LEARNED
from ..binary.compressed import CompressedKMeans
from ..data.types import Array
from ..kmeans.kmeans import KMeans
from ..metrics import accuracy
from ..report.draw import Line, picture
from ..report.words import many
from ..spectral.landmarks import LandmarkSpectral
from ..spectral.nystrom import NystromSpectral
from .claims import Check, Claim
from .data import Rows
from .run import Experiment, Finding, Paper, Run, Shown
from .show import chart, gallery, grid, ranks

KM, KMPP, NYSTROM, LSC, LSH, CKM = "k-means", "k-means++", "Nyström", "LSC-K", "LSH + bk-means", "CKM"
LETTER = "CKM by the letter"
METHODS = (KM, KMPP, NYSTROM, LSC, LSH, CKM, LETTER)
SETS = {"news": ("RCV1", 128), "covtype": ("CovType", 32), "mnist": ("MNIST8M", 128)}  # the paper's name, bits
SPEED = {  # over k-means, as published
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
        "Learning lowers both the upper bound and the loss, and both settle within a few iterations.",
        "both fall, and settle within a few iterations",
        (
            Check("last upper bound over the first, two rounds together", most=0.95),
            Check("last loss over the first, two rounds together", most=0.95),
            Check("rounds until both stay within 5% of where they end", most=10),
        ),
    ),
    Claim(
        "fast",
        "Table 2",
        "CKM is several times as fast as k-means.",
        "11.94 (RCV1), 5.67 (CovType) and 39.19 times (MNIST8M)",
        (
            Check("speed-up of CKM over k-means", least=5.0),
            Check("speed-up of CKM by the letter over k-means", least=5.0),
        ),
    ),
    Claim(
        "faster-than-spectral",
        "Table 2",
        "CKM is faster than Nyström, LSC-K and k-means++.",
        "second only to LSH + bk-means on all sets",
        (
            Check("speed-up of CKM over the fastest of Nyström, LSC-K and k-means++", least=1.0),
            Check("speed-up of CKM by the letter over the fastest of Nyström, LSC-K and k-means++", least=1.0),
        ),
    ),
    Claim(
        "lsh-fastest",
        "Table 2",
        "LSH with k-means on bits is faster still: it learns nothing.",
        "the fastest of all",
        (
            Check("time of CKM over that of LSH + bk-means", least=1.0),
            Check("time of CKM by the letter over that of LSH + bk-means", least=1.0),
        ),
    ),
    Claim(
        "better-than-lsh",
        "Figure 2",
        "CKM finds the classes clearly better than LSH with k-means on bits.",
        "clearly on all sets",
        (
            Check("ACC of CKM less that of LSH + bk-means", least=0.02),
            Check("ACC of CKM by the letter less that of LSH + bk-means", least=0.02),
        ),
    ),
    Claim(
        "comparable",
        "Figure 2",
        "CKM is about as accurate as the best of the others.",
        "generally comparable to the best",
        (Check("ACC of CKM less the best of the others", least=-0.05),),
    ),
    Claim(
        "letter",
        "Figure 2",
        "The same, for the algorithm by the letter of the paper.",
        "generally comparable to the best",
        (Check("ACC of CKM by the letter less the best of the others", least=-0.05),),
    ),
    Claim(
        "iteration",
        "Figure 3",
        "An iteration of CKM is several times as fast as one of k-means for every number of clusters.",
        "by far, for all k; 25 s against 6500 s for 1000 clusters",
        (Check("time of an iteration of k-means over that of CKM", least=2.0),),
    ),
    Claim(
        "memory",
        "Table 3",
        "Codes take hundreds of times less memory than rows in float64.",
        "988 (RCV1), 432 (CovType; its own sizes give 108), 392 times (MNIST8M)",
        (Check("bytes of the rows in float64, all columns, over those of their codes", least=100.0),),
    ),
    Claim(
        "beta",
        "Figure 4",
        "The share of rows that codes are learned from hardly matters for the accuracy.",
        "slightly better as it grows",
        (
            Check("range of ACC over the shares to learn from", most=0.05),
            Check("ACC of codes from all rows less that of codes from the fewest", least=0.0),
        ),
    ),
)


def model(name: str, k: int, bits: int, seed: int, n: int) -> Any:
    some = min(500, n // 4)
    made: dict[str, Callable[[], Any]] = {
        KM: lambda: KMeans(k, init="random", n_init=1, random_state=seed),
        KMPP: lambda: KMeans(k, n_init=1, random_state=seed),
        NYSTROM: lambda: NystromSpectral(k, n_samples=some, random_state=seed),
        LSC: lambda: LandmarkSpectral(k, n_landmarks=some, random_state=seed),
        LSH: lambda: CompressedKMeans(k, n_bits=bits, learn=False, init="random", n_init=1, random_state=seed),
        CKM: lambda: CompressedKMeans(k, n_bits=bits, random_state=seed),
        LETTER: lambda: CompressedKMeans(k, n_bits=bits, learn="paper", init="random", n_init=1, random_state=seed),
    }
    return made[name]()


def contest(run: Run, name: str) -> Finding:
    """Table 2 and Figure 2 on one data set."""
    data = run.load(name, run.of(600, 20_000, None))
    assert data.y is not None
    (theirs, bits), k = SETS[name], int(data.y.max()) + 1
    seconds: dict[str, list[float]] = {m: [] for m in METHODS}
    scores: dict[str, list[float]] = {m: [] for m in METHODS}
    for method in METHODS:
        model(method, 2, bits, 0, 400).fit(data.X[:400])  # kernels are compiled
    for seed in run.seeds(10):
        for method in METHODS:
            begun = time.perf_counter()
            labels = model(method, k, bits, seed, data.n).fit(data.X).labels_
            seconds[method].append(time.perf_counter() - begun)
            scores[method].append(accuracy(data.y, labels))
    took = {m: float(np.median(v)) for m, v in seconds.items()}
    acc = {m: float(np.mean(v)) for m, v in scores.items()}
    published = dict(zip(METHODS, SPEED[theirs], strict=False))
    size = f"{data.n:,} rows, k = {k}, {bits} bits"
    table = grid(
        f"Table 2: {name}", ["method", "speed-up over k-means", f"paper's ({theirs})"],
        [[m, took[KM] / took[m], published.get(m, "–")] for m in METHODS],
        "CKM is second only to LSH + bk-means in speed.", f"{size}; median of {many(len(seconds[KM]), 'seed')}.",
    )  # fmt: skip
    figure = ranks(
        f"compressed-2-{name}", f"Figure 2: {name}", scores, "ACC",
        "CKM is about as accurate as the best, and clearly better than LSH + bk-means.",
        f"{size}; {many(len(seconds[KM]), 'seed')}{', mean and deviation' if len(seconds[KM]) > 1 else ''}.",
    )  # fmt: skip
    others = max(acc[m] for m in METHODS[:4])
    measured, fastest = dict[str, float](), min(took[m] for m in METHODS[1:4])
    for method in (CKM, LETTER):
        measured |= {
            f"speed-up of {method} over k-means": took[KM] / took[method],
            f"speed-up of {method} over the fastest of Nyström, LSC-K and k-means++": fastest / took[method],
            f"time of {method} over that of LSH + bk-means": took[method] / took[LSH],
            f"ACC of {method} less that of LSH + bk-means": acc[method] - acc[LSH],
            f"ACC of {method} less the best of the others": acc[method] - others,
        }
    return Finding([table, figure], {f"{name}: {key}": value for key, value in measured.items()})


def losses(run: Run) -> Finding:
    """Figure 1: by the letter of the paper, and as Shoal learns."""
    data = run.load("news", run.of(600, 20_000, None))
    k = run.of(5, 20, 20)
    shown, measured = list[Shown](), dict[str, float]()
    for method, words in ((LETTER, "by the letter"), (CKM, "as Shoal learns")):
        history = [r for r in model(method, k, 128, 0, data.n).fit(data.X).history_ if "upper_bound" in r]
        bound, loss = (np.array([record[key] for record in history]) for key in ("upper_bound", "loss"))
        rounds = np.arange(len(history)) + 1.0
        shown.append(
            chart(
                f"compressed-1-{len(shown)}", f"Figure 1: {words}, news",
                [Line("upper bound", rounds, bound), Line("loss", rounds, loss)],
                "round", "bits a row", "Both fall and settle within a few iterations (RCV1).",
                "A round is a batch of rows by the letter; as Shoal learns, all rows to learn from. By the letter the loss "
                "goes up and down, so that two rounds are taken together where they are judged.",
            )
        )  # fmt: skip
        bound, loss = (np.convolve(values, [0.5, 0.5], "valid") if len(values) > 1 else values for values in (bound, loss))
        measured |= {
            f"{words}: last upper bound over the first, two rounds together": float(bound[-1] / bound[0]),
            f"{words}: last loss over the first, two rounds together": float(loss[-1] / loss[0]),
            f"{words}: rounds until both stay within 5% of where they end": max(_settled(bound), _settled(loss)),
        }
    return Finding(shown, measured)


def _settled(values: Array) -> float:
    """The round from which on all values are near the last one."""
    far = np.flatnonzero(np.abs(values / values[-1] - 1) > 0.05)
    return float(far[-1]) + 2 if len(far) else 1.0


def _once(model: Any, X: Any) -> float:
    """Seconds of a step, the shortest of three."""
    seconds = [record["seconds"] for record in model.fit(X).history_ if "energy" in record]
    return float(min(np.diff([0.0, *seconds])))


def iterations(run: Run) -> Finding:
    """Figure 3, and Table 3."""
    series, measured, rows = [], dict[str, float](), list[list[object]]()
    for name, (theirs, bits) in SETS.items():
        data = run.load(name, run.of(600, 10_000, None))
        codes = binary.lsh(data.X, n_bits=bits, random_state=0).encode(data.X)
        counts = [k for k in run.of(COUNTS, COUNTS, (*COUNTS, 1000)) if 2 * k <= data.n]
        times: dict[str, list[float]] = {KM: [], CKM: []}
        for k in counts:
            run.tell(0.3 * len(rows) + 0.1 * counts.index(k) / len(counts))
            common: dict[str, Any] = {"init": "random", "n_init": 1, "max_iter": 3, "random_state": 0}
            times[KM].append(_once(KMeans(k, algorithm="lloyd", **common), data.X))
            times[CKM].append(_once(BinaryKMeans(k, **common), codes))
            measured[f"{name}, k = {k}: time of an iteration of k-means over that of CKM"] = times[KM][-1] / times[CKM][-1]
        series.append(Line(name, np.array(counts, float), np.array(times[KM]) / np.array(times[CKM])))
        size = 8 * data.n * data.X.shape[1] / codes.words.nbytes
        measured[f"{name}: bytes of the rows in float64, all columns, over those of their codes"] = size
        rows.append([name, f"{data.n:,} x {data.X.shape[1]:,}", bits, size, theirs, REDUCTION[theirs]])
    figure = chart(
        "compressed-3", "Figure 3: an iteration of k-means, in iterations of CKM", series, "clusters, k", "times as long",
        "CKM's iterations are far shorter for all k, on all four sets (a log scale of seconds).",
    )  # fmt: skip
    table = grid(
        "Table 3: memory of rows over that of codes",
        ["data", "rows x columns", "bits", "here", "paper's data", "paper's"], rows,
        "3.07 GB against 3.10 MB (RCV1), 0.25 GB against 2.32 MB (CovType), 50.80 GB against 129.60 MB (MNIST8M).",
        "Rows as 8 bytes a number, zeros of sparse ones included, as the paper counts; codes in words of 64 bits.",
    )  # fmt: skip
    return Finding([figure, table], measured)


def shares(run: Run) -> Finding:
    """Figure 4: from how many rows codes are learned. At least 5000 rows are: shares below that are left out."""
    series, measured = [], {}
    for name in ("mnist", "covtype"):
        data = run.load(name, run.of(600, 20_000, None))
        bits, found = SETS[name][1], []
        assert data.y is not None
        k, betas = int(data.y.max()) + 1, [beta for beta in BETAS if beta == 1 or beta * data.n >= LEARNED]
        for seed in run.seeds(run.of(1, 3, 10)):
            options: dict[str, Any] = {"n_bits": bits, "random_state": seed}
            labels = [CompressedKMeans(k, beta=beta, **options).fit(data.X).labels_ for beta in betas]
            found.append([accuracy(data.y, some) for some in labels])
        mean = np.mean(found, axis=0)
        series.append(Line(name, np.array(betas), mean, np.std(found, axis=0)))
        if len(betas) > 1:
            few = f"{name}, from {betas[0]:g} on"
            measured[f"{few}: range of ACC over the shares to learn from"] = float(np.ptp(mean))
            measured[f"{few}: ACC of codes from all rows less that of codes from the fewest"] = float(mean[-1] - mean[0])
    shown = chart(
        "compressed-4", "Figure 4: the share of rows to learn from", series, "beta", "ACC", "Slightly better as beta grows.",
        "At least 5000 rows are learned from, so that smaller shares are left out.",
    )  # fmt: skip
    return Finding([shown], measured)


def cases(run: Run) -> Finding:
    """Figure 5: rows nearest to the centres of some clusters."""
    data = run.load("mnist", run.of(600, 20_000, None))
    fitted = model(CKM, 10, 128, 0, data.n).fit(data.X)
    far = np.asarray(fitted.transform(data.X)).min(axis=1)
    lines = []
    for j in range(8):
        mine = np.flatnonzero(fitted.labels_ == j)
        lines.append((f"Cluster {j}, {len(mine):,} rows", [_picture(data, i) for i in mine[np.argsort(far[mine])][:10]]))
    caption = "The ten rows of each cluster whose codes are nearest to the centre's."
    return Finding(
        [gallery("Figure 5: clusters of digits", lines, "Photographs of ILSVRC2012: similar ones are together.", caption)], {}
    )


def _picture(data: Rows, i: int) -> str:
    row: Array = data.X[i]
    side = int(np.sqrt(len(row)))
    return picture(row.reshape(side, side), 0.0, 1.0)


PAPER = Paper(
    "compressed",
    "Compressed k-means for large-scale clustering",
    "X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.",
    "Rows become short binary codes that are learned from some of them; k-means on codes counts bits. Time, memory, accuracy "
    "beside k-means, two spectral methods and codes of random hyperplanes. CKM is what Shoal does unless it is told otherwise: "
    "from k-means++, the best of three starts, learning in epochs; by the letter it is Algorithm 1, from random rows. "
    "MNIST stands for MNIST8M, 20 Newsgroups with all its words (RCV1 has 1,979 there) for RCV1; ILSVRC2012 is left out.",
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
