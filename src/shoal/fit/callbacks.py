"""Report the steps of a fit to the user and to scikit-learn callbacks."""

from __future__ import annotations

import sys
from typing import Any

from ..data.rows import Rows
from .finalize import published_centers

try:  # scikit-learn 1.9 and later
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Replacement for older versions of scikit-learn, which have no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


def report_step(model: Any, record: dict[str, Any]) -> bool:
    """Print a record or pass it to the callback of the user. Return whether the callback asks to stop."""
    if model.verbose:
        print(" ".join(f"{key}={value:.6g}" for key, value in record.items()), file=sys.stderr)
    return bool(model.callback(dict(record))) if model.callback is not None else False  # the user may modify the copy


SQUARED_FIELDS = {"energy", "shift", "newest"}  # fields of a step's info that have the unit of a squared distance


class StepReporter:
    """Report the steps of a fit in the units of X: print them, call `callback` and the callbacks of scikit-learn."""

    def __init__(self, estimator: Any, X: Any) -> None:
        self.estimator, self.X = estimator, X
        self.root: Any = None
        self.task: Any = None

    def open(self, rows: Rows) -> None:
        """Start the reports of a solver that works on these rows."""
        self.rows = rows
        if getattr(self.estimator, "_skl_callbacks", None):
            self.root = self.estimator._init_callback_context(max_subtasks=None)
            self.root.call_on_fit_task_begin(estimator=self.estimator, X=self.X)

    def begin_step(self) -> None:
        """Notify callbacks of scikit-learn before a step."""
        if self.root is not None:
            self.task = self.root.subcontext(task_name="step")
            self.task.call_on_fit_task_begin(estimator=self.estimator, X=self.X)

    def end_step(self, start: int, record: dict[str, Any], state: Any) -> bool:
        """Complete the record of a step and report it. Return whether the user asks to stop."""
        frame = self.rows.frame
        record["start"] = start
        for key in SQUARED_FIELDS & record.keys():
            record[key] = frame.energy_out_of(record[key])
        if frame.unit:  # the energy is half of the squared distances; shifts are not
            record["shift"] *= 2
        record.update(self.rows.source.traffic())
        stop = report_step(self.estimator, record)
        return self._end_task(state) or stop

    def _end_task(self, state: Any) -> bool:
        """Notify callbacks of scikit-learn after a step. Return whether one of them asks to stop."""
        return self.task is not None and bool(
            self.task.call_on_fit_task_end(
                estimator=self.estimator, X=self.X, reconstruction_attributes=lambda: self._snapshot(state)
            )
        )

    def _snapshot(self, state: Any) -> dict[str, Any]:
        """Return the attributes from which scikit-learn reconstructs the model after a step."""
        return {"cluster_centers_": published_centers(self.rows, state.centers), "_frame": self.rows.frame}

    def close(self) -> None:
        """End the reports of the fit."""
        if self.root is not None:
            self.root.call_on_fit_task_end(estimator=self.estimator, X=self.X)


__all__ = ["CallbackSupportMixin", "StepReporter", "report_step", "with_callbacks"]
