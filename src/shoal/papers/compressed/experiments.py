"""X. Shen, W. Liu, I. Tsang, F. Shen, Q.-S. Sun (2017), Compressed k-means for large-scale clustering, AAAI.

K-means on learned binary codes: time, memory and accuracy compared with k-means, spectral methods and random codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np

from ...binary.binary_kmeans import BinaryKMeans
from ...binary.codes import Codes
from ...binary.compressed import CompressedKMeans
from ...data.types import Array
from ...kmeans.kmeans import KMeans
from ...metrics import accuracy
from ...report.draw import Line, picture
from ...report.words import count_noun
from ...spectral.nystrom import NystromSpectral
from ..data import Rows
from ..run import Experiment, Finding, Paper, Run, Shown
from ..show import chart, gallery, grid, ranks
from . import letter, rivals
from .claims import CKM, CLAIMS, KM, KMPP, LSC, LSH, NYSTROM, REDUCTION, SETS, SPEED

LETTER, SHOAL = "the letter", "Shoal"
ARMS = (LETTER, SHOAL)
OTHERS = (KM, KMPP, NYSTROM, LSC)
OWN = tuple(f"{method}, {arm}" for arm in ARMS for method in (LSH, CKM))
METHODS = (*OTHERS, *OWN)
FILES = {"news": "news-frequent", "covtype": "covtype-raw", "mnist": "mnist-raw"}  # rows as in the paper
BETAS = (0.01, 0.05, 0.1, 0.5, 1.0)
COUNTS = (10, 50, 100, 200)
WORD = 64  # bits that one operation on codes compares
TINY_NEWS_BITS = 16  # in tests: the stand-in for news has 4000 columns, and a round takes as long as there are bits


def load(run: Run, name: str, rows: int | None) -> Rows:
    """Return a data set as the paper uses it: raw pixels, raw columns of CovType, words that appear 100 times or more."""
    return run.load(FILES[name], rows)


def bits_of(run: Run, name: str) -> int:
    """Return the number of bits per code."""
    bits = SETS[name][1]
    return run.of(TINY_NEWS_BITS if name == "news" else bits, bits, bits)


def classes(data: Rows) -> int:
    """Return the number of classes."""
    assert data.y is not None
    return int(data.y.max()) + 1


def cluster(method: str, X: Any, k: int, bits: int, seed: int) -> Array:
    """Return the labels that a method finds."""
    n, common = X.shape[0], dict[str, Any](n_init=1, random_state=seed)
    few = min(500, n // 4)  # landmarks; 500 in the paper
    shoal: dict[str, Any] = {"n_bits": bits, "random_state": seed}
    makers: dict[str, Callable[[], Any]] = {
        KM: lambda: KMeans(k, init="random", algorithm="lloyd", **common).fit(X).labels_,
        KMPP: lambda: KMeans(k, algorithm="lloyd", **common).fit(X).labels_,
        NYSTROM: lambda: NystromSpectral(k, n_samples=few, random_state=seed).fit(X).labels_,
        LSC: lambda: rivals.lsc_k(X, k, p=few, seed=seed),
        f"{LSH}, {LETTER}": lambda: letter.lsh_bk_means(X, k, bits, seed=seed),
        f"{CKM}, {LETTER}": lambda: letter.ckm(X, k, bits, seed=seed).G,
        f"{LSH}, {SHOAL}": lambda: CompressedKMeans(k, learn=False, init="random", n_init=1, **shoal).fit(X).labels_,
        f"{CKM}, {SHOAL}": lambda: CompressedKMeans(k, **shoal).fit(X).labels_,
    }
    return np.asarray(makers[method]())


def contest(run: Run, name: str) -> Finding:
    """Reproduce Table 2 and Figure 2 on one data set."""
    data = load(run, name, run.of(600, 4000, None))
    theirs, bits, k = SETS[name][0], bits_of(run, name), classes(data)
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
    measured: dict[str, Any] = _contest_measurements(seconds, scores)
    measured["operations of k-means / of CKM, the letter"] = [
        _operations(data, k, bits, seed) for seed in range(min(3, len(seconds[KM])))
    ]
    took = {m: float(np.median(v)) for m, v in seconds.items()}
    published = dict(zip((*OTHERS, LSH, CKM), SPEED[theirs], strict=True))
    size, count = f"{data.n:,} rows, k = {k}, {bits} bits", count_noun(len(seconds[KM]), "seed")
    table = grid(
        f"Table 2: {name}", ["method", "speed-up over k-means", f"paper ({theirs})"],
        [[m, took[KM] / took[m], published[m.partition(", ")[0]]] for m in METHODS],
        "CKM is second only to LSH + bk-means in speed.", f"{size}; median of {count}.",
    )  # fmt: skip
    figure = ranks(
        f"compressed-2-{name}", f"Figure 2: {name}", scores, "ACC",
        "CKM is about as accurate as the best, and clearly better than LSH + bk-means.",
        f"{size}; {count}, mean ± standard deviation.",
    )  # fmt: skip
    return Finding([table, figure], {f"{name}: {key}": value for key, value in measured.items()})


def _contest_measurements(seconds: dict[str, list[float]], scores: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return the measurements of Table 2 and Figure 2, one value per seed."""
    took, acc = ({m: np.array(v) for m, v in found.items()} for found in (seconds, scores))
    best, fastest = (f([which[m] for m in some], axis=0) for f, which, some in (
        (np.max, acc, OTHERS), (np.min, took, OTHERS[1:]),
    ))  # fmt: skip
    out = {
        "ACC of LSH + bk-means / of k-means": acc[f"{LSH}, {LETTER}"] / acc[KM],
        "ACC of k-means++ minus that of k-means": acc[KMPP] - acc[KM],
        "ACC of LSC-K minus the best of the other methods": acc[LSC] - np.max([acc[m] for m in METHODS if m != LSC], axis=0),
        "ACC of LSC-K minus that of Nyström": acc[LSC] - acc[NYSTROM],
        "time of LSC-K / of Nyström": took[LSC] / took[NYSTROM],
        "time of k-means / of k-means++": took[KM] / took[KMPP],
    }
    for arm in ARMS:
        own, random = f"{CKM}, {arm}", f"{LSH}, {arm}"
        out |= {
            f"{arm}: speed-up of CKM over k-means": took[KM] / took[own],
            f"{arm}: time of the fastest of Nyström, LSC-K and k-means++ / of CKM": fastest / took[own],
            f"{arm}: time of CKM / of LSH + bk-means": took[own] / took[random],
            f"{arm}: ACC of CKM minus that of LSH + bk-means": acc[own] - acc[random],
            f"{arm}: ACC of CKM minus the best of the other methods": acc[own] - best,
        }
    return {key: list(values) for key, values in out.items()}


