"""`shoal sweep`."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import click

from .errors import reading_data
from .methods import mover_option
from .options import DATA, fit_options, force_option, rows_options, watch_options

EVERY = 30  # numbers of clusters that are all tried, where no step is named; of more, so many:
MOST = 16
MORE = 14  # and then so many around the knee
SAMPLE = 20_000  # rows, at least, to judge by and to find starts among
STEPS = 10  # there
SOME = 4096  # rows at a time


class Span(NamedTuple):
    """Numbers of clusters to try."""

    counts: list[int]
    coarse: bool = False  # are there more between them, to look at where the knee is?


class Counts(click.ParamType):  # type: ignore[type-arg]
    """2:20 (all of them), 10:200 (some, by ever larger steps), 10:200:10, or 5,10,20."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Span:
        found = re.fullmatch(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})(?::([1-9][0-9]{0,8}))?", value)
        if found:
            low, high = int(found[1]), int(found[2])
            if low < high and found[3]:
                return Span(list(range(low, high + 1, int(found[3]))))
            if low < high < low + EVERY:
                return Span(list(range(low, high + 1)))
            if low < high:
                ratio = (high / low) ** (1 / (MOST - 1))
                return Span(sorted({round(low * ratio**i) for i in range(MOST)}), True)
        elif re.fullmatch(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*", value):
            return Span(sorted(set(map(int, value.split(",")))))
        self.fail(f"{value!r} is no range: write one such as 10:200, 10:200:10 or 5,10,20.", param, ctx)


@click.command()
@click.argument("data", type=DATA)
@click.option("-k", "--clusters", type=Counts(), required=True, help="From one number to another: 2:20, 10:200:10; or 5,10,20.")
@mover_option
@click.option("-o", "--output", type=click.Path(), help="A report: an html file.")
@fit_options
@rows_options
@force_option
@watch_options
def sweep(data: str, clusters: Span, method: str, output: str | None, force: bool, **settings: Any) -> None:
    """Try several numbers of clusters. Energy and simplified silhouette of each are told, and the knee, if there is one.

    Of ranges up to 30 numbers every one is tried; of longer ones some, and then more around the knee. A limit by --time is one
    for each k.
    """
    from ..report import words
    from .data import open_data
    from .output import refuse, saving, show, show_table, tell
    from .plan import check_clusters, limited
    from .progress import watching
    from .trials import origin, ready, within

    path = None if output is None else Path(output)
    if path is not None:
        refuse(path, force, data)
    with watching(settings["progress"], settings["quiet"]) as watch, limited(settings):
        rows = open_data(data, settings)
        check_clusters(clusters.counts[-1], rows.shape[0])
        tries = within(rows, [(method, k) for k in clusters.counts], settings)
        rows = ready(rows, data, settings)
        points = _points(rows, clusters, min(tries, key=lambda one: one["threads"] or math.inf), watch)
        found = _knee(points)
        if path is not None:
            from ..report import write_sweep

            with saving(path):
                write_sweep(path, points, origin(data, "how many clusters?", settings["seed"]))
    if settings["as_json"]:
        told = {"data": data, "rows": rows.shape[0], "method": method, "points": [p._asdict() for p in points]}
        show({**told, "knee": found, "knee_between": words.between(points, found), "report": output}, True, {})
        return
    scores = ["" if p.silhouette is None else f"{p.silhouette:.3f}" for p in points]
    cells = [
        [p.k, f"{p.energy:.6g}", score, f"{p.seconds:.2f}", words.ENDS.get(p.stopped, p.stopped)]
        for p, score in zip(points, scores, strict=True)
    ]
    show_table(["k", "energy", "silhouette", "seconds", "ended"], cells)
    for line in filter(None, (words.place(points, found), words.unfinished(points))):
        tell(line)


def _knee(points: list[Any]) -> int | None:
    import numpy as np

    from ..metrics import knee

    good = [p for p in points if np.isfinite(p.energy)]
    return knee([p.k for p in good], [p.energy for p in good])


def _nearer(points: list[Any]) -> list[int]:
    """Numbers around the knee that were not tried, if there is one: all of them, or some where they are many."""
    import numpy as np

    from ..report.words import between

    low, high = between(points, _knee(points)) or (0, 0)
    some = np.linspace(low + 1, high - 1, min(MORE, max(high - low - 1, 0))).round().astype(int)
    return sorted(set(some.tolist()) - {p.k for p in points})


class Grown(NamedTuple):
    """Where a fit of more clusters can begin."""

    centers: Any
    far: Any  # how likely rows of the sample are to be the next centres: the more so, the farther from all of these


def _points(rows: Any, span: Span, settings: dict[str, Any], watch: Any) -> list[Any]:
    """From few clusters to many, and once more around the knee if there are others between."""
    import numpy as np

    from ..metrics import simplified_silhouette
    from ..report import Point
    from .trials import fitted

    rng, n = np.random.default_rng(settings["seed"]), rows.shape[0]
    with reading_data():
        sample = rows.take(np.sort(rng.choice(n, min(n, _room(rows, span, settings)), replace=False)))
    out: list[Any] = []
    grown: dict[int, Grown] = {}

    def attempt(k: int) -> None:
        watch.note(f"k = {k:,}")
        before = max((fewer for fewer in grown if fewer < k), default=0)
        begun = _start(sample, k, grown.get(before), settings, rng)
        model, seconds = fitted(settings["method"], rows, begun, settings, watch)
        C, threads = model.cluster_centers_, settings["threads"]
        quality = simplified_silhouette(sample, C, metric=settings["metric"], n_threads=threads) if k > 1 else None
        out.append(Point(k, float(model.inertia_), quality, seconds, model.stop_reason_))
        if not span.coarse:
            grown.clear()
        grown[k] = Grown(C, _far(model, sample))

    for k in span.counts:
        attempt(k)
    for k in _nearer(out) if span.coarse else []:
        attempt(k)
    return sorted(out, key=lambda point: point.k)


def _room(rows: Any, span: Span, settings: dict[str, Any]) -> int:
    """Rows for the sample: no more than a limit on memory leaves room for, but one for each cluster."""
    from ..data.rows import working_dtype
    from .plan import parts

    k = span.counts[-1]
    wanted = max(SAMPLE, 10 * k)
    if settings["memory"] is None:
        return wanted
    with reading_data():
        some = rows.read(0, min(rows.shape[0], 1000))
    size = (some.data.nbytes + some.indices.nbytes if hasattr(some, "indices") else some.nbytes) / some.shape[0]
    size *= 4 * working_dtype(rows.dtype).itemsize / rows.dtype.itemsize  # as it is, and as a start is found in it
    needed = parts(rows, settings["method"], k, settings["threads"], settings)
    held = sum(span.counts) * rows.shape[1] * 8 if span.coarse else 0  # centres
    left = settings["memory"] - held - sum(needed.values()) + needed.get("start", 0)
    return max(k, min(wanted, int(left / size)))


def _start(sample: Any, k: int, before: Grown | None, settings: dict[str, Any], rng: Any) -> Any:
    """A start of its own, or the centres before with rows far from them: what is better after a few steps on the sample."""
    import numpy as np

    from .methods import estimator

    chosen = {**settings, "time": None, "standardize": False, "extra": {"max_iter": STEPS}}
    tries = [estimator("exact", k, chosen)]
    if before is not None:
        C, more = before.centers, _likely(before, sample, k - len(before.centers), rng)
        tries.append(estimator("exact", k, {**chosen, "init": None}, init=np.concatenate([C, more.astype(C.dtype)])))
    with reading_data(), warnings.catch_warnings(action="ignore"):
        return min((model.fit(sample) for model in tries), key=lambda model: model.inertia_).cluster_centers_


def _far(model: Any, sample: Any) -> Any:
    """Of the sample's rows from the nearest centre, some rows after others: all distances at once may be too many."""
    import numpy as np

    parts = [model.transform(sample[i : i + SOME]).min(axis=1) for i in range(0, sample.shape[0], SOME)]
    return np.concatenate(parts).astype(np.float64) ** (1 if model.metric == "cosine" else 2)


def _likely(before: Grown, sample: Any, count: int, rng: Any) -> Any:
    """Rows of the sample, the likelier the farther from all centres."""
    import numpy as np

    likely = before.far / before.far.sum() if np.count_nonzero(before.far) >= count else None
    some = sample[rng.choice(sample.shape[0], count, replace=sample.shape[0] < count, p=likely)]
    return some.toarray() if hasattr(some, "toarray") else some
