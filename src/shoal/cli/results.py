"""Write the files of a completed fit: model, labels, history, report and run record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.sizes import format_size
from .errors import InvalidDataError, print_error
from .folder import CHECKPOINT, MODEL, publish, remove_stale_files, staging_folder
from .output import format_count, reporting_write_errors, write_labels, write_records
from .progress import ProgressReporter
from .run_record import RECORD_FILE, WORK_FIELDS, RunRecord, write_run_record
from .settings import FitSettings


@dataclass(frozen=True)
class FitOutcome:
    """A fitted model and what else the files of a run contain."""

    model: Any
    rows: Any
    messages: list[str]  # warnings of the fit; failures to write a file are added
    seconds: float  # duration of the fit


def write_outputs(folder: Path, record: RunRecord, outcome: FitOutcome, progress: ProgressReporter) -> None:
    """Write all files to a staging folder, then move them in place: a full disk leaves the files of an earlier run intact."""
    from ..data.atomic_write import sync_folder

    progress.status("writing the files")
    with staging_folder(folder) as stage:
        files = _write_files(stage, record, outcome, progress)
        result = _result(record["settings"], outcome)
        result |= {"files": {name: str(folder / file) for name, file in files.items()}, "warnings": outcome.messages}
        done: RunRecord = {**record, "status": "done", "result": result}
        write_run_record(stage, done)
        for name in files.values():
            publish(stage, folder, name)
            record["status"] = "writing"  # from here on the earlier run is no longer complete and cannot be restored
        remove_stale_files(folder, {RECORD_FILE, CHECKPOINT, *files.values()})
        sync_folder(folder)
        publish(stage, folder, RECORD_FILE)  # last, because it states that the other files are complete
        sync_folder(folder)
    record["status"], record["result"] = "done", result


def _write_files(stage: Path, record: RunRecord, outcome: FitOutcome, progress: ProgressReporter) -> dict[str, str]:
    """Write labels, history, model and report. Return the names of the files that were written."""
    import shoal

    settings, model = record["settings"], outcome.model
    labels = "labels.npy" if settings.id_column is None else "labels.parquet"
    with _warn_on_failure(outcome.messages, "labels.npy was written instead of labels.parquet, in the order of the rows"):
        write_labels(stage / labels, model.labels_, outcome.rows.id_column)
    if not (stage / labels).exists():
        labels = "labels.npy"
        write_labels(stage / labels, model.labels_)
    write_records(stage / "history.csv", model.history_)
    files = {"labels": labels, "history": "history.csv"}
    with _warn_on_failure(outcome.messages, "no model was saved"), reporting_write_errors(stage / MODEL):
        shoal.save(model, stage / MODEL)
        files = {"model": MODEL, **files}
    if settings.report:
        progress.status("writing the report")
        with _warn_on_failure(outcome.messages, "no report was written"):
            _write_report(stage / "report.html", record, outcome)
            files["report"] = "report.html"
    return files


def _write_report(path: Path, record: RunRecord, outcome: FitOutcome) -> None:
    """Write the HTML report."""
    from ..report import Options, Origin, gather, write_fit

    settings, rows = record["settings"], outcome.rows
    options = Options(
        ids=rows.id_column,
        texts=rows.text_column,
        columns=rows.feature_names,
        image=settings.image,
        seed=settings.seed,
    )
    origin = Origin(
        title=f"{Path(record['data']).name}: {settings.clusters:,} clusters",
        command=record["command"],
        seed=settings.seed,
        data=record["data"],
        fingerprint=record["fingerprint"],
        date=record["started"],
        seconds=outcome.seconds,
    )
    facts = gather(outcome.model, rows, options, origin, outcome.messages)
    with reporting_write_errors(path):
        write_fit(path, facts)


@contextlib.contextmanager
def _warn_on_failure(messages: list[str], consequence: str) -> Iterator[None]:
    """Turn an error in the data into a warning, so that the other files of a long fit are written nevertheless."""
    try:
        yield
    except (ValueError, InvalidDataError) as error:
        print_error(f"warning: {consequence}: {error}")
        messages.append(f"{consequence}: {error}")


def _result(settings: FitSettings, outcome: FitOutcome) -> dict[str, Any]:
    """Return the result of a fit as stored in run.json."""
    model, rows = outcome.model, outcome.rows
    return {
        "rows": rows.shape[0],
        "columns": rows.shape[1],
        "clusters": settings.clusters,
        "method": settings.method,
        "estimator": type(getattr(model, "estimator_", model)).__name__,
        "standardized": settings.standardize,
        "seed": settings.seed,
        "energy": getattr(model, "inertia_", None),
        "steps": int(getattr(model, "n_iter_", 0)),
        "stopped": str(getattr(model, "stop_reason_", "")),
        "seconds": outcome.seconds,
        "work": total_work(model.history_),
        "summary": str(getattr(model, "summary_", "")),
    }


def total_work(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the work of Dask workers, summed over the steps that they ran; empty if there are none.

    A fit that was resumed on another engine has steps of both kinds.
    """
    distributed = [step for step in history if WORK_FIELDS[0] in step]
    return {name: sum(step[name] for step in distributed) for name in WORK_FIELDS} if distributed else {}


def summary_lines(result: Mapping[str, Any]) -> dict[str, object]:
    """Return the result as lines of text, by label."""
    from ..report.words import ENDS

    lines: dict[str, object] = {
        "rows": f"{result['rows']:,} x {result['columns']:,}",
        "clusters": f"{result['clusters']:,} by {result['method']} ({result['estimator']}), seed {result['seed']}"
        + ", standardized columns" * bool(result.get("standardized")),
    }
    if result["energy"] is not None:
        lines["energy"] = f"{result['energy']:,.6g}"
    reason = ENDS.get(result["stopped"], result["stopped"])
    lines["ended"] = f"{reason} after {format_count(result['steps'], 'step')}, {result['seconds']:.1f} s"
    if work := result.get("work"):
        lines["workers"] = f"{work['tasks']:,} tasks, {format_size(work['bytes'])} moved, {work['lost']:.1f} s lost"
    if result["summary"]:
        lines["summary"] = result["summary"]
    return {**lines, **result["files"]}
