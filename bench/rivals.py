"""Dask: whole fits compared with dask-ml and Spark on the same rows, interleaved by seed."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from .dask_workers import clouds, held, timed, workers
from .measure import Lab, busy, energy
from .results import Entry
from .suites import entry_of

PARALLEL = "shoal, k-means||"
DISTANCES = {"": 3.0, ", overlapping": 0.4}  # between clusters, by problem
MAX_ENERGY_RATIO = 1.001  # of energies that count as equal
MEASURE = (
    "Whole fits in turn, each library with its own defaults, ours from k-means|| as well; medians of the seeds. Energies by "
    "float64 from the centres. To the same energy: seconds of each until 0.1% above the higher of ours and the rival's in the "
    "end; the rival's by shorter fits, afterwards, to a twentieth of its steps. What should be is said of the defaults."
)


class Fit(NamedTuple):
    seconds: float
    centers: Any
    steps: int
    course: Sequence[tuple[float, float]] = ()  # seconds since the start, and the energy reached

    def until(self, low: float) -> float:
        """Return the seconds until the energy was at most `low`."""
        return next((seconds for seconds, energy in self.course if energy <= low), self.seconds)


Fitting = Callable[..., Fit]  # of the seed and, optionally, the maximum number of steps


def shorter(fit: Fitting, seed: int, whole: Fit, low: float, X: Any) -> float:
    """Return the seconds of the shortest fit that reaches the energy of the whole one, to within a twentieth of its steps."""
    least, most, seconds = 0, whole.steps, whole.seconds
    while most - least > max(1, whole.steps // 20):
        tried = fit(seed, steps := (least + most) // 2)
        if energy(X, tried.centers) <= low:
            most, seconds = steps, tried.seconds
        else:
            least = steps
    return seconds


def ours(rows: Any, k: int, seed: int, **options: Any) -> Fit:
    import shoal

    seconds, model = timed(lambda: shoal.KMeans(k, random_state=seed, **options).fit(rows))
    before = seconds - model.history_[-1]["seconds"]  # initialization and final labels
    course = [(before + step["seconds"], step["energy"]) for step in model.history_]
    return Fit(seconds, model.cluster_centers_, model.n_iter_, course)


def our_fits(rows: Any, k: int) -> dict[str, Fitting]:
    fits: dict[str, Fitting] = {"shoal": partial(ours, rows, k), PARALLEL: partial(ours, rows, k, init="k-means||")}
    for fit in fits.values():
        fit(0, max_iter=1)  # compile or load the kernels
    return fits


def contest(lab: Lab, X: Any, rival: str, least: float, fits: dict[str, Fitting]) -> tuple[list[Entry], list[Entry]]:
    """Yield results per library and the speed-up of Shoal, which should be at least `least`."""
    found: dict[str, list[Fit]] = {library: [] for library in fits}
    for seed in range(lab.repeats):
        for library in sorted(fits, reverse=bool(seed % 2)):
            lab.others.append(busy())
            found[library].append(fits[library](seed))
            lab.say(f"  seed {seed}: {library} {found[library][-1].seconds:.2f} s, {found[library][-1].steps} steps")
    ends = {library: [energy(X, fit.centers) for fit in all_of] for library, all_of in found.items()}
    rows: list[Entry] = [
        {
            "library": library,
            "seconds": median(fit.seconds for fit in all_of),
            "steps": median(fit.steps for fit in all_of),
            "energy / ours": median(np.divide(ends[library], ends["shoal"])),
            "repeats": [fit.seconds for fit in all_of],
        }
        for library, all_of in found.items()
    ]
    if rival not in found:
        return rows, []
    goals = [MAX_ENERGY_RATIO * max(pair) for pair in zip(ends["shoal"], ends[rival], strict=True)]
    until = {library: list(map(Fit.until, found[library], goals)) for library in ("shoal", PARALLEL)}
    until[rival] = list(map(partial(shorter, fits[rival], X=X), range(lab.repeats), found[rival], goals))
    for row in rows:
        row["seconds to the same energy"] = median(until[row["library"]])
    times = {library: median(np.divide(until[rival], taken)) for library, taken in until.items()}
    seconds = {row["library"]: row["seconds"] for row in rows}
    wanted = {} if lab.quick else {"least": least}
    return rows, [
        {"what": f"times faster than {rival} to the same energy", "value": times["shoal"], **wanted},
        {"what": "the same, ours from k-means||", "value": times[PARALLEL]},
        {"what": f"times faster than {rival}, whole fits", "value": seconds[rival] / seconds["shoal"]},
        {"what": f"our energy over {rival}'s", "value": median(np.divide(ends["shoal"], ends[rival])), "limit": 1.001},
    ]


def peers(lab: Lab) -> Iterator[Entry]:
    """Compare with dask-ml's KMeans (defaults) on the same array: separated and overlapping clusters."""
    import shoal

    n, d, k = (3_000, 8, 5) if lab.quick else (400_000, 50, 50)
    for problem, apart in list(DISTANCES.items())[: 1 if lab.quick else None]:
        X = clouds(n, d, k, apart=apart)
        with workers(2) as client, shoal.Engine(client), client.as_current():
            rows = held(client, X, 4 if lab.quick else 16)
            fits = our_fits(rows, k)
            with contextlib.suppress(ImportError):
                fits["dask-ml"] = _dask_ml(rows, k)
                fits["dask-ml"](0, 1)
            if "dask-ml" not in fits:
                lab.leave_out("dask-ml is not installed")
            results = contest(lab, X, "dask-ml", 5, fits)
        yield entry_of(lab, f"peers{problem}", f"{n:,} x {d} float32, k={k}, held by 2 workers. {MEASURE}", *results)


