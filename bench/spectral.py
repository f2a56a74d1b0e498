"""Suites of spectral clustering: NMI, time to a given NMI, time by number of rows, and preprocessing variants of one data set.

NMI is normalized by the geometric mean, scikit-learn's default when the paper was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

from shoal.papers.data import Missing, arrays, balanced, classes, scaled

from .measure import Answer, Lab
from .problems import blobs
from .results import FOLDER, Entry
from .suites import entry_of

Array = np.ndarray[Any, Any]

MB = 1 << 20
EXACT_ROWS = 20_000  # up to which all affinities are stored
MAX_NMI_DIFFERENCE = 0.01  # of results that count as equal
SIZES = (10_000, 20_000, 40_000, 80_000)


@dataclass(frozen=True)
class Paper:
    """A data set of the paper and its published NMI."""

    name: str
    load: Callable[[], tuple[Array, Array]]
    sigma: float
    batch: int
    nmi: float
    repeats: int = 10
    power: bool = True  # whether to run the power method


def pendigits() -> tuple[Array, Array]:
    parts = arrays("pendigits")
    return np.ascontiguousarray(parts["X"], np.float32), classes(parts["y"])


def shuttle() -> tuple[Array, Array]:
    parts = arrays("shuttle")
    return scaled(parts["X"], -1, 1), classes(parts["y"])


def mnist() -> tuple[Array, Array]:
    parts = arrays("mnist")
    return np.asarray(parts["X"][:60_000], np.float32) / np.float32(255), classes(parts["y"][:60_000])


def covtype_all(raw: bool = False) -> tuple[Array, Array]:
    parts = arrays("covtype")
    return parts["X"] if raw else scaled(parts["X"], 0, 1), classes(parts["y"])


def covtype_some(raw: bool = False) -> tuple[Array, Array]:
    """Return 100,000 rows: 14,129 of classes 1 and 2 together, with classes 4, 5 and 6 merged."""
    X, y = covtype_all(raw)
    keep, merged = balanced(y)
    return np.ascontiguousarray(X[keep]), merged


def _tiny() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=1500)
    return blobs(1500, 8, 1) + 6 * np.eye(8, dtype=np.float32)[y], y


PAPERS = [
    Paper("pendigits", pendigits, 223.61, 500, 0.67),
    Paper("shuttle", shuttle, 0.45, 500, 0.48),
    Paper("mnist", mnist, 4.08, 500, 0.47),
    Paper("covtype-I", covtype_some, 1.15, 400, 0.40),
    Paper("covtype-II", covtype_all, 1.15, 1000, 0.14, power=False),
]
TINY = [Paper("tiny", _tiny, 4.0, 200, 0.5, repeats=2)]


def problems(lab: Lab, only: Sequence[str], names: Sequence[str] = ()) -> Iterator[tuple[Paper, Array, Array]]:
    for paper in TINY if lab.quick else PAPERS:
        if (only and not any(word in paper.name for word in only)) or (names and paper.name not in names and not lab.quick):
            continue
        lab.say(paper.name)
        try:
            yield paper, *paper.load()
        except Missing as missing:
            lab.leave_out(f"{paper.name}: {missing}")


class Trial:
    """Fits of estimators with several seeds to rows in a shared file."""

    def __init__(self, lab: Lab, rows: str, y: Array) -> None:
        self.lab, self.rows, self.y = lab, rows, y
        self.k = len(np.unique(y))

    def run(self, method: str, seeds: int, options: dict[str, Any], library: str = "shoal") -> Entry | None:
        found: list[Answer] = []
        scores: list[float] = []
        for seed in range(seeds):
            out = str(self.lab.folder / "labels.npy")
            task = {"do": "labels", "library": library, "method": method, "rows": self.rows, "out": out}
            answer = self.lab.ask({**task, "options": {"n_clusters": self.k, "random_state": seed, **options}})
            if "error" in answer:
                return None
            found.append(answer)
            scores.append(float(normalized_mutual_info_score(self.y, np.load(out), average_method="geometric")))
            self.lab.say(f"  {method} {seed}: {answer['wall']:.3g} s, NMI {scores[-1]:.3f}")
        return {
            "library": method,
            "NMI": fmean(scores),
            "NMI sd": stdev(scores) if len(scores) > 1 else 0.0,
            "seconds": median(answer["wall"] for answer in found),
            "peak MB": max(answer["peak"] for answer in found) / MB,
            "columns": found[0].get("columns"),
            "Gflop by the paper's count": found[0].get("flops", 0) / 1e9 or None,
            "repeats": [[answer["wall"], score] for answer, score in zip(found, scores, strict=True)],
        }


def nmi(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """NMI of the spectral methods on the paper's data sets, with its sigmas, compared with the published values."""
    measure = (
        "NMI (geometric) with the true classes: mean and standard deviation over seeds; seconds of a whole fit, median; peak: "
        "largest resident size of the process, rows included. Rows scaled as in LIBSVM's files, sigma as in the paper."
    )
    for paper, X, y in problems(lab, only):
        trial = Trial(lab, lab.share("rows", X), y)
        repeats = paper.repeats if not lab.quick else 2
        options: dict[str, Any] = {"sigma": paper.sigma}
        rows = [
            trial.run("MiniBatchSpectral", repeats, {**options, "batch_size": paper.batch}),
            trial.run("NystromSpectral", min(repeats, 3), {**options, "n_samples": paper.batch}),
            trial.run("LandmarkSpectral", min(repeats, 3), {}),
            trial.run("ExactSpectral", min(repeats, 3), options) if len(X) <= EXACT_ROWS else None,
        ]
        there = [row for row in rows if row is not None]
        figures: list[Entry] = []
        if rows[0] is not None:
            figures = [{"what": "the paper's NMI less ours", "value": paper.nmi - rows[0]["NMI"], "limit": 0.03}]
            if rows[3] is not None:
                figures.append(
                    {"what": "ExactSpectral's NMI less ours", "value": rows[3]["NMI"] - rows[0]["NMI"], "limit": 0.02}
                )
        yield entry_of(lab, paper.name, measure, there, figures)


