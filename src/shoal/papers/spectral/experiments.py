"""Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346.

NMI over floating-point operations and time of stochastic gradients, the power method, Nyström's method and exact eigenvectors.
"""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone

from ...data.types import Array
from ...fit.checkpoint import FitProgress
from ...fit.environment import FitEnvironment
from ...kmeans.kmeans import KMeans
from ...metrics import normalized_mutual_info_score
from ...report.draw import Line
from ...spectral.exact import ExactSpectral
from ...spectral.minibatch import DEGREE_COLUMNS, MAX_ROWS_FOR_EXACT_DEGREES, MiniBatchSpectral, sample_size
from ..data import Rows
from ..run import Experiment, Finding, Paper, Run, Shown
from ..show import averaged, chart, grid
from . import authors, readings
from .claims import ALL, CLAIMS, COVTYPE, EQUAL_NMI, NAMES, SECONDS, SETS
from .letter import (
    gradient_variance,
    htild,
    laplacian_by_columns,
    mini_batch_spectral,
    nystrom,
    nystrom_cost,
    power_cost,
    product,
    random_vectors,
    shuffled_vectors,
    step_cost,
)

SIGMA = 1.15  # kernel width for covtype
SAMPLES = (10, 50, 100, 500, 1000)
BATCHES = (50, 100, 500)
LEAST_COLUMNS = 10
POWERS = (1, 2, 4, 8)
SCORED_PASSES = (0.25, 0.5, 1.0)  # fractions of a pass over the columns after which a run is scored
STEPS = 200  # steps of mini-batches on covtype in the paper
MEMORY_STEPS = 3  # steps to measure memory with, as all steps allocate the same
LETTER, AUTHORS, SHOAL = NAMES.values()
POWER, NYSTROM = "power method", "Nyström"
GIGA = 1 << 30
ROWS = 10_000  # rows of shuttle and MNIST, whose affinities fit into memory: all seeds rather than all rows

Key = tuple[str, int, int]  # method, columns or sample size, steps


class Score(NamedTuple):
    """Quality and cost of one fit."""

    nmi: float
    flops: float
    seconds: float
    steps: int


class Further:
    """Checkpoint store in memory: a fit with more steps resumes where one with fewer steps ended."""

    def __init__(self) -> None:
        self.progress: FitProgress | None = None

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        """Return the state of the last fit, without its stop reason and its final clusters."""
        if self.progress is None:
            return None
        sections = {**self.progress.sections, "eigenvectors": self.progress.sections["eigenvectors"]._replace(reason="")}
        return self.progress._replace(sections={name: found for name, found in sections.items() if name != "clusters"})

    def offer(self, progress: FitProgress) -> None:
        """Store the state of the fit."""
        self.progress = progress

    def refuse(self, name: str) -> None:
        """Raise, as all fits of an experiment have the same parameters."""
        raise AssertionError(f"a longer fit differs from the shorter one in {name}")

    def describe(self) -> str:
        """Return an empty description, as no file is written."""
        return ""


class Problem(NamedTuple):
    """Rows with their Laplacian and the NMI of its exact eigenvectors."""

    data: Rows
    sigma: float
    L: Any
    degrees: Array | None
    exact: float
    columns: int  # columns in a pass of the authors' program: those of all rows of the data set, except in tests
    starts: int  # starts of k-means in the authors' program; fewer in tests

    @property
    def k(self) -> int:
        """Number of classes."""
        return _k(self.data)


def fit(model: Any, data: Rows, keeper: Further | None = None) -> Score:
    """Fit a model and score it."""
    started = time.perf_counter()
    environment = FitEnvironment.current(None, data.X)._replace(checkpoint=keeper)
    labels = model._fit(data.X, None, environment).labels_
    seconds = time.perf_counter() - started
    flops = float(sum(record.get("flops", 0) for record in model.history_)) + start_cost(model, data.n)
    return Score(_nmi(data, labels), flops, seconds, len(model.history_))


def start_cost(model: Any, n: int) -> float:
    """Return the operations of the initialization from a sample, which the paper does not have: eigenvectors and extension."""
    if getattr(model, "init", "") != "sample":
        return 0.0
    size = sample_size(n)
    return 4 / 3 * size**3 + 2.0 * n * int(model.n_clusters) * size


