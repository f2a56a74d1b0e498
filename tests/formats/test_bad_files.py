"""Damaged and malicious files: one error message that names the file, the place and the remedy."""

import io
import json
import os
import pickle
import shutil
import struct
import sys
import zipfile

import numpy as np
import pytest
from scipy import sparse

import shoal
from shoal import open_rows
from shoal.exceptions import InvalidFileError
from shoal.formats import errors, text_lines
from tests.formats import writers
from tests.strategies import blobs

X = blobs(300, 4, 3)[0].astype(np.float32)
KINDS = {**writers.DENSE, "rows.csv": writers._csv, "rows.svmlight": writers.svmlight}
ONE_FILE = [name for name in KINDS if "." in name and name != "rows.zarr"]


def header(shape="(300, 4)", descr="'<f4'", order="False", more=""):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, {more}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n"


class Loaded(Exception):
    """Raised if a malicious pickle is loaded."""


class Trap:
    def __reduce__(self):
        return exec, ("raise __import__('tests.formats.test_bad_files').io.test_bad_files.Loaded",)


def trapped():
    stream = io.BytesIO()
    np.save(stream, np.array([[Trap()]], object), allow_pickle=True)
    return stream.getvalue()


def packed(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def csr(indices=(0, 1, 0), indptr=(0, 2, 3), shape=(2, 2), kind=b"csr", data=(1.0, 2.0, 3.0)):
    arrays = {"format": kind, "shape": shape, "data": data, "indices": indices, "indptr": indptr}
    return packed(**{name: saved(np.array(value)) for name, value in arrays.items()})


BYTES = {  # name: (bytes, pattern of the message)
    "empty.npy": (b"", "is empty"),
    "magic.npy": (b"PK\x03\x04" + bytes(100), "header"),
    "cut.npy": (saved(X)[:-1], r"shape \(300, 4\).*truncated or changed"),
    "long.npy": (saved(X) + b"\0", "truncated or changed"),
    "lie.npy": (header("(301, 4)") + X.tobytes(), "truncated or changed"),
    "negative.npy": (header("(-300, -4)") + X.tobytes(), "negative number of bytes"),
    "giant.npy": (header("(10**9, 10**9)".replace("10**9", "1" + "0" * 9)) + X.tobytes(), "4,000,000,000,000,000,0"),
    "overflow.npy": (header(f"({2**62}, 16)") + X.tobytes(), "truncated or changed"),
    "code.npy": (header("__import__('os').abort()") + X.tobytes(), "header"),
    "flat.npy": (saved(X.ravel()), "shape"),
    "text.npy": (saved(np.array([["a", "b"]])), "type <U1"),
    "complex.npy": (saved(X + 1j), "complex64"),
    "struct.npy": (saved(np.zeros((3, 4), "f4,f4")), "real numbers"),
    "pickle.npy": (trapped(), "never unpickles"),
    "pickle.npz": (packed(X=trapped()), "never unpickles"),
    "noheader.npy": (b"\x93NUMPY\x01\x00\xff\xff" + b" " * 20, "header"),
    "bomb.npz": (packed(X=header("(1073741824, 4)") + bytes(1 << 22)), "truncated or changed"),
    "none.npy": (header("(1000000000000000, 0)"), "have no columns"),
    "nowhere.npy": (header(f"({2**70}, 0)"), "have no columns"),
    "wide.npy": (header(f"(0, {2**70})"), "more than an array can have"),
    "yes.npy": (header("(True, 4)") + bytes(16), "invalid shape .True, 4."),
    "no_rows.npy": (saved(X[:0]), "has no rows"),
    "no_rows.csv": (b"a,b\n", "has no rows"),
    "short.fvecs": (b"\1\0", "too few"),
    "negative.fvecs": (struct.pack("<i", -4) + X.tobytes(), "declares -4 columns"),
    "giant.fvecs": (struct.pack("<i", 2**31 - 1) + X.tobytes(), "truncated or not in fvecs format"),
    "ragged.fvecs": (struct.pack("<i2f", 2, 1, 2) + struct.pack("<i2f", 3, 1, 2), "row 1.*another length"),
    "lie.fbin": (struct.pack("<2i", 301, 4) + X.tobytes(), "301 rows"),
    "negative.fbin": (struct.pack("<2i", -300, -4) + X.tobytes(), "-300 rows"),
    "giant.u8bin": (struct.pack("<2i", 2**31 - 1, 2**31 - 1), "do not match its 8 bytes"),
    "notzip.npz": (b"hello", "zip"),
    "none.npz": (packed(), "none"),
    "several.npz": (packed(a=saved(X), b=saved(X)), "arrays a, b.*array="),
    "coo.npz": (csr(kind=b"coo"), "not CSR"),
    "beyond.npz": (csr(indices=(0, 7, 0)), "column 7 of 2"),
    "below.npz": (csr(indices=(0, -1, 0)), "column -1 of 2"),
    "falling.npz": (csr(indptr=(0, 3, 2)), "indptr at row 1 is out of order"),
    "past.npz": (csr(indptr=(0, 2, 9)), "indptr at row 2 is out of order or beyond the 3 values"),
    "wrapping.npz": (csr(indices=(0,) * 4, data=(1.0,) * 4, indptr=(0, 2**63 - 1, -(2**63), -1, 4), shape=(4, 2)), "at row 1"),
    "point.npz": (csr(shape=2), "sparse matrix failed"),
    "cube.npz": (csr(shape=(2, 2, 2)), "sparse matrix failed"),
    "formats.npz": (csr(kind=[b"csr", b"csr"]), "sparse matrix failed"),
    "latin.npz": (csr(kind=b"\xff"), "sparse matrix failed"),
    "uneven.npz": (csr(indices=(0, 1)), "do not fit together"),
    "rows.npz": (csr(shape=(5, 2)), "5 rows"),
    "wide.npz": (csr(shape=(2, -2)), "do not fit together"),
    "x.parquet": (b"PAR1" + bytes(50) + b"PAR1", "Parquet"),
    "x.arrow": (b"ARROW1\0\0" + bytes(50), "Arrow"),
    "x.h5": (b"\x89HDF\r\n\x1a\n" + bytes(90), "HDF5"),
    "words.csv": (b"a,b\n1,2\n3,x\n", r"line 3, column 'b' is 'x'"),
    "gap.csv": (b"1,2\n,4\n", r"line 2, column 0 is empty"),
    "ragged.csv": (b"1,2\n3,4,5\n", "line 2 has 3 fields"),
    "short.csv": (b"1,2\n3\n", "line 2 has 1 field"),
    "binary.csv": (b"1,2\n\0\0", "not a text file"),
    "latin.csv": (b"a,b\n1,2\n\xff,3\n", "UTF-8"),
    "blank.csv": (b"\n\n \n", "is empty"),
    "quoted.csv": (b'1,"2\n3"\n', "line 2 has 1 fields"),
    "open.csv": (b'1,2\n3,"4\n', "line 2 has a quote that is not closed"),
    "open.txt": (b'1 2\n3\t"4\n', "line 2 has a quote that is not closed"),
    "wide.csv": (b"1," + b"9" * 200_000 + b"x\n", "field larger"),
    "late.csv": (b"1,2\n3," + b"9" * 200_000 + b"x\n", "line 1 and the following lines"),
    "wide_digits.csv": ("1,2\n3,４\n".encode(), "line 2, column 1 is '４', not a number in digits from 0 to 9"),
    "all_wide.csv": ("１,２\n3,4\n".encode(), "line 1, column 0 is '１', not a number in digits"),
    "hole.csv": (b"a\n1\n\n3\n", "line 3 is empty, but line 4 is not"),
    "after_header.csv": (b"a,b\n\n1,2\n", "line 2 is empty, but line 3"),
    "hole.tsv": (b"a\tb\n1\t2\n\t\n3\t4\n", "line 3, column 'a' is empty"),
    "first.tsv": (b"\t\n3\t4\n", "line 1, column 0 is empty"),
    "last.tsv": (b"3\t4\n\t\n", "line 2, column 0 is empty"),
    "hole.txt": (b"1 2\n \n3 4\n", "line 2 is empty"),
    "colons.svmlight": (b"0 1:2:3 4\n", "line 1 has '1:2:3'"),
    "across.svmlight": (b"0 1:2:3\n0 4\n", "line 1 has '1:2:3'"),
    "pair.svmlight": (b"0 1:2\n0 3\n", "line 2 has '3'"),
    "label.svmlight": (b"x 1:2\n", "line 1 begins with 'x'"),
    "order.svmlight": (b"0 2:1 1:3\n", "column 1 after 2"),
    "twice.svmlight": (b"0 2:1 2:3\n", "column 2 after 2"),
    "giant.svmlight": (b"0 99999999999999999999:1\n", "columns up to"),
    "endless.svmlight": (b"0 " + b"1" * 5000 + b":1\n", "columns up to"),
    "negative.svmlight": (b"0 -1:1\n", "line 1 has '-1:1'"),
    "word.svmlight": (b"0 1:a\n", "line 1 has '1:a'"),
    "underscore.svmlight": (b"0 1_0:1\n", "line 1 has '1_0:1'"),
    "blank.svmlight": (b"# nothing\n", "is empty"),
    "x.unknown": (b"1,2", "extension is none of"),
}


def every(path):
    """Return all rows of a file."""
    rows = open_rows(path)
    return rows.take(np.arange(len(rows)))


@pytest.mark.parametrize("name", BYTES)
def test_invalid_bytes(tmp_path, name):
    data, says = BYTES[name]
    for package in ("pyarrow", "h5py") if name in ("x.parquet", "x.arrow", "x.h5") else ():
        pytest.importorskip(package)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidFileError, match=says) as caught:
        every(tmp_path / name)
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    assert len(message) < 600


