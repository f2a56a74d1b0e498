"""Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346.

NMI over floating-point operations and time of stochastic gradients, the power method, Nyström's method and exact eigenvectors.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from ...data.types import Array
from ...fit.checkpoint import FitProgress
from ...fit.environment import FitEnvironment
from ...fit.random_streams import Stream, generator
from ...kmeans.kmeans import KMeans
from ...metrics import normalized_mutual_info_score
from ...report.draw import Line
from ...spectral.exact import ExactSpectral
from ...spectral.manifold import random_point, retract
from ...spectral.minibatch import DEGREE_COLUMNS, MAX_ROWS_FOR_EXACT_DEGREES, MiniBatchSpectral, sample_size
from ...spectral.nystrom import NystromSpectral
from ...spectral.power import PowerSpectral
from ..claims import Check, Claim
from ..data import MIN_ROWS, Rows
from ..run import Experiment, Finding, Paper, Run, Shown
from ..show import averaged, chart, grid
from .letter import laplacian_by_columns, mini_batch_spectral, shuffled_vectors, step_cost

SETS = {"pendigits": (223.61, 0.67), "shuttle": (0.45, 0.48), "mnist": (4.08, 0.47)}  # sigma, published NMI
SIGMA = 1.15  # kernel width for covtype
SAMPLES = (10, 50, 100, 500, 1000)
BATCHES = (50, 100, 500)
POWERS = {True: (1, 2, 4, 8), False: (1, 2, 4)}  # numbers of powers, by whether affinities are stored
SCORED_PASSES = (0.25, 0.5, 1.0)  # fractions of a pass over the columns after which a run is scored
PAPER_VARIANT_SUFFIX = " (paper variant)"
STEPS = 200  # steps of mini-batches on covtype in the paper
MEMORY_STEPS = 3  # steps to measure memory with, as all steps allocate the same
METHODS = {"MBSC": "MBSC", "paper": "MBSC (paper variant)"}
WORDS = {**METHODS, "power": "power method"}
COVTYPE = {  # published NMI and seconds
    "MBSC-E-400": (0.40, 998), "MBSC-E-800": (0.40, 2100), "Nystrom-400": (0.38, 78), "Nystrom-800": (0.38, 965),
    "Power method": (0.40, 9300),
}  # fmt: skip
ALL = {
    "MBSC-E-1000": (0.14, 7500), "MBSC-E-2000": (0.14, 12_610), "Nystrom-1000": (0.09, 2520), "Nystrom-2000": (0.11, 11_420),
}  # fmt: skip
EXACT = "The dashed line is the NMI of exact eigenvectors."
GIGA = 1 << 30
EQUAL_NMI_TOLERANCE = 0.02  # NMI values that differ by less count as equal
MAX_STORED_ROWS = 20_000  # rows up to which the affinity matrix is stored

CLAIMS = (
    Claim(
        "published",
        "Figure 2",
        "Mini-batches reach the published NMI.",
        "0.67 (Pendigits), 0.48 (Shuttle), 0.47 (MNIST)",
        (
            Check("NMI of MBSC minus the published value", least=-0.03, cases=tuple(SETS)),
            Check("NMI of MBSC (paper variant) minus the published value", least=-0.03, cases=tuple(SETS)),
        ),
    ),
    Claim(
        "exact",
        "Figure 2",
        "Mini-batches reach the NMI of exact eigenvectors.",
        "converges to the accuracy of the exact method",
        (Check("NMI of MBSC minus that of exact eigenvectors", least=-0.02, cases=tuple(SETS)),),
    ),
    Claim(
        "letter",
        "Algorithm 2",
        "So does the paper variant: random initial vectors, AdaGrad, one pass.",
        "converges to the accuracy of the exact method within a pass",
        (Check("NMI of MBSC (paper variant) minus that of exact eigenvectors", least=-0.02, cases=tuple(SETS)),),
    ),
    Claim(
        "power",
        "Figure 2",
        "Mini-batches need far fewer operations than the power method for the same NMI.",
        "far fewer; 3.8, 107 and 112 s against 20, 935 and 987 s",
        (
            Check("operations of the power method / of MBSC to within 0.02 of the exact or last NMI", least=1.0),
            Check("operations of the power method / of MBSC (paper variant) to within 0.02 of the exact or last NMI", 1.0),
        ),
    ),
    Claim(
        "before-a-pass",
        "Figure 2",
        "Mini-batches reach their final NMI before a full pass over the columns.",
        "stable before a full pass",
        (
            Check("NMI of MBSC after half a pass minus that after a full pass", least=-0.02),
            Check("NMI of MBSC (paper variant) after half a pass minus that after a full pass", least=-0.02),
        ),
    ),
    Claim(
        "batch-size",
        "Figure 2",
        "Larger batches reduce the variance faster.",
        "the larger the batch, the faster the variance decreases",
        (
            Check(
                "standard deviation of NMI over seeds after a quarter of a pass, largest batch minus smallest",
                most=0.0,
                cases=tuple(SETS),
            ),
        ),
    ),
    Claim(
        "nystrom",
        "Figure 2",
        "Mini-batches are better than Nyström's method on Pendigits and Shuttle, and worse on MNIST.",
        "better on Pendigits and Shuttle; Nyström's method is strikingly good on MNIST",
        (
            Check("pendigits: NMI of MBSC minus that of Nyström with 1000 rows", least=0.005),
            Check("shuttle: NMI of MBSC minus that of Nyström with 1000 rows", least=0.005),
            Check("mnist: NMI of MBSC minus that of Nyström with 1000 rows", most=-0.005),
            Check("pendigits: NMI of MBSC (paper variant) minus that of Nyström with 1000 rows", least=0.005),
            Check("shuttle: NMI of MBSC (paper variant) minus that of Nyström with 1000 rows", least=0.005),
            Check("mnist: NMI of MBSC (paper variant) minus that of Nyström with 1000 rows", most=-0.005),
        ),
    ),
    Claim(
        "covtype",
        "Table 2",
        "On Covtype-I, mini-batches reach an NMI of 0.40 and are better than Nyström's method.",
        "0.40 against 0.38",
        (
            Check("Covtype-I: NMI of MBSC-E-400 minus the published value", least=-0.03),
            Check("Covtype-I: NMI of MBSC-E-400 (paper variant) minus the published value", least=-0.03),
            Check("Covtype-I: NMI of MBSC-E-400 minus that of Nystrom-400", least=0.005),
            Check("Covtype-I: NMI of MBSC-E-400 (paper variant) minus that of Nystrom-400", least=0.005),
        ),
    ),
    Claim(
        "covtype-time",
        "Table 2",
        "On Covtype-I, mini-batches are faster than the power method and slower than Nyström's method.",
        "998 s against 9300 s and 78 s",
        (
            Check("Covtype-I: time of the power method / time of MBSC-E-400", least=1.0),
            Check("Covtype-I: time of the power method / time of MBSC-E-400 (paper variant)", least=1.0),
            Check("Covtype-I: time of MBSC-E-400 / time of Nystrom-400", least=1.0),
            Check("Covtype-I: time of MBSC-E-400 (paper variant) / time of Nystrom-400", least=1.0),
        ),
    ),
    Claim(
        "covtype-all",
        "Table 2",
        "On Covtype-II (581,012 rows), mini-batches reach an NMI of 0.14, better than Nyström's method, with less than 3.6 GB.",
        "0.14 against 0.09, with less than 3.6 GB",
        (
            Check("Covtype-II: NMI of MBSC-E-1000 minus the published value", least=-0.03),
            Check("Covtype-II: NMI of MBSC-E-1000 (paper variant) minus the published value", least=-0.03),
            Check("Covtype-II: NMI of MBSC-E-1000 minus that of Nystrom-1000", least=0.005),
            Check("Covtype-II: NMI of MBSC-E-1000 (paper variant) minus that of Nystrom-1000", least=0.005),
            Check("Covtype-II: gigabytes allocated by MBSC-E-1000", most=3.6),
            Check("Covtype-II: gigabytes allocated by MBSC-E-1000 (paper variant)", most=3.6),
        ),
    ),
    Claim(
        "memory",
        "section 4.2",
        "Without storing the Laplacian, mini-batches need less than 1 GB on Covtype-I.",
        "less than 1 GB",
        (
            Check("Covtype-I: gigabytes allocated by MBSC-E-400", most=1.0),
            Check("Covtype-I: gigabytes allocated by MBSC-E-400 (paper variant)", most=1.0),
        ),
    ),
)


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


def algorithm_2(data: Rows, sigma: float, m: int, steps: list[int], seed: int) -> list[Score]:
    """Score the paper variant after these numbers of steps: Algorithm 2 on m columns, each with a random vector of its own.

    The seconds are those from the beginning, of which k-means takes a part for each score.
    """
    started, k, found = time.perf_counter(), _k(data), []
    degree_columns = DEGREE_COLUMNS if data.n > MAX_ROWS_FOR_EXACT_DEGREES else None
    with laplacian_by_columns(data.X, sigma, degree_columns, seed) as L:
        start = retract(
            (L.s > 0) * random_point(data.n, k, generator(seed, Stream.INITIAL_SUBSPACE))
        )  # rows of degree zero stay zero
        vectors = shuffled_vectors(data.n, m, m, max(steps), seed)
        for t, W in enumerate(mini_batch_spectral(L, start, vectors, data.n**-0.5), 1):
            if t in steps:
                labels = KMeans(k, n_init=10, random_state=seed).fit_predict(W)
                seconds = time.perf_counter() - started
                found.append(Score(_nmi(data, labels), float(t * step_cost(data.n, k, m)), seconds, t))
    return found


def _nmi(data: Rows, labels: Array) -> float:
    """Return NMI with the geometric mean, scikit-learn's default at the time of the paper."""
    return float(normalized_mutual_info_score(data.y, labels, average_method="geometric"))


