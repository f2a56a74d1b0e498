"""Quality measures against naive reference implementations."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import adjusted_rand_score, davies_bouldin_score, normalized_mutual_info_score

from shoal import KMeans, metrics
from tests import naive
from tests.strategies import blobs, cloud, problems

TABLES = pytest.mark.parametrize("table", [pd.DataFrame, lambda X, columns: pl.DataFrame(X, columns)], ids=["pandas", "polars"])
label_pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30)


@given(label_pairs)
def test_accuracy_is_that_of_the_best_matching(pairs):
    true, found = zip(*pairs, strict=True)
    assert metrics.accuracy(true, found) == pytest.approx(naive.accuracy(true, found))


@given(label_pairs)
def test_purity(pairs):
    true, found = zip(*pairs, strict=True)
    assert metrics.purity(true, found) == pytest.approx(naive.purity(true, found))
    assert metrics.accuracy(true, found) <= metrics.purity(true, found) <= 1


@given(label_pairs, st.permutations(range(5)))
def test_permuting_cluster_labels_changes_nothing(pairs, names):
    true, found = (np.array(part) for part in zip(*pairs, strict=True))
    renamed = np.array(names)[found]
    assert metrics.accuracy(true, found) == metrics.accuracy(true, renamed)
    assert metrics.purity(true, found) == metrics.purity(true, renamed)


def test_labels_may_be_strings():
    assert metrics.accuracy(["cat", "cat", "dog"], [7, 7, -1]) == 1
    assert metrics.purity(["cat", "cat", "dog"], [7, 7, 7]) == pytest.approx(2 / 3)


def test_scikit_learn_measures_are_exported():
    assert metrics.adjusted_rand_score is adjusted_rand_score
    assert metrics.normalized_mutual_info_score is normalized_mutual_info_score


@given(problems())
def test_energy(problem):
    exact = naive.energy(problem.X, problem.start, problem.weights)
    assert metrics.energy(problem.X, problem.start, problem.weights) == pytest.approx(exact, rel=1e-9, abs=1e-25)


@given(problems())
def test_energy_of_sparse_rows(problem):
    exact = naive.energy(problem.X, problem.start, problem.weights)
    found = metrics.energy(sparse.csr_array(problem.X), problem.start, problem.weights)
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-25)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("scale", [1e-200, 1, 1e100])
def test_energy_equals_inertia_of_a_model(metric, layout, scale):
    X, weights = layout(scale * cloud(300, 4)), np.random.default_rng(0).integers(0, 4, 300)
    model = KMeans(5, metric=metric, random_state=0).fit(X, sample_weight=weights)
    found = metrics.energy(X, model.cluster_centers_, weights, metric=metric)
    assert found == pytest.approx(model.inertia_, rel=1e-9, abs=0)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_energy_with_cosine_metric(layout):
    X, C = cloud(300, 4), 100 * cloud(5, 4, seed=1)
    exact = (1 - (naive.unit(X) @ naive.unit(C).T).max(axis=1)).sum()
    assert metrics.energy(layout(X), C, metric="cosine") == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16, ">f8"])
def test_energy_accepts_every_dtype(dtype):
    X = (10 * cloud(1000, 3)).astype(dtype)
    assert metrics.energy(X, X[:9]) == pytest.approx(naive.energy(X, X[:9]), rel=1e-9)


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_energy_far_from_the_origin(offset):
    X = blobs(300, 4, 5)[0] + offset
    assert metrics.energy(X, X[:9]) == pytest.approx(naive.energy(X, X[:9]), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1e30, 1e120])
def test_energy_of_extreme_scales(scale):
    X = cloud(300, 4) * scale
    exact = naive.energy(X / scale, X[:9] / scale)
    assert metrics.energy(X, X[:9]) == pytest.approx(exact * scale * scale, rel=1e-6, abs=0)


def test_energy_does_not_depend_on_threads():
    X = cloud(200_000, 3)
    assert len({metrics.energy(X, X[:9], n_threads=threads) for threads in (1, 2, 4)}) == 1


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("k", [2, 5, 60])
def test_silhouette_and_davies_bouldin_match_naive_versions(layout, k):
    X, C = cloud(300, 4), cloud(k, 4, seed=1)
    names = naive.labels(X, C)
    for labels in (None, names):
        found = metrics.simplified_silhouette(layout(X), C, labels)
        assert found == pytest.approx(naive.simplified_silhouette(X, C, names), rel=1e-9)
        assert metrics.davies_bouldin(layout(X), C, labels) == pytest.approx(naive.davies_bouldin(X, C, names), rel=1e-9)


def test_labels_may_differ_from_the_nearest_centroid():
    X, names = cloud(300, 4), np.random.default_rng(0).integers(0, 7, 300)
    C = np.array([X[names == j].mean(axis=0) for j in range(7)])
    found = metrics.simplified_silhouette(X, C, names)
    assert found == pytest.approx(naive.simplified_silhouette(X, C, names), rel=1e-9)
    assert found < 0
    assert metrics.davies_bouldin(X, C, names) == pytest.approx(davies_bouldin_score(X, names), rel=1e-9)


def test_davies_bouldin_matches_scikit_learn_if_centroids_are_means():
    X, y = blobs(300, 4, 5)
    C = np.array([X[y == j].mean(axis=0) for j in range(5)])
    assert metrics.davies_bouldin(X, C) == pytest.approx(davies_bouldin_score(X, y), rel=1e-9)


def test_several_blocks_of_rows_and_batches_of_pairs(monkeypatch):
    monkeypatch.setattr(metrics.internal, "MAX_PAIRS_PER_BATCH", 1000)
    X, C = cloud(70_000, 2), cloud(30, 2, seed=1)
    names = naive.labels(X, C)
    assert metrics.davies_bouldin(X, C, n_threads=2) == pytest.approx(naive.davies_bouldin(X, C, names), rel=1e-9)
    D = np.sort(np.sqrt(naive.distances(X, C)), axis=1)
    assert metrics.simplified_silhouette(X, C) == pytest.approx((1 - D[:, 0] / D[:, 1]).mean(), rel=1e-9)


def test_simplified_silhouette_with_cosine_metric():
    X, C = cloud(300, 4), 100 * cloud(5, 4, seed=1)
    D = np.sort(1 - naive.unit(X) @ naive.unit(C).T, axis=1)
    assert metrics.simplified_silhouette(X, C, metric="cosine") == pytest.approx((1 - D[:, 0] / D[:, 1]).mean(), rel=1e-9)


def test_singleton_and_empty_clusters():
    X = np.array([[0.0], [1.0], [10.0]])
    assert metrics.simplified_silhouette(X, [[0.5], [10.0], [99.0]]) == pytest.approx((2 - 0.5 / 10 - 0.5 / 9) / 3)
    assert metrics.davies_bouldin(X, [[0.5], [10.0], [99.0]]) == pytest.approx(0.5 / 9.5)
    assert metrics.simplified_silhouette(X, X) == 0  # every row is its own cluster, and a row alone in its cluster scores 0
    assert metrics.davies_bouldin([[1.0], [3.0]], [[2.0], [2.0]], [0, 1]) == np.inf


@pytest.mark.parametrize("measure", [metrics.simplified_silhouette, metrics.davies_bouldin])
def test_invalid_labels_and_centers_are_rejected(measure):
    X = cloud(10, 2)
    with pytest.raises(ValueError, match="centers has 1 row"):
        measure(X, X[:1])
    for labels in (np.zeros(9, int), np.zeros(10), np.full(10, 3), np.full(10, -1), ["a"] * 10):
        with pytest.raises(ValueError, match="labels must be 10 integers"):
            measure(X, X[:3], labels)
    with pytest.raises(ValueError, match="NaN"):
        measure(np.full((4, 2), np.nan), X[:3])


@pytest.mark.parametrize("offset", [1e6, -1e9, 1e12])
def test_quality_does_not_depend_on_an_offset(offset):
    rng = np.random.default_rng(0)
    centers = rng.integers(-40, 40, (9, 2)).astype(float)
    X = centers[rng.integers(9, size=200)] + rng.integers(-4, 5, (200, 2))
    for measure in (metrics.simplified_silhouette, metrics.davies_bouldin):
        assert measure(X + offset, centers + offset) == pytest.approx(measure(X, centers), rel=1e-9)


def curve(X, ks):
    return [KMeans(k, random_state=0).fit(X).inertia_ for k in ks]


@pytest.mark.parametrize("k", [3, 5, 9])
def test_knee_is_the_number_of_clusters(k):
    X, _ = blobs(600, 4, k)
    assert metrics.knee(range(1, 16), curve(X, range(1, 16))) == k


@pytest.mark.parametrize("d", [1, 2, 8])
@pytest.mark.parametrize("draw", ["normal", "uniform", "exponential"])
def test_rows_without_clusters_have_no_knee(draw, d):
    X = getattr(np.random.default_rng(0), draw)(size=(500, d))
    assert metrics.knee(range(1, 16), curve(X, range(1, 16))) is None


def test_knee_of_short_or_invalid_curves():
    assert metrics.knee([], []) is metrics.knee([3], [1.0]) is metrics.knee([3, 4], [1.0, 0.5]) is None
    assert metrics.knee([1, 2, 3, 4], [0, 0, 0, 0]) is None
    assert metrics.knee([1, 2, 3, 4], [10, 5, 0, 0]) == 3  # the number of distinct rows
    assert metrics.knee([1, 2, 4, 8], [1e300, 1e299, 9e298, 8e298]) == 2
    for k, energy in [
        ([2, 1], [1, 2]),
        ([1, 2], [1]),
        ([1, 2], [1, np.nan]),
        ([1, 2], [1, -1]),
        ([0, 1], [1, 1]),
        ([[1]], [[1]]),
    ]:
        with pytest.raises(ValueError, match="must be"):
            metrics.knee(k, energy)


@TABLES
def test_centers_with_columns_in_another_order_are_rejected(table):
    X = cloud(50, 3)
    rows, same, other = table(X, columns=list("abc")), table(X[:2], columns=list("abc")), table(X[:2], columns=list("cab"))
    assert metrics.energy(rows, same) == metrics.energy(X, X[:2])
    message = "Column 0 of {} is 'c', and that of X is 'a'"
    with pytest.raises(ValueError, match=message.format("centers")):
        metrics.energy(rows, other)
    with pytest.raises(ValueError, match=message.format("init")):
        KMeans(2, init=other).fit(rows)
    KMeans(2, init=table(X[:2], columns=list("xyz"))).fit(rows)  # entirely different names imply no order, so they are accepted
