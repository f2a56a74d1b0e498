"""`shoal compare`."""

from __future__ import annotations

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
    """Fit the same rows by several methods. All start from the same centres; energy and time of each are told."""
    from .output import refuse, saving, show, show_table
    from .plan import check_clusters, check_memory
    from .progress import watching
    from .trials import fitted, origin, ready, start, warm

    names = _methods(methods)
    path = None if output is None else Path(output)
    if path is not None:
        refuse(path, force, data)
    with watching(settings["progress"], settings["quiet"]) as watch:
        rows = ready(data, settings)
        check_clusters(clusters, rows.shape[0])
        for name in names:
            check_memory(rows, {**settings, "clusters": clusters, "method": name, "extra": {}})
        watch.note("finding a start")
        centers = start(rows, clusters, settings)
        runs = []
        for name in names:
            watch.note(name)
            warm(name, rows, settings)
            runs.append((name, *fitted(name, rows, centers, settings, watch)))
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
    best = min(t["energy"] for t in told) or 1.0
    cells = [
        [t["method"], f"{t['energy']:.6g}", f"{t['energy'] / best - 1:+.2%}", f"{t['seconds']:.2f}", t["steps"]] for t in told
    ]
    show_table(["method", "energy", "above the least", "seconds", "steps"], cells)


def _methods(text: str) -> list[str]:
    from .trials import MOVERS

    names = list(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    for name in names:
        if name not in MOVERS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(MOVERS)}.", param_hint="--methods")
    if not names:
        raise click.BadParameter("names no method.", param_hint="--methods")
    return names
