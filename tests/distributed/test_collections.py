"""What is read of a dask collection is what it computes to, whatever was done to it before."""

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from distributed import get_client
from scipy import sparse

import shoal
from shoal.distributed import dask, tasks
from shoal.distributed import partitions as pieces
from shoal.distributed import scheduler as rounds
from shoal.distributed import workers as crew
from shoal.exceptions import ClusterLostError, FitInterrupted
from tests.strategies import blobs

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks")]
X, _ = blobs(600, 3, 4)
X = 20 * X
TABLE = pd.DataFrame(X, columns=["a", "b", "chunks"])
LEFT = dd.from_pandas(TABLE, npartitions=4)
ROWS = da.from_array(X, chunks=(150, 3))

EXPRESSIONS = {
    "as it is": lambda t: t,
    "scaled": lambda t: t * 2,
    "some rows": lambda t: t[t.a > 5],
    "some columns": lambda t: t[["b", "a"]],
    "both": lambda t: t[t.a > 5][["b"]] * 2,
    "another column": lambda t: t.assign(d=t.a + t.b),
    "other names": lambda t: t.rename(columns={"a": "z"}).fillna(0.0),
    "float32": lambda t: t.astype("float32"),
    "block by block": lambda t: t.map_partitions(lambda part: part + 1),
    "centred": lambda t: t - t.mean(),
    "repartitioned": lambda t: t.repartition(npartitions=2),
    "put together": lambda t: dd.concat([t, t * 2]),
    "sorted": lambda t: t.sort_values("a"),
    "shuffled": lambda t: t.shuffle("b"),
    "merged": lambda t: t.merge(t[["a"]].assign(e=1.0), on="a"),
}


def read(rows, client=None):
    source = dask.open_collection(rows, client)
    return source.read(0, source.shape[0])


def in_order(values):
    return np.array(sorted(map(tuple, np.asarray(values))))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_dataframes_by_threads(name):
    table = EXPRESSIONS[name](LEFT)
    np.testing.assert_allclose(in_order(read(table)), in_order(table.compute(scheduler="sync")), rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["both", "centred", "sorted", "merged"])
def test_dataframes_by_workers(name, client):
    with client.as_current():
        table = EXPRESSIONS[name](LEFT)
        np.testing.assert_allclose(in_order(read(table, client)), in_order(table.compute()), rtol=1e-12)


def test_what_all_chunks_need_is_done_once():
    done = []

    def look(block):
        done.append(len(block))
        return block

    rows = ROWS.map_blocks(look, dtype=float, meta=np.empty((0, 0)))
    source = dask.open_collection((rows - rows.mean(axis=0)) / rows.std(axis=0), None)
    for _ in range(3):
        found = source.read(0, 600)
    assert sum(done) == 600
    np.testing.assert_allclose(found, (X - X.mean(axis=0)) / X.std(axis=0), rtol=1e-12)


def test_masks_are_not_forgotten():
    with pytest.raises(ValueError, match="chunks with masks"), shoal.Engine(None):
        shoal.KMeans(2).fit(da.ma.masked_greater(ROWS, 20))


def test_chunks_of_other_kinds():
    with pytest.raises(TypeError, match=r"chunks of type builtins\.list"):
        pieces.check_kind([])


@pytest.mark.parametrize("shape", [(200, 3), (150, 4)])
def test_chunks_that_are_not_as_told(shape):
    parts = [da.from_delayed(delayed(np.ones)((150, 3)), shape, float) for _ in range(3)]
    with pytest.raises(ValueError, match=r"has shape \(150, 3\), float64, but .* was told"), shoal.Engine(None):
        shoal.KMeans(2).fit(da.concatenate(parts))


def test_resume_needs_the_same_chunks(tmp_path):
    kept = shoal.Checkpoint(tmp_path / "kept.npz")
    model = shoal.KMeans(4, init="random", random_state=0, tol=0, callback=lambda record: kept.stop())
    with pytest.raises(FitInterrupted), kept, shoal.Engine(None):
        model.fit(ROWS)
    with pytest.raises(ValueError, match="the chunks of X"), shoal.Checkpoint(tmp_path / "kept.npz"), shoal.Engine(None):
        model.fit(ROWS.rechunk((300, 3)))


def test_rows_that_workers_have_lost(client):
    held = client.persist(ROWS)
    source = dask.open_collection(held, client)
    client.cancel(held)
    with pytest.raises(ClusterLostError, match="workers held these rows, and they are gone"):
        source.read(0, 600)


def inside():
    """Of a task: a fit that needs the worker's own thread."""
    rows = da.from_array(X, chunks=(150, 3))
    return shoal.KMeans(4, random_state=0, max_iter=2).fit(rows, engine=get_client()).inertia_


def test_fits_inside_tasks(client):
    found = client.gather([client.submit(inside, pure=False) for _ in range(2)], asynchronous=False)
    with warnings.catch_warnings(action="ignore"), shoal.Engine(None):
        expected = shoal.KMeans(4, random_state=0, max_iter=2).fit(ROWS).inertia_
    assert found == pytest.approx([expected] * 2)  # there, blocks are as large as ever


class Told:
    """A client whose scheduler says this of its workers."""

    status = "running"

    def __init__(self):
        self.workers, self.held, self.scheduler = {}, {}, self

    def sync(self, ask, callback_timeout):
        return ask()

    def identity(self):
        return {"workers": self.workers}

    def processing(self):
        return self.held


