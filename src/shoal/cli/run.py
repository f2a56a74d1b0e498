"""Run a fit with checkpoints. `fit` starts a run; `resume` continues one. `results` writes the files."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import shlex
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import __version__
from .data import check_image, fingerprint, open_data
from .errors import (
    InvalidDataError,
    StoppedBySignalError,
    WorkersLostError,
    reporting_data_errors,
    reporting_open_errors,
)
from .estimators import make_estimator
from .folder import CHECKPOINT, remove_temporary_files
from .methods import INITIALIZATIONS
from .options import current_context
from .output import reporting_write_errors
from .plan import check_clusters, limit_threads, memory_limit
from .progress import ProgressReporter
from .results import FitOutcome, write_outputs
from .run_record import RECORD_FILE, RunRecord, write_run_record
from .settings import EngineSettings, FitSettings
from .stopping import Interrupted

MIN_CHECKPOINT_SECONDS = 10.0  # between two checkpoints; longer if writing them would take more than 1% of the time


@contextlib.contextmanager
def record_warnings(messages: list[str]) -> Iterator[None]:
    """Append warnings to `messages`, for the report, and show them as usual."""
    with warnings.catch_warnings():
        show_before = warnings.showwarning

        def record_and_show(message: Warning | str, *more: Any, **named: Any) -> None:
            messages.append(str(message))
            show_before(message, *more, **named)

        warnings.showwarning = record_and_show
        yield


@contextlib.contextmanager
def start_run(folder: Path, data: str, settings: FitSettings, command: str) -> Iterator[RunRecord]:
    """Write the record of a new run and yield it. If the run fails before its first checkpoint, restore the earlier run."""
    with reporting_open_errors(data):
        data_fingerprint = fingerprint(data)
    remove_temporary_files(folder)
    record: RunRecord = {
        "format": "shoal run",
        "shoal": __version__,
        "status": "running",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "data": str(Path(data).absolute()),
        "fingerprint": data_fingerprint,
        "settings": _with_absolute_paths(settings),
    }
    # The names of the backups match the pattern that `remove_temporary_files` deletes, in case this process is killed, and
    # contain a random token, so that no link can be waiting there. Renaming them back needs no disk space.
    token = secrets.token_hex(4)
    backups = {name: folder / f".{name}.{os.getpid()}.{token}.tmp" for name in (RECORD_FILE, CHECKPOINT)}
    try:
        with reporting_write_errors(folder):
            if (folder / RECORD_FILE).exists():
                with open(backups[RECORD_FILE], "xb") as copy:
                    copy.write((folder / RECORD_FILE).read_bytes())
            if (folder / CHECKPOINT).exists():
                (folder / CHECKPOINT).replace(backups[CHECKPOINT])
        try:
            write_run_record(folder, record)
            yield record
        except (StoppedBySignalError, WorkersLostError):  # the new run can be resumed, even without a checkpoint
            raise
        except Exception:
            if record["status"] == "running" and not (folder / CHECKPOINT).exists():
                _restore(folder, backups)
            raise
    finally:
        for path in backups.values():
            path.unlink(missing_ok=True)


def _restore(folder: Path, backups: Mapping[str, Path]) -> None:
    """Put the record and the checkpoint of the earlier run back in place."""
    with reporting_write_errors(folder):
        if backups[CHECKPOINT].exists():
            backups[CHECKPOINT].replace(folder / CHECKPOINT)
        if backups[RECORD_FILE].exists():
            backups[RECORD_FILE].replace(folder / RECORD_FILE)
        else:
            (folder / RECORD_FILE).unlink(missing_ok=True)


def _with_absolute_paths(settings: FitSettings) -> FitSettings:
    """Return the settings with absolute paths, so that the run can be resumed from another folder."""
    paths = {"init": settings.init, "scratch": settings.scratch}
    absolute: dict[str, Any] = {
        name: str(Path(path).absolute()) for name, path in paths.items() if path is not None and path not in INITIALIZATIONS
    }
    return replace(settings, **absolute)


def reopen_rows(record: RunRecord) -> Any:
    """Open the rows of an earlier run. Raise if they have changed. Adjust the threads in the record to the memory limit."""
    data, settings = record["data"], record["settings"]
    with reporting_open_errors(data):
        if fingerprint(data) != record["fingerprint"]:
            raise InvalidDataError(f"{data}: has changed since the run started: start again with `shoal fit --force`.")
    rows = open_data(data, settings)
    check_image(rows, settings.image)
    check_clusters(settings.clusters, rows.shape[0])
    record["settings"] = limit_threads(rows, settings)
    return rows


def run_fit(folder: Path, record: RunRecord, rows: Any, progress: ProgressReporter, engine: EngineSettings) -> dict[str, Any]:
    """Fit with checkpoints, write all files and return the result. The checkpoint is deleted when the files are complete."""
    messages, started, signals = list[str](), time.perf_counter(), current_context().signals
    signals.resume_hint = f"continue with `{shlex.join(['shoal', 'resume', str(folder), *engine.to_arguments()])}`"
    with (
        record_warnings(messages),
        checkpointing(folder / CHECKPOINT) as checkpoint,
        reporting_data_errors(),
        memory_limit(record["settings"]),
    ):
        model = _fit_model(rows, record["settings"], progress, checkpoint)
        outcome = FitOutcome(model, rows, messages, time.perf_counter() - started)
        write_outputs(folder, record, outcome, progress)
    signals.resume_hint = ""
    return dict(record["result"])


@contextlib.contextmanager
def checkpointing(path: Path) -> Iterator[Any]:
    """Write checkpoints while the body runs. A stop request ends the fit after its state was written."""
    from ..exceptions import FitInterrupted
    from ..formats.checkpoint import Checkpoint

    class SignalAwareCheckpoint(Checkpoint):
        """Checkpoint that notifies the signal handler while a file is being written."""

        is_writing = False

        def offer(self, progress: Any) -> None:
            self.is_writing = True
            try:
                super().offer(progress)
            finally:
                self.is_writing = False

    signals, checkpoint = current_context().signals, SignalAwareCheckpoint(path, every=MIN_CHECKPOINT_SECONDS)
    signals.is_writing = lambda: checkpoint.is_writing
    try:
        with checkpoint:
            yield checkpoint
    except FitInterrupted as error:
        raise signals.to_error() from error


def _fit_model(rows: Any, settings: FitSettings, progress: ProgressReporter, checkpoint: Any) -> Any:
    """Return the fitted model, without the callback that refers to this process."""
    model = make_estimator(settings, rows.feature_names, rows.shape[1], callback=lambda record: progress.on_step(record))
    progress.status(f"clustering {rows.shape[0]:,} rows x {rows.shape[1]:,} columns into {settings.clusters:,} clusters")
    signals = current_context().signals
    signals.request_stop = checkpoint.stop
    try:
        model.fit(rows)
    finally:
        signals.request_stop = None
    if signals.number:  # the signal came after the last step of the fit
        raise Interrupted
    for part in (model.estimator, model.estimator_) if settings.standardize else (model,):
        part.callback = None
    return model
