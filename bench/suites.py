"""Suites: each yields one entry per problem, with rows (results per library) and figures (summary values)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from shoal.papers.data import Missing

from . import problems
from .adapters import ADAPTERS, EXACT_PEERS, SHOAL_ALGORITHMS
from .measure import Answer, Lab, each, energy, middle
from .problems import Problem, start_of
from .results import Entry

Array = np.ndarray[Any, Any]
Suite = Callable[[Lab, Sequence[str]], Iterator[Entry]]

DIFFERENCE = (
    "Seconds of one iteration: the difference between fits of two lengths from the same start, divided by the difference of "
    "their iterations, so that set-up and final labels do not count. Medians."
)
WHOLE = (
    "Seconds of a whole fit, set-up included; our own, scikit-learn's and scikit-learn-intelex's fits also label the rows at "
    "the end, the others return centroids only. Medians."
)


def entry_of(lab: Lab, problem: str, measure: str, rows: list[Entry], figures: list[Entry]) -> Entry:
    """Return the result of a problem, with skipped libraries and the load by other processes between the runs."""
    left_out, lab.left_out = lab.left_out, []
    others, lab.others = (fmean(lab.others) if lab.others else None), []
    if others is not None and others > 0.1:
        lab.say(f"warning: other processes used {others:.0%} of the CPUs; these timings are not to be trusted")
    entry = {"problem": problem, "measure": measure, "rows": rows, "figures": figures}
    return {**entry, "left out": left_out, "others": others}


def chosen(lab: Lab, all_problems: list[Problem], only: Sequence[str], tiny: list[Problem]) -> Iterator[tuple[Problem, Any]]:
    """Yield the selected problems with their rows, and report those whose data is missing."""
    for problem in tiny if lab.quick else all_problems:
        if only and not any(word in problem.name for word in only):
            continue
        lab.say(problem.name)
        if problem.long and problem.name not in only:
            lab.leave_out(f"{problem.name}: takes half an hour, so it runs only with --only {problem.name}")
            continue
        try:
            yield problem, problem.load()
        except Missing as missing:
            lab.leave_out(f"{problem.name}: {missing}")


class Contest:
    """Libraries on one problem with the same initial centroids."""

    def __init__(self, lab: Lab, problem: Problem, X: Any, libraries: Sequence[str]) -> None:
        self.lab, self.X, self.ours = lab, X, libraries[0]
        self.files = {"rows": lab.share("rows", X), "start": lab.share("start", start_of(X, problem.k))}
        self.libraries = lab.present(libraries)
        self.repeats = min(lab.repeats, problem.most_repeats)
        self.answers: dict[str, list[Answer]] = {}
        self.energies: dict[str, float] = {}

    def run(self, iters: Sequence[int], tol: float | None = None) -> None:
        """Run all rounds.

        With a tolerance, libraries without that option run as many iterations as scikit-learn did. Without a tolerance,
        libraries that stop early are left out.
        """

        def task_of(library: str, answers: dict[str, list[Answer]]) -> Entry:
            most = list(iters)
            if tol is not None and not ADAPTERS[library].takes_tol:
                most = [answer["runs"][0]["n_iter"] for answer in answers.get("sklearn", [])][:1] or most
            out = str(self.lab.folder / f"{library}.npy")
            return {"do": "fit", "library": library, **self.files, "iters": most, "tol": tol or 0.0, "out": out}

        self.answers = self.lab.rounds(self.libraries, task_of, self.repeats)
        for name, answers in list(self.answers.items()):
            short = [run for answer in answers for run in answer["runs"] if run["n_iter"] != run["asked"]]
            if short and tol is None:
                self.lab.leave_out(f"{name}: stopped after {short[0]['n_iter']} of {short[0]['asked']} iterations")
                del self.answers[name]
                continue
            if not self.lab.quick and not self.seconds(name) > 0:
                self.lab.leave_out(f"{name}: an iteration is shorter than the noise of this machine")
                del self.answers[name]
                continue
            self.energies[name] = energy(self.X, np.load(self.lab.folder / f"{name}.npy")[-1])

    def seconds(self, library: str) -> float:
        return middle(self.answers[library], "wall")

    def rows(self) -> list[Entry]:
        return [self._row(name) for name in self.answers]

    def _row(self, name: str) -> Entry:
        answers = self.answers[name]
        ours = self.energies.get(self.ours)
        return {
            "library": name,
            "ran": answers[0]["runs"][-1]["ran"],
            "seconds": self.seconds(name),
            "CPU seconds": middle(answers, "cpu"),
            "iterations": answers[0]["runs"][-1]["n_iter"],
            "energy / ours": self.energies[name] / ours if ours else None,
            "start": "same" if ADAPTERS[name].takes_start else "its own",
            "shoal is": self.seconds(name) / self.seconds(self.ours) if name != self.ours and ours else None,
            "repeats": each(answers, "wall"),
        }

    def against(self, peers: Sequence[str]) -> list[Entry]:
        """Return the figure: the speed of Shoal relative to the fastest peer."""
        present = [name for name in peers if name in self.answers]
        if self.ours not in self.answers or not present:
            return []
        best = min(present, key=self.seconds)
        what = f"{self.ours} against {best}" + (f", the fastest of {', '.join(present)}" if len(present) > 1 else "")
        return [{"what": what, "ratio": self.seconds(best) / self.seconds(self.ours)}]


def lloyd(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """One plain Lloyd iteration, and its share of the matrix products and the memory bandwidth of this machine."""
    measure = (
        f"{DIFFERENCE} 'of sgemm' and 'of bandwidth': 2nkd operations and one pass over the rows, at the speed of the machine."
    )
    for problem, X in chosen(lab, problems.LLOYD, only, [problems.TINY]):
        contest = Contest(lab, problem, X, ["shoal-lloyd", *EXACT_PEERS])
        contest.run(problem.steps)
        rows, figures = contest.rows(), contest.against(EXACT_PEERS)
        limits = lab.ask({"do": "machine", "library": "shoal-lloyd", **({"size": 256, "megabytes": 8} if lab.quick else {})})
        if "error" not in limits:
            for row in rows:
                row["of sgemm"] = 2e-9 * X.size * problem.k / row["seconds"] / limits["sgemm"]
                row["of bandwidth"] = 1e-9 * X.nbytes / row["seconds"] / limits["bandwidth"]
            figures.append({"what": "sgemm of this machine, GFLOP/s", "value": limits["sgemm"]})
            figures.append({"what": "memory bandwidth of this machine, GB/s", "value": limits["bandwidth"]})
        yield entry_of(lab, problem.name, measure, rows, figures)


def ten(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Ten iterations of k-means with many clusters."""
    for problem, X in chosen(lab, problems.WIDE, only, [problems.TINY]):
        contest = Contest(lab, problem, X, ["shoal", *EXACT_PEERS, "superkmeans", "faiss-super"])
        contest.run([10])
        figures = [*contest.against(EXACT_PEERS), *contest.against(["superkmeans"]), *contest.against(["faiss-super"])]
        yield entry_of(lab, problem.name, WHOLE, contest.rows(), figures)