def _steps(n: int, size: int) -> list[int]:
    """Return the numbers of steps after which to score, up to one pass."""
    return sorted({max(1, round(share * n / size)) for share in SCORED_PASSES})


def _k(data: Rows) -> int:
    """Return the number of classes."""
    assert data.y is not None
    return int(data.y.max()) + 1


def _batches(n: int) -> list[int]:
    """Return the batch sizes, in columns, that are at most a quarter of n."""
    return [m for m in BATCHES if 4 * m <= n]


def one_seed(data: Rows, sigma: float, seed: int) -> dict[tuple[str, int, int], Score]:
    """Return scores by method, columns and steps. Exact eigenvectors and powers of unstored affinities run for seed 0 only."""
    common: dict[str, Any] = {"n_clusters": _k(data), "sigma": sigma, "random_state": seed}
    batches, stored, found = _batches(data.n), data.n <= MAX_STORED_ROWS, {}
    m, further = batches[-1], Further()
    for steps in _steps(data.n, m):
        found["MBSC", m, steps] = fit(MiniBatchSpectral(max_iter=steps, batch_size=m, tol=0.0, **common), data, further)
    for m in batches:
        for score in algorithm_2(data, sigma, m, _steps(data.n, m), seed):
            found["paper", m, score.steps] = score
    for m in SAMPLES:
        if _k(data) <= m <= data.n // 2:
            found["Nyström", m, 1] = fit(NystromSpectral(n_samples=m, **common), data)
    further = Further()
    for steps in POWERS[stored] if stored or seed == 0 else ():
        found["power", 0, steps] = fit(PowerSpectral(max_iter=steps, tol=0.0, store=stored, **common), data, further)
    if stored and seed == 0:
        found["exact", 0, 1] = fit(ExactSpectral(**common), data)
    return found


