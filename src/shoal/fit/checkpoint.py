"""Save the progress of a fit, stage by stage, and resume from it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..data.source import Source, sample_for_fingerprint
from ..exceptions import ClusterLostError
from .loop import Limits, RunResult, State, Watcher, drive

MAX_SEED = 2**64

NOT_KEPT = "Nothing of the fit was kept: run it in a `with shoal.Checkpoint(file):`, and it can go on from there."


class FitProgress(NamedTuple):
    """How far a fit has come: all that is needed to go on, but for the rows."""

    seed: int
    pages: dict[str, Any]  # what its stages have found so far, by their names


class CheckpointStore(Protocol):
    """Keeps the progress of a fit where it outlives the process (see `io.checkpoint`)."""

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        """What was kept of a fit like this, if anything was."""

    def offer(self, progress: FitProgress) -> None:
        """Keep this, if it is time to. Its arrays change with the next step."""

    def refuse(self, name: str) -> None:
        """What was kept is of another fit: this was not the same."""

    def told(self) -> str:
        """Where what was kept can be found, in words for people."""


CHECKPOINT_STORE: ContextVar[CheckpointStore | None] = ContextVar("keeper", default=None)  # of the fit that is about to begin


class CheckpointSession:
    """What the stages of a fit have found, a page each: it goes to the keeper, and a fit that goes on begins with it."""

    def __init__(self, keeper: CheckpointStore | None, begun: FitProgress, source: Source) -> None:
        self.keeper, self.source = keeper, source
        self.seed, self.pages = begun

    def keep(self, page: str, found: Any) -> None:
        if self.keeper is not None:
            self.pages[page] = found
            self.keeper.offer(FitProgress(self.seed, self.pages))

    def release(self, page: str) -> None:
        """Hold a page in memory no longer: what a keeper has of it stays there until more is kept."""
        self.pages.pop(page, None)

    def agree(self, name: str, value: Any) -> None:
        """One more thing that a kept fit must be alike in, which was not known when this one began."""
        if self.keeper is not None:
            before = self.pages.setdefault(name, value)
            if type(before) is not type(value) or before != value:
                self.keeper.refuse(name)

    def trust(self, is_sound: bool) -> None:
        """Go on with what was kept only if a fit like this could have left it."""
        if not is_sound and self.keeper is not None:
            self.keeper.refuse("what its state is made of")

    def drive(
        self,
        page: str,
        step: Callable[[State], tuple[State, Any]],
        begin: Callable[[], State],
        done: Callable[[State, Any], bool],
        limits: Limits,
        watchers: Iterable[Watcher],
        is_sound: Callable[[RunResult], bool] = lambda _: True,
    ) -> RunResult:
        """`drive`, kept: a stage that was under way goes on, and one that was over is. Records tell of work elsewhere."""

        def count(record: dict[str, Any], _: Any) -> None:
            record.update(self.source.traffic())

        before: RunResult | None = self.pages.get(page)
        self.trust(before is None or is_sound(before))
        if before is not None and before.reason:
            return before
        state = [begin() if before is None else before.state]
        before = None if before is None else before._replace(state=None)  # the first state is not held for longer than a step
        outcome = drive(step, state.pop(), done, limits, [count, *watchers], partial(self.keep, page), before)
        self.keep(page, outcome)
        return outcome

    def once(self, page: str, find: Callable[[], Any], is_sound: Callable[[Any], bool] = lambda _: True) -> Any:
        """Return what was saved under this name; if nothing was, call `find` and save its result."""
        if page in self.pages:
            self.trust(is_sound(self.pages[page]))
            return self.pages[page]
        found = find()
        self.pages.pop(_draft(page), None)
        self.keep(page, found)
        return found

    def nested_store(self, page: str) -> CheckpointStore | None:
        """Return the store of a fit inside this one that finds what `once` saves under this name."""
        return None if self.keeper is None else NestedCheckpointStore(self, _draft(page))


def _draft(page: str) -> str:
    """Return the name under which the progress of an inner fit is saved."""
    return f"{page}, so far"


class NestedCheckpointStore(NamedTuple):
    """A keeper for a fit within a fit: what the outer one is about, the inner one is, too."""

    session: CheckpointSession
    page: str

    def resume(self, about: dict[str, Any]) -> FitProgress | None:
        return self.session.pages.get(self.page)

    def offer(self, progress: FitProgress) -> None:
        self.session.keep(self.page, progress)

    def refuse(self, name: str) -> None:
        if self.session.keeper is not None:
            self.session.keeper.refuse(name)

    def told(self) -> str:
        return "" if self.session.keeper is None else self.session.keeper.told()


@contextlib.contextmanager
def open_session(
    model: Any, source: Source, weights: Any, seed: int, keeper: CheckpointStore | None
) -> Iterator[CheckpointSession]:
    """Resume a fit from a store, or start a new one. Other fits that a callback of the user starts meanwhile are not saved."""
    token = CHECKPOINT_STORE.set(None)
    try:
        kept = None if keeper is None else keeper.resume(_about(model, source, weights))
        begun = FitProgress(seed, {}) if kept is None else kept
        if keeper is not None:
            if kept is None:
                keeper.offer(begun)
            elif not _is_progress(kept):
                keeper.refuse("what its state is made of")
        yield CheckpointSession(keeper, begun, source)
    except ClusterLostError as error:
        raise ClusterLostError(f"{error} {keeper.told() if keeper is not None else NOT_KEPT}") from error
    finally:
        CHECKPOINT_STORE.reset(token)


def _is_progress(found: Any) -> bool:
    return (
        isinstance(found, FitProgress)
        and type(found.seed) is int
        and 0 <= found.seed < MAX_SEED
        and isinstance(found.pages, dict)
        and all(isinstance(name, str) for name in found.pages)
    )


def _about(model: Any, source: Source, weights: Any) -> dict[str, Any]:
    """What a kept fit must be alike in for this one to go on with it."""
    return {
        "estimator": type(model).__name__,
        "the shape of X": source.shape,
        "the type of X": str(source.dtype),
        "the content of X": sample_for_fingerprint(source),
        "the chunks of X": source.chunks,
        "sample_weight": weights,
        **model.get_params(deep=False),
    }
