"""Fits below a limit of memory, or none at all."""

import re
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import shoal
from shoal.data.rows import Rows
from shoal.data.scaling import Scaled
from shoal.data.sizes import format_size, parse_size
from shoal.data.sources import ArraySource, find_source
from shoal.execution import memory
from shoal.execution.memory import Workload, plan
from shoal.execution.memory_limit import MEMORY_LIMIT, MemoryLimit, plan_fit
from shoal.execution.threads import Threads, on_threads
from shoal.fit import partition
from shoal.formats import streamed
from shoal.kmeans.dispatch import choose_algorithm, select_algorithm
from tests.formats import writers
from tests.strategies import blobs
from tests.test_contract import ESTIMATORS

X = blobs(3000, 20, 5)[0].astype(np.float32)
PLANNED = [cls for cls in ESTIMATORS if cls is not shoal.Standardized]  # which leaves it to the one inside


class Huge(ArraySource):
    """Rows of a given shape that are never read."""

    def __init__(self, n, d):
        super().__init__(np.empty((0, d), np.float32))
        self.shape = (n, d)


@pytest.mark.parametrize(
    ("limit", "size"), [(1e9, 1e9), ("512MB", 512e6), ("1.5 gb", 1.5e9), ("1GiB", 2**30), ("2k", 2e3), (7, 7)]
)
def test_sizes(limit, size):
    assert parse_size(limit) == size


@pytest.mark.parametrize("limit", ["", "MB", "-1", 0, "0GB", "1XB", None, True, float("nan"), float("inf"), "1e999"])
def test_invalid_sizes_are_refused(limit):
    with pytest.raises(ValueError, match="is no size: give a number of bytes"):
        MemoryLimit(limit)


@pytest.mark.parametrize("cls", PLANNED)
def test_every_estimator_has_a_plan(cls):
    small, large = (sum(plan(cls(8), Huge(n, 32), 2).values()) for n in (10**5, 10**7))
    assert small < large
    assert all(size >= 0 for size in plan(cls(8), Huge(10, 3), 1).values())


@pytest.mark.parametrize("cls", PLANNED)
def test_too_small_a_limit_is_refused_before_the_fit(cls):
    model, message = cls(3, random_state=0), f"A limit of 64 MB is too little: {cls.__name__} on 3,000 rows takes about "
    with pytest.raises(MemoryError, match=message), MemoryLimit("64MB"):
        model.fit(X)
    assert not hasattr(model, "labels_")
    assert MEMORY_LIMIT.get() is None


def recommendation(model, rows, limit):
    """Return the limit that an error recommends and, if it names one, the number of rows."""
    with pytest.raises(MemoryError) as refused:
        plan_fit(model, rows, parse_size(limit))
    found = re.search(r": allow ([0-9.]+ .?B)(?:, or take ([0-9,]+) of the rows)?\.$", str(refused.value))
    return found[1], None if found[2] is None else int(found[2].replace(",", ""))


@pytest.mark.parametrize("cls", PLANNED)
@pytest.mark.parametrize(("n", "d"), [(10**7, 8), (5000, 30_000)], ids=["many", "wide"])
def test_recommended_limits_are_accepted(cls, n, d):
    for threads in (1, 4):
        model, rows = cls(3, n_threads=threads), Rows.of(Huge(n, d))
        enough, few = recommendation(model, rows, "400MB")
        plan_fit(model, Rows.of(Huge(n, d)), parse_size(enough))
        if few is not None:
            plan_fit(model, Rows.of(Huge(few, d)), 400e6)


def test_sizes_are_formatted_without_exponents():
    """A limit in scientific notation with a unit could not be parsed."""
    assert [format_size(size) for size in (999.4e6, 999.6e6, 1e9, 999.6)] == ["999 MB", "1 GB", "1 GB", "1 kB"]


def test_inner_fits_are_part_of_the_plan(monkeypatch):
    """Landmarks come from k-means with many more clusters, which is part of the plan and must not be refused."""
    wide = np.random.default_rng(0).random((520, 4000), np.float32)
    model = shoal.LandmarkSpectral(3, random_state=0, n_threads=4)
    enough, _ = recommendation(model, Rows.of(find_source(wide)), "300MB")
    assert parse_size(enough) > sum(plan(shoal.KMeans(500), find_source(wide), 1).values())
    seen = []
    enter = Threads.__enter__
    monkeypatch.setattr(Threads, "__enter__", lambda threads: seen.append(threads.n_threads) or enter(threads))
    with MemoryLimit(enough):
        model.fit(wide)
    assert set(seen) == {1}  # the plan is for one thread


