"""Rows of every dtype, layout and container: same labels, float centroids, no modification and no copy of the whole."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from shoal import KMeans, metrics, open_rows
from tests import naive
from tests.strategies import first_rows

ROWS = np.random.default_rng(0).integers(0, 100, (400, 5))  # every dtype but bool holds these numbers
START = first_rows(ROWS, 6)
LABELS = KMeans(6, init=START).fit(ROWS.astype(float)).labels_

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">f4", ">f8", ">i2", ">i8", ">u4", "longdouble"]


def strided(X):
    out = np.zeros((2 * len(X), 3 * X.shape[1]), X.dtype)[::2, ::3]
    out[:] = X
    return out


def backwards(X):
    return np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def unaligned(X):
    raw = np.empty(X.nbytes + 1, np.uint8)
    out = raw[1:].view(X.dtype).reshape(X.shape)
    out[:] = X
    return out


def wide_indices(layout):
    def make(X):
        csr = sparse.csr_array(X)
        csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
        return layout(csr)

    return make


def unsorted(X):
    """Return CSR rows with unsorted indices."""
    csr = sparse.csr_array(X)
    for a, b in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        csr.indices[a:b], csr.data[a:b] = csr.indices[a:b][::-1].copy(), csr.data[a:b][::-1].copy()
    csr.has_sorted_indices = False
    return csr


def in_halves(X):
    """Return CSR rows with duplicate entries and explicit zeros."""
    coo = sparse.coo_array(X)
    data = np.concatenate([coo.data // 2, coo.data - coo.data // 2]).astype(coo.dtype)
    order = np.argsort(np.tile(coo.row, 2), kind="stable")
    counts = np.bincount(np.tile(coo.row, 2), minlength=len(X))
    return sparse.csr_array((data[order], np.tile(coo.col, 2)[order], np.r_[0, np.cumsum(counts)]), shape=X.shape)


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": strided,
    "backwards": backwards,
    "read-only": read_only,
    "unaligned": unaligned,
    "list": lambda X: X.tolist(),
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
    "coo_array": sparse.coo_array,
    "lil_array": sparse.lil_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_matrix": sparse.csc_matrix,
    "coo_matrix": sparse.coo_matrix,
    "csr int64": wide_indices(sparse.csr_array),
    "csc int64": wide_indices(sparse.csc_array),
    "csr unsorted": unsorted,
    "csr in halves": in_halves,
}
DENSE = ["C", "Fortran", "strided", "backwards", "read-only", "unaligned"]
SPARSE = [name for name in LAYOUTS if name.startswith(("cs", "coo", "lil"))]


def assert_same_result(model, X):
    np.testing.assert_array_equal(model.labels_, LABELS)
    np.testing.assert_array_equal(model.predict(X), LABELS)
    assert model.cluster_centers_.dtype in (np.float32, np.float64)
    exact = naive.energy(ROWS, model.cluster_centers_)
    assert model.inertia_ == pytest.approx(exact, rel=1e-6)
    assert -model.score(X) == pytest.approx(exact, rel=1e-6)
    np.testing.assert_allclose(model.transform(X), np.sqrt(naive.distances(ROWS, model.cluster_centers_)), rtol=1e-5)


class TestDtypes:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("layout", DENSE)
    def test_dense(self, dtype, layout):
        X = LAYOUTS[layout](ROWS.astype(dtype))
        assert_same_result(KMeans(6, init=START).fit(X), X)

    @pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i4", "i8", "u1", "u8"])
    @pytest.mark.parametrize("layout", SPARSE)
    def test_sparse(self, dtype, layout):
        X = LAYOUTS[layout](ROWS.astype(dtype))
        assert_same_result(KMeans(6, init=START).fit(X), X)

    @pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">i4", ">u8"])
    @pytest.mark.parametrize("layout", ["csr_array", "csc_array", "coo_array", "csr_matrix"])
    def test_sparse_of_foreign_byte_order(self, dtype, layout):
        X = LAYOUTS[layout](ROWS)
        X.data = X.data.astype(dtype)
        assert_same_result(KMeans(6, init=START).fit(X), X)
        assert X.data.dtype == dtype

    def test_sparse_long_double(self):
        X = sparse.csr_array(ROWS.astype(np.longdouble))
        assert_same_result(KMeans(6, init=START).fit(X), X)

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_layouts(self, layout):
        X = LAYOUTS[layout](ROWS)
        assert_same_result(KMeans(6, init=START).fit(X), X)

    @pytest.mark.parametrize("layout", [*DENSE, *SPARSE])
    def test_bool(self, layout):
        rows = ROWS > 50
        X = LAYOUTS[layout](rows)
        model = KMeans(4, init=np.eye(4, 5)).fit(X)
        np.testing.assert_array_equal(model.labels_, KMeans(4, init=np.eye(4, 5)).fit(rows.astype(float)).labels_)
        np.testing.assert_array_equal(model.predict(X), model.labels_)
        assert model.cluster_centers_.dtype.kind == "f"

    @pytest.mark.parametrize("dtype", ["f2", "f4", "u1", "i1", "u2", "f8", "i4", "i8"])
    def test_dtype_of_centroids(self, dtype):
        expected = np.float64 if dtype in ("f8", "i4", "i8") else np.float32
        assert KMeans(6, init=START).fit(ROWS.astype(dtype)).cluster_centers_.dtype == expected

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.parametrize("dtype", ["i1", "i2", "i8"])
    def test_negative_integers(self, dtype, metric):
        rows = np.vstack([np.random.default_rng(0).integers(-128, 128, (200, 3)), [[-128, 127, 1], [-128, -128, -128]]])
        one, other = (KMeans(5, init=rows[:5], metric=metric).fit(X) for X in (rows.astype(dtype), rows.astype(float)))
        np.testing.assert_array_equal(one.labels_, other.labels_)


class TestTables:
    def tables(self, X, names="abcde"):
        columns = {name: X[:, j] for j, name in enumerate(names)}
        pandas, polars, arrow = (pytest.importorskip(package) for package in ("pandas", "polars", "pyarrow"))
        return [pandas.DataFrame(columns), polars.DataFrame(columns), arrow.table(columns)]

    @pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i8", "u1", "bool"])
    @pytest.mark.parametrize("which", [0, 1, 2], ids=["pandas", "polars", "pyarrow"])
    def test_dtypes(self, which, dtype):
        rows = (ROWS > 50) if dtype == "bool" else ROWS.astype(dtype)
        table = self.tables(rows)[which]
        expected = KMeans(6, init=START).fit(rows)
        model = KMeans(6, init=START).fit(table)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        np.testing.assert_array_equal(model.predict(table), expected.labels_)
        np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)
        assert metrics.energy(table, model.cluster_centers_) == pytest.approx(model.inertia_, rel=1e-6)

    @pytest.mark.parametrize("which", [0, 1, 2], ids=["pandas", "polars", "pyarrow"])
    def test_columns_of_different_dtypes(self, which):
        kinds = ["f4", "i8", "u1", "f8", "bool"]
        columns = [(ROWS[:, j] > 50) if kind == "bool" else ROWS[:, j].astype(kind) for j, kind in enumerate(kinds)]
        names = "abcde"
        pandas, polars, arrow = (pytest.importorskip(package) for package in ("pandas", "polars", "pyarrow"))
        table = [pandas.DataFrame, polars.DataFrame, arrow.table][which](dict(zip(names, columns, strict=True)))
        expected = KMeans(6, init=START).fit(np.column_stack([c.astype(float) for c in columns]))
        np.testing.assert_array_equal(KMeans(6, init=START).fit(table).labels_, expected.labels_)

    def test_pandas_nullable_and_odd_index(self):
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame(ROWS, columns=list("abcde"), index=np.arange(400)[::-1]).astype("Int64")
        model = KMeans(6, init=START).fit(table)
        np.testing.assert_array_equal(model.labels_, LABELS)

    def test_pandas_sparse_columns(self):
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(ROWS.astype(float)))
        table.columns = list("abcde")
        np.testing.assert_array_equal(KMeans(6, init=START).fit(table).labels_, LABELS)

    @pytest.mark.parametrize("kind", ["category", "Sparse[int]", "Int64", "int64[pyarrow]"])
    @pytest.mark.parametrize("share", [1, 5])
    def test_pandas_integers_as_other_types(self, kind, share):
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame(ROWS, columns=list("abcde")).astype(dict.fromkeys("abcde"[:share], kind))
        assert_same_result(KMeans(6, init=START).fit(table), table)

    def test_subclass_of_a_table(self):
        pandas = pytest.importorskip("pandas")
        table = type("Survey", (pandas.DataFrame,), {"__module__": "elsewhere"})(ROWS, columns=list("abcde"))
        model = KMeans(6, init=START).fit(table)
        assert_same_result(model, table)
        assert model.feature_names_in_.tolist() == list("abcde")

    def test_objects_that_convert_to_arrays(self):
        class Deferred:
            shape = ROWS.shape

            def __array__(self, dtype=None, copy=None):
                return ROWS.astype(dtype or float)

        assert_same_result(KMeans(6, init=START).fit(Deferred()), Deferred())

    def test_chunked_arrow_table(self):
        arrow = pytest.importorskip("pyarrow")
        table = arrow.concat_tables([self.tables(part)[2] for part in np.array_split(ROWS, 7)])
        assert table.column(0).num_chunks == 7
        np.testing.assert_array_equal(KMeans(6, init=START).fit(table).labels_, LABELS)

    def test_weights_as_columns(self):
        weights = np.random.default_rng(0).integers(1, 4, 400)
        expected = KMeans(6, init=START).fit(ROWS, sample_weight=weights)
        for table in self.tables(weights[:, None], "w"):
            column = table.column("w") if hasattr(table, "column") else table["w"]
            np.testing.assert_array_equal(KMeans(6, init=START).fit(ROWS, sample_weight=column).labels_, expected.labels_)


@pytest.mark.parametrize("offset", [0, 20_000])
def test_predict_on_another_layout(offset, tmp_path):
    """Includes rows far from the origin, which are shifted before distances are computed."""
    rows = ROWS + offset
    containers = [make(rows) for make in LAYOUTS.values()] + [rows.astype(t) for t in ("f4", "f8", "i4", "u8", ">f4")]
    np.save(tmp_path / "rows.npy", rows)
    containers.append(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    for one in containers:
        model = KMeans(6, init=first_rows(rows, 6)).fit(one)
        for other in containers:
            np.testing.assert_array_equal(model.predict(other), LABELS, err_msg=f"{type(one)} then {type(other)}")
            assert -model.score(other) == pytest.approx(model.inertia_, rel=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_inputs_are_not_modified(layout, metric):
    X, weights, start = LAYOUTS[layout](ROWS + 1), np.random.default_rng(0).random(400), START + 1
    copies = [X.copy() if hasattr(X, "copy") else list(X), weights.copy(), start.copy()]
    parts = [getattr(X, name).copy() for name in ("data", "indices", "indptr") if sparse.issparse(X) and hasattr(X, name)]
    model = KMeans(6, init=start, metric=metric).fit(X, sample_weight=weights)
    model.predict(X), model.transform(X), model.score(X, sample_weight=weights)
    for now, before in zip([X, weights, start], copies, strict=True):
        dense = [part.toarray() if sparse.issparse(part) else np.asarray(part) for part in (now, before)]
        np.testing.assert_array_equal(*dense)
    for name, before in zip(("data", "indices", "indptr"), parts, strict=False):
        np.testing.assert_array_equal(getattr(X, name), before)


class TestColumnNames:
    """Column names must be unique."""

    @pytest.mark.parametrize("dtypes", [{}, {"b": np.float32}, {"b": object}])
    @pytest.mark.parametrize("names", [["a", "a", "b"], ["c", "b", "c"]])
    def test_duplicate_names(self, names, dtypes):
        table = pytest.importorskip("pandas").DataFrame(ROWS[:, :3].astype(float), columns=names).astype(dtypes)
        twice = max(names, key=names.count)
        with pytest.raises(ValueError, match=rf"Columns 0 and [12] of X are both named '{twice}': rename or drop one"):
            KMeans(2).fit(table)

    def test_duplicate_names_in_arrow(self):
        table = pytest.importorskip("pyarrow").table(list(ROWS[:, :3].T), names=["a", "b", "a"])
        with pytest.raises(ValueError, match="Columns 0 and 2 of X are both named 'a'"):
            KMeans(2).fit(table)

    def test_multi_level_names(self):
        pandas = pytest.importorskip("pandas")
        names = pandas.MultiIndex.from_tuples([("a", "x"), ("a", "y"), ("b", "x")])
        table = pandas.DataFrame(ROWS[:, :3], columns=names)
        with pytest.raises(ValueError, match=r"X has column names of 2 levels, the first of them .*: make them one"):
            KMeans(2).fit(table)
        table.columns = [".".join(map(str, name)) for name in table.columns]
        assert list(KMeans(2).fit(table).feature_names_in_) == ["a.x", "a.y", "b.x"]


def test_sparse_initial_centroids():
    model = KMeans(6, init=lambda X, k, random_state: sparse.csr_array(START), n_init=1).fit(ROWS)
    np.testing.assert_array_equal(model.labels_, LABELS)
    assert metrics.energy(ROWS, sparse.csr_array(START)) == metrics.energy(ROWS, START)


def test_read_only_memory_map(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS.astype(np.float32))
    X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert_same_result(KMeans(6, init=START).fit(X), X)


MEGABYTE = 1 << 20


def big(dtype, n=1 << 19, d=32):
    """Return rows that take 64 MB as float32."""
    out = np.empty((n, d), dtype)
    rng = np.random.default_rng(0)
    for part in np.array_split(out, 32):
        part[:] = rng.integers(0, 50, part.shape)
    return out


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, big(np.float32))
    return path


class TestMemory:
    """Rows are read block by block; a fit allocates a few blocks and a few numbers per row."""

    def extra(self, call):
        """Return the peak of the memory allocated by a call, in MB."""
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1] / MEGABYTE
        finally:
            tracemalloc.stop()

    def fit(self, X):
        return KMeans(4, init=np.asarray(X[:4], float), algorithm="lloyd", max_iter=2, n_threads=1).fit(X)

    def test_memory_map(self, on_disk):
        X = np.load(on_disk, mmap_mode="r")
        assert X.nbytes == 64 * MEGABYTE
        assert self.extra(lambda: self.fit(X)) < 30

    def test_predict_on_a_memory_map(self, on_disk):
        X = np.load(on_disk, mmap_mode="r")
        model = self.fit(X)
        assert self.extra(lambda: model.predict(X)) < 30
        assert self.extra(lambda: model.score(X)) < 30

    @pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.float64])
    def test_other_dtypes(self, dtype):
        X = big(dtype)
        assert self.extra(lambda: self.fit(X)) < 30

    def test_fortran_order(self):
        X = np.asfortranarray(big(np.float32))
        assert self.extra(lambda: self.fit(X)) < 30

    @pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
    def test_tables(self, package):
        frames = pytest.importorskip(package)
        columns = {f"c{j}": column for j, column in enumerate(big(np.float32).T.copy())}
        table = (frames.table if package == "pyarrow" else frames.DataFrame)(columns)
        start = np.column_stack([column[:4] for column in columns.values()]).astype(float)
        model = KMeans(4, init=start, algorithm="lloyd", max_iter=2, n_threads=1)
        assert self.extra(lambda: model.fit(table)) < 30


def test_columns_of_types_unknown_to_numpy():
    wide = pl.DataFrame({"a": pl.Series([1, 2, 3], dtype=pl.Int128), "b": [1.0, 2.0, 3.0]})
    runs = pa.table({"a": pa.RunEndEncodedArray.from_arrays([2, 3], [1.5, 2.5])})
    for rows, kind in ((wide, "Int128"), (runs, "run_end_encoded")):
        with pytest.raises(ValueError, match=f"Column 'a' of X holds values of type {kind}.*: give real numbers, or drop it"):
            KMeans(2).fit(rows)


@pytest.mark.parametrize("table", [np.asarray, lambda X: X.tolist(), lambda X: pd.DataFrame(X, columns=["a", "b"])])
def test_large_integers_in_object_columns(table):
    rows = np.array([[1, 0.5], [2**53 + 1, 0.5], [3, 0.5]], object)
    with pytest.warns(UserWarning, match="9007199254740993 at row 1, column (0|'a'), which float64 rounds"):
        KMeans(2).fit(table(rows))
    rows[1, 0] = 2**60
    with warnings.catch_warnings(action="error"):
        KMeans(2).fit(table(rows))


def test_integers_too_large_for_float64():
    rows = np.array([[1, 0.5], [10**400, 0.5], [3, 0.5]], object)
    for what, call in {
        "X": lambda: KMeans(2).fit(rows),
        "Column 'a' of X": lambda: KMeans(2).fit(pd.DataFrame(rows, columns=["a", "b"])),
        "init": lambda: KMeans(2, init=rows[:2]).fit(ROWS[:, :2]),
        "sample_weight": lambda: KMeans(2).fit(ROWS, sample_weight=[10**400] * len(ROWS)),
    }.items():
        with pytest.raises(ValueError, match=f"{what} must .*: int too large"):
            call()


def test_wide_sparse_init_is_refused_before_it_becomes_dense(tmp_path):
    (tmp_path / "start.svm").write_text("0 1:1 100000000:2\n" * 3)
    X = np.random.default_rng(0).normal(size=(20, 2))
    for init in (sparse.csr_array((3, 10**8)), open_rows(tmp_path / "start.svm")):
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="100000000"):
                KMeans(3, init=init).fit(X)
            assert tracemalloc.get_traced_memory()[1] < 1e8
        finally:
            tracemalloc.stop()