def _operations(data: Rows, k: int, bits: int, seed: int) -> float:
    """Return the operations of k-means relative to those of the letter.

    A distance of rows takes an operation per value that is stored; one of codes, an operation per word of 64 bits.
    """
    n = data.n
    width = data.X.nnz / n if hasattr(data.X, "nnz") else data.X.shape[1]
    steps = KMeans(k, init="random", n_init=1, algorithm="lloyd", random_state=seed).fit(data.X).n_iter_
    found, words, m = letter.ckm(data.X, k, bits, seed=seed), -(-bits // WORD), max(k, round(0.01 * n))
    learning = len(found.losses) * (m + letter.BATCH_SIZE) * width * bits + found.steps[0] * m * k * words
    return float(steps * n * k * width / (learning + n * width * bits + found.steps[1] * n * k * words))


def learning_curves(arm: str, X: Any, k: int, bits: int, seed: int) -> tuple[Array, Array]:
    """Return the upper bound and the loss after each round of learning."""
    if arm == LETTER:
        result = letter.ckm(X, k, bits, seed=seed)
        return np.array(result.upper_bounds), np.array(result.losses)
    history = [r for r in CompressedKMeans(k, n_bits=bits, random_state=seed).fit(X).history_ if "upper_bound" in r]
    return np.array([r["upper_bound"] for r in history]), np.array([r["loss"] for r in history])


def losses(run: Run) -> Finding:
    """Reproduce Figure 1 with both arms."""
    data = load(run, "news", run.of(600, 4000, None))
    shown, measured = list[Shown](), dict[str, list[float]]()
    for seed in run.seeds(10):
        for arm in ARMS:
            bound, loss = learning_curves(arm, data.X, classes(data), bits_of(run, "news"), seed)
            if not seed:
                shown.append(_learning_figure(arm, bound, loss))
            for key, value in _learning_measurements(bound, loss).items():
                measured.setdefault(f"{arm}: {key}", []).append(value)
    return Finding(shown, measured)


def _learning_figure(arm: str, bound: Array, loss: Array) -> Shown:
    """Return Figure 1 of one arm."""
    rounds = np.arange(len(bound)) + 1.0
    return chart(
        f"compressed-1-{'letter' if arm == LETTER else 'shoal'}", f"Figure 1: {arm}, news",
        [Line("upper bound", rounds, bound / loss[0]), Line("loss", rounds, loss / loss[0])], "iteration",
        "relative to the first loss", "Both decrease and converge within a few iterations (RCV1).", "One seed.",
    )  # fmt: skip


def _learning_measurements(bound: Array, loss: Array) -> dict[str, float]:
    """Return the measurements of Figure 1."""
    smallest = float((bound / loss).min())
    bound, loss = (np.convolve(values, [0.5, 0.5], "valid") if len(values) > 1 else values for values in (bound, loss))
    return {
        "last / first upper bound, means of two rounds": float(bound[-1] / bound[0]),
        "last / first loss, means of two rounds": float(loss[-1] / loss[0]),
        "rounds until both have fallen and stay within 5% of their last values": max(_settled(bound), _settled(loss)),
        "smallest upper bound / loss of a round": smallest,
    }


def _settled(values: Array) -> float:
    """Return the first round from which all values are within 5% of the last one; infinite if nothing has fallen by 5%."""
    if values[-1] > 0.95 * values[0]:
        return float("inf")
    return float(np.flatnonzero(np.abs(values / values[-1] - 1) > 0.05)[-1]) + 2


def _first_step(model: Any, X: Any) -> float:
    """Return the seconds of the first step."""
    return float(next(record["seconds"] for record in model.fit(X).history_ if "energy" in record))


def _first_step_of_letter(B: Array, k: int) -> float:
    """Return the seconds of the first step of the letter, without packing the codes."""
    words, C = letter.pack(B), B[:k]
    started = time.perf_counter()
    letter.majority(B, letter.assign(words, C)[0], C)
    return time.perf_counter() - started


def iterations(run: Run) -> Finding:
    """Reproduce Figure 3 and Table 3."""
    shown, measured, rows = list[Shown](), dict[str, Any](), list[list[object]]()
    for name, (theirs, _) in SETS.items():
        bits, data = bits_of(run, name), load(run, name, run.of(600, 4000, None))
        B = letter.encode(data.X, letter.lsh(data.X.shape[1], bits))
        codes = Codes.pack(B)
        counts = [k for k in run.of(COUNTS, COUNTS, (*COUNTS, 1000)) if 2 * k <= data.n]
        times: dict[str, list[float]] = {KM: [], LETTER: [], SHOAL: []}
        _first_step_of_letter(B[:100], 2)
        for k in counts:
            run.report_progress(0.3 * len(rows) + 0.1 * counts.index(k) / len(counts))
            common: dict[str, Any] = {"init": "random", "n_init": 1, "max_iter": 1, "random_state": 0}
            trials = range(run.of(2, 3, 5))
            each = {
                KM: [_first_step(KMeans(k, algorithm="lloyd", **common), data.X) for _ in trials],
                SHOAL: [_first_step(BinaryKMeans(k, **common), codes) for _ in trials],
                LETTER: [_first_step_of_letter(B, k) for _ in trials],
            }
            for who, values in each.items():
                times[who].append(float(np.median(values)))
            for arm in ARMS:
                key = f"{name}, k = {k}: {arm}: time of an iteration of k-means / of CKM"
                measured[key] = [a / b for a, b in zip(each[KM], each[arm], strict=True)]
        series = [Line(who, np.array(counts, float), np.array(seconds)) for who, seconds in times.items()]
        shown.append(
            chart(
                f"compressed-3-{name}", f"Figure 3: {name}", series, "number of clusters k", "seconds of the first iteration",
                "Iterations of CKM are far shorter for all k.",
            )
        )  # fmt: skip
        size, d = 8 * data.n * data.X.shape[1] / letter.pack(B[:1]).nbytes / data.n, data.X.shape[1]
        measured[f"{name}: bytes of the rows as dense float64 / bytes of their codes"] = size
        measured[f"{name}: bytes of the rows as dense float64 / bytes of their codes / (columns / 2)"] = size / (d / 2)
        rows.append([name, f"{data.n:,} x {d:,}", bits, size, theirs, REDUCTION[theirs]])
    shown.append(
        grid(
            "Table 3: memory of rows relative to codes",
            ["data", "rows x columns", "bits", "ratio", "data in the paper", "paper"], rows,
            "3.07 GB against 3.10 MB (RCV1), 0.25 GB against 2.32 MB (CovType), 50.80 GB against 129.60 MB (MNIST8M).",
            "Rows count 8 bytes per value, including the zeros of sparse rows, as in the paper; 32 bits take 4 bytes.",
        )
    )  # fmt: skip
    return Finding(shown, measured)


def _labels_of_fraction(arm: str, X: Any, k: int, bits: int, beta: float, seed: int) -> Array:
    """Return the labels with codes learned from this fraction of the rows."""
    if arm == LETTER:
        return letter.ckm(X, k, bits, beta=beta, seed=seed).G
    return np.asarray(CompressedKMeans(k, beta=beta, n_bits=bits, random_state=seed).fit(X).labels_)


def shares(run: Run) -> Finding:
    """Reproduce Figure 4: the fraction of rows that codes are learned from, on three sets with both arms."""
    shown, measured = list[Shown](), dict[str, Any]()
    betas = run.of((BETAS[0], BETAS[-1]), BETAS, BETAS)
    for name in SETS:
        bits, data = bits_of(run, name), load(run, name, run.of(600, 3000, 20_000))
        k, found = classes(data), {arm: list[list[float]]() for arm in ARMS}
        for seed in run.seeds(run.of(1, 3, 10), parts=len(SETS)):
            for arm in ARMS:
                labels = [_labels_of_fraction(arm, data.X, k, bits, beta, seed) for beta in betas]
                found[arm].append([accuracy(data.y, some) for some in labels])
        for arm, scores in found.items():
            measured[f"{name}: {arm}: range of ACC over the training fractions"] = float(np.ptp(np.mean(scores, axis=0)))
            more = f"{name}: {arm}: ACC with codes learned from all rows minus that with the smallest fraction"
            measured[more] = [each[-1] - each[0] for each in scores]
        series = [Line(arm, np.array(betas), np.mean(s, axis=0), np.std(s, axis=0)) for arm, s in found.items()]
        shown.append(
            chart(
                f"compressed-4-{name}", f"Figure 4: {name}", series, "beta", "ACC", "Slightly better as beta grows.",
                "Shoal learns from at least 5000 rows, or all.",
            )
        )  # fmt: skip
    return Finding(shown, measured)


def scaled_rows(X: Any) -> Iterator[tuple[str, Any]]:
    """Generate the readings of what the rows are, with a description. Sparse rows are not shifted."""
    yield "as they are", X
    if hasattr(X, "toarray"):
        return
    X = np.asarray(X, np.float32)
    spread = X.std(axis=0)
    yield "minus the mean", X - X.mean(axis=0)
    yield "z-scored", (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    yield "divided by the largest value", X / np.abs(X).max()


READINGS: dict[str, dict[str, Any]] = {
    "the letter": {},
    "h instead of e in (12) and (13)": {"clusters_on": "h"},
    "x~ = (x, 1)": {"bias": True},
    "mean of the batch": {"gradient": "mean"},
    "alpha in the gradient": {"alpha_in_gradient": True},
    "(15) before round one": {"project_first": True},
    "an epoch of batches per round": {"batches_per_round": 5},
    "second stage from majorities of h": {"majority": True},
    "h, majorities, x~, (15) first": {"clusters_on": "h", "majority": True, "bias": True, "project_first": True},
}


def hypotheses(run: Run) -> Finding:
    """Try readings of what the paper leaves open, on three sets; the one with the lowest loss is chosen, not the best ACC."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    measured: dict[str, Any] = {}
    rows: list[list[object]] = []
    for name in SETS:
        bits, data = bits_of(run, name), load(run, name, run.of(400, 2000, 10_000))
        k, trials, acc = classes(data), dict[str, list[tuple[float, float]]](), list[float]()
        for seed in run.seeds(run.of(1, 3, 10), parts=len(SETS)):
            acc.append(accuracy(data.y, cluster(KMPP, data.X, k, bits, seed)))
            for (scale, X), (words, options) in islice(product(scaled_rows(data.X), READINGS.items()), run.of(2, None, None)):
                result = letter.ckm(X, k, bits, beta=0.2, seed=seed, reading=letter.Reading(**options))
                trials.setdefault(f"{scale}; {words}", []).append((result.losses[-1] / bits, accuracy(data.y, result.G)))
        found[name] = {words: (float(np.mean(v, axis=0)[0]), float(np.mean(v, axis=0)[1])) for words, v in trials.items()}
        chosen = min(found[name], key=lambda words: found[name][words][0])
        differences = [score - best for (_, score), best in zip(trials[chosen], acc, strict=True)]
        measured[f"{name}: ACC of the reading with the lowest loss minus that of k-means++"] = differences
        rows += [[name, words, *values, "chosen" if words == chosen else ""] for words, values in found[name].items()]
    shown = grid(
        "Readings of Algorithm 1", ["data", "reading", "last loss per bit", "ACC", ""], rows,
        "Generally comparable to the best.", f"{len(rows)} trials, all of those made. The loss decides, not the accuracy.",
    )  # fmt: skip
    return Finding([shown], measured)


def cases(run: Run) -> Finding:
    """Reproduce Figure 5: rows nearest to the centroids of some clusters."""
    data = run.load("mnist", run.of(600, 4000, 20_000))
    fitted = CompressedKMeans(10, n_bits=128, random_state=0).fit(data.X)
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
    "distance. Time, memory and accuracy are compared with Lloyd's k-means, two spectral methods and codes of random "
    "hyperplanes "
    "(LSH). In the arm of the letter, CKM is Algorithm 1 on raw rows with a subset of exactly 1% of them, and hyperplanes of "
    "LSH "
    "go through the origin; LSC-K is that of its authors. Shoal's CKM has k-means++ initialization, the best of three starts, "
    "and a sketch of the rows. MNIST replaces MNIST8M; 20 Newsgroups, with words that appear at least 100 times, replaces "
    "RCV1. "
    "ILSVRC2012 is left out: no data set with a thousand classes is available. Supplementary results are not published with "
    "the "
    "paper.",
    CLAIMS,
    (
        Experiment("Figure 1", (10, 60), losses),
        *(Experiment(f"Table 2 and Figure 2, {name}", (25, 1800), partial(contest, name=name)) for name in SETS),
        Experiment("Figure 3 and Table 3", (15, 300), iterations),
        Experiment("Figure 4", (25, 1800), shares),
        Experiment("Readings", (25, 1800), hypotheses),
        Experiment("Figure 5", (5, 30), cases),
    ),
    (*FILES.values(), "mnist"),
)