def _k(data: Rows) -> int:
    assert data.y is not None
    return int(data.y.max()) + 1


def _nmi(data: Rows, labels: Array) -> float:
    """Return NMI with the geometric mean, scikit-learn's default at the time of the paper."""
    return float(normalized_mutual_info_score(data.y, labels, average_method="geometric"))


def kmeans(W: Array, k: int, seed: int) -> Array:
    """Return the clusters of the rows of an embedding."""
    return np.asarray(KMeans(k, n_init=10, random_state=seed).fit(W).labels_)


def random_start(n: int, k: int, seed: int) -> Array:
    """Return random orthonormal columns."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, k)))[0]


def scored(
    data: Rows, path: Iterator[Array], steps: list[int], cost: int, label: Callable[[Array], Array]
) -> Iterator[tuple[int, Score]]:
    """Score a run of mini-batches after these numbers of steps. Its seconds do not include those of the other scores."""
    seconds, t = 0.0, 0
    for end in steps:
        started = time.perf_counter()
        for _ in range(end - t):
            W = next(path)
        seconds, t = seconds + time.perf_counter() - started, end
        started = time.perf_counter()
        labels = label(W)
        yield end, Score(_nmi(data, labels), float(end * cost), seconds + time.perf_counter() - started, end)


def nystrom_score(data: Rows, sigma: float, m: int, seed: int) -> Score:
    """Score Nyström's method as printed by Fowlkes et al., with k-means on its eigenvectors."""
    started, order = time.perf_counter(), np.random.default_rng(seed).permutation(data.n)
    A, B = (np.exp(-cdist(data.X[order[:m]], data.X[rest], "sqeuclidean") / sigma**2) for rest in (order[:m], order[m:]))
    k, V = _k(data), np.empty((data.n, _k(data)))
    V[order] = nystrom(A, B, k)
    labels = kmeans(V, k, seed)
    return Score(_nmi(data, labels), float(nystrom_cost(data.n, k, m)), time.perf_counter() - started, 1)


def power_scores(problem: Problem, powers: tuple[int, ...], seed: int) -> Iterator[tuple[int, Score]]:
    """Score the power method after these numbers of products."""
    data, k = problem.data, problem.k
    B, seconds, done = np.random.default_rng(seed).standard_normal((data.n, k)), 0.0, 0
    for p in powers:
        started = time.perf_counter()
        for _ in range(p - done):
            B = product(problem.L, B)
        seconds, done = seconds + time.perf_counter() - started, p
        started = time.perf_counter()
        labels = kmeans(np.linalg.svd(B, full_matrices=False)[0], k, seed)
        cost = float(power_cost(data.n, k, p))
        yield p, Score(_nmi(data, labels), cost, seconds + time.perf_counter() - started, p)


def _steps(n: int, size: int) -> list[int]:
    """Return the numbers of steps after which to score, up to one pass."""
    return sorted({max(1, round(share * n / size)) for share in SCORED_PASSES})


def _batches(data: Rows) -> list[int]:
    """Return the batch sizes, in columns: as many steps to a pass as for all rows, of at least `LEAST_COLUMNS` each."""
    return sorted({max(LEAST_COLUMNS, round(m * data.n / max(data.whole, data.n))) for m in BATCHES})


def one_seed(problem: Problem, seed: int) -> dict[Key, Score]:
    """Return scores by method, columns and steps."""
    data, sigma, k, found = problem.data, problem.sigma, problem.k, dict[Key, Score]()
    n, batches = data.n, _batches(data)
    plain = partial(kmeans, k=k, seed=seed)
    equal_steps = _steps(n, batches[-1])[-1]  # after which all batch sizes are compared
    for m in batches:
        path = mini_batch_spectral(problem.L, random_start(n, k, seed), shuffled_vectors(n, m, m, n, seed), n**-0.5)
        for t, score in scored(data, path, sorted({*_steps(n, m), equal_steps}), step_cost(n, k, m), plain):
            found[LETTER, m, t] = score
    m = authors.SUBSETS * authors.COLUMNS
    path = authors.run(data.X, problem.L, sigma, k, problem.columns, seed)
    label = partial(authors.cluster, degrees=problem.degrees, k=k, seed=seed, n_init=problem.starts)
    for t, score in scored(data, path, _steps(problem.columns, m), step_cost(n, k, m), label):  # as many as for all rows
        found[AUTHORS, m, t] = score
    m, further = batches[-1], Further()
    for steps in _steps(n, m):
        model = MiniBatchSpectral(k, sigma=sigma, batch_size=m, max_iter=steps, tol=0.0, random_state=seed)
        found[SHOAL, m, steps] = fit(model, data, further)
    for m in SAMPLES:
        if k <= m <= n // 2:
            found[NYSTROM, m, 1] = nystrom_score(data, sigma, m, seed)
    for p, score in power_scores(problem, POWERS, seed):
        found[POWER, 0, p] = score
    return found


