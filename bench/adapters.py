"""Adapters: one function per library that fits the same rows, from the same initial centroids if the library accepts them.

Libraries use all rows and do not stop early. A library that deviates from the requested settings raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from joblib import cpu_count

Array = np.ndarray[Any, Any]


class Fit(NamedTuple):
    """Result of a fit. `energy` and `distances` are the values reported by the library; 0 if it reports none."""

    centers: Array
    n_iter: int
    energy: float = 0.0
    distances: int = 0
    ran: str = ""  # the algorithm, if the library chooses one


@dataclass(frozen=True)
class Adapter:
    """A library and its function fit(X, C0, iters, tol)."""

    name: str
    package: str
    fit: Callable[[Any, Array, int, float], Fit]
    takes_start: bool = True  # otherwise it uses its own initialization
    takes_tol: bool = True  # otherwise it runs all its iterations
    efforts: tuple[float, ...] = ()  # values used instead of iterations when fits of several lengths are compared

    def missing(self) -> bool:
        """Return whether the package is not installed."""
        return find_spec(self.package) is None


def _shoal(algorithm: str) -> Callable[[Any, Array, int, float], Fit]:
    def fit(X: Any, C0: Array, iters: int, tol: float) -> Fit:
        from shoal import KMeans

        model = KMeans(len(C0), init=C0, max_iter=iters, tol=tol, algorithm=algorithm, n_threads=cpu_count()).fit(X)
        distances = sum(record["distances"] for record in model.history_)
        return Fit(model.cluster_centers_, model.n_iter_, model.inertia_, distances, model.algorithm_)

    return fit


def _nested(X: Any, C0: Array, quality: float, tol: float) -> Fit:
    from shoal import NestedKMeans

    quality = quality if quality < 1 else 0.0  # a warm-up passes a number of iterations
    model = NestedKMeans(len(C0), init=C0, quality=quality, tol=tol, random_state=0, n_threads=cpu_count()).fit(X)
    distances = sum(record["distances"] for record in model.history_)
    return Fit(model.cluster_centers_, model.n_iter_, model.inertia_, distances)


def _variance_reduced(rate: float, batch_gradient: bool = False) -> Callable[[Any, Array, float, float], Fit]:
    """Fit until the energy is at most `target`. A step reports the energy of its input centroids, which are then the result."""

    def fit(X: Any, C0: Array, target: float, tol: float) -> Fit:
        from shoal import VarianceReducedKMeans
        from shoal.papers.variance.blocks import VRKM

        options = {"learning_rate": rate, "random_state": 0, "n_threads": cpu_count()}
        cls = VRKM if batch_gradient else VarianceReducedKMeans
        model = cls(len(C0), init=C0, tol=tol, callback=lambda record: record["energy"] <= target, **options).fit(X)
        distances = sum(record["distances"] for record in model.history_)
        return Fit(model.cluster_centers_, model.n_iter_, model.inertia_, distances)

    return fit


def _stream(name: str) -> Callable[[Any, Array, int, float], Fit]:
    def fit(X: Any, C0: Array, epochs: int, tol: float) -> Fit:
        shoal = import_module("shoal")

        options = {"init": C0, "tol": 0.0, "random_state": 0, "n_threads": cpu_count()}
        if name == "minibatch":
            steps = epochs * -(-X.shape[0] // BATCH)
            model = shoal.MiniBatchKMeans(len(C0), batch_size=BATCH, max_iter=steps, max_no_improvement=None, **options).fit(X)
        else:
            model = shoal.OnlineKMeans(len(C0), max_iter=epochs, **options).fit(X)
        return Fit(model.cluster_centers_, epochs, model.inertia_)

    return fit


def _compressed(refine: bool) -> Callable[[Any, Array, int, float], Fit]:
    def fit(X: Any, C0: Array, iters: int, tol: float) -> Fit:
        from shoal import CompressedKMeans

        model = CompressedKMeans(len(C0), refine=refine, random_state=0, n_threads=cpu_count()).fit(X)
        return Fit(model.cluster_centers_, model.n_iter_, model.inertia_)

    return fit


BATCH = 1024


def _minibatch(X: Any, C0: Array, epochs: int, tol: float, per_center: int = 2) -> Fit:
    from sklearn.cluster import MiniBatchKMeans

    options = {"tol": 0.0, "max_no_improvement": None, "random_state": 0}
    size = max(BATCH, per_center * len(C0))
    model = MiniBatchKMeans(len(C0), init=C0, n_init=1, max_iter=epochs, batch_size=size, **options).fit(X)
    return Fit(model.cluster_centers_, epochs, model.inertia_)


def _sklearn(algorithm: str) -> Callable[[Any, Array, int, float], Fit]:
    def fit(X: Any, C0: Array, iters: int, tol: float) -> Fit:
        from sklearn.cluster import KMeans

        model = KMeans(len(C0), init=C0, n_init=1, max_iter=iters, tol=tol, algorithm=algorithm).fit(X)
        return Fit(model.cluster_centers_, model.n_iter_, model.inertia_)

    return fit


def _sklearnex(X: Any, C0: Array, iters: int, tol: float) -> Fit:
    from sklearnex.cluster import KMeans

    model = KMeans(len(C0), init=C0, n_init=1, max_iter=iters, tol=tol).fit(X)
    if not hasattr(model, "_onedal_estimator"):
        raise RuntimeError("scikit-learn-intelex handed the fit to scikit-learn")
    return Fit(np.asarray(model.cluster_centers_), model.n_iter_, model.inertia_)


def _faiss(X: Any, C0: Array, iters: int, tol: float) -> Fit:
    """Fit with faiss, which has no tolerance and returns centroids without final labels."""
    faiss: Any = import_module("faiss")
    k, d = C0.shape
    model = faiss.Clustering(d, k)
    model.niter = iters
    model.max_points_per_centroid = len(X)  # the default is a sample of 256 rows per centroid
    model.min_points_per_centroid = 1
    model.early_stop_threshold = -1.0  # the default stops as soon as its float32 objective repeats itself
    faiss.omp_set_num_threads(cpu_count())
    faiss.copy_array_to_vector(np.ascontiguousarray(C0, np.float32).ravel(), model.centroids)
    model.train(X, faiss.IndexFlatL2(d))
    done = model.iteration_stats.size()
    centers = faiss.vector_to_array(model.centroids).reshape(k, d)
    return Fit(centers, done, float(model.iteration_stats.at(done - 1).obj))


def _faiss_super(X: Any, C0: Array, iters: int, tol: float) -> Fit:
    """Fit with the approximate SuperKMeans of faiss: at least 32 columns, own initialization, no final labels."""
    faiss: Any = import_module("faiss")
    k, d = C0.shape
    faiss.omp_set_num_threads(cpu_count())
    model = faiss.SuperKmeans(d, k, niter=iters, max_points_per_centroid=len(X), min_points_per_centroid=1)
    model.train(X)
    return Fit(model.centroids, len(model.obj), float(model.obj[-1]))


def _superkmeans(X: Any, C0: Array, iters: int, tol: float, hierarchical: bool = False) -> Fit:
    """Fit with the approximate superkmeans: own initialization, no final labels."""
    from superkmeans import SuperKMeans

    k, d = C0.shape
    model = SuperKMeans(
        k,
        d,
        hierarchical=hierarchical,
        iters=iters,
        sampling_fraction=1.0,
        max_points_per_cluster=len(X),
        n_threads=cpu_count(),
        early_termination=False,
        tol=0.0,
    )
    centers = model.train(X)
    if model.sampled_indices is not None:
        raise RuntimeError("superkmeans took a sample of the rows")
    return Fit(centers, len(model.iteration_stats), float(model.iteration_stats[-1].objective))


SHOAL_ALGORITHMS = ("lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected")

ADAPTERS = {
    adapter.name: adapter
    for adapter in [
        Adapter("shoal", "shoal", _shoal("auto")),
        *[Adapter(f"shoal-{name}", "shoal", _shoal(name)) for name in SHOAL_ALGORITHMS],
        Adapter("shoal-nested", "shoal", _nested, efforts=(0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.004, 0.0)),
        Adapter("shoal-vrkm++", "shoal", _variance_reduced(1.0)),
        Adapter("shoal-vrkm++-4", "shoal", _variance_reduced(4.0)),
        Adapter("shoal-vrkm", "shoal", _variance_reduced(1.0, batch_gradient=True)),
        Adapter("shoal-minibatch", "shoal", _stream("minibatch")),
        Adapter("shoal-online", "shoal", _stream("online")),
        Adapter("shoal-compressed", "shoal", _compressed(False), takes_start=False, takes_tol=False),
        Adapter("shoal-compressed-refined", "shoal", _compressed(True), takes_start=False, takes_tol=False),
        Adapter("sklearn", "sklearn", _sklearn("lloyd")),
        Adapter("sklearn-minibatch-1024", "sklearn", partial(_minibatch, per_center=0)),
        Adapter("sklearn-minibatch", "sklearn", _minibatch, efforts=(1, 2, 4)),
        Adapter("sklearn-elkan", "sklearn", _sklearn("elkan")),
        Adapter("sklearnex", "sklearnex", _sklearnex),
        Adapter("faiss", "faiss", _faiss, takes_tol=False),
        Adapter("faiss-super", "faiss", _faiss_super, takes_start=False, takes_tol=False),
        Adapter("superkmeans", "superkmeans", _superkmeans, takes_start=False, takes_tol=False),
        Adapter(
            "superkmeans-hierarchical",
            "superkmeans",
            partial(_superkmeans, hierarchical=True),
            takes_start=False,
            takes_tol=False,
        ),
    ]
}
EXACT_PEERS = ("sklearn", "sklearnex", "faiss")
RACERS = ("sklearn", "sklearn-minibatch", "sklearnex", "faiss", "faiss-super", "superkmeans", "superkmeans-hierarchical")
SPARSE_RACERS = ("sklearn", "sklearn-minibatch", "sklearnex")


def seed_shoal(X: Array, k: int, seed: int) -> Callable[[], Array]:
    """Return a function that runs Shoal's k-means++ on rows whose statistics are already computed, as in a fit."""
    from shoal.data.rows import Rows
    from shoal.data.sources import find_source
    from shoal.data.statistics import measure
    from shoal.execution.threads import on_threads
    from shoal.fit.random_streams import generator
    from shoal.kmeans.init import INITIALIZERS

    rows = Rows.of(find_source(X))
    with on_threads(rows, cpu_count()) as opened:
        rows = rows.with_frame(measure(opened).frame, rows.dtype)

    def seed_it() -> Array:
        with on_threads(rows, cpu_count()) as opened:
            return rows.frame.out_of(INITIALIZERS.methods["k-means++"](opened, k, generator(seed, 0)), X.dtype)

    return seed_it


