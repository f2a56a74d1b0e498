"""Fits below a limit of memory, or none at all."""

import numpy as np
import pytest
from scipy import sparse

import shoal
from shoal.core import memory, partition
from shoal.core.memory import MemoryLimit, plan, planned, size_of
from shoal.core.rows import Rows
from shoal.core.sources import ArraySource, find_source
from shoal.io import streamed
from shoal.kmeans.auto import choose_algorithm, find
from tests.io import writers
from tests.strategies import blobs
from tests.test_contract import ESTIMATORS

X = blobs(3000, 20, 5)[0].astype(np.float32)
PLANNED = [cls for cls in ESTIMATORS if cls is not shoal.Standardized]  # which leaves it to the one inside


class Huge(ArraySource):
    """Of which nobody reads a row."""

    def __init__(self, n, d):
        super().__init__(np.empty((0, d), np.float32))
        self.shape = (n, d)


@pytest.mark.parametrize(
    ("limit", "size"), [(1e9, 1e9), ("512MB", 512e6), ("1.5 gb", 1.5e9), ("1GiB", 2**30), ("2k", 2e3), (7, 7)]
)
def test_sizes(limit, size):
    assert size_of(limit) == size


@pytest.mark.parametrize("limit", ["", "MB", "-1", 0, "0GB", "1XB", None, True, float("nan"), float("inf"), "1e999"])
def test_what_is_no_size(limit):
    with pytest.raises(ValueError, match="is no size: give a number of bytes"):
        MemoryLimit(limit)


@pytest.mark.parametrize("cls", PLANNED)
def test_every_estimator_has_a_plan(cls):
    small, large = (sum(plan(cls(8), Huge(n, 32), 2).values()) for n in (10**5, 10**7))
    assert small < large
    assert all(size >= 0 for size in plan(cls(8), Huge(10, 3), 1).values())


@pytest.mark.parametrize("cls", PLANNED)
def test_refused_at_once(cls):
    model, told = cls(3, random_state=0), f"A limit of 64 MB is too little: {cls.__name__} on 3,000 rows takes about "
    with pytest.raises(MemoryError, match=told), MemoryLimit("64MB"):
        model.fit(X)
    assert not hasattr(model, "labels_")
    assert memory.LIMIT.get() is None


def test_what_it_says_would_fit_does():
    model, rows = shoal.KMeans(3), Rows(Huge(10**8, 8), n_threads=1)
    with MemoryLimit("600MB"), pytest.raises(MemoryError) as refused, planned(model, rows):
        pass
    told = str(refused.value)
    enough, few = told.split("allow ")[1].split(", or")[0], int(told.split("take ")[1].split(" of")[0].replace(",", ""))
    with MemoryLimit(enough), planned(model, rows):
        pass
    with MemoryLimit("600MB"), planned(model, Rows(Huge(few, 8), n_threads=1)):
        pass


def test_fewer_threads_may_do():
    rows = Rows(Huge(10**6, 50_000), n_threads=8)
    with MemoryLimit(sum(plan(shoal.KMeans(3), rows.source, 3).values())), planned(shoal.KMeans(3), rows):
        assert rows.n_threads == 3


def test_bounds_take_what_is_left():
    rows = Rows(ArraySource(X), n_threads=1)
    needed = sum(plan(shoal.KMeans(100), rows.source, 1).values())
    found = []
    for more in (1e3, 1e8):
        with MemoryLimit(needed + more), planned(shoal.KMeans(100), rows):
            found.append(choose_algorithm(rows, 100))
    assert found == ["lloyd", "projected"]


def test_gathered_rows_take_what_is_left(tmp_path):
    np.save(tmp_path / "x.npy", X)
    rows = shoal.open_rows(tmp_path / "x.npy")
    assert isinstance(rows.gather(np.arange(1000)), ArraySource)
    token = memory.SPARE.set(1000.0)
    try:
        assert not isinstance(rows.gather(np.arange(1000)), ArraySource)
    finally:
        memory.SPARE.reset(token)


@pytest.mark.parametrize(("name", "rows"), [("rows.zarr", 150), ("packed.h5", 150), ("columns.arrow", 700)])
def test_parts_that_come_whole_are_planned_for(tmp_path, monkeypatch, name, rows):
    writers.DENSE[name](tmp_path / name, X)
    assert shoal.open_rows(tmp_path / name).unpacking == 0
    monkeypatch.setattr(streamed, "BATCH", 100)
    large, model = shoal.open_rows(tmp_path / name), shoal.KMeans(3, n_threads=1)
    assert 3.0 <= large.unpacking / (rows * 20 * 4) <= 3.3
    needed = sum(plan(model, large, 1).values())
    with pytest.raises(MemoryError, match="too little"), MemoryLimit(needed - large.unpacking / 2):
        model.fit(large)
    np.testing.assert_array_equal(large.read(0, 3000), X)


def test_the_result_is_the_same():
    expected = shoal.cluster(X, 5, random_state=0)
    with MemoryLimit("400MB"):
        found = shoal.cluster(X, 5, random_state=0)
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(shoal.cluster(X, 5, random_state=0, memory_limit="400MB").labels_, expected.labels_)
    with pytest.raises(MemoryError, match="NestedKMeans on 3,000 rows"):
        shoal.cluster(X, 5, memory_limit="64MB")


@pytest.mark.parametrize("algorithm", ["elkan", "yinyang", "hamerly", "exponion", "projected"])
def test_bounds_that_were_asked_for_are_planned(algorithm):
    """As large as they are in the end."""
    rows = Rows(ArraySource(X), n_threads=1)
    model = shoal.KMeans(40, algorithm=algorithm, max_iter=2)
    with rows:
        assign = find(rows, 40, algorithm)[1]
        state, _ = partition.advance(rows, partition.begin(rows, X[:40].copy()), assign)
    held = sum(a.nbytes for a in state.bounds if isinstance(a, np.ndarray) and len(a) == len(X))
    assert 0.8 * held <= model._memory(len(X), 20, 4)["bounds"] <= 1.5 * held + 64 * len(X)
    if algorithm == "elkan":
        nested = shoal.NestedKMeans(40, bounds="all")._memory(len(X), 20, 4)
        assert nested["bounds"] == model._memory(len(X), 20, 4)["bounds"]


def test_a_limit_within_itself():
    limit = MemoryLimit("1GB")
    with limit:
        with limit:
            assert memory.LIMIT.get() == 1e9
        assert memory.LIMIT.get() == 1e9
    assert memory.LIMIT.get() is None


def test_how_many_rows_would_fit_where_memory_grows_faster():
    model, rows = shoal.ExactSpectral(3), Rows(Huge(10**6, 8), n_threads=1)
    with MemoryLimit("800MB"), pytest.raises(MemoryError, match="of the rows") as refused, planned(model, rows):
        pass
    few = int(str(refused.value).split("take ")[-1].split(" of")[0].replace(",", ""))
    assert few > 3000
    with MemoryLimit("800MB"), planned(model, Rows(Huge(few, 8), n_threads=1)):
        pass


def test_sparse_rows_count_for_what_they_hold():
    rng = np.random.default_rng(0)
    thin, thick = (
        find_source(sparse.random_array((2000, 5000), density=share, rng=rng, format="csr")) for share in (0.001, 0.2)
    )
    model = shoal.KMeans(3)
    parts = [plan(model, source, 1)["blocks"] for source in (thin, thick)]
    assert parts[1] > 3 * 2000 * 1000 * 12 * 2 > parts[0]