def _dask_ml(rows: Any, k: int) -> Fitting:
    from dask_ml.cluster import KMeans

    def fit(seed: int, steps: int = 300) -> Fit:  # its default
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds, model = timed(lambda: KMeans(k, random_state=seed, max_iter=steps).fit(rows))
        return Fit(seconds, model.cluster_centers_, int(model.n_iter_))

    return fit


def spark(lab: Lab) -> Iterator[Entry]:
    """Compare Spark MLlib's KMeans (defaults) on two executors with Shoal on two workers; both cache the rows."""
    if lab.quick:
        return
    import shoal

    if find_spec("pyspark") is None or shutil.which("java") is None:
        lab.leave_out("pyspark (pip install '.[spark]') or Java (17 or later) is not installed")
        return
    n, d, k = 400_000, 50, 50
    for problem, apart in DISTANCES.items():
        X = clouds(n, d, k, apart=apart)
        with _spark(lab, X, 16) as (table, master, before), workers(2) as client, shoal.Engine(client):
            rows = held(client, X, 16)
            _mllib(table, k, 1)  # warm up the JVM
            results = contest(lab, X, "spark", 10, {**our_fits(rows, k), "spark": partial(_mllib, table, k)})
            results[0][-1]["seconds before"] = before
        measure = (
            f"{n:,} x {d} float32, k={k}, cached in 16 partitions by 2 workers and, in float64, by Spark's {master}. {MEASURE}"
        )
        yield entry_of(lab, f"spark{problem}", measure, *results)


def _mllib(table: Any, k: int, seed: int, steps: int = 20) -> Fit:  # its default
    from pyspark.ml.clustering import KMeans

    seconds, model = timed(lambda: KMeans(k=k, seed=seed, maxIter=steps).fit(table))
    return Fit(seconds, np.array(model.clusterCenters()), int(model.summary.numIter))


@contextlib.contextmanager
def _spark(lab: Lab, X: Any, parts: int) -> Iterator[tuple[Any, str, float]]:
    """Yield the rows cached by Spark, the kind of executors and the seconds it took; separate executors if they start."""
    import pandas as pd
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    names = [f"c{j}" for j in range(X.shape[1])]
    path = lab.folder / "rows.parquet"
    pd.DataFrame(X, columns=names).to_parquet(path, row_group_size=len(X) // parts)
    os.environ |= {"SPARK_HOME": str(_spark_home(lab.folder / "spark")), "SPARK_LOCAL_IP": "127.0.0.1"}
    for master in ("local-cluster[2,1,2048]", "local[2]"):
        started = time.perf_counter()
        try:
            session = _session(master)
            table = VectorAssembler(inputCols=names, outputCol="features").transform(session.read.parquet(str(path)))
            cached = table.select("features").repartition(parts).cache()
            cached.count()
            break
        except Exception as error:
            lab.leave_out(f"Spark's {master}: {str(error).splitlines()[0]}")
            if (half_there := SparkSession.getActiveSession()) is not None:
                half_there.stop()
    else:
        raise RuntimeError("Spark does not start.")
    try:
        yield cached, master, time.perf_counter() - started
    finally:
        session.stop()


def _spark_home(folder: Path) -> Path:
    """Return a folder with the scripts that start executors, for their files."""
    import pyspark

    folder.mkdir(exist_ok=True)
    for name in ("bin", "jars"):
        if not (folder / name).exists():
            (folder / name).symlink_to(Path(pyspark.__file__).parent / name)
    return folder


def _session(master: str) -> Any:
    """Restrict Spark to the loopback interface."""
    from pyspark.sql import SparkSession

    here = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    room = {"spark.driver.memory": "4g", "spark.executor.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    return SparkSession.builder.master(master).config(map={**here, **room}).getOrCreate()
