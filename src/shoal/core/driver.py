"""The loop that every method runs in: it times, records, tells the watchers and decides when to stop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from .deadline import LEEWAY, Deadline, TimeUp, now, time_limit
from .engine import Lost
from .sources import FarSource, Source, some_rows, traffic

State = TypeVar("State")
MAX_SEED = 2**64
NOT_KEPT = "Nothing of the fit was kept: run it in a `with shoal.Checkpoint(file):`, and it can go on from there."

Watcher = Callable[[dict[str, Any]], bool | None]


class Limits(NamedTuple):
    """When to stop, whatever the method says."""

    max_iter: int
    deadline: float | None = None  # on the clock of `deadline.now`
    rows: int = 0  # that are to be labelled in the end
    labelling: float = 0.0  # estimated seconds of that, if nothing is known of the rows; 0 if there is no estimate
    needs_step: bool = False  # whether there is no result without a first step, however long that takes

    def spent(self, last_step: float, batch: int = 0) -> bool:
        """Is there no time left for another step like the last, on a batch of so many rows (0: all), and the final labels?"""
        labels = last_step
        if batch and self.labelling:
            labels += self.labelling * max(1 - batch / self.rows, 0)
        elif batch:
            labels *= max(self.rows / batch, 1)
        return self.deadline is not None and now() + last_step + labels > self.deadline

    def step_end(self, last_step: float) -> float:
        """When to give up a step that begins now, after one of this length (0: the first): to leave time for the labels."""
        if self.deadline is None or (self.needs_step and not last_step):
            return inf
        return max(self.deadline - self.labelling, now() + LEEWAY + 2 * last_step)

    def stage(self, reserve: float = 0.0, share: float = 0.5) -> Deadline:
        """Deadline of a stage that gets a share of the time that is left, less a reserve in seconds for what follows."""
        if self.deadline is None:
            return Deadline()
        return Deadline(now() + max(share * (self.deadline - reserve - now()), LEEWAY))

    def part(self, share: float = 0.5) -> Limits:
        """The same for a stage that gets a share of the time that is left."""
        return self if self.deadline is None else self._replace(deadline=self.stage(share=share).end)

    def is_over(self) -> bool:
        """Whether only the final labels are left to find."""
        return self.deadline is not None and now() > self.deadline - self.labelling


REASONS = ("", "converged", "max_iter", "time_budget", "callback")  # why a run stopped; "": it goes on


class Outcome(NamedTuple):
    state: Any
    history: list[dict[str, Any]]  # for people; watchers may have rewritten it
    reason: str  # why it stopped: "converged", "max_iter", "time_budget" or "callback"
    info: Any  # what the last step learned; None if it was given up, which leaves the centres of the state alone valid


class Progress(NamedTuple):
    """How far a fit has come: all that is needed to go on, but for the rows."""

    seed: int
    pages: dict[str, Any]  # what its stages have found so far, by their names


class Keeper(Protocol):
    """Keeps the progress of a fit where it outlives the process (see `io.checkpoint`)."""

    def resume(self, about: dict[str, Any]) -> Progress | None:
        """What was kept of a fit like this, if anything was."""

    def offer(self, progress: Progress) -> None:
        """Keep this, if it is time to. Its arrays change with the next step."""

    def refuse(self, name: str) -> None:
        """What was kept is of another fit: this was not the same."""

    def told(self) -> str:
        """Where what was kept can be found, in words for people."""


KEEPER: ContextVar[Keeper | None] = ContextVar("keeper", default=None)  # of the fit that is about to begin


class Journal:
    """What the stages of a fit have found, a page each: it goes to the keeper, and a fit that goes on begins with it."""

    def __init__(self, keeper: Keeper | None, begun: Progress, source: Source) -> None:
        self.keeper, self.source = keeper, source
        self.seed, self.pages = begun

    def keep(self, page: str, found: Any) -> None:
        if self.keeper is not None:
            self.pages[page] = found
            self.keeper.offer(Progress(self.seed, self.pages))

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
        is_sound: Callable[[Outcome], bool] = lambda _: True,
    ) -> Outcome:
        """`drive`, kept: a stage that was under way goes on, and one that was over is. Records tell of work elsewhere."""

        def count(record: dict[str, Any]) -> None:
            record.update(traffic(self.source))

        before: Outcome | None = self.pages.get(page)
        self.trust(before is None or is_sound(before))
        if before is not None and before.reason:
            return before
        state = [begin() if before is None else before.state]
        before = None if before is None else before._replace(state=None)  # the first state is not held for longer than a step
        outcome = drive(step, state.pop(), done, limits, [count, *watchers], partial(self.keep, page), before)
        self.keep(page, outcome)
        return outcome

    def once(self, page: str, find: Callable[[], Any], is_sound: Callable[[Any], bool] = lambda _: True) -> Any:
        """What the page says; if nothing, what `find` finds. A fit that it calls has a page of its own until then."""
        if page in self.pages:
            self.trust(is_sound(self.pages[page]))
            return self.pages[page]
        draft = f"{page}, so far"
        token = KEEPER.set(None if self.keeper is None else Draft(self, draft))
        try:
            found = find()
        finally:
            KEEPER.reset(token)
        self.pages.pop(draft, None)
        self.keep(page, found)
        return found


class Draft(NamedTuple):
    """A keeper for a fit within a fit: what the outer one is about, the inner one is, too."""

    journal: Journal
    page: str

    def resume(self, about: dict[str, Any]) -> Progress | None:
        return self.journal.pages.get(self.page)

    def offer(self, progress: Progress) -> None:
        self.journal.keep(self.page, progress)

    def refuse(self, name: str) -> None:
        if self.journal.keeper is not None:
            self.journal.keeper.refuse(name)

    def told(self) -> str:
        return "" if self.journal.keeper is None else self.journal.keeper.told()


@contextlib.contextmanager
def journal(model: Any, source: Source, weights: Any, seed: int) -> Iterator[Journal]:
    """The journal of a fit that begins here. Others that it calls, or that a callback of the user's does, are not kept."""
    keeper = KEEPER.get()
    token = KEEPER.set(None)
    try:
        kept = None if keeper is None else keeper.resume(_about(model, source, weights))
        begun = Progress(seed, {}) if kept is None else kept
        if keeper is not None:
            if kept is None:
                keeper.offer(begun)
            elif not _is_progress(kept):
                keeper.refuse("what its state is made of")
        yield Journal(keeper, begun, source)
    except Lost as error:
        raise Lost(f"{error} {keeper.told() if keeper is not None else NOT_KEPT}") from error
    finally:
        KEEPER.reset(token)


