"""`shoal compare`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from .options import COUNT, DATA, fit_options, force_option, rows_options, watch_options


@click.command()
@click.argument("data", type=DATA)
@click.option("-k", "--clusters", type=COUNT, required=True, help="How many clusters.")
@click.option("--methods", required=True, metavar="A,B,C", help="Methods of `shoal fit`, between commas.")
@click.option("-o", "--output", type=click.Path(), help="A report: an html file.")
@fit_options
@rows_options
@force_option
@watch_options
def compare(data: str, clusters: int, methods: str, output: str | None, force: bool, **settings: Any) -> None:
    """Fit the same rows by several methods. All start from the same centres; energy and time of each are told.

    A limit by --time is one for each method.
    """
    from ..report import words
    from .data import open_data
    from .methods import warm
    from .output import refuse, saving, show, show_table
    from .plan import check_clusters, limited
    from .progress import watching
    from .trials import fitted, origin, ready, start, within

    names = _methods(methods)
    path = None if output is None else Path(output)
    if path is not None:
        refuse(path, force, data)
    with watching(settings["progress"], settings["quiet"]) as watch, limited(settings):
        rows = open_data(data, settings)
        check_clusters(clusters, rows.shape[0])
        chosen = dict(zip(names, within(rows, [(name, clusters) for name in names], settings), strict=True))
        rows = ready(rows, data, settings)
        watch.note("finding a start")
        centers = start(rows, clusters, min(chosen.values(), key=lambda one: one["threads"] or math.inf))
        runs = []
        for name in names:
            watch.note(name)
            warm(name, rows, chosen[name])
            runs.append((name, *fitted(name, rows, centers, chosen[name], watch)))
        if path is not None:
            from ..report import Curve, Trial, write_compare

            trials = [Trial(n, Curve.of(m.history_), m.inertia_, s, m.n_iter_, m.stop_reason_) for n, m, s in runs]
            with saving(path):
                write_compare(path, trials, origin(data, f"{len(names)} methods", settings["seed"]))
    told = [
        {"method": n, "energy": m.inertia_, "seconds": s, "steps": m.n_iter_, "stopped": m.stop_reason_} for n, m, s in runs
    ]
    if settings["as_json"]:
        show({"data": data, "rows": rows.shape[0], "clusters": clusters, "methods": told, "report": output}, True, {})
        return
    least = min((t["energy"] for t in told if math.isfinite(t["energy"])), default=math.nan)
    above = [words.percent(words.above(t["energy"], least)) for t in told]
    cells = [
        [t["method"], f"{t['energy']:.6g}", more, f"{t['seconds']:.2f}", t["steps"], words.ENDS.get(t["stopped"], t["stopped"])]
        for t, more in zip(told, above, strict=True)
    ]
    show_table(["method", "energy", "above the least", "seconds", "steps", "ended"], cells)


def _methods(text: str) -> list[str]:
    from .methods import MOVERS

    names = list(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    for name in names:
        if name not in MOVERS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(MOVERS)}.", param_hint="--methods")
    if not names:
        raise click.BadParameter("names no method.", param_hint="--methods")
    return names
