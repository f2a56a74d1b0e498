"""Change models and checkpoints and recompute their hashes. Prints a line of JSON for each change that does harm.

Run as `python -m tests.formats.resealed SHARE [ESTIMATOR...]`: SHARE of all changes are tried. The last line counts them.
`NUMBA_BOUNDSCHECK=1` (with a `NUMBA_CACHE_DIR` of its own) makes accesses beyond the end of an array errors.
"""

import copy
import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import shoal
from shoal.formats import archive
from shoal.report import gather
from tests.strategies import blobs

X = blobs(120, 4, 3, spread=2)[0].astype(np.float32)
PRECOMPUTED = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 4)
MODELS = {
    "KMeans": lambda: shoal.KMeans(3, n_init=2, init="random", tol=0, random_state=1),
    "cosine": lambda: shoal.KMeans(3, metric="cosine", tol=0, random_state=1),
    "NestedKMeans": lambda: shoal.NestedKMeans(3, batch_size=30, quality=1e-6, tol=0, random_state=1),
    "HierarchicalKMeans": lambda: shoal.HierarchicalKMeans(12, n_levels=2, n_neighbors=4, max_iter=6, tol=0, random_state=1),
    "MiniBatchKMeans": lambda: shoal.MiniBatchKMeans(3, batch_size=40, max_iter=5, tol=0, random_state=1),
    "OnlineKMeans": lambda: shoal.OnlineKMeans(3, then="batch", tol=0, max_iter=5, random_state=1),
    "GradientKMeans": lambda: shoal.GradientKMeans(3, mode="online", max_iter=5, tol=0, random_state=1),
    "VarianceReducedKMeans": lambda: shoal.VarianceReducedKMeans(3, max_iter=5, tol=0, random_state=1),
    "SphericalMixture": lambda: shoal.SphericalMixture(3, n_init=2, init="random", max_iter=4, tol=0, random_state=1),
    "BinaryKMeans": lambda: shoal.BinaryKMeans(3, n_init=2, init="random", max_iter=5, random_state=1),
    "CompressedKMeans": lambda: shoal.CompressedKMeans(3, n_bits=16, max_iter=4, random_state=1),
    "refined": lambda: shoal.CompressedKMeans(3, n_bits=16, max_iter=4, refine=True, random_state=1),
    "MiniBatchSpectral": lambda: shoal.MiniBatchSpectral(3, batch_size=20, max_iter=4, tol=0, n_init=2, random_state=1),
    "PowerSpectral": lambda: shoal.PowerSpectral(3, max_iter=3, tol=0, n_init=2, random_state=1),
    "NystromSpectral": lambda: shoal.NystromSpectral(3, n_samples=20, affinity="self-tuning", n_init=2, random_state=1),
    "LandmarkSpectral": lambda: shoal.LandmarkSpectral(3, n_landmarks=20, n_init=2, random_state=1),
    "ExactSpectral": lambda: shoal.ExactSpectral(3, affinity="knn", n_init=2, random_state=1),
    "precomputed": lambda: shoal.ExactSpectral(3, affinity="precomputed", n_init=2, random_state=1),
    "Standardized": lambda: shoal.Standardized(shoal.KMeans(3, random_state=1)),
    "LinearCode": lambda: None,
}
SCALARS = [None, True, -1, 0, 7, 2**40, 1e308, 0.5, "x", [], {"$float": "nan"}, {"$tuple": []}]
CLASSES = ["frame", "nested_kmeans", "spectral.affinity.precomputed"]


def data_for(name):
    return PRECOMPUTED if name == "precomputed" else X


def arrays_like(a, others):
    """Return arrays of other shapes, types and values to replace an array with."""
    yield from (a[:1], a[:-1], a[:0], np.concatenate([a, a]), a.ravel(), a[None], np.zeros(()), np.zeros(0))
    if a.ndim == 2:
        yield from (a.T, a[:, :1], a[:, :0], np.hstack([a, a]))
    kinds = (np.float64, np.float32, np.int32, np.int64, np.uint64, bool, ">f8", "U3")
    yield from (a.astype(kind) for kind in kinds if a.dtype != kind)
    values = {"f": (np.nan, np.inf, 1e300, -1), "i": (0, 1, -1, 2**30), "u": (0, 1, 2**63)}.get(a.dtype.kind, ())
    with np.errstate(over="ignore"):
        yield from (np.full_like(a, value) for value in values)
    yield a[::-1]
    yield from others


