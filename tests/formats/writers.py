"""Write the same rows in every format."""

import os

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

TIMES = int(os.environ.get("SHOAL_TIMES", "1"))  # factor of the number of truncations, bit flips, stops and kills to try


def _npz(path, X):
    np.savez(path, X=X, other=np.arange(3))


def _packed(path, X):
    np.savez_compressed(path, X)


def _packed_by_columns(path, X):
    np.savez_compressed(path, np.asfortranarray(X))


def _csr(path, X):
    sparse.save_npz(path, sparse.csr_array(X), compressed=False)


def _packed_csr(path, X):
    sparse.save_npz(path, sparse.csr_array(X))


def _vecs(path, X):
    with open(path, "wb") as file:
        for row in X:
            file.write(np.int32(len(row)).tobytes() + row.tobytes())


def _bin(path, X):
    path.write_bytes(np.array(X.shape, np.int32).tobytes() + X.tobytes())


def table_of(X, **more):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({**more, **{f"c{j}": X[:, j] for j in range(X.shape[1])}})


def lists_of(X, fixed=False, **more):
    pyarrow = pytest.importorskip("pyarrow")
    flat = pyarrow.array(np.ascontiguousarray(X).ravel())
    if fixed:
        return pyarrow.table({**more, "embedding": pyarrow.FixedSizeListArray.from_arrays(flat, X.shape[1])})
    offsets = pyarrow.array(np.arange(0, X.size + 1, X.shape[1], dtype=np.int32))
    return pyarrow.table({**more, "embedding": pyarrow.ListArray.from_arrays(offsets, flat)})


def to_parquet(path, table, **options):
    pytest.importorskip("pyarrow.parquet").write_table(table, path, **{"row_group_size": 700, **options})


def to_arrow(path, table, **options):
    pytest.importorskip("pyarrow.feather").write_feather(table, path, **{"chunksize": 700, **options})


def _folder(path, X):
    path.mkdir()
    for i, part in enumerate(np.array_split(X, 3)):
        to_parquet(path / f"part-{i}.parquet", table_of(part))


def _folder_of_arrays(path, X):
    path.mkdir()
    for i, part in enumerate(np.array_split(X, 3)):
        np.save(path / f"{i}.npy", part)


def _zarr(path, X):
    array = pytest.importorskip("zarr").create_array(path, shape=X.shape, dtype=X.dtype, chunks=(150, 3))
    array[:] = X


def _hdf5(path, X, **options):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file.create_dataset("deep/X", data=X, **options)


def _csv(path, X, delimiter=",", header=""):
    np.savetxt(path, X, fmt="%.17g", delimiter=delimiter, header=header, comments="")


DENSE = {
    "rows.npy": lambda path, X: np.save(path, X),
    "columns.npy": lambda path, X: np.save(path, np.asfortranarray(X)),
    "big.npy": lambda path, X: np.save(path, X.astype(X.dtype.newbyteorder(">"))),
    "plain.npz": _npz,
    "packed.npz": _packed,
    "packed_columns.npz": _packed_by_columns,
    "rows.fvecs": _vecs,
    "rows.fbin": _bin,
    "columns.parquet": lambda path, X: to_parquet(path, table_of(X)),
    "lists.parquet": lambda path, X: to_parquet(path, lists_of(X, word=["a"] * len(X))),
    "fixed.parquet": lambda path, X: to_parquet(path, lists_of(X, fixed=True)),
    "columns.arrow": lambda path, X: to_arrow(path, table_of(X)),
    "lists.feather": lambda path, X: to_arrow(path, lists_of(X), compression="zstd"),
    "folder": _folder,
    "arrays": _folder_of_arrays,
    "rows.zarr": _zarr,
    "plain.h5": _hdf5,
    "packed.h5": lambda path, X: _hdf5(path, X, chunks=(150, 3), compression="gzip"),
}
SPARSE = {"plain.npz": _csr, "packed.npz": _packed_csr}
TEXT = {
    "rows.csv": _csv,
    "named.csv": lambda path, X: _csv(path, X, ";", ";".join(f"c{j}" for j in range(X.shape[1]))),
    "rows.tsv": lambda path, X: _csv(path, X, "\t"),
    "rows.txt": lambda path, X: _csv(path, X, " "),
}


def svmlight(path, X):
    dump_svmlight_file(X, np.zeros(X.shape[0]), str(path), zero_based=False)
