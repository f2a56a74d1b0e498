"""Saved models load bit for bit; damaged and malicious files are rejected."""

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import BaseEstimator

import shoal
from shoal.data.rows import Rows
from shoal.exceptions import InvalidModelError
from shoal.fit import schema
from shoal.formats import archive, models, registry
from shoal.formats.values import Reader, Writer
from tests.formats.writers import TIMES
from tests.strategies import blobs
from tests.test_contract import ESTIMATORS, make_estimator

X = blobs(300, 4, 3)[0]


@pytest.fixture(params=ESTIMATORS, ids=lambda cls: cls.__name__)
def model(request):
    return make_estimator(request.param, n_clusters=3, random_state=0)


def save_and_load(model, folder):
    shoal.save(model, folder / "model.npz")
    return shoal.load(folder / "model.npz")


def equal(a, b):
    """Return whether two values are equal, including arrays."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, BaseEstimator):
        return type(a) is type(b) and equal(vars(a), vars(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, Rows):
        return all(equal(getattr(a, name), getattr(b, name)) for name in ("d", "dtype", "frame", "block_rows")) and len(
            a
        ) == len(b)
    if hasattr(a, "parts") or isinstance(a, BaseEstimator):
        return type(a) is type(b) and equal(vars(a), vars(b))
    return a == b or (a != a and b != b)


@pytest.mark.parametrize(
    "rows", [X, X.astype(np.float32) + 1e5, sparse.csr_array(np.abs(X) + 1)], ids=["dense", "shifted", "sparse"]
)
def test_every_estimator_is_restored(model, rows, tmp_path):
    found = save_and_load(model.fit(rows), tmp_path)
    assert type(found) is type(model)
    assert vars(found).keys() == vars(model).keys()
    assert all(equal(vars(model)[name], vars(found)[name]) for name in vars(model))
    for method in ("predict", "transform", "predict_proba", "score_samples"):
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(found, method)(rows), getattr(model, method)(rows))
    if hasattr(model, "score"):
        assert found.score(rows) == model.score(rows)
    if hasattr(model, "partial_fit"):
        np.testing.assert_array_equal(found.partial_fit(rows).cluster_centers_, model.partial_fit(rows).cluster_centers_)


def test_unfitted_estimators(model, tmp_path):
    assert repr(save_and_load(model, tmp_path).get_params()) == repr(model.get_params())


def test_feature_names_and_parameters(model, tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "β", "c\n", "<d>"])
    found = save_and_load(model.set_output(transform="pandas").fit(table), tmp_path)
    assert list(found.feature_names_in_) == list(table.columns)
    assert found.feature_names_in_.dtype == object
    pandas.testing.assert_frame_equal(found.transform(table), model.transform(table))


def test_array_init(tmp_path):
    start = X[:3].tolist()
    model = shoal.KMeans(3, init=start).fit(X)
    assert save_and_load(model, tmp_path).init == start
    frames = pytest.importorskip("pandas")
    found = save_and_load(shoal.KMeans(3, init=frames.DataFrame(X[:3])).fit(X), tmp_path)
    np.testing.assert_array_equal(found.init, X[:3])


def test_numpy_scalars_as_parameters(tmp_path):
    rows = blobs(60, 3, 3)[0]
    for algorithm in np.array(["lloyd", "elkan"]):
        model = shoal.KMeans(3, algorithm=algorithm, init=np.str_("random"), random_state=0).fit(rows)
        shoal.save(model, tmp_path / "model.npz")
        assert shoal.load(tmp_path / "model.npz").algorithm_ == algorithm


def test_functions_are_omitted_with_a_warning(tmp_path):
    options = {"callback": print, "random_state": np.random.RandomState(0), "init": lambda X, k, random_state: X[:k]}
    model = shoal.KMeans(3, **options)
    with pytest.warns(UserWarning, match="callback, init, random_state cannot be saved"):
        found = save_and_load(model, tmp_path)
    assert (found.callback, found.init, found.random_state) == (None, "k-means++", None)


def test_codes(tmp_path):
    code = shoal.binary.itq(X, 8, random_state=0)
    found = save_and_load(code, tmp_path)
    assert type(found) is type(code)
    np.testing.assert_array_equal(found.encode(X).words, code.encode(X).words)


@pytest.mark.parametrize("value", [3, "model", None, [1], {"a": 1}])
def test_objects_that_are_not_models(value, tmp_path):
    with pytest.raises(TypeError, match="give an estimator"):
        shoal.save(value, tmp_path / "x.npz")


def test_attributes_of_the_user_are_omitted_with_a_warning(tmp_path):
    model = shoal.KMeans(3).fit(X)
    model.note_ = object()
    with pytest.warns(UserWarning, match="note_ cannot be saved"):
        found = save_and_load(model, tmp_path)
    assert not hasattr(found, "note_")


def test_values_that_cannot_be_saved(tmp_path):
    with pytest.raises(TypeError, match=r"init is an array of complex128"):
        shoal.save(shoal.KMeans(3, init=np.ones((3, 4), complex)), tmp_path / "x.npz")
    assert not list(tmp_path.iterdir())


def test_equal_models_give_equal_files(tmp_path):
    model = shoal.KMeans(3, random_state=0).fit(X)
    for name in ("a", "b"):
        shoal.save(model, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_numpy_can_read_the_file(tmp_path):
    model = shoal.KMeans(3, random_state=0).fit(X)
    shoal.save(model, tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as arrays:
        manifest = json.loads(arrays["manifest.json"])
        _, _, learned = manifest["content"]["$model"]
        np.testing.assert_array_equal(arrays[learned["cluster_centers_"]["$array"]], model.cluster_centers_)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values)
def test_any_value_is_restored(value):
    writer = Writer()
    encoded = json.loads(json.dumps(writer.encode(value, "it"), allow_nan=False))
    assert equal(Reader(writer.arrays, "it").decode(encoded), value)


@pytest.mark.parametrize(
    "array", [np.zeros((0, 3)), np.array(2.5), np.asfortranarray(X), X[::2, ::2], X.astype(">f4"), X > 0, np.array(["a", "ß"])]
)
def test_any_array_is_restored(array, tmp_path):
    archive.write(tmp_path / "x", "test", None, {"a0": array})
    found = archive.read(tmp_path / "x", "test")[1]["a0"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    assert found.flags.writeable


class TestDamage:
    """Flipped bits and truncated files."""

    @pytest.fixture
    def data(self, tmp_path):
        path = tmp_path / "model.npz"
        shoal.save(shoal.KMeans(3, random_state=0).fit(X), path)
        return path.read_bytes()

    def test_bits(self, data, tmp_path):
        rng, path = np.random.default_rng(0), tmp_path / "model.npz"
        for at in {*range(100), *range(len(data) - 200, len(data)), *rng.integers(0, len(data), 900 * TIMES).tolist()}:
            changed = bytearray(data)
            changed[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(changed)
            with pytest.raises(InvalidModelError, match=r"does not match its checksum|was not written by"):
                shoal.load(path)

    def test_cuts(self, data, tmp_path):
        path = tmp_path / "model.npz"
        for size in {0, 1, 63, 64, 76, 77, 78, *np.random.default_rng(0).integers(0, len(data), 30 * TIMES).tolist()}:
            path.write_bytes(data[:size])
            with pytest.raises(InvalidModelError, match="cut"):
                shoal.load(path)
        path.write_bytes(data + b"\0")
        with pytest.raises(InvalidModelError):
            shoal.load(path)


def write_sealed(path, manifest=None, compress=zipfile.ZIP_STORED, **members):
    """Write an archive with valid hashes, whose members are replaced by these."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compress) as file:
        for name, data in members.items():
            file.writestr(name.replace("__", "/"), data)
        if manifest is not None:
            file.writestr("manifest.json", manifest if isinstance(manifest, str | bytes) else json.dumps(manifest))
        file.comment = archive.SEAL + b"0" * 64
    data = stream.getvalue()[:-64]
    path.write_bytes(data + archive._digest(io.BytesIO(data), len(data)).encode())
    return path


