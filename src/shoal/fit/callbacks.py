"""Report the steps of a fit to the user and to scikit-learn callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

try:  # scikit-learn 1.9 and later
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        return method


def report_step(model: Any, record: dict[str, Any]) -> bool:
    """A record for whoever wants to see it. Does the user want to stop?"""
    if model.verbose:
        print(" ".join(f"{key}={value:.6g}" for key, value in record.items()), file=sys.stderr)
    return bool(model.callback(dict(record))) if model.callback is not None else False  # a copy: ours stays ours


class CallbackHooks:
    """Tells scikit-learn's callbacks about steps; does nothing where there are none."""

    def __init__(self, estimator: Any, X: Any, snapshot: Callable[[Any], dict[str, Any]]) -> None:
        self.estimator, self.X, self.snapshot = estimator, X, snapshot
        self.root: Any = None
        self.task: Any = None
        if getattr(estimator, "_skl_callbacks", None):
            self.root = estimator._init_callback_context(max_subtasks=None)
            self.root.call_on_fit_task_begin(estimator=estimator, X=X)

    def begin(self) -> None:
        if self.root is not None:
            self.task = self.root.subcontext(task_name="step")
            self.task.call_on_fit_task_begin(estimator=self.estimator, X=self.X)

    def end(self, state: Any) -> bool:
        return self.task is not None and bool(
            self.task.call_on_fit_task_end(
                estimator=self.estimator, X=self.X, reconstruction_attributes=lambda: self.snapshot(state)
            )
        )

    def close(self) -> None:
        if self.root is not None:
            self.root.call_on_fit_task_end(estimator=self.estimator, X=self.X)


__all__ = ["CallbackHooks", "CallbackSupportMixin", "report_step", "with_callbacks"]