def test_the_memory_of_the_source_is_planned(tmp_path):
    X = sparse.random_array((5000, 40), density=0.1, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    sparse.save_npz(tmp_path / "x.npz", X, compressed=False)
    opened, model = shoal.open_rows(tmp_path / "x.npz"), shoal.KMeans(3)
    assert plan(model, opened, 1)["rows in memory"] == 8 * 5001  # where rows begin
    held = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    assert plan(model, find_source(X), 1)["rows in memory"] == held
    assert plan(model, find_source(X.tocsc()), 1)["rows in memory"] > 1.5 * held  # the user's matrix, and a copy by rows
    dense = X.toarray()
    assert plan(model, find_source(dense), 1, has_weights=True)["rows in memory"] == dense.nbytes + 8 * 5000
    np.save(tmp_path / "x.npy", dense)
    assert "rows in memory" not in plan(model, shoal.open_rows(tmp_path / "x.npy"), 1)
    assert "rows in memory" not in plan(model, find_source(np.load(tmp_path / "x.npy", mmap_mode="r")), 1)


def test_threads_are_reduced_to_fit_the_limit():
    model, rows = shoal.KMeans(3, n_threads=8), Rows.of(Huge(10**6, 50_000))
    assert plan_fit(model, rows, sum(plan(model, rows.source, 3).values())).n_threads == 3


def test_bounds_use_the_remaining_memory():
    rows = Rows.of(ArraySource(X))
    needed = sum(plan(shoal.KMeans(100), rows.source, 1).values())
    little, enough = (plan_fit(shoal.KMeans(100, n_threads=1), rows, needed + more) for more in (1e3, 1e8))
    assert choose_algorithm(rows, 100, little) == "lloyd"
    assert choose_algorithm(rows, 100, enough) == "projected"


def test_copied_rows_use_the_remaining_memory(tmp_path):
    np.save(tmp_path / "x.npy", X)
    rows = shoal.open_rows(tmp_path / "x.npy")
    assert isinstance(rows.materialize(np.arange(1000)), ArraySource)
    assert not isinstance(rows.materialize(np.arange(1000), copy_limit=500.0), ArraySource)


@pytest.mark.parametrize(("name", "rows"), [("rows.zarr", 150), ("packed.h5", 150), ("columns.arrow", 700)])
def test_parts_of_files_that_are_read_whole_are_planned(tmp_path, monkeypatch, name, rows):
    writers.DENSE[name](tmp_path / name, X)
    assert shoal.open_rows(tmp_path / name).unpacking == 0
    monkeypatch.setattr(streamed, "BATCH_NUMBERS", 100)
    large, model = shoal.open_rows(tmp_path / name), shoal.KMeans(3, n_threads=1)
    assert 3.0 <= large.unpacking / (rows * 20 * 4) <= 3.3
    needed = sum(plan(model, large, 1).values())
    with pytest.raises(MemoryError, match="too little"), MemoryLimit(needed - large.unpacking / 2):
        model.fit(large)
    np.testing.assert_array_equal(large.read(0, 3000), X)


def test_a_limit_does_not_change_the_result():
    expected = shoal.cluster(X, 5, random_state=0)
    with MemoryLimit("400MB"):
        found = shoal.cluster(X, 5, random_state=0)
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(shoal.cluster(X, 5, random_state=0, memory_limit="400MB").labels_, expected.labels_)
    with pytest.raises(MemoryError, match="NestedKMeans on 3,000 rows"):
        shoal.cluster(X, 5, memory_limit="64MB")


@pytest.mark.parametrize("algorithm", ["elkan", "yinyang", "hamerly", "exponion", "projected"])
def test_planned_bounds_have_the_size_of_the_actual_ones(algorithm):
    rows = Rows.of(ArraySource(X))
    model = shoal.KMeans(40, algorithm=algorithm, max_iter=2)
    with on_threads(rows, 1) as rows:
        assign = select_algorithm(rows, 40, algorithm)[1]
        state, _ = partition.advance(rows, partition.initial_partition(rows, X[:40].copy()), assign)
    held = sum(a.nbytes for a in state.bounds if isinstance(a, np.ndarray) and len(a) == len(X))
    assert 0.8 * held <= model._memory(Workload.of(rows.source))["bounds"] <= 1.5 * held + 64 * len(X)
    if algorithm == "elkan":
        nested = shoal.NestedKMeans(40, algorithm="elkan")._memory(Workload.of(rows.source))
        assert nested["bounds"] == model._memory(Workload.of(rows.source))["bounds"]


def test_a_limit_can_be_nested_in_itself():
    limit = MemoryLimit("1GB")
    with limit:
        with limit:
            assert MEMORY_LIMIT.get() == 1e9
        assert MEMORY_LIMIT.get() == 1e9
    assert MEMORY_LIMIT.get() is None


def test_the_smallest_of_nested_limits_holds():
    with MemoryLimit("1GB"):
        with MemoryLimit("2GB"):
            assert MEMORY_LIMIT.get() == 1e9
        with MemoryLimit("500MB"):
            assert MEMORY_LIMIT.get() == 5e8
        assert MEMORY_LIMIT.get() == 1e9


def test_recommended_number_of_rows_if_memory_grows_quadratically():
    model, rows = shoal.ExactSpectral(3, n_threads=1), Rows.of(Huge(10**6, 8))
    with pytest.raises(MemoryError, match="of the rows") as refused:
        plan_fit(model, rows, 800e6)
    few = int(str(refused.value).split("take ")[-1].split(" of")[0].replace(",", ""))
    assert few > 3000
    plan_fit(model, Rows.of(Huge(few, 8)), 800e6)


def test_sparse_rows_are_planned_by_their_entries():
    rng = np.random.default_rng(0)
    thin, thick = (
        find_source(sparse.random_array((2000, 5000), density=share, rng=rng, format="csr")) for share in (0.001, 0.2)
    )
    model = shoal.KMeans(3)
    parts = [plan(model, source, 1)["blocks"] for source in (thin, thick)]
    assert parts[1] > 3 * 2000 * 1000 * 12 * 2 > parts[0]


def peak_of(work):
    """Return the peak of the memory that is allocated during a call, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("algorithm", ["elkan", "exponion", "yinyang"])
def test_steps_with_bounds_stay_within_the_plan(algorithm):
    """With many centroids, neither their distances nor the bounds of a block may be copied as a whole."""
    k, points = 1000, np.random.default_rng(0).random((16_384, 2), np.float32)
    rows = Rows.of(ArraySource(points))
    model = shoal.KMeans(k, algorithm=algorithm)
    expected = sum(model._memory(Workload.of(rows.source)).values())
    with on_threads(rows, 1) as rows:
        assign = select_algorithm(rows, k, algorithm)[1]
        state, _ = partition.advance(rows, partition.initial_partition(rows, points[:k].copy()), assign)
        held = sum(a.nbytes for a in state.bounds)
        assert peak_of(lambda: partition.advance(rows, state, assign)) + held < expected + 3e7
    between = model._memory(Workload.of(rows.source)).get("distances between centroids", 0.0)
    assert between == (0.0 if algorithm == "yinyang" else 8.0 * k * k)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_rows_are_scaled_without_large_copies(layout, mean):
    points = np.random.default_rng(0).random((1000, 2000), np.float32)
    scaled = Scaled(find_source(layout(points)), np.stack([np.full(2000, mean), np.full(2000, 3.0)]), np.dtype(np.float32))
    everything = np.arange(1000)
    copy_of_rows = peak_of(lambda: scaled.source.take(everything))
    assert peak_of(lambda: scaled.take(everything)) < copy_of_rows + points.nbytes + 1e7
    found = scaled.take(everything)
    found = found.toarray() if sparse.issparse(found) else found
    np.testing.assert_array_equal(found, ((points - np.float64(mean)) / 3.0).astype(np.float32))


def test_a_limit_for_float64_is_accepted():
    """If the first pass shows that rows need float64, the limit that is recommended then suffices for float64."""
    points = (1e6 + np.random.default_rng(0).normal(size=(1000, 1500))).astype(np.float32)
    points[:3] = np.random.default_rng(1).normal(size=(3, 1500)) * 0.01
    refusals = []
    limit = "1MB"
    for _ in range(3):
        model = shoal.KMeans(3, init=points[[0, 5, 6]], max_iter=1, n_threads=8)
        try:
            with MemoryLimit(limit):
                model.fit(points)
            break
        except MemoryError as error:
            refusals.append(str(error))
            limit = re.search(r"allow ([0-9.]+ .?B)", refusals[-1])[1]
    assert len(refusals) == 2, refusals
    assert model.cluster_centers_.dtype == np.float64


def test_fits_larger_than_the_machine_are_refused(monkeypatch):
    """Files may declare any number of columns. A fit that needs far more than all memory is refused even without a limit."""
    thin = sparse.csr_array((np.ones(3, np.float32), np.arange(3), np.arange(4)), shape=(3, 2**31 - 1))
    monkeypatch.setattr(memory, "machine_bytes", lambda: 16e9)
    with pytest.raises(MemoryError, match=r"^KMeans on 3 rows takes about .* GB, but this machine has 16 GB: take fewer"):
        shoal.KMeans(2).fit(thin)
    with pytest.raises(MemoryError, match="but this machine has 16 GB"):
        shoal.Standardized(shoal.KMeans(2)).fit(thin)
    monkeypatch.undo()
    assert memory.machine_bytes() > 1e8


@pytest.mark.parametrize("options", [{"n_init": 2}, {"init": "random"}], ids=["n_init", "random"])
def test_the_best_of_several_starts_is_planned(options):
    """Its centroids and sums are held during the next start. For rows of many columns, they are a large part of the memory."""
    one, several = (sum(plan(shoal.KMeans(500, **more), Huge(3000, 60_000), 1).values()) for more in ({"n_init": 1}, options))
    assert several - one >= 500 * 60_000 * (8 + 4)