def make_problem(data: Rows, sigma: float, columns: int, starts: int) -> Problem:
    """Compute the Laplacian of rows and score its exact eigenvectors."""
    L, degrees = readings.stored_laplacian(data.X, sigma)
    exact = fit(ExactSpectral(_k(data), sigma=sigma, random_state=0), data).nmi
    return Problem(data, sigma, L, degrees, exact, columns, starts)


def race(run: Run, name: str) -> Finding:
    """Reproduce Figure 2 on one data set."""
    data = run.load("mnist-training" if name == "mnist" else name, run.of(400, 3000, None if name == "pendigits" else ROWS))
    sigma, published = SETS[name]
    assert data.y is not None
    starts = run.of(5, authors.KMEANS_STARTS, authors.KMEANS_STARTS)
    if run.of(False, True, True):  # compile kernels, so that times do not include it; tests do not look at times
        one_seed(make_problem(data._replace(X=data.X[:400], y=data.y[:400]), sigma, 400, starts), 0)
    problem = make_problem(data, sigma, run.of(data.n, data.whole, data.whole), starts)
    runs = [one_seed(problem, seed) for seed in run.seeds(run.of(1, 10, 10))]
    measured = measure(runs, problem, published)
    return Finding(_figures(name, problem, runs, published), {f"{name}: {key}": value for key, value in measured.items()})


def _last(found: dict[Key, Score], method: str) -> Score:
    """Return the score of a method after a pass with its largest batch."""
    return found[max(key for key in found if key[0] == method)]


def measure(runs: list[dict[Key, Score]], problem: Problem, published: float) -> dict[str, Any]:
    """Return the measurements of Figure 2, one value per seed."""
    out: dict[str, Any] = {}
    most = max(m for method, m, _ in runs[0] if method == NYSTROM)
    for name in (LETTER, AUTHORS, SHOAL):
        final = [_last(found, name).nmi for found in runs]
        looks = [sorted(key for key in runs[0] if key[:2] == max(key for key in runs[0] if key[0] == name)[:2])][0]
        if not problem.data.replaced:
            out[f"NMI of {name} minus the published value"] = [nmi - published for nmi in final]
        out |= {
            f"NMI of {name} minus that of exact eigenvectors": [nmi - problem.exact for nmi in final],
            f"NMI of {name} after half a pass minus that after a full pass": [
                found[looks[max(len(looks) - 2, 0)]].nmi - found[looks[-1]].nmi for found in runs
            ],
            f"NMI of {name} minus that of Nyström with {most} rows": [
                _last(found, name).nmi - found[NYSTROM, most, 1].nmi for found in runs
            ],
        }
        for unit in ("flops", "seconds"):
            words = {"flops": "operations", "seconds": "seconds"}[unit]
            out[f"{words} of the power method / of {name} to the NMI of exact eigenvectors"] = [
                _ratio(_cost(found, POWER, problem.exact, unit), _cost(found, name, problem.exact, unit)) for found in runs
            ]
    small = max(key for key in runs[0] if key[:2] == (LETTER, _batches(problem.data)[0]))
    out["NMI of the letter with 50 columns minus that of exact eigenvectors"] = [f[small].nmi - problem.exact for f in runs]
    fewer = [key for key in runs[0] if key[0] == NYSTROM and key[1] < most]
    if most == SAMPLES[-1]:
        out["NMI of Nyström with 1000 rows minus its best with fewer"] = [
            found[NYSTROM, most, 1].nmi - max(found[key].nmi for key in fewer) for found in runs
        ]
        out["seconds of Nyström with 1000 rows / with 100 rows"] = [
            found[NYSTROM, 1000, 1].seconds / found[NYSTROM, 100, 1].seconds for found in runs
        ]
    batches = _batches(problem.data)
    if len(runs) > 2 and len(batches) > 1:
        t = _steps(problem.data.n, batches[-1])[-1]
        out["standard deviation of NMI over seeds, largest batch / smallest, after equally many steps"] = _spread_ratios(
            [[found[LETTER, m, t].nmi for found in runs] for m in (batches[-1], batches[0])]
        )
    return out