def race(run: Run, name: str) -> Finding:
    """Reproduce Figure 2 on one data set."""
    data = run.load("mnist-training" if name == "mnist" else name, run.of(400, 4000, None))
    sigma, published = SETS[name]
    assert data.y is not None
    one_seed(data._replace(X=data.X[:MIN_ROWS], y=data.y[:MIN_ROWS]), sigma, 0)  # compile kernels
    runs = [one_seed(data, sigma, seed) for seed in run.seeds(10)]
    scores = {key: np.array([found[key] for found in runs if key in found]) for key in runs[0]}
    exact = scores.pop(("exact", 0, 1), None)
    if exact is None:
        run.note(f"{name}: exact eigenvectors of {data.n:,} rows are too expensive; the power method runs with one seed.")
    known = None if exact is None else float(exact[0, 0])
    measured = _measure(scores, known, _batches(data.n))
    if data.own:
        for method, words in METHODS.items():
            last = max(key for key in scores if key[:2] == (method, _batches(data.n)[-1]))
            measured[f"NMI of {words} minus the published value"] = float(scores[last][:, 0].mean()) - published
    shown = _figure(name, data, scores, known, published, len(runs))
    return Finding([shown], {f"{name}: {key}": value for key, value in measured.items()})


def _figure(name: str, data: Rows, scores: dict[Any, Array], exact: float | None, published: float, count: int) -> Shown:
    """Return Figure 2 on one data set."""
    curves: dict[str, list[Array]] = {}
    for (method, m, _), found in scores.items():  # Nyström's method is one line over its sample sizes
        words = f"{WORDS.get(method, method)}, {m}" if m and method != "Nyström" else WORDS.get(method, method)
        curves.setdefault(words, []).append(found)
    series = [
        Line(words, *(np.array([f(v[:, i]) for v in found]) for i, f in ((1, np.mean), (0, np.mean), (0, np.std))))
        for words, found in curves.items()
    ]
    return chart(
        f"spectral-2-{name}", f"Figure 2: {name}, {data.n:,} rows", series, "floating-point operations", "NMI",
        f"MBSC reaches {published:g}, like the exact method, with fewer operations than the power method.",
        f"{averaged(count).capitalize()}; scored after a quarter, a half and all of a pass. The paper variant is Algorithm 2 "
        "with columns in random order. MBSC is initialized from a sample, whose cost is included, and has harmonic step sizes. "
        f"Numbers in the legend are columns per step. {EXACT if exact is not None else ''}",
        level=exact,
    )  # fmt: skip


