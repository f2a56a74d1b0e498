"""`shoal sweep`."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import click

from .errors import reading_data
from .options import DATA, fit_options, force_option, rows_options, watch_options

MOST = 16  # numbers of clusters to try, where no step is named
SAMPLE = 20_000  # rows, at least, to judge by and to find starts among
STEPS = 10  # there


class Counts(click.ParamType):  # type: ignore[type-arg]
    """10:200 (some between, by ever larger steps), 10:200:10, or 5,10,20."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        found = re.fullmatch(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})(?::([1-9][0-9]{0,8}))?", value)
        if found:
            low, high = int(found[1]), int(found[2])
            if low < high and found[3]:
                return list(range(low, high + 1, int(found[3])))
            if low < high:
                ratio = (high / low) ** (1 / (MOST - 1))
                return sorted({round(low * ratio**i) for i in range(MOST)})
        elif re.fullmatch(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*", value):
            return sorted(set(map(int, value.split(","))))
        self.fail(f"{value!r} is no range: write one such as 10:200, 10:200:10 or 5,10,20.", param, ctx)


@click.command()
@click.argument("data", type=DATA)
@click.option(
    "-k", "--clusters", type=Counts(), required=True, help="From one number to another: 10:200, 10:200:10; or 5,10,20."
)
@click.option("--method", default="auto", show_default=True, help="One of `shoal compare`.")
@click.option("-o", "--output", type=click.Path(), help="A report: an html file.")
@fit_options
@rows_options
@force_option
@watch_options
def sweep(data: str, clusters: list[int], method: str, output: str | None, force: bool, **settings: Any) -> None:
    """Try several numbers of clusters. Energy and simplified silhouette of each are told, and the knee, if there is one."""
    from .compare import _methods
    from .output import refuse, saving, show, show_table
    from .plan import check_clusters, check_memory
    from .progress import watching
    from .trials import origin, ready

    method = _methods(method)[0]
    path = None if output is None else Path(output)
    if path is not None:
        refuse(path, force, data)
    with watching(settings["progress"], settings["quiet"]) as watch:
        rows = ready(data, settings)
        check_clusters(max(clusters), rows.shape[0])
        check_memory(rows, {**settings, "clusters": max(clusters), "method": method, "extra": {}})
        points = _points(rows, clusters, method, settings, watch)
        from ..metrics import knee

        found = knee([p.k for p in points], [p.energy for p in points])
        if path is not None:
            from ..report import write_sweep

            with saving(path):
                write_sweep(path, points, origin(data, "how many clusters?", settings["seed"]))
    if settings["as_json"]:
        told = [p._asdict() for p in points]
        show({"data": data, "rows": rows.shape[0], "method": method, "points": told, "knee": found, "report": output}, True, {})
        return
    show_table(
        ["k", "energy", "silhouette", "seconds"],
        [[p.k, f"{p.energy:.6g}", "" if p.silhouette is None else f"{p.silhouette:.3f}", f"{p.seconds:.2f}"] for p in points],
    )
    click.echo("no clear knee" if found is None else f"knee at k = {found:,}")


def _points(rows: Any, counts: list[int], method: str, settings: dict[str, Any], watch: Any) -> list[Any]:
    """From few clusters to many."""
    import numpy as np

    from ..metrics import simplified_silhouette
    from ..report import Point
    from .trials import fitted

    rng, n = np.random.default_rng(settings["seed"]), rows.shape[0]
    with reading_data():
        sample = rows.take(np.sort(rng.choice(n, min(n, max(SAMPLE, 10 * counts[-1])), replace=False)))
    out: list[Any] = []
    model: Any = None
    for k in counts:
        watch.note(f"k = {k:,}")
        model, seconds = fitted(method, rows, _start(sample, k, model, settings, rng), settings, watch)
        quality = simplified_silhouette(sample, model.cluster_centers_, metric=settings["metric"]) if k > 1 else None
        out.append(Point(k, float(model.inertia_), quality, seconds))
    return out


def _start(sample: Any, k: int, before: Any, settings: dict[str, Any], rng: Any) -> Any:
    """A start of its own, or the centres before with rows far from them: what is better after a few steps on the sample."""
    import numpy as np

    from .methods import estimator

    chosen = {**settings, "time": None, "standardize": False, "extra": {"max_iter": STEPS}}
    tries = [estimator("exact", k, chosen)]
    if before is not None:
        C = before.cluster_centers_
        grown = np.concatenate([C, _far(before, sample, k - len(C), rng)])
        tries.append(estimator("exact", k, {**chosen, "init": None}, init=grown))
    with reading_data(), warnings.catch_warnings(action="ignore"):
        return min((model.fit(sample) for model in tries), key=lambda model: model.inertia_).cluster_centers_


def _far(model: Any, sample: Any, count: int, rng: Any) -> Any:
    """Rows of the sample, the likelier the farther from all centres."""
    import numpy as np

    far = model.transform(sample).min(axis=1).astype(np.float64) ** (1 if model.metric == "cosine" else 2)
    likely = far / far.sum() if np.count_nonzero(far) >= count else None
    some = sample[rng.choice(sample.shape[0], count, replace=sample.shape[0] < count, p=likely)]
    return (some.toarray() if hasattr(some, "toarray") else some).astype(model.cluster_centers_.dtype)