def _spread_ratios(scores: list[list[float]]) -> list[float]:
    """Return ratios of standard deviations, leaving out one seed at a time."""
    pairs = np.array(scores)
    left = [np.delete(pairs, i, axis=1).std(axis=1, ddof=1) for i in range(pairs.shape[1])] if pairs.shape[1] > 2 else []
    return [float(large / small) for large, small in left if small > 0]


def _ratio(a: float, b: float) -> float:
    """Return a / b; 0 if b is infinite."""
    return 0.0 if np.isinf(b) else a / b


def _cost(found: dict[Key, Score], method: str, exact: float, unit: str) -> float:
    """Return the least cost with which a method reaches the NMI of exact eigenvectors; infinite if it never does.

    The power method counts with its last cost then, so that ratios are lower bounds.
    """
    scores = [score for key, score in found.items() if key[0] == method]
    reached = [getattr(score, unit) for score in scores if score.nmi >= exact - EQUAL_NMI]
    if not reached and method == POWER:
        return float(max(getattr(score, unit) for score in scores))
    return float(min(reached, default=np.inf))


def _figures(name: str, problem: Problem, runs: list[dict[Key, Score]], published: float) -> list[Shown]:
    """Return Figure 2 on one data set, over operations and over seconds."""
    curves: dict[str, list[Key]] = {}
    for key in sorted(runs[0]):
        method, m, _ = key
        curves.setdefault(f"{method}, {m} columns" if m and method != NYSTROM else method, []).append(key)
    return [
        chart(
            f"spectral-2-{name}-{unit}", f"Figure 2: {name}, {problem.data.n:,} rows, {axis}",
            [
                Line(
                    words,
                    np.array([np.mean([getattr(found[key], unit) for found in runs]) for key in keys]),
                    np.array([np.mean([found[key].nmi for found in runs]) for key in keys]),
                    np.array([np.std([found[key].nmi for found in runs]) for key in keys]),
                )
                for words, keys in curves.items()
            ],
            axis, "NMI", f"MBSC reaches {published:g}, like the exact method, with fewer operations than the power method.",
            f"{averaged(len(runs)).capitalize()}; scored after a quarter, a half and all of a pass. The dashed line is the NMI "
            "of exact eigenvectors. Batches are the paper's share of the rows. Shoal starts from a sample, whose cost is "
            "included.",
            level=problem.exact,
        )
        for unit, axis in (("flops", "floating-point operations"), ("seconds", "seconds, with k-means"))
    ]  # fmt: skip


def theory(run: Run) -> Finding:
    """Check section 3.3, the variance of gradients, and the cost of a step."""
    data = run.load("pendigits", run.of(400, 2000, 2000))
    found: dict[str, list[float]] = {}
    for seed in run.seeds(run.of(2, 5, 10)):
        rng = np.random.default_rng(seed)
        some = data.X[rng.choice(data.n, 200, replace=False)]
        L, _ = readings.stored_laplacian(some, SETS["pendigits"][0])
        L = L.astype(np.float64)
        w, n = random_start(200, 1, seed)[:, 0], 200
        p, size, N_r = 0.05, 10, 5
        squares, first = (L**2).sum(axis=1), (L @ w) ** 2
        values = {
            "largest variance / bound (8)": (gradient_variance(L, w, p) / (first + squares / p)).max(),
            "largest variance / bound (9)": (
                gradient_variance(L, w, size / n, N_r) / (first / N_r + n / (size * N_r) * squares)
            ).max(),
            "variance of the gradient with l = 1 / with N_r = 1, same batch size, first step": (
                gradient_variance(L, w, 1 / n, 50).mean() / gradient_variance(L, w, 50 / n, 1).mean()
            ),
        }
        draws = np.array([htild(L, r, np.zeros((n, 1)) + w[:, None])[:, 0] for r in random_vectors(n, p, 1, 4000, seed)])
        project = np.eye(n) - np.outer(w, w)
        # the printed variance is that of the Euclidean gradient, of which the Riemannian one is a projection
        euclidean = np.array([(L @ (r.T @ (r @ w))) for r in random_vectors(n, p, 1, 4000, seed)])
        assert np.allclose(draws[0], -project @ euclidean[0])
        expected = gradient_variance(L, w, p)
        name = "largest deviation of the variance in a simulation from the formula, relative"
        values[name] = abs(euclidean.var(axis=0).mean() / expected.mean() - 1)
        values["seconds of a step with twice the rows / with the rows"] = _step_seconds(data, data.n, seed) / _step_seconds(
            data, data.n // 2, seed
        )
        for key, value in values.items():
            found.setdefault(key, []).append(float(value))
    rows = [[key, float(np.median(values)), min(values), max(values)] for key, values in found.items()]
    shown = grid(
        "Section 3.3 and 3.2", ["measurement", "median", "least", "largest"], rows, "Proved, and O(n).",
        "200 rows for the variances; steps of 100 columns without a stored Laplacian.",
    )  # fmt: skip
    return Finding([shown], found)


