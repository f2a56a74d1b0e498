"""Compare the results of every estimator before and after a change, bit for bit.

`python -m bench.regression record FILE` writes labels, centroids, energies and histories of fits to small data sets;
`python -m bench.regression compare FILE` repeats the fits and lists every field that differs. Spectral results depend on the
LAPACK library and on the CPU, so record and compare on the same machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import shoal

TIMES = ("seconds",)  # fields of a history that differ from run to run
ATTRIBUTES = (
    "labels_",
    "cluster_centers_",
    "inertia_",
    "n_iter_",
    "stop_reason_",
    "embedding_",
    "eigenvalues_",
    "weights_",
    "variance_",
)
KMEANS: dict[str, list[dict[str, Any]]] = {
    "KMeans": [
        {},
        *({"algorithm": name} for name in ("lloyd", "hamerly", "elkan", "yinyang", "exponion")),
        *({"init": name} for name in ("k-means||", "afk-mc2", "random")),
        {"n_init": 3},
        {"metric": "cosine"},
    ],
    "NestedKMeans": [{}, {"batch_size": 100}, {"batch_size": 100, "quality": 0.01}, {"batch_size": 100, "metric": "cosine"}],
    "MiniBatchKMeans": [{}, {"batch_size": 100}, {"metric": "cosine"}],
    "OnlineKMeans": [{}, {"then": "batch"}, {"metric": "cosine"}],
    "GradientKMeans": [{}, {"mode": "online"}],
    "VarianceReducedKMeans": [{}, {"block_size": 50}],
    "SphericalMixture": [{}, {"n_init": 2, "init": "random"}],
    "CompressedKMeans": [{"n_bits": 32}, {"n_bits": 32, "refine": True}],
}
SPECTRAL: dict[str, list[dict[str, Any]]] = {
    "MiniBatchSpectral": [{"batch_size": 50}, {"batch_size": 50, "init": "random"}, {"affinity": "knn"}],
    "PowerSpectral": [{}],
    "NystromSpectral": [{"n_samples": 60}, {"n_samples": 60, "affinity": "self-tuning"}],
    "LandmarkSpectral": [{"n_landmarks": 40}],
    "ExactSpectral": [{}, {"affinity": "knn"}],
}


def data_sets() -> dict[str, tuple[Any, Any]]:
    """Return small data sets by name: rows, and weights or None."""
    rng = np.random.default_rng(0)
    groups = 4 * rng.normal(size=(12, 6))[rng.integers(12, size=3000)] + rng.normal(size=(3000, 6))
    wide = rng.normal(size=(20, 96))[rng.integers(20, size=1500)] + 0.7 * rng.normal(size=(1500, 96))
    text = sparse.random_array((1500, 400), density=0.03, rng=rng, dtype=np.float64).tocsr()
    text += sparse.csr_array(np.eye(400)[rng.integers(400, size=1500)])
    few = rng.integers(-2, 3, (600, 3)).astype(np.float64)
    return {
        "groups float32": (groups.astype(np.float32), None),
        "groups far, weighted": (groups + 1e6, rng.uniform(0, 3, 3000).round()),
        "wide float32": (wide.astype(np.float32), None),
        "sparse": (text, None),
        "sparse, weighted": (text.astype(np.float32), rng.uniform(0, 2, 1500)),
        "ties": (few, None),
    }


def digest(value: Any) -> str:
    """Return a short text that is equal for equal bits."""
    if isinstance(value, np.ndarray):
        data = f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
        return hashlib.sha256(data).hexdigest()[:16]
    return repr(value)


def describe(model: Any, X: Any) -> dict[str, str]:
    """Return all results of a fit as short texts."""
    found = {name: digest(getattr(model, name)) for name in ATTRIBUTES if hasattr(model, name)}
    steps = [{key: value for key, value in record.items() if key not in TIMES} for record in getattr(model, "history_", [])]
    return {**found, "history_": digest(np.frombuffer(repr(steps).encode(), np.uint8)), "predict": digest(model.predict(X))}


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], dict[str, str]]]]:
    """Yield every fit with its name."""
    for data, (X, weights) in data_sets().items():
        for name, options in ((name, each) for name, several in KMEANS.items() for each in several):
            make = getattr(shoal, name)

            def fit(make: Any = make, options: dict[str, Any] = options, X: Any = X, weights: Any = weights) -> dict[str, str]:
                return describe(make(8, random_state=3, **options).fit(X, sample_weight=weights), X)

            yield f"{name} {options} on {data}", fit
        if not sparse.issparse(X):
            yield f"file of {data}", lambda data=data, X=X: from_file(folder, data, X)
        yield f"cluster {data}", lambda X=X: describe(shoal.cluster(X, 8, random_state=1), X)
        yield (
            f"Standardized {data}",
            lambda X=X: describe(shoal.Standardized(shoal.KMeans(8, random_state=1)).fit(X).estimator_, X),
        )
        for name in ("MiniBatchKMeans", "OnlineKMeans"):
            yield f"partial_fit {name} {data}", lambda name=name, X=X: partial(name, X)
        few = X[:400]
        for name, options in ((name, each) for name, several in SPECTRAL.items() for each in several):
            make = getattr(shoal, name)
            yield (
                f"{name} {options} on {data}",
                lambda make=make, options=options, few=few: describe(
                    make(4, random_state=3, n_init=2, **options).fit(few), few
                ),
            )
    bits = np.random.default_rng(1).integers(0, 2, (800, 70)).astype(bool)
    yield "BinaryKMeans", lambda: describe(shoal.BinaryKMeans(6, random_state=0).fit(bits), bits)


def from_file(folder: Path, data: str, X: Any) -> dict[str, str]:
    path = folder / f"{data}.npy"
    np.save(path, X)
    return describe(shoal.KMeans(8, random_state=2).fit(shoal.open_rows(path)), X)


def partial(name: str, X: Any) -> dict[str, str]:
    model = getattr(shoal, name)(8, random_state=3)
    for start in range(0, X.shape[0], 500):
        model.partial_fit(X[start : start + 500])
    return describe(model, X)


def run() -> dict[str, dict[str, str]]:
    """Return the results of all fits; an error is a result."""
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        for name, fit in cases(Path(folder)):
            try:
                found[name] = fit()
            except Exception as error:
                found[name] = {"error": type(error).__name__}
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.regression", description=__doc__)
    parser.add_argument("command", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    found = run()
    if options.command == "record":
        options.file.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} fits recorded")
        return
    before = json.loads(options.file.read_text())
    differ = [
        f"{case}: {name}"
        for case in before
        for name in sorted({*before[case], *found.get(case, {})})
        if before[case].get(name) != found.get(case, {}).get(name)
    ]
    print("\n".join([*differ, f"{len(before)} fits compared, {len(differ)} fields differ"]))
    raise SystemExit(bool(differ))


if __name__ == "__main__":
    main()
