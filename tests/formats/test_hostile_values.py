"""Valid but malicious values in files: integers of any length, arrays that unpack to gigabytes."""

import copy
import io
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import shoal
from shoal import open_rows
from shoal.exceptions import InvalidFileError, InvalidModelError
from shoal.formats import archive

ROUNDED = "holds the integer 9007199254740993 at {}, column 'a', which float64 rounds"


@pytest.mark.parametrize("size", [2**63, -(10**400)])
@pytest.mark.parametrize("place", ["inertia_", "n_iter_", "history_", "tol"])
def test_integers_beyond_float64(tmp_path, size, place):
    path = tmp_path / "model.npz"
    shoal.save(shoal.KMeans(2, random_state=0).fit(np.arange(10.0)[:, None]), path)
    content, arrays = archive.read(path, "model")
    changed = copy.deepcopy(content)
    _, params, learned = changed["$model"]
    if place == "history_":
        learned[place][0]["$dict"][1][1] = size
    else:
        (params if place in params else learned)[place] = size
    archive.write(path, "model", changed, arrays)
    with pytest.raises(InvalidModelError, match=r"model.npz: holds what Shoal did not write .*64 bits"):
        shoal.load(path)


def test_nested_estimators(tmp_path):
    """Every level is visited once."""
    X = np.arange(12.0).reshape(6, 2)
    model = shoal.KMeans(2, random_state=0)
    for _ in range(40):
        model = shoal.Standardized(model)
    shoal.save(model.fit(X), tmp_path / "model.npz")
    loaded = shoal.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    assert loaded.cluster_centers_.shape == (2, 2)


def zeros(shape, dtype):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"shape": shape, "descr": dtype, "fortran_order": False})
    return header.getvalue() + bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)


@pytest.mark.parametrize(
    ("name", "shape", "dtype"), [("format", (1,), "|S9000000"), ("shape", (10**6,), "<i8"), ("indptr", (5 * 10**6,), "<i8")]
)
def test_a_compressed_sparse_matrix_larger_than_memory(tmp_path, name, shape, dtype):
    path, bomb = tmp_path / "x.npz", tmp_path / "bomb.npz"
    X = sparse.random_array((20, 30), density=0.2, format="csr", rng=0)
    sparse.save_npz(path, X)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            data = old.read(member)
            if member == "shape.npy" and name == "indptr":
                stream = io.BytesIO()
                np.save(stream, np.array([shape[0] - 1, 30]))
                data = stream.getvalue()
            new.writestr(member, zeros(shape, dtype) if member == f"{name}.npy" else data)
    with pytest.raises(InvalidFileError, match=f"bomb.npz, array '{name}': .*bytes"):
        open_rows(bomb)


def test_rounded_integers_in_a_float_column_warn(tmp_path):
    """The column becomes a float column, which does not show that integers were rounded."""
    table = pd.DataFrame({"a": [2**53 + 1, 2**53 + 2, 3] * 4, "b": np.arange(12) / 2})
    table.to_parquet(tmp_path / "x.parquet")
    table.to_csv(tmp_path / "x.csv", index=False)
    with pytest.warns(UserWarning, match="X " + ROUNDED.format("row 0")):
        shoal.KMeans(2, random_state=0).fit(table)
    with pytest.warns(UserWarning, match="x.parquet: " + ROUNDED.format("row 0")):
        np.asarray(open_rows(tmp_path / "x.parquet"))
    with pytest.warns(UserWarning, match="x.csv: " + ROUNDED.format("line 2")):
        open_rows(tmp_path / "x.csv")
    table["a"] -= 1  # 2^53 + 1 is then the only odd number beyond 2^53
    table["a"] = table["a"].replace(2**53 + 1, 2**60)
    table.to_csv(tmp_path / "x.csv", index=False)
    with warnings.catch_warnings(action="error"):
        shoal.KMeans(2, random_state=0).fit(table)
        open_rows(tmp_path / "x.csv")


def test_ambiguous_first_svmlight_column_warns(tmp_path):
    path = tmp_path / "x.svmlight"
    path.write_text("0 1:5 2:1\n0 2:7\n")
    with pytest.warns(UserWarning, match="columns are assumed to count from 1, but none of them is 0 and none is 3"):
        open_rows(path, n_features=3)
    with warnings.catch_warnings(action="error"):
        open_rows(path, n_features=2)
        open_rows(path)
        np.testing.assert_array_equal(open_rows(path, n_features=3, zero_based=True), [[0, 5, 1], [0, 0, 7]])


def test_sparse_rows_of_half_precision(tmp_path):
    """SciPy stores them, but cannot sum them."""
    X = sparse.random_array((60, 8), density=0.5, format="csr", rng=np.random.default_rng(0)).astype(np.float32)
    parts = {"data": X.data.astype(np.float16), "indices": X.indices, "indptr": X.indptr}
    np.savez(tmp_path / "x.npz", format="csr", shape=X.shape, **parts)
    half = sparse.csr_array((parts["data"], X.indices, X.indptr), shape=X.shape)
    expected = shoal.KMeans(3, random_state=0).fit(half.astype(np.float32)).labels_
    for rows in (shoal.open_rows(tmp_path / "x.npz"), half):
        np.testing.assert_array_equal(shoal.KMeans(3, random_state=0).fit(rows).labels_, expected)


def test_duplicate_column_name(tmp_path):
    (tmp_path / "x.csv").write_text("a,b,a\n1,2,3\n4,5,6\n")
    with pytest.raises(ValueError, match="columns 0 and 2 are both named 'a'"):
        shoal.open_rows(tmp_path / "x.csv", columns=["a"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64])
def test_duplicate_entries_whose_sum_overflows(tmp_path, dtype):
    """SciPy sums duplicates in the type of the values, where 100 + 100 is -56 for int8."""
    path, value = tmp_path / "x.npz", np.iinfo(dtype).max - 27
    parts = {"indices": np.array([0, 0, 1, 1]), "indptr": np.array([0, 2, 4])}
    np.savez(path, format="csr", shape=(2, 2), data=np.array([value, value, 3, 4], dtype), **parts)
    with pytest.raises(
        InvalidFileError, match=f"x.npz: near row 0, duplicate .* sum that {np.dtype(dtype)} cannot hold: convert"
    ):
        np.asarray(open_rows(path))
    np.savez(path, format="csr", shape=(2, 2), data=np.array([value, 27, 3, 4], dtype), **parts)
    np.testing.assert_array_equal(np.asarray(open_rows(path)), [[np.iinfo(dtype).max, 0], [0, 7]])


def test_svmlight_columns_do_not_depend_on_the_number_of_rows_read(tmp_path):
    """A column 0 after the rows that are read still means that columns are numbered from 0."""
    path = tmp_path / "x.svmlight"
    path.write_text("0 1:5 2:1\n1 qid:3 2:7\n0 0:3 # 1:1\n")
    rows = np.asarray(open_rows(path))
    np.testing.assert_array_equal(rows, [[0, 5, 1], [0, 0, 7], [3, 0, 0]])
    np.testing.assert_array_equal(open_rows(path, limit_rows=2), rows[:2])
    np.testing.assert_array_equal(open_rows(path, limit_rows=2, zero_based=False), [[5, 1], [0, 7]])
