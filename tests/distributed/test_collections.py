"""Rows read from a Dask collection equal what it computes to, for all kinds of expressions."""

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
from shoal.distributed import dask, partitions, tasks, workers
from shoal.distributed.in_flight import Submission
from shoal.distributed.scheduler import OrderedScheduler
from shoal.distributed.workers import WorkerPool
from shoal.exceptions import ClusterLostError, FitInterrupted
from tests.strategies import blobs

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("small_blocks")]
X, _ = blobs(600, 3, 4)
X = 20 * X
TABLE = pd.DataFrame(X, columns=["a", "b", "chunks"])
DATAFRAME = dd.from_pandas(TABLE, npartitions=4)
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


def read_all(rows, client=None):
    source = dask.open_collection(rows, client)
    return source.read(0, source.shape[0])


def sort_rows(values):
    return np.array(sorted(map(tuple, np.asarray(values))))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_dataframes_by_threads(name):
    table = EXPRESSIONS[name](DATAFRAME)
    np.testing.assert_allclose(sort_rows(read_all(table)), sort_rows(table.compute(scheduler="sync")), rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["both", "centred", "sorted", "merged"])
def test_dataframes_by_workers(name, client):
    with client.as_current():
        table = EXPRESSIONS[name](DATAFRAME)
        np.testing.assert_allclose(sort_rows(read_all(table, client)), sort_rows(table.compute()), rtol=1e-12)


def test_values_shared_by_all_chunks_are_computed_once():
    n_computed = []

    def count(block):
        n_computed.append(len(block))
        return block

    rows = ROWS.map_blocks(count, dtype=float, meta=np.empty((0, 0)))
    source = dask.open_collection((rows - rows.mean(axis=0)) / rows.std(axis=0), None)
    for _ in range(3):
        rows_read = source.read(0, 600)
    assert sum(n_computed) == 600
    np.testing.assert_allclose(rows_read, (X - X.mean(axis=0)) / X.std(axis=0), rtol=1e-12)


def test_masked_chunks_are_refused():
    with pytest.raises(ValueError, match="masked chunks"), shoal.Engine(None):
        shoal.KMeans(2).fit(da.ma.masked_greater(ROWS, 20))


def test_chunks_of_other_types_are_refused():
    with pytest.raises(TypeError, match=r"chunks of type builtins\.list"):
        partitions.check_chunk_type([])


@pytest.mark.parametrize("shape", [(200, 3), (150, 4)])
def test_chunks_of_another_shape_than_declared(shape):
    parts = [da.from_delayed(delayed(np.ones)((150, 3)), shape, float) for _ in range(3)]
    with pytest.raises(ValueError, match=r"has shape \(150, 3\), float64, but X declares"), shoal.Engine(None):
        shoal.KMeans(2).fit(da.concatenate(parts))


def test_resume_needs_the_same_chunks(tmp_path):
    checkpoint = shoal.Checkpoint(tmp_path / "checkpoint.npz")
    model = shoal.KMeans(4, init="random", random_state=0, tol=0, callback=lambda record: checkpoint.stop())
    with pytest.raises(FitInterrupted), checkpoint, shoal.Engine(None):
        model.fit(ROWS)
    with pytest.raises(ValueError, match="the chunks of X"), shoal.Checkpoint(tmp_path / "checkpoint.npz"), shoal.Engine(None):
        model.fit(ROWS.rechunk((300, 3)))


def test_rows_that_workers_have_lost(client):
    held = client.persist(ROWS)
    source = dask.open_collection(held, client)
    client.cancel(held)
    with pytest.raises(ClusterLostError, match="workers no longer hold these rows"):
        source.read(0, 600)


def fit_inside_task():
    """Return the inertia of a fit that runs inside a task and needs the worker's own thread."""
    rows = da.from_array(X, chunks=(150, 3))
    return shoal.KMeans(4, random_state=0, max_iter=2).fit(rows, engine=get_client()).inertia_


def test_fits_inside_tasks(client):
    inertias = client.gather([client.submit(fit_inside_task, pure=False) for _ in range(2)], asynchronous=False)
    with warnings.catch_warnings(action="ignore"), shoal.Engine(None):
        expected = shoal.KMeans(4, random_state=0, max_iter=2).fit(ROWS).inertia_
    assert inertias == pytest.approx([expected] * 2)  # not bitwise: `small_blocks` does not apply to the workers