def seed_sklearn(X: Array, k: int, seed: int) -> Callable[[], Array]:
    """Return a function that runs scikit-learn's k-means++ on all rows, with precomputed norms, as in a fit."""
    from sklearn.cluster import kmeans_plusplus

    norms = np.einsum("ij,ij->i", X, X)
    return lambda: kmeans_plusplus(X, k, x_squared_norms=norms, random_state=seed)[0]


SEEDERS: dict[str, Callable[[Array, int, int], Callable[[], Array]]] = {"shoal": seed_shoal, "sklearn": seed_sklearn}


def labeller(library: str, X: Any, C: Array) -> Callable[[], Array]:
    """Return a function that labels the rows by these centroids."""
    if library == "shoal-codes":
        from shoal import BinaryKMeans, binary

        code = binary.lsh(X, 128, random_state=0)
        codes = code.encode(X)
        model: Any = BinaryKMeans(len(C), init=np.asarray(code.encode(C)), max_iter=1).fit(codes)
        return lambda: model.predict(codes)
    package = import_module({"shoal": "shoal", "sklearn": "sklearn.cluster"}[library])
    model = package.KMeans(len(C), init=C, n_init=1, max_iter=1).fit(X)
    return lambda: model.predict(X)


def restart(library: str, X: Array, k: int, n_init: int, seed: int) -> Fit:
    """Fit with the library's own initialization; the best of `n_init` runs."""
    model = (
        import_module({"shoal": "shoal", "sklearn": "sklearn.cluster"}[library])
        .KMeans(k, n_init=n_init, random_state=seed)
        .fit(X)
    )
    return Fit(model.cluster_centers_, model.n_iter_, model.inertia_)