def test_paused_workers_are_none(monkeypatch):
    monkeypatch.setattr(crew, "EMPTY", -1.0)
    told = Told()
    told.workers = {"a": {"nthreads": 2, "status": "running", "last_seen": 1.0}}
    team = rounds.Crew(told)
    team.look(now=True)
    assert team.threads == 2
    told.workers["a"]["status"] = "paused"
    with pytest.raises(ClusterLostError, match="paused for want of memory"):
        team.look(now=True)


def test_late_workers_get_no_more_until_they_are_heard_of():
    told = Told()
    told.workers = {name: {"nthreads": 1, "status": "running", "last_seen": seen} for name, seen in (("a", 10.0), ("b", 50.0))}
    told.held = {"a": ["x"], "b": ["y"]}
    team = rounds.Crew(told)
    team.look(now=True)
    team.freeze({"x", "y"}, 30.0)
    assert set(team.frozen) == {"a"}  # the other one is slow, but there
    team.look(now=True)
    assert set(team.frozen) == {"a"}
    told.workers["a"]["last_seen"] = 51.0
    team.look(now=True)
    assert not team.frozen


def test_a_task_that_is_just_long_is_not_sent_for_ever(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now[0])
    sent = []
    told = Told()
    told.workers, told.held = {"a": {"nthreads": 1, "status": "running", "last_seen": 1.0}}, {"a": ["x"]}
    work = rounds.Round(rounds.Crew(told), lambda i: None, [[]] * 3, b"")
    work.took = [1.0]

    def send(numbers, order):
        sent.append(now[0])
        work.tries[0].append(rounds.Sent([0], SimpleNamespace(key="x"), now[0]))

    work.tries[0] = [rounds.Sent([0], SimpleNamespace(key="x"), 0.0)]
    monkeypatch.setattr(work, "_send", send)
    while now[0] < 1000:
        now[0] += 1.0
        work._hurry()
    assert sent == [31.0, 92.0, 213.0, 454.0, 935.0]


def test_an_order_is_unpacked_once(monkeypatch):
    """However many tasks come at the same time."""
    unpacked = []

    def slowly(blob):
        time.sleep(0.05)
        unpacked.append(blob)
        return blob

    monkeypatch.setattr(tasks, "unpack", slowly)
    tasks._told_once.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(tasks.told, [b"order"] * 4)) == {b"order"}
    assert len(unpacked) == 1
    tasks._told_once.cache_clear()


WRONG = {
    "gaps under a type of integers": lambda D: D.map_blocks(lambda b: b * np.nan, dtype=np.int64),
    "floats as integers": lambda D: D.map_blocks(lambda b: b, dtype=np.int32),
    "large integers as small ones": lambda D: D.map_blocks(lambda b: (1000 * b).astype(np.int64), dtype=np.int8),
    "complex as real": lambda D: D.map_blocks(lambda b: b + 1j, dtype=np.float64),
    "text as numbers": lambda D: D.map_blocks(lambda b: b.astype(str), dtype=np.float64),
    "sparse as dense": lambda D: D.map_blocks(sparse.csr_array, dtype=np.float64, meta=np.empty((0, 0))),
}


@pytest.mark.parametrize("name", WRONG)
def test_chunks_of_another_type_than_told(name):
    """A cast would lose what is wrong, before anybody has looked at it."""
    with pytest.raises((ValueError, TypeError), match=r"A chunk of X, among the rows from 0 on, has shape .* was told"):
        shoal.KMeans(4, init=X[:4]).fit(WRONG[name](ROWS))


def test_tables_of_another_type_than_told():
    gone = dd.from_pandas(TABLE.astype(int), npartitions=3).map_partitions(lambda t: t * np.nan, meta=TABLE.astype(int))
    with pytest.raises(ValueError, match=r"float64, but .* int64 was told"):
        shoal.KMeans(4, init=X[:4]).fit(gone)


def test_floats_may_be_others_than_told(client):
    found = shoal.KMeans(4, init=X[:4]).fit(ROWS.map_blocks(lambda b: b, dtype=np.float32))
    np.testing.assert_array_equal(found.labels_, shoal.KMeans(4, init=X[:4]).fit(ROWS).labels_)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (lambda: ROWS[:, da.from_array(np.array([True, False, True]))], "number of columns that is not known"),
        (lambda: delayed(X), "give a two-dimensional dask array"),
        (lambda: LEFT[[]], "no columns"),
    ],
)
def test_what_has_no_rows_to_cluster(rows, why):
    with pytest.raises((ValueError, TypeError), match=why):
        shoal.KMeans(4, init=X[:4]).fit(rows())


def test_a_client_that_is_closed():
    told = Told()
    told.status = "closed"
    with pytest.raises(ClusterLostError, match="client is closed: open another"):
        rounds.Crew(told).look(now=True)


def test_workers_must_find_the_files_that_were_opened(client, tmp_path):
    """Another one in the folder would shift all rows."""
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", X[200 * i : 200 * (i + 1)])
    rows, model = shoal.open_rows(tmp_path), shoal.KMeans(4, init=X[:4], max_iter=3)
    model.fit(rows, engine=client)
    np.save(tmp_path / "00.npy", X)
    with pytest.raises(ValueError, match=r"3 files of .* bytes when the rows were opened, but .* finds 4 files of .* there"):
        model.fit(rows, engine=client)
    (tmp_path / "00.npy").unlink()
    model.fit(rows, engine=client)
    rows = shoal.open_rows(tmp_path)
    np.save(tmp_path / "1.npy", 2 * X[:200])
    with pytest.raises(ValueError, match="finds others there"):
        model.fit(rows, engine=client)
