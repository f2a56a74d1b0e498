"""Benchmark problems: rows, number of clusters and initial centroids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from shoal.papers.data import arrays, path_of, text
from shoal.papers.made import unit_rows

Array = np.ndarray[Any, Any]

FRANTI_SITE = "the clustering basic benchmark, cs.uef.fi/sipu/datasets: X and centroids"

FRANTI = {  # sums of squares after Lloyd from the published centroids, float64
    "a1": 1.21463e10,
    "a2": 2.02867e10,
    "a3": 2.89375e10,
    "s1": 8.91765e12,
    "s2": 1.32793e13,
    "s3": 1.68896e13,
    "s4": 1.57056e13,
    "birch1": 9.27729e13,
    "birch2": 4.56724e11,
    "unbalance": 2.14492e11,
    "dim032": 232535.1,
    "dim064": 216993.5,
}


@dataclass(frozen=True)
class Problem:
    """Rows to cluster. `steps` are the two numbers of iterations whose difference gives the time of one."""

    name: str
    k: int
    load: Callable[[], Any]  # float32 rows, dense or CSR
    steps: tuple[int, int] = (1, 6)
    most_repeats: int = 9  # fewer for fits that take minutes
    long: bool = False  # takes half an hour: run only if it is named
    lengths: tuple[int, ...] = (1, 2, 3, 5, 8, 12, 20, 40, 100)  # iterations of the fits of a race


def dense(rows: Any) -> Array:
    """Return rows as a dense array."""
    return rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)


def start_of(X: Any, k: int, seed: int = 0) -> Array:
    """Return k distinct random rows; of two equal centroids, one would be empty."""
    order = np.random.default_rng(seed).permutation(X.shape[0])
    take = order[: 2 * k]
    rows = dense(X[take])
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])[:k]
    if len(first) < k:
        raise ValueError(f"fewer than {k} distinct rows among {len(take)}")
    return np.ascontiguousarray(rows[first])


def blobs(n: int, d: int, m: int, seed: int = 0) -> Array:
    """Return rows of m overlapping Gaussian clusters, about two standard deviations apart.

    Fits do not converge within the iterations that are timed.
    """
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((m, d), dtype=np.float32) * np.float32(np.sqrt(2 / d))
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += centers[rng.integers(m, size=n)]
    return X


def sparse_rows(n: int, d: int, per_row: int, seed: int = 0) -> Any:
    """Return sparse unit rows with a few entries each, for quick runs without data files."""
    rng = np.random.default_rng(seed)
    columns = (rng.exponential(d / 8, (n, per_row)).astype(np.int64) + rng.integers(4, size=(n, 1)) * (d // 4)) % d
    X = sparse.csr_array((np.ones(n * per_row, np.float32), (np.repeat(np.arange(n), per_row), columns.ravel())), shape=(n, d))
    return unit_rows(X)


def two_clouds(n: int) -> Array:
    """Return rows alternating between two unit squares; even rows are near the origin."""
    X = np.empty((n, 2), np.float32)
    rng = np.random.default_rng(0)
    for a in range(0, n, 1 << 20):
        part = X[a : a + (1 << 20)]
        part[:] = rng.random(part.shape, dtype=np.float32)
        part[1::2] += 2
    return X


def mnist() -> Array:
    return np.asarray(arrays("mnist")["X"], np.float32) / np.float32(255)


def sift() -> Array:
    return np.ascontiguousarray(arrays("sift_bsds500")["X"], np.float32)


def covtype() -> Array:
    X = arrays("covtype")["X"].astype(np.float64)
    spread = X.std(axis=0)
    return np.ascontiguousarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1), np.float32)


def _text(name: str) -> Any:
    return text(arrays(name))[0]


newsgroups, wordnet = partial(_text, "20newsgroups"), partial(_text, "wordnet_glosses")


def franti(name: str) -> tuple[Array, int]:
    """Return the rows in float64 and the number of clusters."""
    parts = np.load(path_of(f"franti/{name}", FRANTI_SITE))
    return parts["X"].astype(np.float64), len(parts["centroids"])


def gloss() -> Array:
    return np.ascontiguousarray(
        np.load(path_of("gloss_embeddings", "sentence embeddings of WordNet's glosses: X"))["X"], np.float32
    )


def noise(d: int, n: int = 100_000) -> Array:
    """Return uniform noise, in which no algorithm can save much."""
    return np.random.default_rng(d).random((n, d), dtype=np.float32)


def power_law(n: int = 100_000, d: int = 100, m: int = 500) -> Array:
    """Return Gaussian clusters of equal variance in all directions, the size of the j-th proportional to 1 / j."""
    rng = np.random.default_rng(0)
    sizes = 1 / np.arange(1, m + 1)
    y = rng.choice(m, n, p=sizes / sizes.sum())
    return rng.standard_normal((n, d), dtype=np.float32) + rng.standard_normal((m, d), dtype=np.float32)[y]


def duplicates(n: int = 100_000, d: int = 32, m: int = 8000) -> Array:
    """Return rows most of which occur many times: about 8000 are distinct, some of which occur hundreds of times."""
    rng = np.random.default_rng(0)
    often = 1 / np.arange(100, 100 + m)
    return blobs(m, d, 50)[rng.choice(m, n, p=often / often.sum())]


def _blobs_problem(name: str, n: int, d: int, k: int, steps: tuple[int, int] = (1, 6)) -> Problem:
    return Problem(name, k, lambda: blobs(n, d, k), steps)


def _with_classes(name: str, rows: Callable[[], Any]) -> tuple[Any, Array]:
    parts = arrays(name)
    y = parts["y"]
    return rows(), y[np.diff(parts["indptr"]) > 0] if "indptr" in parts else y


def tiny_classes() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=3000)
    return (rng.normal(size=(5, 30))[y] + rng.normal(size=(3000, 30)) / 2).astype(np.float32), y


def _plain(name: str) -> Array:
    return np.ascontiguousarray(arrays(name)["X"], np.float32)


CLASSES = {
    "usps": partial(_with_classes, "usps", partial(_plain, "usps")),
    "mnist": partial(_with_classes, "mnist", mnist),
    "20newsgroups": partial(_with_classes, "20newsgroups", newsgroups),
    "covtype": partial(_with_classes, "covtype", covtype),
    "pendigits": partial(_with_classes, "pendigits", partial(_plain, "pendigits")),
    "letter": partial(_with_classes, "letter", partial(_plain, "letter")),
}

TINY = _blobs_problem("tiny", 4000, 64, 20)
TINY_SPARSE = Problem("tiny-sparse", 20, lambda: sparse_rows(3000, 400, 8))

LLOYD = [
    _blobs_problem("200k-d128-k1000", 200_000, 128, 1000),
    _blobs_problem("100k-d784-k50", 100_000, 784, 50, (1, 21)),
    _blobs_problem("1M-d16-k100", 1_000_000, 16, 100, (1, 21)),
    _blobs_problem("1M-d2-k50", 1_000_000, 2, 50, (1, 41)),
    _blobs_problem("500k-d54-k7", 500_000, 54, 7, (1, 51)),
    Problem("100k-d768-k4096", 4096, lambda: blobs(100_000, 768, 4096), (1, 2), most_repeats=2),
]
WIDE = [Problem("mnist-k1000", 1000, mnist), Problem("sift-k1000", 1000, sift)]
CONVERGE = [
    Problem("mnist-k50", 50, mnist),
    Problem("covtype-k50", 50, covtype),
    Problem("sift-k1000", 1000, sift, most_repeats=1, long=True),
]
REACH = [
    Problem("mnist-k50", 50, mnist, lengths=(2, 4, 6, 8, 10, 12, 16, 30)),
    Problem("covtype-k50", 50, covtype, lengths=(2, 4, 6, 8, 12, 16, 30)),
    Problem("sift-k1000", 1000, sift, lengths=(6, 10, 16), most_repeats=1),
    Problem("20newsgroups-k50", 50, newsgroups, lengths=(2, 4, 6, 8, 12, 20, 40)),
    Problem("wordnet-k50", 50, wordnet, lengths=(2, 4, 6, 8, 12, 20), most_repeats=2),
]
VARIANCE = [Problem("mnist-k100", 100, mnist), Problem("sift-k1000", 1000, sift, most_repeats=1, long=True)]
COMPRESS = [
    Problem("mnist-k10", 10, mnist),
    Problem("sift-k10", 10, sift),
    Problem("mnist-k1000", 1000, mnist, most_repeats=2),
    Problem("sift-k1000", 1000, sift, most_repeats=1, long=True),
]
ENDS = [Problem("mnist-k50", 50, mnist), Problem("covtype-k50", 50, covtype), Problem("20newsgroups-k50", 50, newsgroups)]
STREAM = [*ENDS, Problem("sift-k1000", 1000, sift, most_repeats=1)]
ALGORITHMS = [
    Problem("mnist-k50", 50, mnist),
    Problem("mnist-k1000", 1000, mnist),
    Problem("covtype-k50", 50, covtype),
    LLOYD[0],
    LLOYD[3],
    LLOYD[4],
    Problem("20newsgroups-k10", 10, newsgroups),
    Problem("20newsgroups-k100", 100, newsgroups),
]

MAP_CLUSTERS = (10, 50, 200, 1000)
MAP_MIN_ROWS, MAP_MAX_ROWS = 20_000, 100_000  # rows that are kept of larger sets
MAP_MAX_PRODUCTS = 2e9  # multiplications of a plain step, rows * columns * clusters, above which rows are drawn
MAP_MAX_CENTER_ENTRIES = 2e7  # columns * clusters of sparse rows, whose centroids are dense
MAP_ROWS_PER_CLUSTER = 20  # below which there is no problem for this number of clusters

MAP: dict[str, Callable[[], Any]] = {
    "mnist": mnist,
    "covtype": covtype,
    "sift": sift,
    "gloss": gloss,
    "20newsgroups": newsgroups,
    "wordnet": wordnet,
    **{name: partial(_plain, name) for name in ("letter", "pendigits", "shuttle", "usps")},
    **{name: lambda name=name: franti(name)[0].astype(np.float32) for name in ("birch1", "a3")},  # type: ignore[misc]
    **{f"noise{d}": partial(noise, d) for d in (2, 16, 64, 256)},
    "power-law": power_law,
    "duplicates": duplicates,
}
MAP_TINY: dict[str, Callable[[], Any]] = {"tiny": lambda: blobs(4000, 64, 20), "tiny-sparse": lambda: sparse_rows(3000, 400, 8)}


def map_rows(X: Any, k: int) -> Any:
    """Return rows for k clusters: all, or as many random ones as a plain step can assign in a fraction of a second."""
    n, d = X.shape
    columns = X.nnz / n if sparse.issparse(X) else d
    most = min(MAP_MAX_ROWS, max(MAP_MIN_ROWS, MAP_ROWS_PER_CLUSTER * k, int(MAP_MAX_PRODUCTS / (columns * k))))
    if n <= most:
        return X
    return X[np.sort(np.random.default_rng(0).choice(n, most, replace=False))]