def converge(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Fits to tol=1e-4 (scikit-learn's definition); libraries without a tolerance run as many iterations as scikit-learn."""
    peers = ("sklearn", "sklearn-elkan", "sklearnex", "faiss")
    for problem, X in chosen(lab, problems.CONVERGE, only, [problems.TINY]):
        contest = Contest(lab, problem, X, ["shoal", *peers])
        contest.run([300], tol=1e-4)
        yield entry_of(lab, problem.name, WHOLE, contest.rows(), contest.against(peers))


def algorithms(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Shoal's algorithms compared with each other, to check the choice of "auto"."""
    tiny = [problems.TINY, problems.TINY_SPARSE]
    measure = "Seconds of a whole fit of at most 20 iterations. Distances as a share of Lloyd's."
    for problem, X in chosen(lab, problems.ALGORITHMS, only, tiny):
        names = [f"shoal-{name}" for name in SHOAL_ALGORITHMS if isinstance(X, np.ndarray) or name != "projected"]
        contest = Contest(lab, problem, X, ["shoal", *names])
        contest.run([20], tol=1e-4)
        rows = contest.rows()
        for row in rows:
            last = contest.answers[row["library"]][0]["runs"][0]
            row["distances"] = last["distances"] / (X.shape[0] * problem.k * last["n_iter"])
        yield entry_of(lab, problem.name, measure, rows, contest.against(names))


def seeding(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """k-means++ of Shoal and of scikit-learn, three seeds."""
    measure = "Seconds of k-means++ alone, and in plain Lloyd iterations of ours; energy of the seeds over all rows."
    for problem, X in chosen(lab, problems.WIDE, only, [problems.TINY]):
        contest = Contest(lab, problem, X, ["shoal-lloyd"])
        contest.run(problem.steps)
        if "shoal-lloyd" not in contest.answers:
            continue
        iteration = contest.seconds("shoal-lloyd")
        seconds: dict[str, list[float]] = {"shoal": [], "sklearn": []}
        energies: dict[str, list[float]] = {"shoal": [], "sklearn": []}
        for seed in range(1 if lab.quick else 3):
            for name in seconds:
                out = str(lab.folder / "seeds.npy")
                rows_file = contest.files["rows"]
                answer = lab.ask({"do": "seed", "library": name, "rows": rows_file, "k": problem.k, "seed": seed, "out": out})
                if "error" not in answer:
                    seconds[name].append(answer["wall"])
                    energies[name].append(energy(X, np.load(out)))
                    lab.say(f"  seed {seed}: {name} {answer['wall']:.3f} s")
        if not all(seconds.values()):
            continue
        spent = {name: float(np.median(times)) for name, times in seconds.items()}
        rows = [
            {
                "library": name,
                "seconds": spent[name],
                "Lloyd iterations": spent[name] / iteration,
                "energy / ours": fmean(energies[name]) / fmean(energies["shoal"]),
                "shoal is": spent[name] / spent["shoal"] if name != "shoal" else None,
                "repeats": seconds[name],
            }
            for name in seconds
        ]
        figures = [
            {"what": "energy of our seeds / scikit-learn's", "value": fmean(energies["shoal"]) / fmean(energies["sklearn"])},
            {"what": "cost in plain Lloyd iterations of ours", "value": spent["shoal"] / iteration},
            {"what": "shoal against sklearn", "ratio": spent["sklearn"] / spent["shoal"]},
        ]
        yield entry_of(lab, problem.name, measure, rows, figures)


def franti(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Twelve published data sets with known best clustering, best of ten initializations."""
    measure = "Energy over that of Lloyd from the published centroids; whole fit, n_init=10."
    names = [name for name in problems.FRANTI if not only or any(word in name for word in only)]
    for name in ["dim032", "a1"] if lab.quick else names:
        for X, k in problem_rows(lab, partial(problems.franti, name)):
            rows = []
            path = lab.share("rows", X)
            for library in ("shoal", "sklearn"):
                out = str(lab.folder / "centers.npy")
                task = {"do": "restarts", "library": library, "rows": path, "k": k, "n_init": 10, "seed": 0, "out": out}
                answer = lab.ask(task)
                if "error" not in answer:
                    over = energy(X, np.load(out)) / problems.FRANTI[name]
                    rows.append({"library": library, "energy / reference": over, "seconds": answer["wall"]})
                    lab.say(f"{name}: {library} {over:.5f}")
            ours = [row["energy / reference"] for row in rows if row["library"] == "shoal"]
            figures = [{"what": "energy of shoal / reference", "value": over, "limit": 1.001} for over in ours]
            yield entry_of(lab, name, measure, rows, figures)


def problem_rows(lab: Lab, load: Callable[[], Any]) -> Iterator[Any]:
    """Yield what `load` returns, or report why there is none."""
    try:
        yield load()
    except Missing as missing:
        lab.leave_out(str(missing))
