"""Deadlines: work that is late ends early, work that is not wanted ends at once, and without a budget no clock is asked."""

import threading
from collections import deque

import numpy as np
import pytest
from scipy import sparse

from shoal.binary.codes import Codes
from shoal.binary.seeding import INITIALIZERS as BIT_INITIALIZERS
from shoal.data import cancellation
from shoal.data.bits import packed
from shoal.data.cancellation import TimeUp, check_cancelled, pieces, time_limit
from shoal.data.frame import Frame
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution import deadline as deadline_module
from shoal.execution.deadline import NO_DEADLINE, Deadline
from shoal.execution.threads import Threads, on_threads
from shoal.execution.time_estimate import labelling_seconds
from shoal.fit.loop import Limits, drive
from shoal.fit.random_streams import draw_at_once, generator
from shoal.kmeans.init import REFINING_INITIALIZERS
from tests.fit.test_loop import count, never
from tests.strategies import blobs, cloud

X, _ = blobs(3000, 70, 30)


class Clock:
    """Fake clock that advances by `tick` seconds whenever it is read."""

    def __init__(self, tick=0.0):
        self.seconds, self.tick, self.asked = 0.0, tick, 0

    def perf_counter(self):
        self.asked += 1
        self.seconds += self.tick
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(cancellation, "time", clock)
    return clock


class TestCancellation:
    def test_without_a_limit_nothing_is_cancelled_and_no_clock_is_read(self, clock):
        check_cancelled()
        assert [s.start for s in pieces(10, 4)] == [0, 4, 8]
        assert clock.asked == 0

    def test_a_limit_ends_work_between_two_pieces(self, clock):
        done = []

        def work():
            for s in pieces(100, 10):
                done.append(s.stop)
                clock.seconds += 4

        with pytest.raises(TimeUp), time_limit(10):
            work()
        assert done == [10, 20, 30]
        check_cancelled()  # the limit ends with its block

    def test_an_inner_limit_does_not_extend_the_outer_one(self, clock):
        clock.seconds = 5
        with pytest.raises(TimeUp), time_limit(3), time_limit(100):
            check_cancelled()

    @pytest.mark.parametrize("n_threads", [1, 3])
    def test_limits_apply_to_threads(self, clock, n_threads):
        with Threads(n_threads) as threads, pytest.raises(TimeUp), time_limit(-1):
            deque(threads.map(lambda item: item, lambda item, _: item, list(range(9)), False), 0)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
    def test_leaving_the_loop_cancels_running_blocks(self, error):
        """The running blocks poll for a cancellation and would never end otherwise."""
        ended = threading.Semaphore(0)

        def work(item, _):
            if item == 0:
                return item
            try:
                while True:
                    check_cancelled()
            except TimeUp:
                ended.release()
                raise

        def interrupted(threads):
            for _ in threads.map(lambda item: item, work, list(range(9)), False):
                raise error

        with pytest.raises(error), Threads(3) as threads:
            interrupted(threads)
        assert ended.acquire(timeout=60)


class TestSteps:
    def slow(self, clock):
        def step(state):
            for _ in pieces(100, 1):
                clock.seconds += 1
            return count(state)

        return step

    def test_a_first_step_that_takes_too_long_is_abandoned(self, clock):
        outcome = drive(self.slow(clock), 0, never, Limits(10, 30.0, labelling=10.0))
        assert (outcome.state, outcome.history, outcome.reason, outcome.info) == (0, [], "time_budget", None)
        assert 20 <= clock.seconds <= 22  # which leaves time for the labels

    def test_a_needed_first_step_is_not_abandoned(self, clock):
        outcome = drive(self.slow(clock), 0, never, Limits(10, 30.0, needs_step=True))
        assert (outcome.state, outcome.reason) == (1, "time_budget")

    def test_the_limit_of_a_caller_raises_in_the_caller(self, clock):
        with pytest.raises(TimeUp), time_limit(30):
            drive(self.slow(clock), 0, never, Limits(10))

    def test_batches_leave_time_for_the_labels_of_all_other_rows(self, clock):
        limits = Limits(10, 30.0, rows=1000, labelling=20.0)
        assert not limits.spent(1.0, batch=500)  # two steps and half of the labels
        assert limits.spent(11.0, batch=500)
        clock.seconds = 15
        assert limits.spent(1.0, batch=1)
        assert not limits.spent(1.0, batch=1000)

    def test_stages_share_the_remaining_time(self, clock):
        limits = Limits(10, 30.0)
        assert limits.stage(reserve=10.0).end == 10
        assert limits.part(0.5).deadline == 15
        clock.seconds = 100
        assert limits.stage().end == 100 + deadline_module.LEEWAY
        assert Limits(10).stage().end == np.inf
        assert Limits(10).part() == Limits(10)


