"""Dask: what a round costs beside threads, dask-ml on the same array, and workers that are killed at random moments."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from .dask_workers import clouds, held, timed, workers
from .equal import counts, kills
from .measure import Lab, busy
from .results import Entry
from .suites import entry_of

WORKERS, PARTITIONS = 4, 64
SHORT, LONG = 2, 8  # steps; the difference is what steps cost


def scaleout(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """Rounds on dask workers beside threads, dask-ml on the same array, and kills of workers at random moments."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        lab.leave_out("scaleout: dask is not installed")
        return
    for check in (overhead, peers, spark, counts, kills):
        if not only or check.__name__ in only:
            yield from check(lab)


def overhead(lab: Lab) -> Iterator[Entry]:
    """One step of Lloyd's: workers against threads, on the same cores."""
    import shoal

    n, d, k = (4_000, 16, 8) if lab.quick else (640_000, 128, 500)
    chunks = 8 if lab.quick else PARTITIONS
    X = clouds(n, d, k)
    start = X[:: n // k][:k].copy()

    def fit(rows: Any, steps: int) -> tuple[float, float, Any]:
        before = _cpu(client)
        seconds, model = timed(lambda: shoal.KMeans(k, init=start, algorithm="lloyd", max_iter=steps, tol=0).fit(rows))
        return seconds, _cpu(client) - before, model

    took: dict[str, list[Any]] = {"threads": [], "dask": []}
    with workers(2 if lab.quick else WORKERS) as client, shoal.Engine(client):
        sides = {"threads": X, "dask": held(client, X, chunks)}
        for rows in sides.values():  # kernels are compiled or read, and workers have met the rows
            fit(rows, 1)
        for _ in range(lab.repeats):
            for name, rows in sides.items():
                lab.others.append(busy())
                few, many = fit(rows, SHORT), fit(rows, LONG)
                took[name].append([(b - a) / (LONG - SHORT) for a, b in zip(few[:2], many[:2], strict=True)])
                lab.say(f"  {name}: {took[name][-1][0]:.3f} s a step, {took[name][-1][1]:.3f} s of the CPUs")
        told = many[2].history_[-1]
        bare = _bare_round(client, chunks)
    rows: list[Entry] = []
    for name, times in took.items():
        seconds, cpu = (median(column) for column in zip(*times, strict=True))
        rows.append({"engine": name, "seconds a step": seconds, "CPU seconds": cpu})
    rows[1] |= {"tasks": told["tasks"], "MB moved": told["bytes"] / 1e6, "seconds of a round without work": bare}
    ratio = rows[1]["seconds a step"] / rows[0]["seconds a step"]
    limit = {} if lab.quick else {"limit": 1.25}
    figures = [
        {"what": "a step on workers, as so many times that of threads", "value": ratio, **limit},
        {"what": "the same in CPU time, of all processes", "value": rows[1]["CPU seconds"] / rows[0]["CPU seconds"]},
    ]
    measure = f"{n:,} x {d} float32, k={k}, {chunks} partitions held by workers; steps of Lloyd's from the same start. Medians."
    yield entry_of(lab, "overhead", measure, rows, figures)


def _cpu(client: Any) -> float:
    """Seconds that this process and the workers have had."""
    return time.process_time() + sum(client.run(time.process_time).values())


def _bare_round(client: Any, chunks: int) -> float:
    """Seconds of a step that has next to nothing to do, in as many tasks."""
    import shoal

    X = clouds(chunks * (1 << 16), 1, 2)  # chunks of fewer rows than a block are put together
    rows = held(client, X, chunks)
    fits = [timed(lambda m=m: shoal.KMeans(2, init=X[:2], max_iter=m, tol=0).fit(rows))[0] for m in (SHORT, LONG, SHORT, LONG)]
    return (fits[3] - fits[2]) / (LONG - SHORT)


def peers(lab: Lab) -> Iterator[Entry]:
    """dask-ml's KMeans with its own defaults, on the array that ours gets: seconds until the energy is as low as its last."""
    import shoal

    n, d, k = (3_000, 8, 5) if lab.quick else (400_000, 50, 50)
    X = clouds(n, d, k)
    rows = []
    with workers(2) as client, shoal.Engine(client), client.as_current():
        D = held(client, X, 4 if lab.quick else 16)
        ours = lambda: shoal.KMeans(k, init="k-means||", random_state=0).fit(D)  # noqa: E731
        timed(lambda: shoal.KMeans(k, init="k-means||", random_state=0, max_iter=1).fit(D))
        seconds, model = timed(ours)
        rows.append({"library": "shoal", "seconds": seconds, "energy": model.inertia_, "steps": model.n_iter_})
        figures: list[Entry] = []
        try:
            from dask_ml.cluster import KMeans as Theirs
        except ImportError:
            lab.leave_out("dask-ml is not installed")
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                their_seconds, theirs = timed(lambda: Theirs(k, random_state=0).fit(D))
            energy = -model_of(theirs.cluster_centers_).score(X)
            rows.append({"library": "dask-ml", "seconds": their_seconds, "energy": energy, "steps": int(theirs.n_iter_)})
            figures = [
                {"what": "times faster than dask-ml", "value": their_seconds / seconds},
                {"what": "our energy over dask-ml's", "value": model.inertia_ / energy, "limit": 1.001},
            ]
        for row in rows:
            lab.say("  " + ", ".join(f"{key} {value}" for key, value in row.items()))
    measure = f"{n:,} x {d} float32, k={k}, held by 2 workers; whole fits, k-means|| and default limits. Energy by float64."
    yield entry_of(lab, "peers", measure, rows, figures)


def model_of(C: Any) -> Any:
    """A model with these centres."""
    import shoal

    return shoal.KMeans(len(C), init=np.asarray(C, np.float64), max_iter=1).fit(np.asarray(C, np.float64))


def spark(lab: Lab) -> Iterator[Entry]:
    """Spark MLlib's KMeans with its own defaults on two executors, ours on two workers. Rows are cached by both."""
    if lab.quick:
        return
    import shoal

    try:
        from pyspark.ml.clustering import KMeans as Theirs
        from pyspark.ml.feature import VectorAssembler
        from pyspark.sql import SparkSession
    except ImportError:
        lab.leave_out("pyspark is not installed (it needs Java, too)")
        return
    import pandas as pd

    n, d, k = 400_000, 50, 50
    X, names = clouds(n, d, k), [f"c{j}" for j in range(d)]
    path = lab.folder / "rows.parquet"
    pd.DataFrame(X, columns=names).to_parquet(path, row_group_size=n // 16)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "4g")
    begun = time.perf_counter()
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    try:
        table = VectorAssembler(inputCols=names, outputCol="features").transform(session.read.parquet(str(path)))
        cached = table.select("features").repartition(16).cache()
        cached.count()
        ready = time.perf_counter() - begun
        seconds, theirs = timed(lambda: Theirs(k=k, seed=0).fit(cached))
        steps = int(theirs.summary.numIter)
        energy = -model_of(np.array(theirs.clusterCenters())).score(X)
    finally:
        session.stop()
    with workers(2) as client, shoal.Engine(client):
        D = held(client, X, 16)
        timed(lambda: shoal.KMeans(k, init="k-means||", random_state=0, max_iter=1).fit(D))
        our_seconds, model = timed(lambda: shoal.KMeans(k, init="k-means||", random_state=0).fit(D))
    rows = [
        {"library": "shoal", "seconds": our_seconds, "energy": model.inertia_, "steps": model.n_iter_},
        {"library": "spark", "seconds": seconds, "energy": energy, "steps": steps, "seconds before": ready},
    ]
    figures = [
        {"what": "times faster than Spark", "value": seconds / our_seconds},
        {"what": "our energy over Spark's", "value": model.inertia_ / energy, "limit": 1.001},
    ]
    measure = f"{n:,} x {d} float32, k={k}, cached in 16 partitions, two cores; whole fits, k-means|| and default limits."
    yield entry_of(lab, "spark", measure, rows, figures)
