"""Dask: compare results bit for bit with threads, for several numbers of workers and with killed workers."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .dask_workers import clouds, timed, workers
from .measure import Lab
from .results import Entry
from .suites import entry_of

KILLS = 20
ROWS, COLUMNS, PARTS = 49_152, 128, 12  # blocks of 4,096 rows: smaller chunks would be merged


def _collection() -> Any:
    import dask.array as da

    return da.from_array(clouds(ROWS, COLUMNS, 20, apart=0.3), chunks=(ROWS // PARTS, COLUMNS))


def counts(lab: Lab) -> Iterator[Entry]:
    """Fit on one, two and four workers; count results that differ from threads on the same partitions."""
    import shoal

    D = _collection()
    chosen = {name: make for name, make in methods().items() if name == "lloyd" or not lab.quick}
    by_case: dict[str, Entry] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with shoal.Engine(None):
            expected = {name: make().fit(D) for name, make in chosen.items()}
        for count in (1, 2) if lab.quick else (1, 2, 4):
            with workers(count) as client, shoal.Engine(client):
                for name, make in chosen.items():
                    row = by_case.setdefault(name, {"case": name, "harmed": 0})
                    row["harmed"] += not same(make().fit(D), expected[name])
    lab.failures += sum(row["harmed"] for row in by_case.values())
    figures = [{"what": f"{row['case']}: harmed", "value": row["harmed"], "limit": 0} for row in by_case.values()]
    measure = f"{ROWS:,} rows in {PARTS} partitions on one, two and four workers. Harmed: other bits than threads find."
    yield entry_of(lab, "counts", measure, list(by_case.values()), figures)


def methods() -> dict[str, Callable[[], Any]]:
    import shoal

    return {
        "lloyd": lambda: shoal.KMeans(20, algorithm="lloyd", random_state=0, max_iter=8, tol=0),
        "k-means||": lambda: shoal.KMeans(20, init="k-means||", random_state=0, max_iter=4, tol=0),
        "nested": lambda: shoal.NestedKMeans(20, random_state=0),
        "minibatch": lambda: shoal.MiniBatchKMeans(20, random_state=0, max_iter=10),
        "vrkm": lambda: shoal.VarianceReducedKMeans(20, random_state=0, max_iter=3),
        "mixture": lambda: shoal.SphericalMixture(20, random_state=0, max_iter=5),
        "binary": lambda: shoal.BinaryKMeans(20, random_state=0),
        "compressed": lambda: shoal.CompressedKMeans(20, random_state=0, refine=True),
        "standardized": lambda: shoal.Standardized(shoal.KMeans(20, random_state=0, max_iter=4, tol=0)),
        "nystrom": lambda: shoal.NystromSpectral(20, random_state=0, n_samples=100, n_init=1),
        "spectral": lambda: shoal.MiniBatchSpectral(20, random_state=0, max_iter=3, sigma=8.0, tol=0, n_init=1),
    }


def same(a: Any, b: Any) -> bool:
    names = ("labels_", "cluster_centers_", "embedding_", "inertia_", "n_iter_")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names if hasattr(a, name))


def kills(lab: Lab) -> Iterator[Entry]:
    """Kill a worker (SIGKILL) at random moments of a fit; count results that differ from threads."""
    import shoal

    times = 1 if lab.quick else int(os.environ.get("SHOAL_KILLS", KILLS))
    seed = int(os.environ.get("SHOAL_SEED", os.getpid()))
    rng, outcomes = np.random.default_rng(seed), []
    with workers(3) as client:
        D = _collection()
        for name, make in methods().items():
            if lab.quick and name != "lloyd":
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with shoal.Engine(None):
                    expected = make().fit(D)
                with shoal.Engine(client):
                    harmed, hits = 0, list[int]()
                    for _ in range(2):  # the first fit compiles or loads kernels on the workers
                        usual, model = timed(lambda make=make: make().fit(D))
                        harmed += not same(model, expected)
                    for _ in range(3 * times):  # some fits end before the kill
                        if len(hits) == times:
                            break
                        pid = int(rng.choice(_pids(client)))
                        done = threading.Event()
                        killer = threading.Thread(target=_kill, args=(pid, float(rng.uniform(0, usual)), done, hits))
                        killer.start()
                        model = make().fit(D)
                        done.set()
                        killer.join()
                        harmed += not same(model, expected)
                        _all_there(client, 3)
            outcomes.append({"case": name, "kills": len(hits), "seconds of a fit": usual, "harmed": harmed})
            lab.say("  " + ", ".join(f"{key} {value}" for key, value in outcomes[-1].items()))
            lab.failures += bool(harmed)
    figures = [{"what": f"{row['case']}: harmed", "value": row["harmed"], "limit": 0} for row in outcomes]
    where = f"{ROWS:,} rows in {PARTS} partitions on 3 workers"
    measure = f"{where}; one dies at a random moment (SHOAL_SEED={seed}). Harmed: other bits."
    yield entry_of(lab, "kills", measure, outcomes, figures)


def _pids(client: Any) -> list[int]:
    """Return the process ids of all workers; one may have died unnoticed."""
    while True:
        try:
            return list(client.run(os.getpid).values())
        except OSError:
            _all_there(client, 3)


def _all_there(client: Any, count: int) -> None:
    """Wait until all workers run: a killed worker is restarted by its nanny, or replaced."""
    try:
        client.wait_for_workers(count, timeout=30)
    except TimeoutError:
        client.cluster.scale(len(client.cluster.worker_spec) + 1)
        client.wait_for_workers(count, timeout=120)


def _kill(pid: int, after: float, done: threading.Event, hits: list[int]) -> None:
    """Kill a process after a delay, unless the fit has ended."""
    if not done.wait(after):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            hits.append(pid)