def seeded(name, rows, k, deadline=NO_DEADLINE, seedings=REFINING_INITIALIZERS.methods):
    frame = Frame(bits=True) if isinstance(rows, Codes) else Frame()
    source = rows if isinstance(rows, Codes) else find_source(rows)
    with on_threads(Rows.of(source, frame=frame)) as opened:
        return seedings[name](opened, k, generator(0), deadline)


WIDE = sparse.random(3000, 400, 0.02, "csr", rng=0)
LAYOUTS = {"dense": X, "sparse": sparse.csr_array(np.maximum(X, 0)), "wide sparse": WIDE}
bits = Codes(packed(X > 0), 70)


class TestSeeding:
    @pytest.mark.parametrize("name", REFINING_INITIALIZERS.methods)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("tick", [0.01, 1.0, 100.0])
    def test_a_late_initialization_is_simplified_and_gives_distinct_rows(self, clock, name, layout, tick):
        clock.tick = tick
        deadline = Deadline(clock.seconds + 20 * tick)
        C = seeded(name, LAYOUTS[layout], 200, deadline)
        assert clock.asked < 80  # less than once for each of the 200 centroids
        assert len(np.unique(C, axis=0)) == 200
        assert bool(deadline.skipped) == (name != "random")  # random rows take no time

    def test_of_bits(self, clock):
        clock.tick = 1.0
        deadline = Deadline(20)
        C = seeded("k-means++", bits, 200, deadline, BIT_INITIALIZERS.methods)
        assert clock.asked < 80
        assert len(np.unique(C, axis=0)) == 200
        assert deadline.skipped

    @pytest.mark.parametrize("name", REFINING_INITIALIZERS.methods)
    def test_a_long_deadline_changes_nothing(self, clock, name):
        deadline = Deadline(1.0)  # the clock stands still
        np.testing.assert_array_equal(seeded(name, X, 30, deadline), seeded(name, X, 30))
        assert not deadline.skipped

    @pytest.mark.parametrize("name", REFINING_INITIALIZERS.methods)
    def test_without_a_budget_the_clock_is_not_read(self, clock, name):
        clock.tick = 1e9
        first = seeded(name, X, 30)
        clock.tick = 0.0
        np.testing.assert_array_equal(seeded(name, X, 30), first)

    def test_rows_drawn_at_once_follow_their_probabilities(self):
        mass = np.array([0.0, 1.0, 2.0, 0.0, 5.0])
        drawn = [draw_at_once(generator(seed), mass, 1, np.arange(5))[0] for seed in range(2000)]
        np.testing.assert_allclose(np.bincount(drawn, minlength=5) / 2000, mass / 8, atol=0.04)
        assert set(draw_at_once(generator(0), mass, 3, np.arange(5))) == {1, 2, 4}

    def test_equal_rows_are_drawn_as_one(self):
        keys = np.repeat([3.0, 5.0, 9.0], [100, 1, 1])
        assert set(keys[draw_at_once(generator(0), np.ones(102), 3, keys)]) == {3.0, 5.0, 9.0}
        assert len(draw_at_once(generator(0), np.ones(102), 7, keys)) == 7


@pytest.mark.parametrize("layout", LAYOUTS)
def test_labeling_time_is_estimated_by_a_measurement(layout):
    with on_threads(Rows.of(find_source(LAYOUTS[layout]))) as rows:
        assert 0 < labelling_seconds(rows, 500) < 100
    seen = []
    with on_threads(Rows.of(find_source(LAYOUTS[layout]))) as rows:
        labelling_seconds(rows, 500, lambda block, centers: seen.append(len(block)))
    assert 0 < sum(seen) <= 2 * 3000


def test_fewer_rows_than_are_measured():
    with on_threads(Rows.of(find_source(cloud(3, 2)))) as rows:
        assert labelling_seconds(rows, 3) > 0
