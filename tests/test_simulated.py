"""The simulation behind docs/scale.md finds what can be reckoned by hand."""

import pytest

pytest.importorskip("distributed")

from bench.events import Clock, Shared
from bench.plan import TINY, costs_of
from bench.scale import Cluster, Costs, Work
from bench.simulated import Fleet

FREE = Costs(task=0, down=0, up=0, work=0, packing=0, flops=1e9)
SECOND = Work(rows=8 * 500_000, columns=10, clusters=100, partitions=8)  # of a core, for each of 8 tasks
TEN = Cluster(machines=10, cores=2, processes=1, threads=2)


def run(cluster, costs=FREE, work=SECOND, seed=0):
    return Fleet(cluster, costs, seed).run(work)


def test_jobs_share_what_there_is():
    clock, ends = Clock(), []
    core = Shared(clock)
    for work in (1.0, 1.0, 2.0):
        core.start(work, lambda: ends.append(clock.now))
    clock.run(lambda: len(ends) == 3)
    assert ends == pytest.approx([3.0, 3.0, 4.0])


@pytest.mark.parametrize(("cores", "threads", "seconds"), [(8, 8, 1), (2, 2, 4), (2, 4, 4), (4, 2, 4), (1, 1, 8)])
def test_work_takes_as_long_as_there_are_cores_and_threads_for_it(cores, threads, seconds):
    assert run(Cluster(1, cores, 1, threads)).seconds == pytest.approx(seconds)


def test_the_driver_may_be_what_takes_longest():
    assert run(Cluster(1, 8, 1, 8), FREE._replace(task=2)).seconds == pytest.approx(17)  # the last is sent after 16 s
    assert run(Cluster(1, 8, 1, 8), FREE._replace(up=1 / SECOND.answer())).seconds == pytest.approx(9)


def test_on_one_machine_the_driver_takes_cores_from_the_work():
    costs = FREE._replace(up=1 / SECOND.answer())
    assert run(Cluster(1, 1, 1, 1), costs).seconds == pytest.approx(9)
    assert run(Cluster(1, 1, 1, 1, driver_apart=False), costs).seconds == pytest.approx(16)


def test_a_link_carries_all_answers():
    told = run(TEN._replace(link=SECOND.answer()))
    assert told.received == pytest.approx(8 * SECOND.answer())
    assert told.seconds == pytest.approx(1 + 8 + 8 * SECOND.down() / SECOND.answer(), rel=0.1)


def test_added_up_on_machines_less_is_sent():
    many = SECOND._replace(clusters=100_000, partitions=80)
    apart, joined = run(TEN, work=many), run(TEN, work=many._replace(groups=10))
    assert joined.received == pytest.approx(10 * many._replace(groups=10).answer())
    assert joined.received < apart.received / 1.5
    assert joined.seconds == pytest.approx(apart.seconds)


def test_centres_are_passed_on():
    heavy = SECOND._replace(clusters=10_000, rows=8 * 5_000)
    told = run(TEN._replace(link=heavy.order()), work=heavy)
    assert told.moved - told.received == pytest.approx(8 * heavy.order() + 8 * heavy.down())  # two machines have nothing to do
    assert told.seconds > 2  # to the first, and from there


def test_what_is_slow_is_done_by_others():
    many = SECOND._replace(rows=20 * SECOND.rows, partitions=20)  # 8 s each
    told = run(TEN._replace(slow=0.1), work=many)
    assert told.again > 0
    assert 8 < told.seconds < 8 * 8


def test_a_dead_machine_costs_what_it_was_at():
    fleet = Fleet(TEN._replace(deaths=0.02), FREE)
    many = SECOND._replace(rows=10 * SECOND.rows, partitions=80)
    told = fleet.run(many)
    assert told.deaths == 10 - len(fleet.alive) > 0
    assert told.again > 0
    assert told.seconds > run(TEN, work=many).seconds
    assert told.received == pytest.approx(80 * many.answer())


def test_machines_die_as_often_as_they_are_said_to():
    cluster, work = Cluster(50, 2, 1, 2, link=1e9, deaths=0.0), Work(10**7, 64, 500, 400)
    calm = Fleet(cluster, costs_of(TINY)).run(work)
    rate = 5 / (calm.seconds * cluster.machines)  # five in such a round
    rough = [Fleet(cluster._replace(deaths=rate), costs_of(TINY), seed).run(work) for seed in range(20)]
    expected = [rate * cluster.machines * told.seconds for told in rough]
    assert sum(told.deaths for told in rough) == pytest.approx(sum(expected), rel=0.4)
    assert all(told.seconds >= calm.seconds and (told.again > 0) == (told.deaths > 0) for told in rough if told.deaths)


def test_a_seed_fixes_it():
    rough = TEN._replace(slow=0.2, deaths=0.1, link=1e6)
    assert run(rough, seed=1) == run(rough, seed=1) != run(rough, seed=2)


def test_a_row_that_moves_touches_two_clusters():
    work = Work(rows=1000, columns=1, clusters=10**6, partitions=10)
    assert work.share(10) == pytest.approx(100 * 40, rel=1e-3)
    assert work._replace(moving=0.1, first=False).share(10) == pytest.approx(20 * 40, rel=1e-3)
    assert work._replace(clusters=5).share(10) == pytest.approx(5 * 40)
