"""Sources return blocks of one dtype, without a copy where possible."""

import mmap
import pickle

import numpy as np
import pytest
from scipy import sparse

from shoal.data import sources
from shoal.data.sources import find_source
from tests.strategies import cloud

ROWS = np.random.default_rng(0).integers(0, 100, (50, 3)).astype(np.float32)
PICKED = np.array([7, 3, 40])


def fragmented(pandas):
    frame = pandas.DataFrame({"a": ROWS[:, 0]})
    frame["b"], frame["c"] = ROWS[:, 1], ROWS[:, 2]
    return frame


FRAMES = {
    "an array": lambda pandas: pandas.DataFrame(ROWS, copy=False),
    "columns": lambda pandas: pandas.DataFrame(dict(zip("abc", ROWS.T, strict=True))),
    "fragmented": fragmented,
    "masked": lambda pandas: pandas.DataFrame(ROWS).astype("Float32"),
    "Arrow": lambda pandas: pandas.DataFrame(ROWS).astype("float[pyarrow]"),
    "sparse": lambda pandas: pandas.DataFrame(ROWS).astype("Sparse[float32]"),
    "categories": lambda pandas: pandas.DataFrame(ROWS).astype("category"),
    "mixed": lambda pandas: pandas.DataFrame(ROWS).astype({0: "Float32", 1: "Sparse[float32]", 2: "category"}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_data_frames(name):
    source = find_source(FRAMES[name](pytest.importorskip("pandas")))
    assert source.dtype == np.float32
    for part, expected in ((source.read(5, 25), ROWS[5:25]), (source.take(PICKED), ROWS[PICKED])):
        assert part.dtype == np.float32
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("name", ["an array", "columns"])
def test_a_data_frame_of_one_array_is_not_copied(name):
    frame = FRAMES[name](pytest.importorskip("pandas"))
    assert np.shares_memory(find_source(frame).read(5, 25), frame.to_numpy())


@pytest.mark.parametrize("name", ["fragmented", "masked", "Arrow"])
def test_columns_of_a_data_frame_are_looked_up_once(name, monkeypatch):
    pandas = pytest.importorskip("pandas")
    source = find_source(FRAMES[name](pandas))
    monkeypatch.setattr(pandas.DataFrame, "iloc", None)
    np.testing.assert_array_equal(source.read(5, 25), ROWS[5:25])


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(("kind", "values"), [("boolean", [True, False, None]), ("Int64", [1, 2, None])])
def test_tables_with_missing_values_give_floats(package, kind, values):
    frames = pytest.importorskip(package)
    table = frames.table({"a": values}) if package == "pyarrow" else frames.DataFrame({"a": values})
    source = find_source(table.astype(kind) if package == "pandas" else table)
    assert source.dtype == source.read(0, 1).dtype == source.read(2, 3).dtype == source.take(PICKED[:0]).dtype == np.float64
    np.testing.assert_array_equal(source.read(0, 3)[:, 0], [*map(float, values[:2]), np.nan])


def test_long_doubles_become_float64():
    X = ROWS.astype(np.longdouble)
    X[5, 1] = np.longdouble(10) ** 400
    for source in (find_source(X), find_source(sparse.csr_array(X))):
        assert source.dtype == source.read(0, 9).dtype == source.take(PICKED).dtype == np.float64
        block = source.read(0, 9)
        assert np.isinf((block.toarray() if sparse.issparse(block) else block)[5, 1])


class TestLargeMaps:
    """Large memory maps, whose pages are released after reading."""

    @pytest.fixture
    def path(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sources, "MIN_RELEASED_BYTES", 1)
        monkeypatch.setattr(sources, "ROWS_PER_RELEASE", 100)
        np.save(tmp_path / "X.npy", cloud(5000, 33, dtype=np.float32))
        return tmp_path / "X.npy"

    @pytest.mark.skipif(not hasattr(mmap.mmap, "madvise"), reason="this system takes no pages back")
    @pytest.mark.parametrize("mode", ["r", "r+"])
    def test_rows_are_unchanged(self, path, mode):
        X, ids = np.load(path), np.random.default_rng(0).integers(5000, size=700)
        rows = np.load(path, mmap_mode=mode)
        if mode == "r+":
            rows[7] = X[7] = 1
        for some in (slice(None), slice(11, 4000)):
            source = sources.find_source(rows[some])
            assert source.is_map
            assert source.pages is not None
            for a, b in ((0, 5), (100, 3000), (3, 3989), (100, 3000)):
                np.testing.assert_array_equal(source.read(a, b), X[some][a:b])
            np.testing.assert_array_equal(source.take(ids % 3000), X[some][ids % 3000])

    def test_private_writes_are_not_lost(self, path):
        rows = np.load(path, mmap_mode="c")
        rows[:] = 7
        source = sources.find_source(rows)
        for _ in range(2):
            assert (source.read(0, 5000) == 7).all()

    def test_copies_are_arrays(self, path):
        for rows in (np.load(path, mmap_mode="r").copy(), np.load(path, mmap_mode="r").astype(np.float64)):
            source = sources.find_source(rows)
            assert not source.is_map
            np.testing.assert_array_equal(source.read(5, 9), rows[5:9])

    def test_pickle(self, path):
        source = pickle.loads(pickle.dumps(sources.find_source(np.load(path, mmap_mode="r"))))
        np.testing.assert_array_equal(source.take(np.array([3, 1])), np.load(path)[[3, 1]])
