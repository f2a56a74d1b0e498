"""A fit from its settings to its files, for `fit`, which begins one, and `resume`, which ends one."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import shlex
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from .data import check_image, fingerprint, open_data
from .engine import engine_words
from .errors import BadData, Gone, Signalled, complain, opening, reading_data
from .folder import CHECKPOINT, clear, put, staged, tidy
from .methods import SEEDINGS, estimator
from .notes import NOTES, WORK, write_notes
from .options import settings
from .output import saving, write_labels, write_records
from .plan import check_clusters, check_memory, limited
from .progress import Watch
from .stopping import Interrupted

EVERY = 10.0  # seconds from one checkpoint to the next, or longer: writing takes no more than 1% of the time


@contextlib.contextmanager
def heard(told: list[str]) -> Iterator[None]:
    """Keep what is warned of, for the report, and tell it as ever."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def both(message: Warning | str, *more: Any, **named: Any) -> None:
            told.append(str(message))
            before(message, *more, **named)

        warnings.showwarning = both
        yield


@contextlib.contextmanager
def begun(folder: Path, data: str, chosen: Mapping[str, Any], command: str) -> Iterator[dict[str, Any]]:
    """Notes of a run that has everything before it. What an earlier one has left stays until there is something better."""
    with opening(data):
        prints = fingerprint(data)
    files = {name: chosen[name] for name in ("init", "scratch") if chosen[name] not in (None, *SEEDINGS)}
    tidy(folder)
    notes = {
        "format": "shoal run",
        "shoal": __version__,
        "status": "running",
        "begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "data": str(Path(data).absolute()),
        "fingerprint": prints,
        "settings": {**chosen, **{name: str(Path(file).absolute()) for name, file in files.items()}},
    }
    # Put aside under names that are tidied up, should this process be killed, and that nobody can have put links to. To put
    # them back takes no room.
    token = secrets.token_hex(4)
    aside = {name: folder / f".{name}.{os.getpid()}.{token}.tmp" for name in (NOTES, CHECKPOINT)}
    try:
        with saving(folder):
            if (folder / NOTES).exists():
                with open(aside[NOTES], "xb") as copy:
                    copy.write((folder / NOTES).read_bytes())
            if (folder / CHECKPOINT).exists():
                (folder / CHECKPOINT).replace(aside[CHECKPOINT])
        try:
            write_notes(folder, notes)
            yield notes
        except (Signalled, Gone):  # such a fit goes on, if only from its beginning
            raise
        except Exception:
            if notes["status"] == "running" and not (folder / CHECKPOINT).exists():
                _put_back(folder, aside)
            raise
    finally:
        for path in aside.values():
            path.unlink(missing_ok=True)


def _put_back(folder: Path, aside: Mapping[str, Path]) -> None:
    """What was there before."""
    with saving(folder):
        if aside[CHECKPOINT].exists():
            aside[CHECKPOINT].replace(folder / CHECKPOINT)
        if aside[NOTES].exists():
            aside[NOTES].replace(folder / NOTES)
        else:
            (folder / NOTES).unlink(missing_ok=True)


def reopen(notes: dict[str, Any]) -> Any:
    """The rows of a run that was begun before, if they are still what they were and it can be done with them."""
    data, chosen = notes["data"], notes["settings"]
    with opening(data):
        if fingerprint(data) != notes["fingerprint"]:
            raise BadData(f"{data}: has changed since the run began: begin anew with `shoal fit --force`.")
    rows = open_data(data, chosen)
    check_image(rows, chosen["image"])
    check_clusters(chosen["clusters"], rows.shape[0])
    check_memory(rows, chosen)
    return rows