def _is_progress(found: Any) -> bool:
    return (
        isinstance(found, Progress)
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
        "the content of X": some_rows(source),
        "the chunks of X": source.chunks if isinstance(source, FarSource) else None,
        "sample_weight": weights,
        **model.get_params(deep=False),
    }


def drive(
    step: Callable[[State], tuple[State, Any]],
    state: State,
    done: Callable[[State, Any], bool],
    limits: Limits,
    watchers: Iterable[Watcher] = (),
    keep: Callable[[Outcome], None] | None = None,
    before: Outcome | None = None,
) -> Outcome:
    """Step until `done(state, info)`, a limit or a watcher that returns true. Each step leaves a record.

    There is one step at least, unless it takes so long that it is given up (see `Limits.step_end`). After each step that is
    not the last, `keep` is told how far it has come; `before` is where to go on from.
    """
    history: list[dict[str, Any]] = [] if before is None else list(before.history)
    info: Any = None if before is None else before.info
    started = now() - (history[-1].get("seconds", 0.0) if history else 0.0)
    last = 0.0
    while len(history) < limits.max_iter:
        if history and limits.spent(last, getattr(info, "batch", 0)):
            return Outcome(state, history, "time_budget", info)
        begun = now()
        try:
            with time_limit(limits.step_end(last)):
                state, info = step(state)
        except TimeUp:
            if limits.deadline is None:  # it was a limit of whoever called
                raise
            return Outcome(state, history, "time_budget", None)
        ended = now()
        last = ended - begun
        history.append({"step": len(history) + 1, "seconds": ended - started, **info._asdict()})
        asked = [watch(history[-1]) for watch in watchers]  # all of them are told
        if any(asked):
            return Outcome(state, history, "callback", info)
        if done(state, info):
            return Outcome(state, history, "converged", info)
        if keep is not None:
            keep(Outcome(state, history, "", info))
    return Outcome(state, history, "max_iter", info)