class TestTables:
    @pytest.fixture(autouse=True)
    def pyarrow(self):
        self.pa = pytest.importorskip("pyarrow")

    def says(self, tmp_path, table, says, **options):
        writers.to_parquet(tmp_path / "x.parquet", table)
        with pytest.raises(InvalidFileError, match=says):
            open_rows(tmp_path / "x.parquet", **options).take(np.array([0]))

    def test_missing_values(self, tmp_path):
        self.says(tmp_path, self.pa.table({"a": [1, 2, None]}), "row 2 of column 'a' is missing")
        self.says(tmp_path, self.pa.table({"e": [[1.0], None]}), "row 1 of column 'e' is missing")
        self.says(tmp_path, self.pa.table({"e": [None, [1.0]]}), "row 0 of column 'e' is missing")
        self.says(tmp_path, self.pa.table({"e": [[1.0, 2.0], [3.0, None]]}), "number 1 of row 1 of column 'e' is missing")

    def test_columns_that_are_not_numbers(self, tmp_path):
        self.says(tmp_path, self.pa.table({"a": [1], "b": ["x"]}), "column 'b' holds values of type string.*id_column=")
        self.says(tmp_path, self.pa.table({"e": [["x"]]}), "column 'e' holds values of type list")
        self.says(tmp_path, self.pa.table({"e": [[[1.0]]]}), "column 'e' holds values of type list")
        self.says(tmp_path, self.pa.table({"t": self.pa.array([0], self.pa.timestamp("s"))}), "column 't' holds values")

    def test_lists(self, tmp_path):
        self.says(tmp_path, self.pa.table({"e": [[1.0, 2.0], [3.0]]}), "row 1 of column 'e' is a list of 1 .* first one has 2")
        both = self.pa.table({"a": [1.0], "e": [[1.0]], "f": [[1.0]]})
        self.says(tmp_path, both, "column 'e' holds lists: set columns= to it alone", columns=["a", "e"])
        self.says(tmp_path, both, "column 'e' holds lists: set columns= to it alone")

    @pytest.mark.parametrize("fixed", [False, True])
    def test_empty_lists(self, tmp_path, fixed):
        kind = self.pa.list_(self.pa.float32(), 0) if fixed else self.pa.list_(self.pa.float32())
        self.says(tmp_path, self.pa.table({"e": self.pa.array([[], []], kind)}), "no columns")

    def test_missing_columns(self, tmp_path):
        table = self.pa.table({"a": [1.0], "b": [2.0]})
        self.says(tmp_path, table, "no column named 'c': it has a, b", columns=["c"])
        self.says(tmp_path, table, "no column 2: use a number from 0 to 1", columns=[2])
        self.says(tmp_path, table, "no column named 'c'", id_column="c")
        self.says(tmp_path, table, "is empty: list at least one column", columns=[])

    def test_folders_with_different_schemas(self, tmp_path):
        for i, column in enumerate(["a", "b"]):
            writers.to_parquet(tmp_path / f"{i}.parquet", self.pa.table({column: [1.0]}))
        with pytest.raises(
            InvalidFileError, match=r"1.parquet: has 1 columns of float64, named \['b'\], but 0.parquet has .*'a'"
        ):
            open_rows(tmp_path)

    def test_tables_with_too_many_claimed_rows(self, tmp_path, monkeypatch):
        monkeypatch.setattr(errors, "MAX_SMALL_ARRAY", 1 << 20)
        monkeypatch.setattr(errors, "MAX_EXPANSION", 20)
        writers.to_parquet(tmp_path / "x.parquet", self.pa.table({"a": np.ones(500_000)}), row_group_size=500_000)
        with pytest.raises(InvalidFileError, match="declares 4,000,000 bytes of data"):
            open_rows(tmp_path / "x.parquet")