def _step_seconds(data: Rows, n: int, seed: int) -> float:
    """Return the seconds of a step on n rows, without a stored Laplacian: the fastest of ten."""
    with laplacian_by_columns(data.X[:n], SETS["pendigits"][0]) as L:
        path = mini_batch_spectral(L, random_start(n, 10, seed), shuffled_vectors(n, 100, 100, 10, seed), n**-0.5)
        seconds = []
        for _ in range(10):
            started = time.perf_counter()
            next(path)
            seconds.append(time.perf_counter() - started)
    return min(seconds)


@contextlib.contextmanager
def _columns(data: Rows, seed: int) -> Iterator[Any]:
    """Provide the Laplacian by columns, with degrees estimated from columns if there are many rows."""
    with laplacian_by_columns(data.X, SIGMA, DEGREE_COLUMNS if data.n > MAX_ROWS_FOR_EXACT_DEGREES else None, seed) as L:
        yield L


def letter_without_storage(data: Rows, m: int, steps: list[int], seed: int) -> list[Score]:
    """Score Algorithm 2 with columns that are computed when they are used (MBSC-E)."""
    started, k, n = time.perf_counter(), _k(data), data.n
    with _columns(data, seed) as L:
        before = time.perf_counter() - started
        path = mini_batch_spectral(L, random_start(n, k, seed), shuffled_vectors(n, m, m, max(steps), seed), n**-0.5)
        found = [s for _, s in scored(data, path, steps, step_cost(n, k, m), partial(kmeans, k=k, seed=seed))]
    return [score._replace(seconds=score.seconds + before) for score in found]


