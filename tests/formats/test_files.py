"""Rows read from files equal those that were written, bit for bit, for every format and every method."""

import contextlib
import gc
import os
import subprocess
import sys
import weakref
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import shoal
from shoal import open_rows
from shoal.exceptions import InvalidFileError
from shoal.formats import errors, file_cache, files, raw, streamed, text_lines
from tests.formats import writers
from tests.strategies import blobs

X = blobs(2000, 6, 5, spread=3)[0].astype(np.float32)
THIN = sparse.csr_array(np.where((np.abs(X) > 4) | (np.arange(6) == 2), X, 0).astype(np.float64))
PICKED = np.array([1999, 3, 3, 700, 699, 0])


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Use small batches, so that few rows make many of them."""
    monkeypatch.setattr(streamed, "BATCH_NUMBERS", 6 * 150)
    monkeypatch.setattr(text_lines, "PART_BYTES", 40_000)


def opened(tmp_path, name, kinds=writers.DENSE, rows=X, **options):
    kinds[name](tmp_path / name, rows)
    return open_rows(tmp_path / name, **options)


def same(a, b):
    a, b = (m.toarray() if sparse.issparse(m) else m for m in (a, b))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", writers.DENSE)
def test_rows_equal_those_written(tmp_path, name):
    rows = opened(tmp_path, name)
    assert (rows.shape, len(rows), rows.dtype.kind, rows.dtype.itemsize) == (X.shape, len(X), "f", 4)
    same(rows.read(0, 0), X[:0])
    for start in range(0, 1900, 190):
        same(rows.read(start, start + 190), X[start : start + 190])
    same(rows.take(PICKED), X[PICKED])
    same(rows.take(PICKED[:0]), X[:0])
    for start, stop in ((500, 520), (0, 2000), (1990, 2000)):
        same(rows.read(start, stop), X[start:stop])
    same(np.asarray(rows), X)
    assert name in repr(rows)


@pytest.mark.parametrize("name", [name for name in writers.DENSE if "folder" not in name])
def test_earlier_rows_are_read_again(tmp_path, name):
    rows = opened(tmp_path, name)
    for start in (0, 0, 100, 100, 1500, 200):
        same(rows.read(start, start + 60), X[start : start + 60])


@pytest.mark.parametrize("dtype", ["f2", "f8", "i1", "u1", "i2", "i8", "u8", "?", "g"])
@pytest.mark.parametrize(
    "name", ["rows.npy", "columns.npy", "packed.npz", "columns.parquet", "columns.arrow", "rows.zarr", "packed.h5"]
)
def test_dtypes(tmp_path, name, dtype):
    if dtype == "g" and not name.endswith(".npy"):
        pytest.skip("long doubles are NumPy's")
    if dtype == "?" and name == "packed.h5":
        pytest.skip("HDF5 has no booleans of its own")
    typed = X.astype(dtype) if dtype != "?" else X > 0
    rows = opened(tmp_path, name, rows=typed)
    same(rows.read(0, 700), typed[:700])
    same(rows.take(PICKED), typed[PICKED])
    assert rows.dtype == rows.read(0, 9).dtype == (np.float64 if dtype == "g" else typed.dtype)


@pytest.mark.parametrize(("name", "dtype"), [("x.bvecs", "u1"), ("x.ivecs", "<i4"), ("x.u8bin", "u1"), ("x.i8bin", "i1")])
def test_vectors_of_integers(tmp_path, name, dtype):
    typed = X.astype(np.int8).astype(dtype)
    (writers._vecs if "vecs" in name else writers._bin)(tmp_path / name, typed)
    rows = open_rows(tmp_path / name)
    assert rows.dtype == np.dtype(dtype)
    same(rows.read(5, 900), typed[5:900])
    same(rows.take(PICKED), typed[PICKED])


@pytest.mark.parametrize("name", writers.TEXT)
def test_text(tmp_path, name):
    rows = opened(tmp_path, name, writers.TEXT, X.astype(np.float64))
    assert rows.shape == X.shape
    assert rows.feature_names == ([f"c{j}" for j in range(6)] if name == "named.csv" else None)
    same(np.asarray(rows), X)
    same(rows.take(PICKED), X[PICKED])


@pytest.mark.parametrize("name", writers.SPARSE)
def test_sparse(tmp_path, name):
    rows = opened(tmp_path, name, writers.SPARSE, THIN)
    for part, expected in (
        (rows.read(100, 900), THIN[100:900]),
        (rows.take(PICKED), THIN[PICKED]),
        (rows.read(0, 0), THIN[:0]),
    ):
        assert isinstance(part, sparse.csr_array)
        same(part, expected)


def test_sparse_rows_with_unsorted_or_duplicate_columns(tmp_path):
    X = sparse.csr_array((np.arange(1.0, 6), [2, 0, 1, 1, 0], [0, 2, 4, 5]), shape=(3, 3))
    sparse.save_npz(tmp_path / "x.npz", X)
    rows = open_rows(tmp_path / "x.npz")
    same(rows.read(0, 3), X)
    assert rows.read(0, 3).has_canonical_format


@pytest.mark.parametrize("first", [0, 1])
def test_svmlight(tmp_path, first):
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    path = tmp_path / "x.svmlight"
    dump_svmlight_file(
        THIN, np.arange(2000), str(path), zero_based=first == 0, comment="made for a test", query_id=np.arange(2000)
    )
    rows = open_rows(path)
    expected = load_svmlight_file(str(path))[0]
    same(rows.read(0, 2000), expected)
    same(rows.take(PICKED), expected[PICKED])
    assert open_rows(path, limit_rows=30).shape == (30, 6)


METHODS = [
    shoal.KMeans(5, random_state=0),
    shoal.KMeans(5, random_state=0, algorithm="elkan", metric="cosine"),
    shoal.NestedKMeans(5, batch_size=100, random_state=0),
    shoal.MiniBatchKMeans(5, batch_size=100, random_state=0),
    shoal.OnlineKMeans(5, random_state=0, max_iter=3),
    shoal.GradientKMeans(5, random_state=0, max_iter=3),
    shoal.VarianceReducedKMeans(5, random_state=0, max_iter=3),
    shoal.SphericalMixture(5, random_state=0, max_iter=3),
    shoal.BinaryKMeans(5, random_state=0),
]


@pytest.mark.parametrize("model", METHODS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize(
    ("kinds", "name"),
    [(writers.DENSE, n) for n in ("rows.npy", "columns.npy", "columns.parquet", "arrays")] + [(writers.SPARSE, "packed.npz")],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_every_method_gives_the_same_bits_as_for_the_array(tmp_path, monkeypatch, kinds, name, model):
    monkeypatch.setattr(files, "MAX_ROWS_IN_MEMORY", 3000)
    memory = THIN if kinds is writers.SPARSE else X
    rows = opened(tmp_path, name, kinds, memory)
    expected = model.fit(memory)
    centers, labels, energy = expected.cluster_centers_, expected.labels_, expected.inertia_
    distances, score = expected.transform(memory), expected.score(memory)
    for threads in (1, 2):
        found = model.set_params(n_threads=threads).fit(rows)
        same(found.cluster_centers_, centers)
        same(found.labels_, labels)
        assert found.inertia_ == energy
        same(found.predict(rows), labels)
        same(found.transform(rows), distances)
        assert found.score(rows) == score


def n_open_files():
    """Return the number of files that this process has open, without sockets and pipes of other tests; 0 if unknown."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else []:
        with contextlib.suppress(OSError):  # the listing itself was open
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith("/")
    return count