class FakeClient:
    """A client whose scheduler reports the workers and tasks set here."""

    status = "running"

    def __init__(self):
        self.workers, self.assigned, self.scheduler = {}, {}, self

    def sync(self, request, callback_timeout):
        return request()

    def identity(self):
        return {"workers": self.workers}

    def processing(self):
        return self.assigned


def test_paused_workers_do_not_count(monkeypatch):
    monkeypatch.setattr(workers, "NO_WORKER_SECONDS", -1.0)
    client = FakeClient()
    client.workers = {"a": {"nthreads": 2, "status": "running", "last_seen": 1.0}}
    pool = WorkerPool(client)
    pool.refresh(force=True)
    assert pool.n_threads == 2
    client.workers["a"]["status"] = "paused"
    with pytest.raises(ClusterLostError, match="give them more memory if they are paused"):
        pool.refresh(force=True)


def test_unresponsive_workers_are_avoided_until_their_next_heartbeat():
    client = FakeClient()
    client.workers = {
        name: {"nthreads": 1, "status": "running", "last_seen": seen} for name, seen in (("a", 10.0), ("b", 50.0))
    }
    client.assigned = {"a": ["x"], "b": ["y"]}
    pool = WorkerPool(client)
    pool.refresh(force=True)
    pool.mark_unresponsive({"x", "y"}, 30.0)
    assert set(pool.unresponsive) == {"a"}  # the other one is slow, but sends heartbeats
    pool.refresh(force=True)
    assert set(pool.unresponsive) == {"a"}
    client.workers["a"]["last_seen"] = 51.0
    pool.refresh(force=True)
    assert not pool.unresponsive


def test_retries_of_a_long_task_become_rarer(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    submitted = []
    client = FakeClient()
    client.workers, client.assigned = {"a": {"nthreads": 1, "status": "running", "last_seen": 1.0}}, {"a": ["x"]}
    scheduler = OrderedScheduler(WorkerPool(client), lambda i: None, [[]] * 3, b"")
    scheduler.lateness.durations = [1.0]
    attempts = scheduler.in_flight.attempts

    def submit(batches, spec):
        submitted.append(now[0])
        attempts[0].append(Submission([0], SimpleNamespace(key="x"), now[0]))

    attempts[0] = [Submission([0], SimpleNamespace(key="x"), 0.0)]
    monkeypatch.setattr(scheduler, "_submit", submit)
    while now[0] < 1000:
        now[0] += 1.0
        scheduler._retry_late()
    assert submitted == [31.0, 92.0, 213.0, 454.0, 935.0]


def test_a_specification_is_unpacked_once(monkeypatch):
    """Several tasks that start at the same time share one unpacked specification."""
    unpacked = []

    def unpack_slowly(blob):
        time.sleep(0.05)
        unpacked.append(blob)
        return blob

    monkeypatch.setattr(tasks, "unpack", unpack_slowly)
    tasks._load_spec_cached.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(tasks.load_spec, [b"spec"] * 4)) == {b"spec"}
    assert len(unpacked) == 1
    tasks._load_spec_cached.cache_clear()


WRONG_DTYPES = {
    "NaN as integers": lambda D: D.map_blocks(lambda b: b * np.nan, dtype=np.int64),
    "floats as integers": lambda D: D.map_blocks(lambda b: b, dtype=np.int32),
    "large integers as small ones": lambda D: D.map_blocks(lambda b: (1000 * b).astype(np.int64), dtype=np.int8),
    "complex as real": lambda D: D.map_blocks(lambda b: b + 1j, dtype=np.float64),
    "text as numbers": lambda D: D.map_blocks(lambda b: b.astype(str), dtype=np.float64),
    "sparse as dense": lambda D: D.map_blocks(sparse.csr_array, dtype=np.float64, meta=np.empty((0, 0))),
}


@pytest.mark.parametrize("name", WRONG_DTYPES)
def test_chunks_of_another_dtype_than_declared(name):
    """A cast to the declared dtype would hide invalid values from validation."""
    with pytest.raises(
        (ValueError, TypeError), match=r"A chunk of X, in the partition that starts at row 0, has shape .* but X declares"
    ):
        shoal.KMeans(4, init=X[:4]).fit(WRONG_DTYPES[name](ROWS))