def authors_without_storage(data: Rows, m: int, steps: int, seed: int) -> Score:
    """Score the authors' program with m columns per step, computed when they are used."""
    started, k = time.perf_counter(), _k(data)
    with _columns(data, seed) as L:
        W, _ = np.linalg.qr(authors.nystrom_embedding(data.X, SIGMA, k, max(authors.START_ROWS, k), seed))
        vectors = authors.column_subsets(data.n, steps, seed, m // authors.COLUMNS)
        *_, W = mini_batch_spectral(L, W, vectors, authors.STEP, authors.EPSILON)
        labels = authors.cluster(W, 1 / np.maximum(np.asarray(L.s, np.float64).ravel(), 1e-30) ** 2, k, seed)
    return Score(_nmi(data, labels), 0.0, time.perf_counter() - started, steps)


def _table_seed(data: Rows, sizes: tuple[int, int], steps: int, power: bool, seed: int) -> dict[str, Score]:
    """Return the scores of one half of Table 2."""
    m, k = sizes[0], _k(data)
    earlier, last = letter_without_storage(data, m, [max(1, 3 * steps // 4), steps], seed)
    found = {f"MBSC, {LETTER}": last, "earlier": earlier, f"MBSC, {AUTHORS}": authors_without_storage(data, m, steps, seed)}
    for size in sizes:
        found[f"MBSC {size}, {SHOAL}"] = fit(MiniBatchSpectral(k, sigma=SIGMA, batch_size=size, random_state=seed), data)
        found[f"{NYSTROM} {size}"] = nystrom_score(data, SIGMA, size, seed)
    if power:
        started = time.perf_counter()
        with _columns(data, seed) as L:
            before = time.perf_counter() - started
            ((_, score),) = power_scores(Problem(data, SIGMA, L, None, 0.0, data.n, authors.KMEANS_STARTS), (3,), seed)
        found[POWER] = score._replace(seconds=score.seconds + before)
    return found


def table(run: Run, title: str, data: Rows, sizes: tuple[int, int], published: dict[str, float], whole: Rows | None) -> Finding:
    """Reproduce one half of Table 2; memory is measured on the whole data set."""
    steps, (first, *_) = run.of(4, 25, STEPS), published
    power = "Power method" in published
    runs = [_table_seed(data, sizes, steps, power, seed) for seed in run.seeds(10 if power else 5)]
    size, theirs = sizes[0], dict(zip(published, SECONDS[title], strict=True))
    names = {
        f"MBSC, {LETTER}": first, f"MBSC, {AUTHORS}": first, f"MBSC {sizes[0]}, {SHOAL}": first,
        f"MBSC {sizes[1]}, {SHOAL}": list(published)[1], f"{NYSTROM} {sizes[0]}": list(published)[2],
        f"{NYSTROM} {sizes[1]}": list(published)[3], POWER: "Power method",
    }  # fmt: skip
    rows, one = [], np.median([found[f"MBSC, {LETTER}"].seconds for found in runs])
    for words, name in names.items():
        if words in runs[0]:
            nmi, seconds = (float(np.median([getattr(found[words], unit) for found in runs])) for unit in ("nmi", "seconds"))
            rows.append([words, nmi, published[name], seconds / float(one), theirs[name] / theirs[first]])
    measured: dict[str, Any] = {}
    for arm, words in ((LETTER, f"MBSC, {LETTER}"), (AUTHORS, f"MBSC, {AUTHORS}"), (SHOAL, f"MBSC {size}, {SHOAL}")):
        name, rival = f"{first} ({arm})", list(published)[2]
        if not data.replaced:
            measured[f"NMI of {name} minus the published value"] = [found[words].nmi - published[first] for found in runs]
        other = f"{NYSTROM} {size}"
        measured[f"NMI of {name} minus that of {rival}"] = [found[words].nmi - found[other].nmi for found in runs]
        measured[f"seconds of {name} / of {rival}"] = [found[words].seconds / found[other].seconds for found in runs]
        if power:
            measured[f"seconds of the power method / of {name}"] = [
                found[POWER].seconds / found[words].seconds for found in runs
            ]
    if steps == STEPS:
        name = f"NMI of {first} ({LETTER}) after 200 steps minus after 150"
        measured[name] = [found[f"MBSC, {LETTER}"].nmi - found["earlier"].nmi for found in runs]
    if whole is not None and not data.replaced:
        model = MiniBatchSpectral(_k(data), sigma=SIGMA, batch_size=size, max_iter=MEMORY_STEPS, random_state=0)
        works: dict[str, Callable[[], Any]] = {
            SHOAL: lambda: clone(model).fit(whole.X),
            LETTER: lambda: _some_steps(whole, size),
        }
        for arm, work in works.items():
            measured[f"gigabytes allocated by {first} ({arm})"] = _allocated(work)
    shown = grid(
        f"Table 2: {title}, {data.n:,} rows",
        ["method", "NMI", "paper: NMI", "time relative to the letter", "paper: relative time"], rows,
        "Mini-batches are better than Nyström's method and faster than the power method.",
        f"Median of {len(runs)} seeds; {steps} steps of the letter and of the authors' program.",
    )  # fmt: skip
    return Finding([shown], {f"{title}: {key}": value for key, value in measured.items()})


def _some_steps(data: Rows, m: int) -> None:
    """Run a few steps of the letter without storage."""
    n, k = data.n, _k(data)
    with _columns(data, 0) as L:
        path = mini_batch_spectral(L, random_start(n, k, 0), shuffled_vectors(n, m, m, MEMORY_STEPS, 0), n**-0.5)
        for _ in islice(path, MEMORY_STEPS):
            pass


def _allocated(work: Callable[[], Any]) -> float:
    """Return the peak of allocated gigabytes. This is measured apart from the time, as tracing is slow."""
    tracemalloc.start()
    work()
    gigabytes = tracemalloc.get_traced_memory()[1] / GIGA
    tracemalloc.stop()
    return gigabytes


def balanced(run: Run) -> Finding:
    """Reproduce Table 2 on Covtype-I."""
    data = run.load("covtype-I", run.of(600, 6000, 20_000))
    sizes = run.of((40, 80), (400, 800), (400, 800))
    whole = run.load("covtype-I") if run.effort.rows is None else None
    return table(run, "Covtype-I", data, sizes, COVTYPE, whole)


def everything(run: Run) -> Finding:
    """Reproduce Table 2 on Covtype-II."""
    data = run.load("covtype", run.of(600, 6000, 30_000))
    sizes = run.of((40, 80), (1000, 2000), (1000, 2000))
    whole = run.load("covtype") if run.effort.rows is None else None
    return table(run, "Covtype-II", data, sizes, ALL, whole)


def hypotheses(run: Run) -> Finding:
    """Try readings of the setup with exact eigenvectors, jointly on all five data sets."""
    n = run.of(300, 2000, 4000)
    problems = {
        "pendigits": (run.load("pendigits", n), *SETS["pendigits"]),
        "shuttle": (run.load("shuttle", n), *SETS["shuttle"]),
        "mnist": (run.load("mnist-training", n), *SETS["mnist"]),
        "covtype-I": (run.load("covtype-I", n), SIGMA, COVTYPE["Power method"]),
        "covtype-II": (run.load("covtype", n), SIGMA, ALL["MBSC-E-1000"]),
    }
    found: dict[str, dict[str, float]] = {}
    for i, (name, (data, sigma, _)) in enumerate(problems.items()):
        run.report_progress(i / len(problems))
        assert data.y is not None
        for words, labels in islice(readings.labels(data.X, sigma, _k(data), run.of(2, 5, 20)), run.of(3, None, None)):
            found.setdefault(words, {})[name] = _nmi(data, labels)
    published = {name: nmi for name, (_, _, nmi) in problems.items()}
    worst = {words: max(abs(nmis[name] - published[name]) for name in published) for words, nmis in found.items()}
    rows = [
        [words, *(found[words][name] for name in published), worst[words]] for words in sorted(worst, key=lambda w: worst[w])
    ]
    shown = grid(
        f"Readings of the setup, {n:,} rows: NMI with exact eigenvectors", ["reading", *published, "largest deviation"], rows,
        ", ".join(f"{nmi:g} ({name})" for name, nmi in published.items()),
        f"{len(rows)} readings, all of those tried, by the largest deviation from the published values.",
    )  # fmt: skip
    replaced = any(data.replaced for data, _, _ in problems.values())
    return Finding(
        [shown], {} if replaced else {"largest deviation from the published values, best reading": min(worst.values())}
    )


PAPER = Paper(
    "spectral",
    "Mini-batch spectral clustering",
    "Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346.",
    "Mini-batch spectral clustering (MBSC) computes eigenvectors of the Laplacian by stochastic gradients on the Stiefel "
    "manifold, from a few columns at a time. Three arms are judged: the letter (Algorithms 1 and 2 from a random start), the "
    "authors' program (a start from ten rows, columns one by one, k-means on W times the roots of the degrees with 50 starts) "
    "and Shoal's estimator (a start from a sample, harmonic step sizes). The affinity is exp(-|x - y|² / σ²); the paper prints "
    "|x - y| without the square, which the authors' program contradicts: all σ of Table 1 are 1 / √γ for round γ. NMI is "
    "normalized by the geometric mean, as was usual at the time. A ratio of 0 means that mini-batches did not reach the NMI of "
    "exact eigenvectors. Shuttle, MNIST and Covtype have fewer rows than in the paper, so that there are several seeds. For "
    "more "
    "than 20,000 rows, which only the measurement of memory has, degrees are estimated from 4,096 columns.",
    CLAIMS,
    (
        *(Experiment(f"Figure 2, {name}", (25, 900), partial(race, name=name)) for name in SETS),
        Experiment("Theory", (10, 30), theory),
        Experiment("Table 2, Covtype-I", (25, 600), balanced),
        Experiment("Table 2, Covtype-II", (25, 900), everything),
        Experiment("Readings", (25, 300), hypotheses),
    ),
    ("pendigits", "shuttle", "mnist-training", "covtype-I", "covtype"),
)