def test_folders(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidFileError, match="no files in a supported format"):
        open_rows(tmp_path / "empty")
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "b.csv").write_text("1,2")
    with pytest.raises(InvalidFileError, match="files of several formats"):
        open_rows(tmp_path)
    (tmp_path / "b.csv").unlink()
    np.save(tmp_path / "b.npy", X[:, :3])
    with pytest.raises(InvalidFileError, match=r"b.npy: has 3 columns of float32, but a.npy has 4"):
        open_rows(tmp_path)


def test_compressed_files_in_a_folder(tmp_path):
    np.save(tmp_path / "a.npy", X)
    for name in ("README.md", "_SUCCESS", ".a.npy.crc"):
        (tmp_path / name).write_text("1")
    assert open_rows(tmp_path).shape == X.shape
    (tmp_path / "b.npy.gz").write_bytes(saved(X))
    with pytest.warns(UserWarning, match=r"b.npy.gz is skipped"):
        assert open_rows(tmp_path).shape == X.shape


def test_pipes_and_devices(tmp_path):
    """Reading them might never end."""
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zeros.npy").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.csv", tmp_path / "zeros.npy"):
        with pytest.raises(InvalidFileError, match="is a pipe or a device"):
            open_rows(path)
    (tmp_path / "zeros.npy").unlink()
    with pytest.raises(InvalidFileError, match=r"pipe.csv: is a pipe or a device"):
        open_rows(tmp_path)