def manifest_of(content, version=archive.VERSION, form="shoal model", **arrays):
    return {"format": form, "version": version, "arrays": arrays, "content": content}


def estimator(learned=None, tag="kmeans", **params):
    return {"$model": [tag, params, learned or {}]}


def object_array():
    stream = io.BytesIO()
    np.save(stream, np.array([print], object), allow_pickle=True)
    return stream.getvalue()


def huge_array(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue()


FRAME = {"$record": ["frame", {}]}
NONE = {"dtype": "<f8", "shape": [0], "sha256": ""}
HOSTILE = {
    "a newer one": (manifest_of(estimator(), version=3), {}, "newer version of Shoal .format 3"),
    "an earlier one": (manifest_of(estimator(), version=1), {}, "earlier version of Shoal .format 1.*fit again"),
    "of another kind": (manifest_of(estimator(), form="shoal checkpoint"), {}, "'shoal checkpoint'"),
    "no manifest": (None, {}, "manifest.json"),
    "no JSON": ("{", {}, "manifest that cannot be read"),
    "a list": ("[]", {}, "manifest"),
    "deep JSON": ("[" * 100_000 + "]" * 100_000, {}, "RecursionError|manifest"),
    "deep content": (
        '{"format": "shoal model", "version": 2, "arrays": {}, "content": ' + "[" * 900 + "]" * 900 + "}",
        {},
        "RecursionError",
    ),
    "long numbers": ('{"format": "shoal model", "version": ' + "9" * 10_000 + "}", {}, "manifest"),
    "odd version": (manifest_of(estimator(), version="1"), {}, "members"),
    "more members": (manifest_of(estimator()), {"a0.npy": b"x"}, "members differ from those"),
    "fewer members": (manifest_of(estimator(), a0=NONE), {}, "members differ from those"),
    "paths": (manifest_of(estimator(), **{"../a0": NONE}), {"..__a0.npy": b""}, "members differ from those"),
    "an object array": (manifest_of(estimator(), a0=NONE), {"a0.npy": object_array()}, "never unpickles"),
    "a huge array": (manifest_of(estimator(), a0=NONE), {"a0.npy": huge_array((10**6, 10**6))}, "8,000,000,000,"),
    "an array below zero": (manifest_of(estimator(), a0=NONE), {"a0.npy": huge_array((-1, 8))}, "negative number of bytes"),
    "no array": (manifest_of(estimator(), a0=NONE), {"a0.npy": b"hello"}, "NumPy"),
    "a wrong digest": (
        manifest_of(estimator(), a0=NONE),
        {"a0.npy": huge_array((0,))},
        "differs from its entry in the manifest",
    ),
    "a class of others": (manifest_of(estimator(tag="os:PathLike")), {}, "not the tag of a Shoal class"),
    "a class by its module": (manifest_of(estimator(tag="shoal.kmeans.kmeans:KMeans")), {}, "not the tag of a Shoal class"),
    "a tag that is a list": (manifest_of(estimator(tag=["kmeans"])), {}, "not the tag of a Shoal class"),
    "no estimator": (manifest_of(estimator(tag="frame")), {}, "not an estimator"),
    "no record": (manifest_of({"$record": ["kmeans", {}]}), {}, "not a record"),
    "odd parameters": (manifest_of(estimator(nonsense=1)), {}, "did not write"),
    "methods": (manifest_of(estimator({"predict": 1})), {}, "not a fitted attribute"),
    "dunders": (manifest_of(estimator({"__class__": 1})), {}, "not a fitted attribute"),
    "an unknown kind": (manifest_of({"$pickle": "x"}), {}, "did not write"),
    "a private kind": (manifest_of({"$decode": "x"}), {}, "did not write"),
    "an array that is not there": (manifest_of(estimator({"labels_": {"$array": "a7"}})), {}, "did not write"),
    "a broken matrix": (
        manifest_of(estimator({"_frame": {"$csr": [[2, 2], True, [1.0], [7], [0, 1, 1]]}})),
        {},
        "did not write",
    ),
    "a number": (manifest_of(3), {}, "no model"),
    "an object without parts": (manifest_of(estimator({"_frame": {"$object": ["frame", {}]}})), {}, "these parts"),
    "an object of other parts": (
        manifest_of(estimator({"_frame": {"$object": ["spectral.affinity.precomputed", {"__dict__": 1}]}})),
        {},
        "these parts",
    ),
    "rows of objects": (manifest_of(estimator({"_frame": {"$rows": [[[1.0]], FRAME, "|O", 1]}})), {}, "invalid rows"),
    "rows in no frame": (manifest_of(estimator({"_frame": {"$rows": [[[1.0]], 3, "<f4", 1]}})), {}, "invalid rows"),
}


@pytest.mark.parametrize("tag", registry.CLASSES)
def test_every_tag_names_a_class(tag):
    cls = registry.class_of(tag)
    assert registry.tag_of(cls, "it") == tag
    assert registry.CLASSES[tag] == f"{cls.__module__}:{cls.__qualname__}"


def test_every_estimator_has_a_tag():
    models = [value for value in (getattr(shoal, name) for name in shoal.__all__) if hasattr(value, "_fitted_schema")]
    assert len(models) >= 14
    assert all(registry.tag_of(model, "it") for model in models)


def test_arrays_carry_the_names_of_attributes(tmp_path):
    shoal.save(shoal.KMeans(3, random_state=0).fit(X), tmp_path / "model.npz")
    shoal.save(shoal.ExactSpectral(5, random_state=0).fit(X), tmp_path / "spectral.npz")
    with np.load(tmp_path / "model.npz") as model, np.load(tmp_path / "spectral.npz") as spectral:
        assert {"cluster_centers_", "labels_"} <= set(model.files)
        assert {"embedding_", "labels_", "kmeans_.cluster_centers_", "extension_.map.P"} <= set(spectral.files)


@pytest.mark.parametrize("name", HOSTILE)
def test_malicious_files(name, tmp_path):
    manifest, members, says = HOSTILE[name]
    path = write_sealed(tmp_path / "model.npz", manifest, **members)
    tracemalloc.start()
    with pytest.raises(InvalidModelError, match=says) as caught:
        shoal.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert "model.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_clusters": -5}, "n_clusters"),
        ({"n_threads": "x"}, "n_threads"),
        ({"cluster_centers_": np.full((3, 4), np.nan)}, "cluster_centers_ holds values from nan"),
        ({"cluster_centers_": np.zeros((0, 4))}, "cluster_centers_ has shape"),
        ({"cluster_centers_": "many"}, "cluster_centers_ is of type str"),
        ({"labels_": np.full(300, 2**30, np.int32)}, "labels_ holds values"),
    ],
)
def test_invalid_fitted_attributes(change, says, tmp_path, monkeypatch):
    model = shoal.KMeans(3, random_state=0).fit(X)
    vars(model).update(change)
    with pytest.raises(ValueError, match=says):
        shoal.save(model, tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(models, "check_model", lambda _: None)
        shoal.save(model, tmp_path / "model.npz")
    with pytest.raises(InvalidModelError, match=says):
        shoal.load(tmp_path / "model.npz")


def test_decompression_bomb(tmp_path):
    path = write_sealed(tmp_path / "model.npz", manifest_of(estimator()), zipfile.ZIP_DEFLATED, **{"a0.npy": bytes(1 << 24)})
    with pytest.raises(InvalidModelError, match="compressed members"):
        shoal.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        shoal.load(tmp_path / "model.npz")


class TestDisk:
    """If writing fails, the earlier file is unchanged and no other file remains."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "model.npz"
        shoal.save(shoal.KMeans(2, random_state=0).fit(X), path)
        return path

    @pytest.mark.parametrize("site", ["fsync", "replace"])
    @pytest.mark.parametrize("number", [5, 28])
    def test_errors(self, path, monkeypatch, site, number):
        before = path.read_bytes()

        def fail(*_):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(archive.os, site, fail)
            with pytest.raises(OSError, match=r"as it was.*model.npz"):
                shoal.save(shoal.KMeans(3, random_state=0).fit(X), path)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_disk_full_at_any_byte(self, path):
        resource = pytest.importorskip("resource")
        model, before = shoal.KMeans(3, random_state=0).fit(X), path.read_bytes()
        import signal

        old, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            for size in range(0, len(before), 997):
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
                try:
                    with pytest.raises(OSError, match=r"as it was.*model.npz"):
                        shoal.save(model, path)
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                assert path.read_bytes() == before
                assert list(path.parent.iterdir()) == [path]
        finally:
            signal.signal(signal.SIGXFSZ, old)

    def test_missing_folder(self, path):
        with pytest.raises(OSError, match=r"model.npz"):
            shoal.save(shoal.KMeans(2), path.parent / "nowhere" / "model.npz")


def test_imports_are_lazy():
    """Importing Shoal does not import large packages before they are used."""
    code = """
import sys, shoal
loaded = lambda *names: [name for name in names if name in sys.modules]
dir(shoal)
print(*loaded("numpy", "sklearn", "numba", "pyarrow"))
shoal.open_rows, shoal.load
print(*loaded("zarr", "h5py"))
import shoal.report
print(*loaded("jinja2"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "\n" * 3


@settings(max_examples=30)
@given(st.binary(max_size=300))
def test_noise(tmp_path_factory, noise):
    path = tmp_path_factory.mktemp("noise") / "model.npz"
    path.write_bytes(noise)
    with pytest.raises(InvalidModelError):
        shoal.load(path)


def test_shared_arrays():
    """Two states of a checkpoint that share an array would overwrite each other's values."""
    one, other = Reader({"a0": np.zeros(3)}, "it").decode([{"$array": "a0"}, {"$array": "a0"}])
    one[0] = 1
    assert other[0] == 0


def test_rows_of_text(tmp_path):
    rows = {"$rows": [{"$array": "a0"}, FRAME, "<f8", 4096]}
    found = Reader({"a0": np.full((5, 2), "abc")}, "it").decode(rows)
    with pytest.raises(ValueError, match="expected rows of numbers"):
        schema.RowsSpec("n", "d").check(found, "rows", {})