def nodes(value, path=()):
    """Yield the paths of all values in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from nodes(inner, (*path, key))


def changes(content, arrays):
    """Yield all changed documents with descriptions of the changes."""
    for name, array in arrays.items():
        others = [other for key, other in arrays.items() if key != name][:3]
        for i, new in enumerate(arrays_like(array, others)):
            yield f"array {name} -> {i}: {new.dtype}{new.shape}", content, {**arrays, name: np.ascontiguousarray(new)}
    for path in nodes(content):
        parent, last = content, path[-1]
        for key in path[:-1]:
            parent = parent[key]
        old = parent[last]
        options = SCALARS + list(arrays)[:3] + CLASSES if isinstance(old, str) else SCALARS
        for new in [*(o for o in options if o != old or type(o) is not type(old)), "delete"]:
            changed = copy.deepcopy(content)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            if new == "delete":
                del inner[last]
            else:
                inner[last] = new
            yield f"{'/'.join(map(str, path))} -> {json.dumps(new)[:40]}", changed, arrays


def use_fitted(model, rows, _=None):
    """Call all methods that take rows; predictions must be valid labels."""
    labels = model.predict(rows)
    assert labels.shape == (len(rows),)
    assert labels.min() >= 0
    for method in ("transform", "score", "predict_proba", "score_samples"):
        if hasattr(model, method):
            getattr(model, method)(rows)
    gather(model, rows)
    if hasattr(model, "partial_fit"):
        model.partial_fit(rows)


def use_model(path, rows, kind):
    """Load a model, use it and save it again."""
    model = shoal.load(path)
    if kind == "LinearCode":
        codes = model.encode(rows)
        assert codes.words.shape[0] == len(rows)
        return
    use_fitted(model, rows)
    shoal.save(model, path)


def use_checkpoint(path, rows, kind):
    with shoal.Checkpoint(path, every=1e9):
        model = MODELS[kind]().fit(rows)
    labels = model.predict(rows)
    if kind != "precomputed":  # it has no mapping of new rows
        np.testing.assert_array_equal(model.labels_, labels)
    shoal.save(model, path)


def make_model(path, kind):
    rows = data_for(kind)
    model = shoal.binary.itq(rows, 8, random_state=0) if kind == "LinearCode" else MODELS[kind]().fit(rows)
    shoal.save(model, path)


def make_checkpoint(path, kind, after):
    """Write the checkpoint of a fit after `after` writes; return False if there are fewer."""
    left, store = [after], shoal.Checkpoint(path, every=0)
    offer = store.offer

    def counted(progress):
        store._next = -1.0
        offer(progress)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    store.offer = counted
    try:
        with store:
            MODELS[kind]().fit(data_for(kind))
    except KeyboardInterrupt:
        return True
    return False


def describe_harm(use, path, rows, kind):
    """Return None if a file is rejected or used without harm, or else a description of the failure."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            use(path, rows, kind)
    except (ValueError, MemoryError) as error:
        return None if "\n" not in str(error) else f"several lines: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def try_all(path, kind, form, use, share):
    """Return the number of changes that were tried, and of those that did harm."""
    content, arrays = archive.read(path, form)
    tried = failed = 0
    for number, (what, new, parts) in enumerate(changes(content, arrays)):
        if int(number * share) == int((number - 1) * share):
            continue
        archive.write(path, form, new, parts)
        print(f"trying {kind} {form} {what}", file=sys.stderr, flush=True)  # the last line before a crash
        wrong = describe_harm(use, path, data_for(kind), kind)
        tried += 1
        if wrong is not None:
            failed += 1
            print(json.dumps({"estimator": kind, "file": form, "change": what, "error": wrong}), flush=True)
    return tried, failed


def main(folder, share, kinds):
    total = np.zeros(2, int)
    for kind in kinds:
        path = folder / "file.npz"
        make_model(path, kind)
        total += try_all(path, kind, "model", use_model, share)
        path.unlink()
        for after in (2, 3, 4) if kind not in ("LinearCode", "Standardized") else ():
            if make_checkpoint(path, kind, after):
                total += try_all(path, kind, "checkpoint", use_checkpoint, share)
            path.unlink(missing_ok=True)
    print(json.dumps({"tried": int(total[0]), "failed": int(total[1])}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), float(sys.argv[1]), sys.argv[2:] or list(MODELS))