@pytest.mark.parametrize("limit", [None, 2])
def test_quoted_line_breaks_at_the_end_of_a_part(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(text_lines, "PART_BYTES", 2 * text_lines.LINE_OVERHEAD)  # two lines
    (tmp_path / "x.csv").write_text('x,y,t\n1,2,a\n5,6,"foo\n3,4,bar"\n7,8,b\n')
    with pytest.raises(InvalidFileError, match="line 3 has a quote that is not closed"):
        open_rows(tmp_path / "x.csv", id_column="t", limit_rows=limit)
    (tmp_path / "x.csv").write_text('x,y,t\n1,2,a\n5,6,"foo ""a"", b"\n3,4,it"s\n7,8,"b"\n')
    assert open_rows(tmp_path / "x.csv", id_column="t").ids.tolist() == ["a", 'foo "a", b', 'it"s', "b"]


@pytest.mark.parametrize("rest", ["short", "\n1,2,z"])
def test_identifiers_of_rows_before_a_broken_line(tmp_path, rest):
    (tmp_path / "x.csv").write_text(f"a,b,id\n1,2,x\n3,4,y\n{rest}\n")
    assert open_rows(tmp_path / "x.csv", id_column="id", limit_rows=2).ids.tolist() == ["x", "y"]


@pytest.mark.parametrize("declared", [0, -20])
def test_last_batch_of_an_arrow_file_that_declares_no_rows(tmp_path, declared):
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(path, pa.schema([("a", pa.float64())])) as file:
        for n in (20, 21):
            file.write_batch(pa.record_batch({"a": np.arange(n, dtype=float)}))
    data = path.read_bytes()
    lengths = [at for at in range(len(data)) if data.startswith(struct.pack("<q", 21), at)]
    for at in lengths:  # of the batch and of its column
        changed = data[:at] + struct.pack("<q", declared) + data[at + 8 :]
        path.write_bytes(changed)
        with pytest.raises(InvalidFileError):
            np.asarray(open_rows(path))


def test_empty_batches_of_an_arrow_file(tmp_path):
    pa = pytest.importorskip("pyarrow")
    with pa.ipc.new_file(tmp_path / "x.arrow", pa.schema([("a", pa.float64())])) as file:
        for n in (0, 3, 0, 2, 0):
            file.write_batch(pa.record_batch({"a": np.arange(n, dtype=float)}))
    assert np.asarray(open_rows(tmp_path / "x.arrow")).ravel().tolist() == [0, 1, 2, 0, 1]


def test_indptr_whose_differences_overflow():
    matrix = sparse.csr_array(np.eye(4))
    matrix.indptr = np.array([0, 2**63 - 1, -(2**63), -1, 4])
    with pytest.raises(ValueError, match="broken csr matrix"):
        shoal.KMeans(2).fit(matrix)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        open_rows(tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["rows.npy", "rows.csv", "rows.svmlight", "columns.parquet"])
def test_limits_beyond_any_file(tmp_path, name):
    KINDS[name](tmp_path / name, X)
    assert open_rows(tmp_path / name, limit_rows=10**30).shape[0] == 300


@pytest.mark.parametrize("n_features", [2**31, 10**30])
def test_too_many_svmlight_columns(tmp_path, n_features):
    (tmp_path / "x.svm").write_text("1 1:2\n1 2:3\n")
    with pytest.raises(InvalidFileError, match="more than an array can have"):
        open_rows(tmp_path / "x.svm", n_features=n_features, zero_based=False)


@pytest.mark.parametrize("delimiter", ["", "ab", '"', "\n", "\r"])
def test_invalid_delimiters(tmp_path, delimiter):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    with pytest.raises(InvalidFileError, match="delimiter="):
        open_rows(tmp_path / "x.csv", delimiter=delimiter)


@pytest.mark.parametrize("limit", [0, -1, 2.5, True])
def test_invalid_limits(tmp_path, limit):
    with pytest.raises(ValueError, match="limit_rows"):
        open_rows(tmp_path / "x.npy", limit_rows=limit)


@pytest.mark.parametrize("name", ["rows.npy", "rows.csv", "columns.parquet"])
def test_position_of_nan(tmp_path, name):
    bad = X.copy()
    bad[299, 2] = np.nan
    KINDS[name](tmp_path / name, bad)
    with pytest.raises(ValueError, match="NaN at row 299, column 2"):
        shoal.KMeans(3).fit(open_rows(tmp_path / name))


@pytest.mark.parametrize("name", ONE_FILE)
def test_truncated_files(tmp_path, name):
    """A truncated file is rejected; of text, the remaining rows may be read."""
    path = tmp_path / name
    KINDS[name](path, X if name != "rows.svmlight" else sparse.csr_array(X))
    data = path.read_bytes()
    for size in {0, 1, 7, len(data) - 1, *np.random.default_rng(0).integers(0, len(data), 12 * writers.TIMES).tolist()}:
        path.write_bytes(data[:size])
        try:
            block = every(path)
        except InvalidFileError as error:
            assert name in str(error)  # noqa: PT017
        else:
            assert name in ("rows.csv", "rows.svmlight", "rows.fvecs")
            assert block.shape[0] <= 300


def test_file_truncated_before_take(tmp_path):
    np.save(tmp_path / "x.npy", X)
    rows = open_rows(tmp_path / "x.npy")
    with open(tmp_path / "x.npy", "r+b") as file:
        file.truncate(2500)
    for stop in (100, 300):
        with pytest.raises(InvalidFileError, match=r"x\.npy: has changed"):
            rows.take(np.arange(0, stop, 2))


@pytest.mark.parametrize(
    "name", ["rows.npy", "columns.npy", "rows.fvecs", "plain.npz", "plain.h5", "packed.npz", "lists.parquet"]
)
def test_file_truncated_during_reading(tmp_path, name):
    path = tmp_path / name
    KINDS[name](path, X)
    rows = open_rows(path)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(InvalidFileError, match=name):
        rows.read(0, 300)


@pytest.mark.parametrize("change", ["type", "narrower", "wider", "more rows"])
@pytest.mark.parametrize(
    "name", ["rows.npy", "columns.npy", "packed.npz", "columns.parquet", "lists.parquet", "columns.arrow", "packed.h5"]
)
def test_file_replaced_before_it_is_read(tmp_path, name, change):
    """Rows would be read in the shape and the type of the earlier file."""
    path, first = tmp_path / name, X.astype(np.int32) if change == "type" else X
    later = {"type": X, "narrower": X.reshape(400, 3), "wider": np.hstack([X, X]), "more rows": np.vstack([X, X])}[change]
    KINDS[name](path, first)
    rows = open_rows(path)
    KINDS[name](path, later)
    with pytest.raises(InvalidFileError, match=name):
        shoal.KMeans(3, random_state=0).fit(rows)


def test_zarr_replaced_before_it_is_read(tmp_path):
    KINDS["rows.zarr"](tmp_path / "rows.zarr", X.astype(np.int32))
    rows = open_rows(tmp_path / "rows.zarr")
    shutil.rmtree(tmp_path / "rows.zarr")
    KINDS["rows.zarr"](tmp_path / "rows.zarr", X)
    with pytest.raises(InvalidFileError, match="has changed"):
        rows.read(0, 300)


@pytest.mark.parametrize("name", ["ids.csv", "ids.parquet"])
def test_file_replaced_before_its_identifiers_are_read(tmp_path, name):
    pandas, path = pytest.importorskip("pandas"), tmp_path / name
    table = pandas.DataFrame({"id": np.arange(300), "a": X[:, 0], "b": X[:, 1]})
    write = {"ids.csv": table.to_csv, "ids.parquet": table.to_parquet}[name]
    write(path, index=False)
    rows = open_rows(path, id_column="id")
    assert list(np.asarray(rows.ids).astype(int)) == list(range(300))
    table["id"] += 1000
    {"ids.csv": table.to_csv, "ids.parquet": table.to_parquet}[name](path, index=False)
    with pytest.raises(InvalidFileError, match="has changed"):
        np.asarray(rows.ids)


@pytest.mark.parametrize("name", [name for name in ONE_FILE if not name.endswith(".h5")])
def test_random_changes_never_crash(tmp_path, name):
    path = tmp_path / name
    KINDS[name](path, X if name != "rows.svmlight" else sparse.csr_array(X))
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for i in range(30 * writers.TIMES):
        changed = bytearray(data)
        for at in rng.integers(0, len(data) if i % 2 else min(len(data), 400), 2):
            changed[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            rows = open_rows(path)
            rows.take(np.arange(min(len(rows), 300)))
        except InvalidFileError as error:
            assert name in str(error)  # noqa: PT017


def test_zarr_codecs_that_unpickle_are_rejected(tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(tmp_path / "x.zarr", shape=(2, 2), dtype="f4", chunks=(2, 2), zarr_format=2, compressors=None)
    array[:] = 1
    described = json.loads((tmp_path / "x.zarr" / ".zarray").read_text())
    (tmp_path / "x.zarr" / ".zarray").write_text(json.dumps({**described, "filters": [{"id": "pickle"}]}))
    (tmp_path / "x.zarr" / "0.0").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InvalidFileError, match=r"x.zarr.*(pickle|codec)"):
        open_rows(tmp_path / "x.zarr").read(0, 2)


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_with_a_missing_chunk(tmp_path, version):
    """Zarr would read it as zeros."""
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(tmp_path / "x.zarr", shape=(6, 4), dtype="f4", chunks=(2, 4), zarr_format=version)
    array[:] = 1
    (tmp_path / "x.zarr" / {2: "1.0", 3: "c/1/0"}[version]).unlink()
    with pytest.raises(InvalidFileError, match=r"1 of the 3 chunks of .* are missing"):
        open_rows(tmp_path / "x.zarr")


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_folders_that_are_not_zarr(tmp_path, kind):
    pytest.importorskip("zarr")
    path = tmp_path / "x.zarr"
    path.mkdir() if kind == "folder" else path.write_bytes(packed(X=saved(X)))
    with pytest.raises(InvalidFileError, match=r"x.zarr: opening it with zarr failed .*: write it again"):
        open_rows(path)


def test_zarr_with_a_pipe_or_a_link(tmp_path):
    pytest.importorskip("zarr")
    writers.DENSE["rows.zarr"](tmp_path / "x.zarr", X)
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink(tmp_path, path)):
        make(tmp_path / "x.zarr" / "odd")
        with pytest.raises(InvalidFileError, match=r"odd: is a link, a pipe or a device"):
            open_rows(tmp_path / "x.zarr")
        (tmp_path / "x.zarr" / "odd").unlink()


class TestHDF5:
    @pytest.fixture(autouse=True)
    def h5py(self, tmp_path):
        self.h5py, self.path = pytest.importorskip("h5py"), tmp_path / "x.h5"

    def says(self, says, **options):
        with pytest.raises(InvalidFileError, match=says):
            open_rows(self.path, **options)

    def test_external_storage(self, tmp_path):
        (tmp_path / "other").write_bytes(bytes(32))
        with self.h5py.File(self.path, "w") as file:
            file.create_dataset("X", (2, 4), "f4", external=[(str(tmp_path / "other"), 0, 32)])
        self.says("'/X' are stored in other files")
        with self.h5py.File(self.path, "w") as file:
            layout = self.h5py.VirtualLayout((2, 4), "f4")
            layout[:] = self.h5py.VirtualSource("gone.h5", "X", (2, 4))
            file.create_virtual_dataset("X", layout)
        self.says("'/X' are stored in other files")
        writers.DENSE["plain.h5"](tmp_path / "real.h5", X)
        with self.h5py.File(self.path, "w") as file:
            file["X"], file["Y"] = self.h5py.ExternalLink("real.h5", "deep/X"), self.h5py.SoftLink("/Z")
        self.says(r"arrays \(none\)", array="X")

    @pytest.mark.parametrize("chunks", [None, (1, 4)])
    def test_unwritten_chunks(self, chunks):
        with self.h5py.File(self.path, "w") as file:
            file.create_dataset("X", (2, 4), "f4", chunks=chunks)
        self.says("(1|2) of the (1|2) chunks of '/X' are missing")

    @pytest.mark.parametrize("kind", ["short float", "shifted"])
    def test_types_unknown_to_numpy(self, kind):
        if kind == "shifted":
            stored = self.h5py.h5t.STD_I32LE.copy()
            stored.set_precision(16)
            stored.set_offset(8)
        else:
            stored = self.h5py.h5t.IEEE_F16LE.copy()  # changed to bfloat16 below
            stored.set_fields(15, 7, 8, 0, 7)
            stored.set_ebias(127)
        expected = np.arange(8).reshape(2, 4)
        with self.h5py.File(self.path, "w") as file:
            array = self.h5py.h5d.create(file.id, b"X", stored, self.h5py.h5s.create_simple((2, 4)))
            self.h5py.Dataset(array)[...] = expected
        np.testing.assert_array_equal(open_rows(self.path).read(0, 2), expected)


def test_zarr_with_too_large_a_claimed_shape(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "x.zarr", shape=(10**9, 10**3), dtype="f4", chunks=(1000, 10))
    with pytest.raises(InvalidFileError, match="declares 4,000,000,000,000 bytes of data"):
        open_rows(tmp_path / "x.zarr")


@pytest.mark.parametrize(
    ("name", "module"), [("x.parquet", "pyarrow"), ("x.arrow", "pyarrow"), ("x.zarr", "zarr"), ("x.h5", "h5py")]
)
def test_missing_packages_are_named(tmp_path, monkeypatch, name, module):
    for loaded in [key for key in sys.modules if key.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(b"x")
    extra = {"pyarrow": "parquet", "zarr": "zarr", "h5py": "hdf5"}[module]
    with pytest.raises(ImportError, match=rf"{name} requires {module}: pip install 'shoal\[{extra}\]'"):
        open_rows(tmp_path / name)
