"""What `compare` and `sweep` share: where fits start, one of them after the other, and the head of their reports."""

from __future__ import annotations

import datetime
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .data import fingerprint
from .errors import opening, reading_data
from .methods import estimator
from .plan import threads_for
from .progress import Watch


def ready(rows: Any, data: str, settings: Mapping[str, Any]) -> Any:
    """The rows of a file, standardized if that is wanted."""
    if not settings.get("standardize"):
        return rows
    from ..data.scaling import Scaled, scaled_dtype
    from ..fit.standardized import scales_of

    with opening(data):
        scales = scales_of(rows, None, settings["threads"])
        return Scaled(rows, scales, scaled_dtype(rows, scales))


def within(rows: Any, fits: Sequence[tuple[str, int]], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of several fits (method, clusters), each with no more threads than the limit on memory has room for.

    They are refused if one of them has none at all.
    """
    plain = {**settings, "extra": {}}
    counts = threads_for(rows, fits, plain)
    return [{**plain, "method": m, "clusters": k, "threads": t} for (m, k), t in zip(fits, counts, strict=True)]


def start(rows: Any, k: int, settings: Mapping[str, Any]) -> Any:
    """Centres for several fits to start from."""
    from ..data.statistics import enter_frame
    from ..execution.threads import on_threads

    named = {**settings, "names": rows.feature_names}
    model = estimator("exact", k, {**named, "time": None, "extra": {}, "standardize": False})
    with reading_data():
        opened, given = model._validate_input(rows, None)
        if given is not None:
            return given
        with on_threads(opened, model.n_threads) as opened:
            opened, _ = enter_frame(opened)
            return opened.frame.out_of(model._start(opened, None, rows, settings["seed"], 0), opened.dtype)


def fitted(method: str, rows: Any, centers: Any, settings: Mapping[str, Any], watch: Watch) -> tuple[Any, float]:
    """A model that started there, and the seconds it took."""
    plain = {**settings, "init": None, "extra": {}, "standardize": False}
    model = estimator(method, len(centers), plain, init=centers, callback=watch.step)
    begun = time.perf_counter()
    with reading_data():
        model.fit(rows)
    return model, time.perf_counter() - begun


def origin(data: str, title: str, seed: int) -> Any:
    from ..report import Origin

    with opening(data):
        prints = fingerprint(data)
    return Origin(
        title=f"{Path(data).name}: {title}",
        command=shlex.join(["shoal", *sys.argv[1:]]),
        seed=seed,
        data=str(Path(data).absolute()),
        fingerprint=prints,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
