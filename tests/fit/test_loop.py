"""The loop: it counts, records, listens and stops."""

import time
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from shoal.data import cancellation
from shoal.fit.loop import Limits, drive


class Info(NamedTuple):
    value: int


def count(state):
    return state + 1, Info(10 * state)


def never(state, info):
    return False


def test_runs_up_to_max_iter():
    outcome = drive(count, 0, never, Limits(5))
    assert (outcome.state, outcome.reason) == (5, "max_iter")
    assert [record["value"] for record in outcome.history] == [0, 10, 20, 30, 40]
    assert [record["step"] for record in outcome.history] == [1, 2, 3, 4, 5]


def test_stops_when_done():
    outcome = drive(count, 0, lambda state, info: info.value == 20, Limits(100))
    assert (outcome.state, outcome.reason, len(outcome.history)) == (3, "converged", 3)


def test_done_in_the_last_step_is_converged():
    assert drive(count, 0, lambda state, info: state == 3, Limits(3)).reason == "converged"


def test_a_watcher_stops_the_run_and_all_observers_are_called():
    watched = []
    observers = [lambda record, _: record["step"] == 2, lambda record, _: watched.append(record["step"])]
    outcome = drive(count, 0, never, Limits(100), observers)
    assert (outcome.state, outcome.reason, watched) == (2, "callback", [1, 2])


def test_seconds_are_cumulative():
    outcome = drive(lambda state: (time.sleep(0.01), count(state))[1], 0, never, Limits(3))
    seconds = [record["seconds"] for record in outcome.history]
    assert all(later - earlier >= 0.01 for earlier, later in zip([0, *seconds], seconds, strict=False))


def test_a_deadline_leaves_time_for_another_step_and_the_end(monkeypatch):
    clock = [0]  # a step takes three ticks
    monkeypatch.setattr(cancellation, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def tick(state):
        clock[0] += 3
        return count(state)

    outcome = drive(tick, 0, never, Limits(10**6, 20))
    assert (outcome.state, outcome.reason) == (5, "time_budget")  # fifteen ticks, and three for the end


def test_observers_cannot_change_the_last_info():
    outcome = drive(count, 0, never, Limits(3), [lambda record, _: record.clear()])
    assert outcome.info == Info(20)


def test_an_infinite_deadline():
    assert drive(count, 0, never, Limits(3, float("inf"))).reason == "max_iter"


@pytest.mark.parametrize("late", [0.0, 10.0])
def test_a_deadline_in_the_past_still_gives_one_step(late):
    """A run has at least one step, so there is always a result."""
    outcome = drive(count, 0, never, Limits(100, time.perf_counter() - late))
    assert (outcome.state, outcome.reason, len(outcome.history)) == (1, "time_budget", 1)


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError):
        drive(lambda state: 1 / 0, 0, never, Limits(5))