def test_more_files_than_the_limit_of_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(file_cache, "MAX_IDLE_FILES", 3)
    for i, part in enumerate(np.array_split(X, 20)):
        np.save(tmp_path / f"{i:02}.npy", part)
    gc.collect()
    before = len(file_cache.IDLE)
    rows = open_rows(tmp_path)
    assert len(file_cache.IDLE) <= max(before, 3)
    same(np.asarray(rows), X)
    same(rows.take(PICKED), X[PICKED])
    np.save(tmp_path / "00.npy", X[:100] + 1)
    with pytest.raises(InvalidFileError, match=r"00.npy: has changed since it was opened"):
        rows.read(0, 2000)


@pytest.mark.parametrize("columns", [None, [4, 1]])
def test_packed_files_share_a_scratch_file(tmp_path, columns):
    for i, part in enumerate(np.array_split(X, 20)):
        np.savez_compressed(tmp_path / f"{i:02}.npz", part)
    rows = open_rows(tmp_path, columns=columns)
    gc.collect()
    before = n_open_files()
    same(rows.take(PICKED), X[PICKED][:, columns or slice(None)])
    same(rows.read(90, 310), X[90:310, columns or slice(None)])
    assert n_open_files() <= before + 1


def test_partial_fit_on_files(tmp_path):
    rows = opened(tmp_path, "columns.parquet")
    expected = shoal.MiniBatchKMeans(3, random_state=0).partial_fit(X).partial_fit(X[:50])
    found = shoal.MiniBatchKMeans(3, random_state=0).partial_fit(rows).partial_fit(open_rows(rows.path, limit_rows=50))
    same(found.cluster_centers_, expected.cluster_centers_)