def test_tables_of_another_dtype_than_declared():
    table = dd.from_pandas(TABLE.astype(int), npartitions=3).map_partitions(lambda t: t * np.nan, meta=TABLE.astype(int))
    with pytest.raises(ValueError, match=r"float64, but X declares .* int64"):
        shoal.KMeans(4, init=X[:4]).fit(table)


OTHER_COLUMNS = {
    "another order": lambda t: t[["b", "a", "chunks"]],
    "another name": lambda t: t.rename(columns={"a": "z"}),
    "a repeated name": lambda t: t.set_axis(["a", "a", "chunks"], axis=1),
}


@pytest.mark.parametrize("n_rows", [50, 300])  # both chunks in one partition, and a partition for each
@pytest.mark.parametrize("name", OTHER_COLUMNS)
def test_tables_of_other_columns_than_declared(name, n_rows):
    """Columns are identified by their position, so another order would exchange their values."""
    parts = [delayed(TABLE[:n_rows]), delayed(OTHER_COLUMNS[name](TABLE[n_rows : 2 * n_rows]))]
    table = dd.from_delayed(parts, meta=TABLE[:0], verify_meta=False)
    with pytest.raises(ValueError, match=r"has columns \[.*\], but X declares \['a', 'b', 'chunks'\]"), shoal.Engine(None):
        shoal.KMeans(4, init=X[:4]).fit(table)


@pytest.mark.parametrize("first", [0, 1])
def test_tables_in_an_array_are_stacked_by_position(first):
    """The chunks of an array have no column names, even if some are tables."""
    tables = [TABLE[:50].to_numpy(), TABLE[50:100], TABLE[100:150].set_axis(["b", "a", "c"], axis=1)]
    parts = [da.from_delayed(delayed(table), (50, 3), float) for table in tables[first:]]
    with shoal.Engine(None):
        np.testing.assert_array_equal(read_all(da.concatenate(parts)), X[50 * first : 150])


def test_chunks_of_another_number_of_dimensions_are_refused():
    parts = [da.from_delayed(delayed(part), (np.nan, 3), float) for part in (X[:50], X[50:100, 0])]
    rows = da.concatenate(parts, allow_unknown_chunksizes=True)
    with pytest.raises(ValueError, match=r"chunk of shape \(50,\): all chunks must be two-dimensional"), shoal.Engine(None):
        shoal.KMeans(4, init=X[:4]).fit(rows)


def test_floats_may_differ_from_the_declared_precision(client):
    model = shoal.KMeans(4, init=X[:4]).fit(ROWS.map_blocks(lambda b: b, dtype=np.float32))
    np.testing.assert_array_equal(model.labels_, shoal.KMeans(4, init=X[:4]).fit(ROWS).labels_)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda: ROWS[:, da.from_array(np.array([True, False, True]))], "unknown number of columns"),
        (lambda: delayed(X), "give a two-dimensional Dask array"),
        (lambda: DATAFRAME[[]], "no columns"),
    ],
)
def test_unsupported_collections_are_refused(rows, message):
    with pytest.raises((ValueError, TypeError), match=message):
        shoal.KMeans(4, init=X[:4]).fit(rows())


def test_a_closed_client_is_reported():
    client = FakeClient()
    client.status = "closed"
    with pytest.raises(ClusterLostError, match="client is closed: open another"):
        WorkerPool(client).refresh(force=True)


def test_workers_refuse_files_that_have_changed(client, tmp_path):
    """An additional file in the folder would shift all rows."""
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", X[200 * i : 200 * (i + 1)])
    rows, model = shoal.open_rows(tmp_path), shoal.KMeans(4, init=X[:4], max_iter=3)
    model.fit(rows, engine=client)
    np.save(tmp_path / "00.npy", X)
    with pytest.raises(ValueError, match=r"had 3 files of .* bytes when it was opened, but has 4 files of .* on "):
        model.fit(rows, engine=client)
    (tmp_path / "00.npy").unlink()
    model.fit(rows, engine=client)
    rows = shoal.open_rows(tmp_path)
    np.save(tmp_path / "1.npy", 2 * X[:200])
    with pytest.raises(ValueError, match="has other content on"):
        model.fit(rows, engine=client)
