"""Short tasks travel together: answers come in their order, and what goes wrong with some of them is told of the one."""

import os
import signal
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import futures_of, wait

import shoal
from shoal.distributed import scheduler as rounds
from shoal.distributed import task_batching as loads
from shoal.distributed.task_batching import Habit, Task, divided, most_of
from shoal.distributed.workers import Crew
from shoal.exceptions import ClusterLostError
from tests.strategies import blobs

pytestmark = pytest.mark.xdist_group("dask")
SHORT = Habit(seconds=1e-3, size=10)


def test_what_was_not_seen_goes_alone():
    assert most_of(Habit(), 1000, 2) == 1


def test_so_do_long_ones_and_those_with_large_answers():
    assert most_of(SHORT._replace(seconds=1.0), 1000, 2) == 1
    assert most_of(SHORT._replace(size=loads.SMALL), 1000, 2) == 1


def test_all_threads_have_something_to_do():
    assert most_of(SHORT, 1000, 2) == 100  # a tenth of a second
    assert most_of(SHORT, 100, 2) == 25
    assert most_of(SHORT, 3, 2) == 1


def test_only_neighbours_travel_together():
    assert divided("aabab", 2) == [[0, 1], [2, 4], [3]]
    assert divided("aaaaa", 2) == [[0, 1], [2, 3], [4]]
    assert divided(range(3), 2) == [[0], [1], [2]]
    assert divided("", 2) == []


def echo(piece, order, near):
    return order + bytes([piece])


def odd(piece, order, near):
    if piece in (3, 7):
        raise ValueError(f"{piece} is odd")
    return echo(piece, order, near)


def deadly(piece, order, near):
    if piece == 3:
        os._exit(1)
    return echo(piece, order, near)


def slow_once(piece, order, near):
    """The first to have this file waits until there is another one."""
    folder = Path(order.decode())
    with open(folder / "begun", "ab") as file:
        first = file.tell() == 0
        file.write(b".")
    for _ in range(1000 if first else 0):
        if (folder / "done").exists():
            break
        time.sleep(0.1)
    return bytes([piece])


def a_round(client, fn, order=b"x", count=12):
    """Of tasks of which three or more travel together."""
    crew = Crew(client)
    work = rounds.Round(crew, lambda i: Task(f"Partition {i}", fn, i, (), []), [[]] * count, order, "kind")
    work.habit = SHORT
    return work


def test_answers_come_in_order(client):
    work = a_round(client, echo)
    assert list(work.results()) == [b"x" + bytes([i]) for i in range(12)]
    assert work.crew.tasks <= 4
    habit = work.crew.habits["kind", 1]
    assert 0 < habit.seconds < 5
    assert habit.size == 2


def test_the_first_error_is_the_one_that_is_told(client):
    found = []
    with pytest.raises(ValueError, match="3 is odd"):
        found.extend(a_round(client, odd).results())
    assert found == [b"x" + bytes([i]) for i in range(3)]


@pytest.mark.usefixtures("all_there")
def test_the_one_that_kills_is_named(client, cluster, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    monkeypatch.setattr(rounds, "KILLS", 2)
    with pytest.raises(ClusterLostError, match=r"^Partition 3: 2 workers died over it"):
        list(a_round(client, deadly).results())


def test_late_ones_go_again_alone(client, monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "PATIENCE", 1.0)
    work = a_round(client, slow_once, str(tmp_path).encode())
    assert list(work.results()) == [bytes([i]) for i in range(12)]
    (tmp_path / "done").touch()
    assert work.crew.lost > 1


def test_those_that_travel_together_share_what_is_lost(monkeypatch):
    sent = loads.Sent([1, 3, 4], None, at=2.0)
    monkeypatch.setattr(loads.time, "monotonic", lambda: 8.0)
    assert sum(sent.age() for _ in sent.numbers) == 6.0


def longer(piece, order, near):
    time.sleep(1.05)
    return echo(piece, order, near)


def test_what_takes_longer_than_was_expected_is_left_undone_and_sent_again(client):
    work = a_round(client, longer, count=8)  # two travel together
    assert list(work.results()) == [b"x" + bytes([i]) for i in range(8)]
    assert work.crew.tasks == 8


def test_no_more_loads_are_under_way_than_keep_workers_busy(client, monkeypatch):
    """Nobody knows who has the rows: all go alone."""
    monkeypatch.setattr(Crew, "homes_of", lambda self, near: range(len(near)))
    work, most = a_round(client, echo, count=100), []
    send = work._send
    monkeypatch.setattr(work, "_send", lambda *args: (send(*args), most.append(len(work.tries))))
    assert len(list(work.results())) == 100
    assert max(most) <= 2 * rounds.AHEAD


def of_rows(piece, order, near):
    return bytes([int(near[0].sum())])


@pytest.mark.usefixtures("all_there")
def test_rows_that_are_lost_and_computed_again(client):
    """A worker dies when it has answered, and nobody has looked at the answer yet: its rows are lost, and come back."""
    X = client.persist(da.ones((240, 4), chunks=(10, 4)))
    near = [[future] for future in futures_of(X, client)]
    with client.as_current():
        wait(X)
    work = rounds.Round(Crew(client), lambda i: Task(f"Partition {i}", of_rows, None, (), near[i]), near, b"", "kind")
    work.habit, work.size = SHORT, 1 << 23  # answers that are fetched one by one
    found = []
    for answer in work.results():
        if not found:
            time.sleep(1.0)
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            time.sleep(1.0)
        found.append(answer)
    assert found == [bytes([40])] * 24


@pytest.mark.usefixtures("all_there")
def test_a_worker_that_freezes_with_answers(client, monkeypatch):
    """Before they are fetched: those of the other one come, and what it has is asked for again."""
    monkeypatch.setattr(rounds, "PATIENCE", 1.0)
    work = a_round(client, echo, count=24)
    pid, gather, asked = next(iter(client.run(os.getpid).values())), work.crew.gather, []

    def frozen(futures, timeout):
        if not asked:
            os.kill(pid, signal.SIGSTOP)
        asked.append(len(futures))
        return gather(futures, timeout)

    monkeypatch.setattr(work.crew, "gather", frozen)
    try:
        assert list(work.results()) == [b"x" + bytes([i]) for i in range(24)]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_who_holds_rows_is_known(client):
    X = client.persist(da.zeros((400, 3), chunks=(100, 3)))
    with client.as_current():
        wait(X)
    near = [[future] for future in futures_of(X, client)]
    crew = Crew(client)
    homes = crew.homes_of([*near, []])
    assert homes == [client.who_has(some)[some[0].key][:1] for some in near] + [()]
    assert crew.homes.keys() == {some[0].key for some in near}  # and not asked for again, until the next look
    crew.look(now=True)
    assert not crew.homes


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("held", [False, True])
def test_a_fit_is_the_same(client, monkeypatch, held):
    X, _ = blobs(3600, 6, 8)
    rows = da.from_array(X, chunks=(300, 6))
    alone = shoal.KMeans(8, init="k-means||", random_state=0, max_iter=6, tol=0).fit(rows)
    monkeypatch.setattr(loads, "LONG", 100.0)
    with shoal.Engine(client):
        found = shoal.KMeans(8, init="k-means||", random_state=0, max_iter=6, tol=0).fit(client.persist(rows) if held else rows)
    np.testing.assert_array_equal(alone.cluster_centers_, found.cluster_centers_)
    np.testing.assert_array_equal(alone.labels_, found.labels_)
    assert found.history_[0]["tasks"] > 12 > 6 >= max(step["tasks"] for step in found.history_[1:])