def _measure(scores: dict[Any, Array], known: float | None, batches: list[int]) -> dict[str, float]:
    """Return the measurements of Figure 2. If the exact NMI is unknown, the NMI of the most powers is the target."""
    of = {key: float(v[:, 0].mean()) for key, v in scores.items()}
    flops = {key: float(v[:, 1].mean()) for key, v in scores.items()}
    powers = sorted(key for key in of if key[0] == "power")
    goal = (of[powers[-1]] if known is None else known) - EQUAL_NMI_TOLERANCE
    power = flops[_settled(powers, of)] if known is None else _least_cost("power", of, flops, goal)
    power = min(power, flops[powers[-1]])  # a lower bound if the target was not reached
    most = max(m for method, m, _ in of if method == "Nyström")
    out: dict[str, float] = {}
    for method, words in METHODS.items():
        looks = [of[key] for key in of if key[:2] == (method, batches[-1])]
        cost = _least_cost(method, of, flops, goal)
        out |= {
            f"NMI of {words} after half a pass minus that after a full pass": looks[max(len(looks) - 2, 0)] - looks[-1],
            f"NMI of {words} minus that of Nyström with {most} rows": looks[-1] - of["Nyström", most, 1],
            f"operations of the power method / of {words} to within 0.02 of the exact or last NMI": power / cost,
        }
    if known is not None:
        out["NMI of MBSC minus that of exact eigenvectors"] = of[max(key for key in of if key[0] == "MBSC")] - known
        for m in batches:
            last = max(key for key in of if key[:2] == ("paper", m))
            out[f"{m} columns: NMI of MBSC (paper variant) minus that of exact eigenvectors"] = of[last] - known
    if any(len(v) > 2 for v in scores.values()):
        first = {m: min(key for key in of if key[:2] == ("paper", m)) for m in batches}
        spread = {m: float(scores[key][:, 0].std()) for m, key in first.items()}
        noise = spread[batches[-1]] - spread[batches[0]]
        out["standard deviation of NMI over seeds after a quarter of a pass, largest batch minus smallest"] = noise
    return out


def _least_cost(method: str, of: dict[Any, float], flops: dict[Any, float], goal: float) -> float:
    """Return the fewest operations with which a method reaches the goal; infinite if it never does."""
    return min((flops[key] for key in of if key[0] == method and of[key] >= goal), default=np.inf)


def _settled(powers: list[Any], of: dict[Any, float]) -> Any:
    """Return the fewest powers from which the NMI stays close to that of the most powers, as it may exceed it temporarily."""
    far = [i for i, key in enumerate(powers) if abs(of[key] - of[powers[-1]]) > EQUAL_NMI_TOLERANCE]
    return powers[far[-1] + 1 if far else 0]


