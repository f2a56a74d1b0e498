"""Small files with headers that claim large arrays are rejected, or read, without allocating much more than their size."""

import hashlib
import json
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
from scipy import sparse

from shoal import open_rows
from shoal.exceptions import InvalidModelError
from shoal.formats.models import load
from tests.formats.test_bad_files import header, packed, saved
from tests.formats.test_models import manifest_of, write_sealed

WIDEST = 2**31 - 1
MAX_EXTRA_BYTES = 50e6  # besides twice the size of the file

CHILD = """
import contextlib, io, json, os, resource, sys
import numpy as np, pyarrow.parquet, h5py, zarr, shoal
from shoal.cli import main
from shoal.formats import archive, delimited, files, grids, npz, svmlight, tables, vectors
def command(*words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as output:
        try:
            main.main([str(word) for word in words])
        except SystemExit as end:
            return end.code, output.getvalue()
command("inspect", sys.argv[1])  # imports and compilation are not measured
for path in sys.argv[2:]:
    for options in ([], ["--id-column", "0"], ["--columns", "0"]):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        code, message = command("inspect", path, "-k", 2, *options)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print(json.dumps([os.path.basename(path), options, code, message, grown]), flush=True)
"""


def _wide_lists(path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"e": pa.array([], pa.list_(pa.float32(), WIDEST))})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


def _hdf5(path, shape, chunks):
    with pytest.importorskip("h5py").File(path, "w") as file:
        X = file.create_dataset("X", shape, "f8", chunks=chunks, maxshape=(None, None), compression="gzip")
        if shape == (4, 4):
            X.id.write_direct_chunk((0, 0), zlib.compress(bytes(1 << 20)))


def _zarr(path, shape, chunks):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(path, shape=shape, dtype="f8", chunks=(4, 4))
    array[:4, :4] = 1
    described = json.loads((path / "zarr.json").read_text())
    described["chunk_grid"]["configuration"]["chunk_shape"] = chunks
    (path / "zarr.json").write_text(json.dumps(described))


def _csr(path, shape):
    matrix = sparse.csr_array((np.ones(3), [0, 5, 2], [0, 1, 2, 3]), shape=(3, 6))
    members = {"format": np.array(b"csr"), "shape": np.array(shape), "data": matrix.data}
    members |= {"indices": matrix.indices, "indptr": matrix.indptr[: shape[0] + 1]}
    np.savez(path, **members)


def _many_members(path):
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(2):
            archive.writestr(f"{i}.npy", b"")
    data = path.read_bytes()
    at = data.rfind(b"PK\1\2")
    entry, end = data[at : data.rfind(b"PK\5\6")], data[data.rfind(b"PK\5\6") :]
    many = 200_000
    fields = struct.pack("<HHLL", many & 0xFFFF, many & 0xFFFF, len(entry) * many, at)
    path.write_bytes(data[:at] + entry * many + end[:8] + fields + end[20:])


FILES = {
    "no_rows.fbin": lambda path: path.write_bytes(struct.pack("<2i", 0, WIDEST)),
    "rows.fbin": lambda path: path.write_bytes(struct.pack("<2i", WIDEST, 1)),
    "wide.u8bin": lambda path: path.write_bytes(struct.pack("<2i", 1, WIDEST)),
    "wide.fvecs": lambda path: path.write_bytes(struct.pack("<i", WIDEST)),
    "no_rows.npy": lambda path: path.write_bytes(header(f"(0, {WIDEST})")),
    "turned.npy": lambda path: path.write_bytes(header(f"(0, {WIDEST})", order="True")),
    "nothing.npy": lambda path: path.write_bytes(header(f"({2**40}, {2**20})", descr="'<U0'")),
    "packed.npz": lambda path: path.write_bytes(packed(X=header(f"(0, {WIDEST})"))),
    "claims.npz": lambda path: path.write_bytes(packed(X=header(f"({WIDEST}, 4)"))),
    "csr.npz": lambda path: _csr(path, (3, WIDEST)),
    "csr_none.npz": lambda path: _csr(path, (0, WIDEST)),
    "kind.npz": lambda path: path.write_bytes(
        packed(format=header(f"({2**40},)", descr="'<U0'"), **dict.fromkeys(("shape", "data", "indices", "indptr"), saved(1)))
    ),
    "members.npz": _many_members,
    "lists.parquet": _wide_lists,
    "wide.h5": lambda path: _hdf5(path, (0, WIDEST), (1, 1000)),
    "rows.h5": lambda path: _hdf5(path, (2**40, 4), (1000, 4)),
    "chunk.h5": lambda path: _hdf5(path, (4, 4), (2**20, 400)),
    "wide.zarr": lambda path: _zarr(path, (4, WIDEST), (4, 4)),
    "chunk.zarr": lambda path: _zarr(path, (4, 4), (2**30, 4)),
    "wide.svmlight": lambda path: path.write_text("1 1:1 2147483646:1\n0 2:1\n"),
}
READ = ("csr.npz", "wide.svmlight")  # valid files of wide sparse rows


def test_memory_is_limited(tmp_path):
    for package in ("pyarrow", "h5py", "zarr"):
        pytest.importorskip(package)
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(300, 4)))
    paths = [tmp_path / name for name in FILES]
    for path in paths:
        FILES[path.name](path)
    command = [sys.executable, "-c", CHILD, tmp_path / "rows.npy", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (found[-1], done.stderr[-2000:])
    for name, options, code, message, grown in found:
        size = sum(path.stat().st_size for path in (tmp_path / name, *(tmp_path / name).rglob("*")) if path.is_file())
        assert grown < 2 * size + MAX_EXTRA_BYTES, (name, options, grown)
        assert code == 3 or (code == 0 and name in READ), (name, options, code, message)
        assert code == 0 or (name in message and message.count("\n") == 1), message


@pytest.mark.parametrize(("shape", "descr"), [((2**32,), "<U0"), ((2**20, 2**20), "|S0"), ((2**62,), "<U0")])
def test_dtypes_of_size_zero_in_models(tmp_path, shape, descr):
    """Any number of such values fits in a file of any size."""
    data = header(str(shape), descr=repr(descr))
    digest = hashlib.sha256(data).hexdigest()
    manifest = manifest_of(None, a0={"dtype": descr, "shape": list(shape), "sha256": digest})
    path = write_sealed(tmp_path / "model.npz", manifest, **{"a0.npy": data})
    with pytest.raises(InvalidModelError, match=r"type [<|][US]0"):
        load(path)


@pytest.mark.parametrize("options", [{"columns": [3, 0, 5]}, {"id_column": 2}, {"id_column": 5, "text_column": 0}])
def test_columns_of_sparse_rows(tmp_path, options):
    X = sparse.random_array((50, 6), density=0.4, random_state=0, format="csr")
    sparse.save_npz(tmp_path / "x.npz", X)
    rows = open_rows(tmp_path / "x.npz", **options)
    wanted = options.get("columns") or [j for j in range(6) if j not in options.values()]
    np.testing.assert_array_equal(np.asarray(rows), X.toarray()[:, wanted])
    np.testing.assert_array_equal(rows.take(np.array([7, 3])).toarray(), X.toarray()[[7, 3]][:, wanted])
    if "id_column" in options:
        np.testing.assert_array_equal(rows.ids, X.toarray()[:, options["id_column"]])
