"""Dask: four inputs that are easily handled incorrectly without an error, in Shoal and in dask-ml."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .dask_workers import clouds, workers
from .measure import Lab, energy
from .results import Entry
from .suites import entry_of

K, COLUMNS, ROWS, STEPS = 5, 4, 600, 20


class Case(NamedTuple):
    name: str
    rows: Any  # a dask array
    start: Any
    seen: Any  # the same rows, dense, in float64, repeated by weight
    weights: Any = None


def cases() -> Iterator[Case]:
    import dask.array as da

    def chunked(X: Any) -> Any:
        return da.from_array(X, chunks=(ROWS // 3, COLUMNS))

    X = clouds(ROWS, COLUMNS, K, apart=1.0)
    start = X[:K]
    weights = np.where(X[:, 0] > 0, 20, 1)
    small = np.interp(X, (X.min(), X.max()), (0, 12)).astype(np.uint8)
    thin = np.where(np.abs(X) > 0.5, X, 0)
    csr = chunked(thin).map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=X.dtype))
    yield Case("weights", chunked(X), start, np.repeat(X, weights, axis=0), weights.astype(float))
    yield Case("sparse rows", csr, thin[:K], thin)
    away = 50 + 100 * np.arange(K, dtype=np.float32)[:, None]
    yield Case("a start that leaves clusters empty", chunked(X + 50), start + away, X + 50)
    yield Case("uint8", chunked(small), small[:K], small)


def plain(X: Any, C: Any) -> Any:
    """Run Lloyd's algorithm in float64; an empty cluster moves to the row with the largest error."""
    X, C = X.astype(np.float64), C.astype(np.float64)
    for _ in range(STEPS):
        far = ((X[:, None] - C) ** 2).sum(axis=2)
        labels = far.argmin(axis=1)
        worst = np.argsort(-far.min(axis=1), kind="stable")
        C = np.array([X[labels == j].mean(axis=0) if (labels == j).any() else X[worst[j]] for j in range(len(C))])
    return C


def verdict(case: Case, fit: Callable[[], Any]) -> str:
    """Return the error, or whether the energy is at most 5% above the expected one, as another local optimum may be."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            C = np.asarray(fit().cluster_centers_, np.float64)
    except Exception as error:
        return " ".join("".join(traceback.format_exception_only(error)).split())[:90]
    if not np.isfinite(C).all():
        return "wrong: centres are not finite"
    empty = K - len(np.unique(((case.seen[:, None] - C) ** 2).sum(axis=2).argmin(axis=1)))
    if empty:
        return f"wrong: {empty} clusters are empty"
    times = energy(case.seen, C) / energy(case.seen, plain(case.seen, case.start))
    return "right" if times < 1.05 else f"wrong: {times:.2f} times the energy"


def _fit(model: Any, case: Case) -> Any:
    return model.fit(case.rows) if case.weights is None else model.fit(case.rows, sample_weight=case.weights)


def wrong(lab: Lab) -> Iterator[Entry]:
    """Compare Shoal and dask-ml on weights, sparse rows, empty clusters and small integers."""
    import shoal

    try:
        from dask_ml.cluster import KMeans as Theirs
    except ImportError:
        Theirs = None
        lab.leave_out("dask-ml is not installed")
    rows: list[Entry] = []
    with workers(1) as client, shoal.Engine(client), client.as_current():
        for case in cases():
            makers = {"shoal": lambda start: shoal.KMeans(K, init=start, tol=0, max_iter=STEPS)}
            if Theirs is not None:
                makers["dask-ml"] = lambda start: Theirs(K, init=start, tol=0, max_iter=STEPS)
            verdicts = {name: verdict(case, partial(_fit, make(case.start), case)) for name, make in makers.items()}
            rows.append({"case": case.name, **verdicts})
            lab.say("  " + ", ".join(f"{key}: {value}" for key, value in rows[-1].items()))
    missed = {name: sum(row.get(name, "right") != "right" for row in rows) for name in rows[0] if name != "case"}
    lab.failures += bool(missed["shoal"])
    figures: list[Entry] = [{"what": "cases that shoal gets wrong", "value": missed.pop("shoal"), "limit": 0}]
    figures += [{"what": f"cases that {name} refuses or gets wrong", "value": value} for name, value in missed.items()]
    measure = "Right: at most 5% above the energy of plain Lloyd's in float64, on dense rows, each as often as it counts."
    yield entry_of(lab, "wrong", measure, rows, figures)
