"""Save the progress of a fit, stage by stage, and resume from it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..data.source import Source, sample_for_fingerprint
from ..exceptions import ClusterLostError
from .loop import Limits, Observer, RunResult, State, drive

MAX_SEED = 2**64  # seeds are below

NOT_SAVED = "The progress of the fit was not saved: run it in a `with shoal.Checkpoint(file):` block to be able to resume it."


class FitProgress(NamedTuple):
    """State from which a fit resumes, without the rows."""

    seed: int
    sections: dict[str, Any]  # results of its stages so far, by the names of the stages


class CheckpointStore(Protocol):
    """Storage of the progress of a fit, such as `formats.checkpoint.Checkpoint`."""

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        """Return the saved progress of a fit with this description; None if nothing was saved."""

    def offer(self, progress: FitProgress) -> None:
        """Save the progress if a write is due. Its arrays change in the next step."""

    def refuse(self, name: str) -> None:
        """Raise, since the saved progress belongs to a fit that differs in what `name` says."""

    def describe(self) -> str:
        """Return a message that says where the progress is saved."""


CHECKPOINT_STORE: ContextVar[CheckpointStore | None] = ContextVar("checkpoint_store", default=None)  # of the next fit


class CheckpointSession:
    """The stages of one fit: each saves its results in a section and, if the fit is resumed, starts from the saved ones."""

    def __init__(self, store: CheckpointStore | None, progress: FitProgress, source: Source) -> None:
        self.store, self.source = store, source
        self.seed, self.sections = progress

    def save(self, section: str, found: Any) -> None:
        """Offer the store a new value of a section."""
        if self.store is not None:
            self.sections[section] = found
            self.store.offer(FitProgress(self.seed, self.sections))

    def discard(self, section: str) -> None:
        """Free the memory of a section. The store keeps its last copy until the next write."""
        self.sections.pop(section, None)

    def check_equal(self, name: str, value: Any) -> None:
        """Refuse to resume if a property of the fit, unknown when the session was opened, differs from the saved one."""
        if self.store is not None:
            before = self.sections.setdefault(name, value)
            if type(before) is not type(value) or before != value:
                self.store.refuse(name)

    def trust(self, is_sound: bool) -> None:
        """Refuse to resume if saved values are invalid."""
        if not is_sound and self.store is not None:
            self.store.refuse("what its state is made of")

    def drive(
        self,
        section: str,
        step: Callable[[State], tuple[State, Any]],
        begin: Callable[[], State],
        done: Callable[[State, Any], bool],
        limits: Limits,
        observers: Iterable[Observer],
        is_sound: Callable[[RunResult], bool] = lambda _: True,
    ) -> RunResult:
        """Run the steps of a stage (see `loop.drive`), resume it, or return its saved result. Records include the traffic."""

        def add_traffic(record: dict[str, Any], _: Any) -> None:
            record.update(self.source.traffic())

        before: RunResult | None = self.sections.get(section)
        self.trust(before is None or is_sound(before))
        if before is not None and before.reason:
            return before
        state = [begin() if before is None else before.state]
        before = None if before is None else before._replace(state=None)  # free the first state after the first step
        result = drive(step, state.pop(), done, limits, [add_traffic, *observers], partial(self.save, section), before)
        self.save(section, result)
        return result

    def once(self, section: str, find: Callable[[], Any], is_sound: Callable[[Any], bool] = lambda _: True) -> Any:
        """Return the saved result of a stage; if there is none, call `find` and save its result."""
        if section in self.sections:
            self.trust(is_sound(self.sections[section]))
            return self.sections[section]
        found = find()
        self.sections.pop(_unfinished(section), None)
        self.save(section, found)
        return found

    def nested_store(self, section: str) -> CheckpointStore | None:
        """Return the store of a fit inside this one, whose result `once` saves in the given section."""
        return None if self.store is None else NestedCheckpointStore(self, _unfinished(section))


def _unfinished(section: str) -> str:
    """Return the name of the section that holds the progress of a stage until its result is known."""
    return f"{section}, so far"


class NestedCheckpointStore(NamedTuple):
    """Storage of the progress of an inner fit in a section of the outer one, which also validates it."""

    session: CheckpointSession
    section: str

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        """Return the saved progress of the inner fit."""
        return self.session.sections.get(self.section)

    def offer(self, progress: FitProgress) -> None:
        """Save the progress of the inner fit with that of the outer one."""
        self.session.save(self.section, progress)

    def refuse(self, name: str) -> None:
        """Raise as the outer store does."""
        if self.session.store is not None:
            self.session.store.refuse(name)

    def describe(self) -> str:
        """Return the message of the outer store."""
        return "" if self.session.store is None else self.session.store.describe()


@contextlib.contextmanager
def open_session(
    model: Any, source: Source, weights: Any, seed: int, store: CheckpointStore | None
) -> Iterator[CheckpointSession]:
    """Resume the fit of a model from a store, or start a new fit. Fits that callbacks of the user start are not saved."""
    token = CHECKPOINT_STORE.set(None)
    try:
        saved = None if store is None else store.resume(_describe_fit(model, source, weights))
        progress = FitProgress(seed, {}) if saved is None else saved
        if store is not None:
            if saved is None:
                store.offer(progress)
            elif not _is_progress(saved):
                store.refuse("what its state is made of")
        yield CheckpointSession(store, progress, source)
    except ClusterLostError as error:
        raise ClusterLostError(f"{error} {store.describe() if store is not None else NOT_SAVED}") from error
    finally:
        CHECKPOINT_STORE.reset(token)


def _is_progress(found: Any) -> bool:
    """Return whether a value read from a file is a `FitProgress` with a seed and named sections."""
    return (
        isinstance(found, FitProgress)
        and type(found.seed) is int
        and 0 <= found.seed < MAX_SEED
        and isinstance(found.sections, dict)
        and all(isinstance(name, str) for name in found.sections)
    )


def _describe_fit(model: Any, source: Source, weights: Any) -> dict[str, Any]:
    """Return the properties that must be equal in a saved fit and in the one that resumes it."""
    return {
        "estimator": type(model).__name__,
        "the shape of X": source.shape,
        "the type of X": str(source.dtype),
        "the content of X": sample_for_fingerprint(source),
        "the chunks of X": source.chunks,
        "sample_weight": weights,
        **model.get_params(deep=False),
    }