def table(
    run: Run, title: str, data: Rows, sizes: tuple[int, int], published: dict[str, tuple[float, int]], power: bool
) -> Finding:
    """Reproduce one half of Table 2."""
    base: dict[str, Any] = {"n_clusters": _k(data), "sigma": SIGMA, "random_state": 0}
    models: dict[str, Any] = {f"MBSC-E-{m}": MiniBatchSpectral(batch_size=m, **base) for m in sizes}
    first, rival = (f"{kind}-{sizes[0]}" for kind in ("MBSC-E", "Nystrom"))
    steps = run.of(4, 25, STEPS)
    models |= {f"Nystrom-{m}": NystromSpectral(n_samples=m, **base) for m in sizes}
    if power:
        models["Power method"] = PowerSpectral(max_iter=3, tol=0.0, **base)
    found = {}
    for i, (words, model) in enumerate(models.items()):
        run.report_progress(i / len(models))
        found[words] = fit(model, data)
        if words == first:
            found[first + PAPER_VARIANT_SUFFIX] = algorithm_2(data, SIGMA, sizes[0], [steps], seed=0)[-1]
    theirs, rows = next(iter(published.values()))[1], []
    for words, score in found.items():
        nmi, seconds = published.get(words.removesuffix(PAPER_VARIANT_SUFFIX), (np.nan, np.nan))
        rows.append([words, score.steps, score.nmi, nmi, score.seconds / found[first].seconds, seconds / theirs])
    measured = {}
    for words in (first, first + PAPER_VARIANT_SUFFIX):
        measured[f"NMI of {words} minus that of {rival}"] = found[words].nmi - found[rival].nmi
        measured[f"time of {words} / time of {rival}"] = found[words].seconds / found[rival].seconds
        if power:
            measured[f"time of the power method / time of {words}"] = found["Power method"].seconds / found[words].seconds
        if data.own:
            measured[f"NMI of {words} minus the published value"] = found[words].nmi - published[first][0]
            work: Callable[[], Any] = partial(_fit_some_steps, models[first], data)
            if words == first + PAPER_VARIANT_SUFFIX:
                work = partial(algorithm_2, data, SIGMA, sizes[0], [MEMORY_STEPS], seed=0)
            measured[f"gigabytes allocated by {words}"] = _allocated(work)
    shown = grid(
        f"Table 2: {title}, {data.n:,} rows",
        ["method", "steps", "NMI", "paper: NMI", f"time relative to {first}", "paper: relative time"], rows,
        "Mini-batches are better than Nyström's method and faster than the power method, with less than 1 GB (Covtype-I) and "
        f"3.6 GB (Covtype-II), in {STEPS} steps.",
        f"One seed. Paper variant: random initial vectors, AdaGrad, up to {steps} steps. Others: initialized from a sample, "
        "harmonic step sizes, at most one pass.",
    )  # fmt: skip
    return Finding([shown], {f"{title}: {key}": value for key, value in measured.items()})


def _fit_some_steps(model: Any, data: Rows) -> None:
    """Fit a copy of the model for a few steps."""
    clone(model).set_params(max_iter=MEMORY_STEPS).fit(data.X)


def _allocated(work: Callable[[], Any]) -> float:
    """Return the peak of allocated gigabytes. This is measured apart from the time, as tracing is slow."""
    tracemalloc.start()
    work()
    gigabytes = tracemalloc.get_traced_memory()[1] / GIGA
    tracemalloc.stop()
    return gigabytes


def balanced(run: Run) -> Finding:
    """Reproduce Table 2 on Covtype-I."""
    data = run.load("covtype-I", run.of(600, 10_000, None))
    sizes = run.of((40, 80), (400, 800), (400, 800))
    return table(run, "Covtype-I", data, sizes, COVTYPE, power=True)


def everything(run: Run) -> Finding:
    """Reproduce Table 2 on Covtype-II, in full runs only."""
    if run.effort.rows is not None:
        run.note("Covtype-II (581,012 rows) is run with --full only.")
        return Finding([], {})
    return table(run, "Covtype-II", run.load("covtype"), (1000, 2000), ALL, power=False)


PAPER = Paper(
    "spectral",
    "Mini-batch spectral clustering",
    "Y. Han, M. Filippone (2017), Mini-batch spectral clustering, IJCNN, doi:10.1109/IJCNN.2017.7966346.",
    "Mini-batch spectral clustering (MBSC) computes eigenvectors of the Laplacian by stochastic gradients on the Stiefel "
    "manifold, from a few columns at a time. Quality over operations is compared with the power method, Nyström's method and "
    "exact eigenvectors. The affinity is exp(-|x - y|² / σ²); the paper prints |x - y| without the square. NMI is normalized "
    "by the geometric mean, as was usual at the time. For more than 20,000 rows, degrees are estimated from 4,096 columns. If "
    "the power method does not reach the target NMI, the ratio is a lower bound from the most powers tried; a ratio of 0 means "
    "that mini-batches did not reach it. If exact eigenvectors are too expensive, the NMI of the most powers is the target.",
    CLAIMS,
    (
        *(Experiment(f"Figure 2, {name}", (25, 900), partial(race, name=name)) for name in SETS),
        Experiment("Table 2, Covtype-I", (20, 400), balanced),
        Experiment("Table 2, Covtype-II", (0, 600), everything),
    ),
    ("pendigits", "shuttle", "mnist-training", "covtype-I", "covtype"),
)