class TestColumns:
    words: ClassVar = [f"row {i}, {'x' * (i % 7)}" for i in range(len(X))]

    @pytest.mark.parametrize(
        "name", ["rows.npy", "columns.npy", "packed.npz", "rows.fvecs", "rows.zarr", "packed.h5", "arrays"]
    )
    def test_by_number(self, tmp_path, name):
        rows = opened(tmp_path, name, columns=[4, 1], id_column=2)
        same(rows.read(10, 30), X[10:30, [4, 1]])
        same(rows.take(PICKED), X[PICKED][:, [4, 1]])
        same(rows.ids, X[:, 2])
        rest = open_rows(rows.path, id_column=2, limit_rows=9)
        same(rest.read(0, 9), X[:9, [0, 1, 3, 4, 5]])
        assert len(rest.ids) == 9
        assert rest.texts is None
        both = open_rows(rows.path, id_column=2, text_column=0)
        same(both.read(0, 9), X[:9, [1, 3, 4, 5]])
        same(both.texts, X[:, 0])

    def test_of_a_sparse_matrix(self, tmp_path):
        rows = opened(tmp_path, "plain.npz", writers.SPARSE, THIN, columns=[4, 1])
        same(rows.read(10, 90), THIN[10:90][:, [4, 1]])
        model, same_model = (shoal.KMeans(3, random_state=0).fit(x) for x in (rows, THIN[:, [4, 1]]))
        same(model.labels_, same_model.labels_)

    @pytest.mark.parametrize(("name", "write"), [("x.parquet", writers.to_parquet), ("x.arrow", writers.to_arrow)])
    def test_by_name(self, tmp_path, name, write):
        write(tmp_path / name, writers.table_of(X, word=self.words))
        rows = open_rows(tmp_path / name, columns=["c4", "c1"], id_column="word", limit_rows=1500)
        assert (rows.shape, rows.feature_names) == ((1500, 2), ["c4", "c1"])
        same(rows.read(700, 720), X[700:720, [4, 1]])
        assert list(rows.ids) == self.words[:1500]
        same(open_rows(tmp_path / name, id_column="word").read(0, 100), X[:100])

    def test_of_csv(self, tmp_path):
        lines = [
            f'{i},"{word}",{row[0]!r},{row[1]!r}' for i, (word, row) in enumerate(zip(self.words, X.tolist(), strict=True))
        ]
        (tmp_path / "x.csv").write_text("\n".join(["n,word,a,b", *lines]) + "\n\n")
        rows = open_rows(tmp_path / "x.csv", columns=["a", "b"], id_column="word")
        same(np.asarray(rows), X[:, :2])
        assert list(rows.ids) == self.words
        assert open_rows(tmp_path / "x.csv", columns="n", limit_rows=20).shape == (20, 1)
        (tmp_path / "bare.csv").write_text("\n".join(lines))
        assert open_rows(tmp_path / "bare.csv", id_column=1).shape == (2000, 3)  # no header, although a column is text
        both = open_rows(tmp_path / "x.csv", id_column="n", text_column="word")
        same(np.asarray(both), X[:, :2])
        assert list(both.texts) == self.words
        assert list(both.ids[:3]) == ["0", "1", "2"]

    def test_no_remaining_columns(self, tmp_path):
        np.save(tmp_path / "x.npy", X[:, :2])
        with pytest.raises(InvalidFileError, match="no columns other than id_column"):
            open_rows(tmp_path / "x.npy", id_column=0, text_column=1)

    @pytest.mark.parametrize("option", [{"array": "x"}, {"header": True}, {"delimiter": ";"}])
    def test_options_of_other_formats(self, tmp_path, option):
        with pytest.raises(InvalidFileError, match=r"applies only to .*: remove it"):
            opened(tmp_path, "rows.npy", **option)

    def test_feature_names_of_the_model(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        rows = opened(tmp_path, "columns.parquet")
        model = shoal.KMeans(3, random_state=0).fit(rows)
        assert list(model.feature_names_in_) == [f"c{j}" for j in range(6)]
        frame = pandas.DataFrame(X, columns=[f"c{j}" for j in range(6)])
        same(model.predict(frame), model.labels_)
        same(model.fit(frame).predict(rows), model.labels_)
        with pytest.raises(ValueError, match=r"Column 0 of X is 'c1' and was 'c0'.*feature names should match"):
            model.predict(open_rows(rows.path, columns=["c1", "c0", "c2", "c3", "c4", "c5"]))
        same(model.fit(X).predict(rows), model.labels_)


@pytest.mark.parametrize("name", writers.DENSE)
def test_limits(tmp_path, name):
    rows = opened(tmp_path, name, limit_rows=801)
    assert rows.shape == (801, 6)
    same(np.asarray(rows), X[:801])
    same(rows.take(np.array([800, 0])), X[[800, 0]])
    assert open_rows(rows.path, limit_rows=10**9).shape == X.shape


class TestScratch:
    """Files without random access are unpacked at most twice, into a temporary file that is removed."""

    def count(self, rows, monkeypatch):
        passes = []
        inner = rows._rows.batches
        monkeypatch.setattr(rows._rows, "batches", lambda: (passes.append(1), inner())[1])
        return passes

    @pytest.mark.parametrize("name", ["columns.npy", "packed.npz", "columns.parquet", "rows.zarr"])
    def test_number_of_passes_of_fit_and_predict(self, tmp_path, monkeypatch, name):
        rows = opened(tmp_path, name)
        passes = self.count(rows, monkeypatch)
        model = shoal.MiniBatchKMeans(5, batch_size=50, max_iter=20, max_no_improvement=None, random_state=0).fit(rows)
        assert len(passes) == 1
        again = open_rows(rows.path)
        passes = self.count(again, monkeypatch)
        model.predict(again)
        assert len(passes) == 1
        assert again._rows._copy is None

    @pytest.mark.parametrize("name", ["packed.npz", "packed.h5", "columns.parquet"])
    def test_a_file_is_closed_after_reading(self, tmp_path, name):
        """HDF5 would otherwise use cached data of a file that has changed."""
        rows = opened(tmp_path, name)
        rows.read(0, 1)
        stream = weakref.ref(rows._rows)
        gc.disable()
        try:
            del rows
            assert stream() is None
        finally:
            gc.enable()

    def test_temporary_files_are_removed(self, tmp_path):
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        opened(tmp_path, "packed.npz", scratch=scratch).take(PICKED)  # what is imported and compiled once may open files
        rows = opened(tmp_path, "packed.npz", scratch=scratch)
        gc.collect()
        before = n_open_files()
        rows.take(PICKED)
        assert rows._rows._copy is not None
        assert not list(scratch.iterdir())
        del rows
        gc.collect()
        assert n_open_files() <= before

    def test_a_full_disk_is_reported(self, tmp_path, monkeypatch):
        rows = opened(tmp_path, "packed.npz")
        monkeypatch.setattr(raw.shutil, "disk_usage", lambda folder: os.terminal_size((0, 0)) and type("D", (), {"free": 100}))
        with pytest.raises(OSError, match=r"no space for 48,000 more bytes .*packed.npz.*scratch="):
            rows.take(PICKED)

    @pytest.mark.parametrize("code", errors.DISK_FULL)
    def test_a_disk_that_fills_up_is_reported(self, tmp_path, monkeypatch, code):
        rows = opened(tmp_path, "packed.npz")

        def full(fd, data):
            raise OSError(code, "No space left")

        monkeypatch.setattr(raw.os, "write", full)
        with pytest.raises(OSError, match=r"no space for .*scratch="):
            rows.take(PICKED)


MEMORY = """
import resource, sys, numpy as np, shoal
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
model = shoal.KMeans(5, init=np.eye(5, 32), max_iter=2, n_threads=2)
for path in sys.argv[1:]:
    model.fit(shoal.open_rows(path, limit_rows=90000))
before = peak()
for path in sys.argv[1:]:
    model.fit(shoal.open_rows(path))
    print(peak() - before)
"""


def test_memory_is_bounded(tmp_path):
    """A fit to a file of 128 MB allocates a fraction of that: blocks, batches and four bytes per row."""
    pytest.importorskip("resource")
    pytest.importorskip("pyarrow")
    names = ["rows.npy", "columns.npy", "x.parquet"]
    big = np.tile(np.random.default_rng(0).integers(0, 9, (1 << 15, 32)).astype(np.float32), (32, 1))
    for name in names[:2]:
        writers.DENSE[name](tmp_path / name, big)
    writers.to_parquet(tmp_path / "x.parquet", writers.lists_of(big, fixed=True), row_group_size=1 << 16)
    command = [sys.executable, "-c", MEMORY, *(str(tmp_path / name) for name in names)]
    more = [
        float(line) for line in subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout.split()
    ]
    assert more[0] < 25
    assert more[-1] < 80


def test_blocks_are_read_ahead(tmp_path, monkeypatch):
    """The next blocks are read while one is processed, even if there is a single worker thread."""
    import threading

    from shoal.data.rows import Rows
    from shoal.execution.threads import on_threads

    rows = Rows.of(opened(tmp_path, "rows.npy")).with_block_rows(100)
    order, ahead = [], threading.Event()
    read = rows.source.read

    def watched(start, stop):
        order.append(start)
        if start >= 200:
            ahead.set()
        return read(start, stop)

    monkeypatch.setattr(rows.source, "read", watched)

    def work(start, raw):
        assert start > 0 or ahead.wait(10)  # the third block is read while the first is processed
        return len(raw)

    with on_threads(rows, 1) as rows:
        assert sum(rows.map_raw_blocks(work)) == len(X)
    assert order == list(range(0, len(X), 100))


@settings(max_examples=40)
@given(st.data())
def test_any_reading_order_gives_the_same_rows(tmp_path_factory, data):
    name = data.draw(st.sampled_from(["rows.npy", "columns.npy", "columns.parquet", "arrays"]))
    path = tmp_path_factory.mktemp("any") / name
    small = X[:300]
    writers.DENSE[name](path, small)
    rows = open_rows(path)
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            ids = np.array(data.draw(st.lists(st.integers(0, 299), max_size=20)), int)
            same(rows.take(ids), small[ids])
        else:
            a, b = sorted((data.draw(st.integers(0, 300)), data.draw(st.integers(0, 300))))
            same(rows.read(a, b), small[a:b])


def test_integer_ids_are_not_rounded(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    names = [2**53 + 1, None, -(2**63)] * 500
    writers.to_parquet(tmp_path / "x.parquet", writers.table_of(X[:1500], name=pyarrow.array(names)))
    rows = open_rows(tmp_path / "x.parquet", id_column="name")
    assert {str(part.type) for part in rows.id_column} == {"int64"}
    assert [value for part in rows.id_column for value in part.tolist()] == names == rows.ids.tolist()


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_the_index_of_a_pandas_table_is_not_a_feature(tmp_path, kind):
    """The index of the table itself is no feature either. It can be selected by its name."""
    pd, feather = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.feather")
    table = pd.DataFrame(X, columns=list("abcdef"))
    folder, name = tmp_path / "rows", "__index_level_0__"
    folder.mkdir()
    for i, part in enumerate((table.iloc[PICKED], table.iloc[PICKED[::-1]])):
        file = folder / f"{i}.{kind}"
        part.to_parquet(file) if kind == "parquet" else feather.write_feather(part, file)
    places = [*PICKED, *PICKED[::-1]]
    with pytest.warns(UserWarning, match="the index of a pandas table, is not used as a feature") as caught:
        rows = open_rows(folder)
    assert len(caught) == 1
    assert rows.feature_names == list("abcdef")
    np.testing.assert_array_equal(np.asarray(rows), X[places])
    rows = open_rows(folder, id_column=name)
    assert rows.shape == (12, 6)
    assert rows.ids.tolist() == places
    assert open_rows(folder, columns=["a", name]).shape[1] == 2


@pytest.mark.parametrize("metadata", [b"{", b"[]", b'{"index_columns": 3}', b'{"index_columns": [["a"], {}, "b", null]}'])
def test_invalid_pandas_metadata(tmp_path, metadata):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": X[:, 0], "c": X[:, 1]}).replace_schema_metadata({b"pandas": metadata})
    writers.to_parquet(tmp_path / "x.parquet", table)
    np.testing.assert_array_equal(np.asarray(open_rows(tmp_path / "x.parquet")), X[:, :2])


def test_id_columns_are_read_in_parts(tmp_path, monkeypatch):
    """The ids of many rows need not fit into memory."""
    monkeypatch.setattr(text_lines, "PART_BYTES", 10_000)
    lines = [f"name {i},{i % 7}.5,{i % 3}" for i in range(500)]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    names = open_rows(tmp_path / "x.csv", id_column=0, limit_rows=490).id_column
    assert max(map(len, names)) < 100
    assert sum(map(len, names)) == len(names) == 490
    assert names.values_at(np.array([0, 77, 489])) == ["name 0", "name 77", "name 489"]


def test_numeric_header(tmp_path):
    """Pandas writes it for columns without names."""
    for name, first, rows in (("pandas", "0,1,2", 2), ("years", "2019,2020,2021", 3)):
        (tmp_path / f"{name}.csv").write_text(f"{first}\n5,7,9\n1.5,2,3\n")
        with pytest.warns(UserWarning, match="header="):
            assert open_rows(tmp_path / f"{name}.csv").shape == (rows, 3)
        assert open_rows(tmp_path / f"{name}.csv", header=True).shape == (2, 3)
        assert open_rows(tmp_path / f"{name}.csv", header=False).shape == (3, 3)


class TestSvmlightColumns:
    def test_count_from(self, tmp_path):
        path = tmp_path / "x.svm"
        path.write_text("1 3:2 5:1\n")
        assert open_rows(path).shape == (1, 5)
        assert open_rows(path, zero_based=True).shape == (1, 6)
        rows = open_rows(path, zero_based=True, n_features=10)
        same(np.asarray(rows)[0, [3, 5]], np.array([2.0, 1.0]))
        assert rows.shape == (1, 10)
        with pytest.raises(InvalidFileError, match="n_features=4"):
            open_rows(path, n_features=4)

    def test_of_a_folder(self, tmp_path):
        (tmp_path / "a.svm").write_text("1 0:2 4:1\n")
        (tmp_path / "b.svm").write_text("1 1:2 5:1\n")
        with pytest.raises(InvalidFileError, match="zero_based="):
            open_rows(tmp_path)
        assert open_rows(tmp_path, zero_based=True, n_features=6).shape == (2, 6)


def test_read_errors_name_the_file(tmp_path, monkeypatch):
    rows = opened(tmp_path, "rows.npy")

    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_cache.os, "preadv", broken)
    with pytest.raises(OSError, match="at byte") as caught:
        rows.read(0, 10)
    assert caught.value.filename == str(rows.path)


def test_a_column_can_be_selected_once(tmp_path):
    with pytest.raises(InvalidFileError, match="lists 1 twice"):
        opened(tmp_path, "rows.npy", columns=[0, 1, 1])
