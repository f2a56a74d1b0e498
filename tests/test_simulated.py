"""The simulation behind docs/scale.md agrees with results calculated by hand."""

import pytest

pytest.importorskip("distributed")

from bench.events import Clock, Shared
from bench.plan import TINY, costs_of
from bench.scale import Cluster, Costs, Work
from bench.simulated import Fleet

FREE = Costs(task=0, down=0, up=0, work=0, packing=0, flops=1e9)
SECOND = Work(rows=8 * 500_000, columns=10, clusters=100, partitions=8)  # each of 8 tasks takes one core second
TEN = Cluster(machines=10, cores=2, processes=1, threads=2)


def run(cluster, costs=FREE, work=SECOND, seed=0):
    return Fleet(cluster, costs, seed).run(work)


def test_jobs_share_a_resource():
    clock, ends = Clock(), []
    core = Shared(clock)
    for work in (1.0, 1.0, 2.0):
        core.start(work, lambda: ends.append(clock.now))
    clock.run(lambda: len(ends) == 3)
    assert ends == pytest.approx([3.0, 3.0, 4.0])


@pytest.mark.parametrize(("cores", "threads", "seconds"), [(8, 8, 1), (2, 2, 4), (2, 4, 4), (4, 2, 4), (1, 1, 8)])
def test_time_by_cores_and_threads(cores, threads, seconds):
    assert run(Cluster(1, cores, 1, threads)).seconds == pytest.approx(seconds)


def test_the_driver_may_limit_the_time():
    assert run(Cluster(1, 8, 1, 8), FREE._replace(task=2)).seconds == pytest.approx(17)  # the last is sent after 16 s
    assert run(Cluster(1, 8, 1, 8), FREE._replace(up=1 / SECOND.answer())).seconds == pytest.approx(9)


def test_driver_and_workers_share_one_machine():
    costs = FREE._replace(up=1 / SECOND.answer())
    assert run(Cluster(1, 1, 1, 1), costs).seconds == pytest.approx(9)
    assert run(Cluster(1, 1, 1, 1, driver_apart=False), costs).seconds == pytest.approx(16)


def test_the_link_may_limit_the_time():
    cost = run(TEN._replace(link=SECOND.answer()))
    assert cost.received == pytest.approx(8 * SECOND.answer())
    assert cost.seconds == pytest.approx(1 + 8 + 8 * SECOND.down() / SECOND.answer(), rel=0.1)


def test_adding_up_on_machines_reduces_the_traffic():
    many = SECOND._replace(clusters=100_000, partitions=80)
    apart, joined = run(TEN, work=many), run(TEN, work=many._replace(groups=10))
    assert joined.received == pytest.approx(10 * many._replace(groups=10).answer())
    assert joined.received < apart.received / 1.5
    assert joined.seconds == pytest.approx(apart.seconds)


def test_centroids_are_forwarded_between_workers():
    heavy = SECOND._replace(clusters=10_000, rows=8 * 5_000)
    cost = run(TEN._replace(link=heavy.order()), work=heavy)
    assert cost.moved - cost.received == pytest.approx(8 * heavy.order() + 8 * heavy.down())  # two machines are idle
    assert cost.seconds > 2  # to the first worker, and from there to the others


def test_slow_tasks_are_sent_again():
    many = SECOND._replace(rows=20 * SECOND.rows, partitions=20)  # 8 s each
    cost = run(TEN._replace(slow=0.1), work=many)
    assert cost.again > 0
    assert 8 < cost.seconds < 8 * 8


def test_tasks_of_a_failed_machine_are_sent_again():
    fleet = Fleet(TEN._replace(deaths=0.02), FREE)
    many = SECOND._replace(rows=10 * SECOND.rows, partitions=80)
    cost = fleet.run(many)
    assert cost.deaths == 10 - len(fleet.alive) > 0
    assert cost.again > 0
    assert cost.seconds > run(TEN, work=many).seconds
    assert cost.received == pytest.approx(80 * many.answer())


def test_machines_fail_at_the_given_rate():
    cluster, work = Cluster(50, 2, 1, 2, link=1e9, deaths=0.0), Work(10**7, 64, 500, 400)
    calm = Fleet(cluster, costs_of(TINY)).run(work)
    rate = 5 / (calm.seconds * cluster.machines)  # five in such a round
    rough = [Fleet(cluster._replace(deaths=rate), costs_of(TINY), seed).run(work) for seed in range(20)]
    expected = [rate * cluster.machines * cost.seconds for cost in rough]
    assert sum(cost.deaths for cost in rough) == pytest.approx(sum(expected), rel=0.4)
    assert all(cost.seconds >= calm.seconds and (cost.again > 0) == (cost.deaths > 0) for cost in rough if cost.deaths)


def test_results_depend_on_the_seed_only():
    rough = TEN._replace(slow=0.2, deaths=0.1, link=1e6)
    assert run(rough, seed=1) == run(rough, seed=1) != run(rough, seed=2)


def test_a_reassigned_row_changes_two_clusters():
    work = Work(rows=1000, columns=1, clusters=10**6, partitions=10)
    assert work.share(10) == pytest.approx(100 * 40, rel=1e-3)
    assert work._replace(moving=0.1, first=False).share(10) == pytest.approx(20 * 40, rel=1e-3)
    assert work._replace(clusters=5).share(10) == pytest.approx(5 * 40)