def _readings(X: Array) -> dict[str, Array]:
    """Return covtype with several scalings of its ten quantitative columns, of which the paper may have used one."""
    zero_one = scaled(X, 0, 1)
    z = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    lengths = np.linalg.norm(zero_one, axis=1)[:, None]
    return {
        "0 to 1, as in LIBSVM's file": zero_one,
        "-1 to 1": 2 * zero_one - 1,
        "0 to 1, rows of unit length": zero_one / lengths,
        "unit variance": z,
        "ten of unit variance, others 0 or 1": np.hstack([z[:, :10], zero_one[:, 10:]]),
        "ten of unit variance alone": np.ascontiguousarray(z[:, :10]),
        "as measured": X.astype(np.float32),
    }


def readings(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """NMI of exact eigenvectors on Covtype-I for several scalings and sigmas, compared with the published value."""
    measure = (
        "NMI (geometric) of ExactSpectral on 4000 random rows of Covtype-I, mean over seeds; sigma as in the paper, twice and "
        "half of it, and as chosen from the data. Wilderness: NMI of the classes with the column that says where a row is from."
    )
    for paper, X, y in problems(lab, only, ["covtype-I"]):
        ids = np.random.default_rng(1).permutation(len(X))[:4000]
        rows: list[Entry] = []
        for name, reading in ({"as it is": X} if lab.quick else _readings(covtype_some(raw=True)[0])).items():
            trial = Trial(lab, lab.share("rows", reading[ids]), y[ids])
            for sigma in (paper.sigma / 2, paper.sigma, 2 * paper.sigma, None):
                row = trial.run("ExactSpectral", 1 if lab.quick else 2, {"sigma": sigma})
                if row is not None:
                    rows.append({"scaling": name, "sigma": sigma or "chosen", **row})
        figures: list[Entry] = [{"what": "most NMI of all", "value": max(row["NMI"] for row in rows)}]
        if not lab.quick:
            areas = X[ids, 10:14].argmax(axis=1)
            score = float(normalized_mutual_info_score(y[ids], areas, average_method="geometric"))
            figures.append({"what": "NMI of the wilderness areas", "value": score})
        yield entry_of(lab, paper.name, measure, rows, figures)


def speed(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Time to the same NMI: MiniBatchSpectral, PowerSpectral, and scikit-learn's SpectralClustering on 10,000 rows."""
    measure = (
        "Seconds of a whole fit, k-means included; medians over seeds. PowerSpectral: the fewest powers whose mean NMI is "
        f"within {MAX_NMI_DIFFERENCE} of MiniBatchSpectral's (or the most that were tried). scikit-learn: the first 10,000 "
        "shuffled rows, gamma = 1 / sigma^2."
    )
    for paper, X, y in problems(lab, only, ["pendigits", "shuttle", "mnist"]):
        trial = Trial(lab, lab.share("rows", X), y)
        repeats = 1 if lab.quick else min(lab.repeats, 3)
        rows, figures = [trial.run("MiniBatchSpectral", repeats, {"sigma": paper.sigma})], []
        ours = rows[0]
        for powers in (1, 2, 3, 4, 6, 8):
            row = trial.run("PowerSpectral", repeats, {"sigma": paper.sigma, "max_iter": powers, "tol": 0.0})
            rows.append(row and {**row, "library": f"PowerSpectral-{powers}"})
            if ours is None or row is None or row["NMI"] >= ours["NMI"] - MAX_NMI_DIFFERENCE:
                break
        if ours is not None and rows[-1] is not None:
            ratio = rows[-1]["seconds"] / ours["seconds"]
            figures.append({"what": f"MiniBatchSpectral against {rows[-1]['library']}", "ratio": ratio})
        yield entry_of(lab, paper.name, measure, [row for row in rows if row is not None], figures)
        yield _compare_with_sklearn(lab, paper, X, y, measure)


def _compare_with_sklearn(lab: Lab, paper: Paper, X: Array, y: Array, measure: str) -> Entry:
    ids = np.random.default_rng(0).permutation(len(X))[:10_000]
    trial = Trial(lab, lab.share("rows", X[ids]), classes(y[ids]))
    repeats = 1 if lab.quick else min(lab.repeats, 3)
    ours = trial.run("MiniBatchSpectral", repeats, {"sigma": paper.sigma})
    rows, figures = [ours], []
    for solver in ("arpack", "lobpcg"):
        options = {"gamma": 1 / paper.sigma**2, "eigen_solver": solver}
        row = trial.run("SpectralClustering", repeats, options, "sklearn")
        if row is not None:
            rows.append({**row, "library": f"sklearn-{solver}"})
            if ours is not None:
                figures.append(
                    {"what": f"MiniBatchSpectral against sklearn-{solver}", "ratio": row["seconds"] / ours["seconds"]}
                )
    return entry_of(lab, f"{paper.name}-10k", measure, [row for row in rows if row is not None], figures)


def scaling(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Time of MiniBatchSpectral by number of rows; draws bench/results/scaling.svg."""
    measure = (
        "Seconds of a whole fit on the first n shuffled rows of covtype-II: 4096 columns for the degrees, 20 steps of 500 "
        "columns. The slope is that of log seconds over log n, by least squares: 1 where cost grows as n."
    )
    for paper, X, y in problems(lab, only, ["covtype-II"]):
        order = np.random.default_rng(0).permutation(len(X))
        rows: list[Entry] = []
        for n in (500, 1000) if lab.quick else SIZES:
            trial = Trial(lab, lab.share("rows", X[order[:n]]), y[order[:n]])
            options = {"sigma": paper.sigma, "batch_size": 500, "max_iter": 20, "tol": 0.0, "degree_samples": 4096}
            row = trial.run("MiniBatchSpectral", 1 if lab.quick else min(lab.repeats, 3), options)
            if row is not None:
                rows.append({"rows": n, **row})
        slope = float(np.polyfit(np.log([r["rows"] for r in rows]), np.log([r["seconds"] for r in rows]), 1)[0])
        if not lab.quick:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / "scaling.svg").write_text(plot([(r["rows"], r["seconds"]) for r in rows]))
        yield entry_of(lab, paper.name, measure, rows, [{"what": "slope", "value": slope, "limit": 1.15}])


def plot(points: list[tuple[int, float]]) -> str:
    """Return an SVG of seconds over rows, with the line from the origin through the last point."""
    far, high = max(x for x, _ in points), max(y for _, y in points)
    places = [(60 + 400 * x / far, 260 - 220 * y / high) for x, y in points]
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4"/>' for a, b in places)
    words = "".join(
        f'<text x="{a:.1f}" y="280" text-anchor="middle">{x // 1000}k</text><text x="{a - 8:.1f}" y="{b:.1f}" '
        f'text-anchor="end">{y:.2g} s</text>'
        for (x, y), (a, b) in zip(points, places, strict=True)
    )
    axes = '<path d="M60 30V260H480" fill="none" stroke="black"/><path d="M60 260L460 40" stroke="gray" stroke-dasharray="4"/>'
    title = '<text x="270" y="300" text-anchor="middle">rows of covtype</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 310" font-size="12">{axes}{dots}{words}{title}</svg>\n'