def carry_out(
    folder: Path, notes: dict[str, Any], rows: Any, watch: Watch, cluster: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Fit under a checkpoint, which goes when all files are there; give the result."""
    told, begun, stopper = list[str](), time.perf_counter(), settings().stopper
    stopper.advice = f"go on with `{shlex.join(['shoal', 'resume', str(folder), *engine_words(cluster or {})])}`"
    with heard(told), _kept(folder / CHECKPOINT) as kept, reading_data(), limited(notes["settings"]):
        model = _fit(rows, notes["settings"], watch, kept)
        _leave(folder, notes, rows, model, told, watch, time.perf_counter() - begun)
    stopper.advice = ""
    return dict(notes["result"])


@contextlib.contextmanager
def _kept(path: Path) -> Iterator[Any]:
    """A checkpoint that hears of signals."""
    from ..exceptions import FitInterrupted
    from ..formats.checkpoint import Checkpoint

    class Told(Checkpoint):
        writing = False

        def offer(self, progress: Any) -> None:
            self.writing = True
            try:
                super().offer(progress)
            finally:
                self.writing = False

    stopper, kept = settings().stopper, Told(path, every=EVERY)
    stopper.is_writing = lambda: kept.writing
    try:
        with kept:
            yield kept
    except FitInterrupted as error:
        raise stopper.error() from error


def _fit(rows: Any, chosen: Mapping[str, Any], watch: Watch, kept: Any) -> Any:
    """A fitted model that remembers nothing of this process."""
    named = {**chosen, "names": rows.feature_names}
    model = estimator(chosen["method"], chosen["clusters"], named, callback=lambda record: watch.step(record))
    watch.note(f"clustering {rows.shape[0]:,} rows x {rows.shape[1]:,} columns into {chosen['clusters']:,}")
    stopper = settings().stopper
    stopper.ask = kept.stop
    try:
        model.fit(rows)
    finally:
        stopper.ask = None
    if stopper.number:  # it came too late for the fit to hear of it
        raise Interrupted
    for part in (model.estimator, model.estimator_) if chosen.get("standardize") else (model,):
        part.callback = None
    return model


def _leave(folder: Path, notes: dict[str, Any], rows: Any, model: Any, told: list[str], watch: Watch, seconds: float) -> None:
    """Write all files, then put all in their places: a disk that is full leaves those of an earlier run together."""
    from ..data.atomic_write import sync_folder

    watch.note("writing the files")
    with staged(folder) as stage:
        files = _write(stage, notes, rows, model, told, watch, seconds)
        result = _result(notes["settings"], rows, model, seconds)
        result |= {"files": {name: str(folder / file) for name, file in files.items()}, "warnings": told}
        write_notes(stage, {**notes, "status": "done", "result": result})
        for name in files.values():
            put(stage, folder, name)
            notes["status"] = "writing"  # and what an earlier run has left is no longer whole
        clear(folder, {NOTES, CHECKPOINT, *files.values()})
        sync_folder(folder)
        put(stage, folder, NOTES)  # last, since they say that the others are there
        sync_folder(folder)
    notes |= {"status": "done", "result": result}


def _write(
    stage: Path, notes: dict[str, Any], rows: Any, model: Any, told: list[str], watch: Watch, seconds: float
) -> dict[str, str]:
    """Write model, labels, history and report; return the names of those that there are."""
    import shoal

    chosen = notes["settings"]
    labels = "labels.npy" if chosen.get("id_column") is None else "labels.parquet"
    write_labels(stage / labels, model.labels_, rows.id_column)
    write_records(stage / "history.csv", model.history_)
    files = {"labels": labels, "history": "history.csv"}
    with _if_possible(told, "no model was saved"), saving(stage / "model.npz"):
        shoal.save(model, stage / "model.npz")
        files = {"model": "model.npz", **files}
    if chosen.get("report", True) and _report(stage / "report.html", notes, rows, model, told, watch, seconds):
        files["report"] = "report.html"
    return files


def _result(chosen: Mapping[str, Any], rows: Any, model: Any, seconds: float) -> dict[str, Any]:
    """What came of a fit, in numbers."""
    return {
        "rows": rows.shape[0],
        "columns": rows.shape[1],
        "clusters": chosen["clusters"],
        "method": chosen["method"],
        "estimator": type(getattr(model, "estimator_", model)).__name__,
        "standardized": bool(chosen.get("standardize")),
        "seed": chosen["seed"],
        "energy": getattr(model, "inertia_", None),
        "steps": int(getattr(model, "n_iter_", 0)),
        "stopped": str(getattr(model, "stop_reason_", "")),
        "seconds": seconds,
        "work": {name: sum(step[name] for step in model.history_) for name in WORK if name in (model.history_ or [{}])[-1]},
        "summary": str(getattr(model, "summary_", "")),
    }


def _report(path: Path, notes: dict[str, Any], rows: Any, model: Any, told: list[str], watch: Watch, seconds: float) -> bool:
    """A report, or a word on why there is none: the fit is worth keeping either way."""
    from ..report import Options, Origin, gather, write_fit

    chosen = notes["settings"]
    watch.note("writing the report")
    image = chosen.get("image")
    options = Options(
        ids=rows.id_column,
        texts=rows.text_column,
        columns=rows.feature_names,
        image=None if image is None else tuple(image),
        seed=chosen["seed"],
    )
    origin = Origin(
        title=f"{Path(notes['data']).name}: {chosen['clusters']:,} clusters",
        command=notes["command"],
        seed=chosen["seed"],
        data=notes["data"],
        fingerprint=notes["fingerprint"],
        date=notes["begun"],
        seconds=seconds,
    )
    with _if_possible(told, "no report was written"):
        facts = gather(model, rows, options, origin, told)
        with saving(path):
            write_fit(path, facts)
        return True
    return False


@contextlib.contextmanager
def _if_possible(told: list[str], what: str) -> Iterator[None]:
    """Go on without: the rest of a long fit is worth keeping."""
    try:
        yield
    except ValueError as error:
        complain(f"warning: {what}: {error}")
        told.append(f"{what}: {error}")


def lines(result: Mapping[str, Any]) -> dict[str, object]:
    """The result for people."""
    from ..data.sizes import format_size
    from ..report.words import ENDS

    energy, work = result["energy"], result.get("work")
    return {
        "rows": f"{result['rows']:,} x {result['columns']:,}",
        "clusters": f"{result['clusters']:,} by {result['method']} ({result['estimator']}), seed {result['seed']}"
        + ", standardized columns" * bool(result.get("standardized")),
        **({} if energy is None else {"energy": f"{energy:,.6g}"}),
        "ended": f"{ENDS.get(result['stopped'], result['stopped'])} after {result['steps']:,} steps, {result['seconds']:.1f} s",
        **(
            {"workers": f"{work['tasks']:,} tasks, {format_size(work['bytes'])} moved, {work['lost']:.1f} s lost"}
            if work
            else {}
        ),
        **({"in short": result["summary"]} if result["summary"] else {}),
        **result["files"],
    }
