"""Measures of a clustering against their slow versions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from shoal import KMeans, metrics
from tests import naive
from tests.strategies import blobs, cloud, problems

label_pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30)


@given(label_pairs)
def test_accuracy_is_the_best_of_all_maps(pairs):
    true, found = zip(*pairs, strict=True)
    assert metrics.accuracy(true, found) == pytest.approx(naive.accuracy(true, found))


@given(label_pairs)
def test_purity(pairs):
    true, found = zip(*pairs, strict=True)
    assert metrics.purity(true, found) == pytest.approx(naive.purity(true, found))
    assert metrics.accuracy(true, found) <= metrics.purity(true, found) <= 1


@given(label_pairs, st.permutations(range(5)))
def test_names_of_clusters_do_not_matter(pairs, names):
    true, found = (np.array(part) for part in zip(*pairs, strict=True))
    renamed = np.array(names)[found]
    assert metrics.accuracy(true, found) == metrics.accuracy(true, renamed)
    assert metrics.purity(true, found) == metrics.purity(true, renamed)


def test_names_may_be_words():
    assert metrics.accuracy(["cat", "cat", "dog"], [7, 7, -1]) == 1
    assert metrics.purity(["cat", "cat", "dog"], [7, 7, 7]) == pytest.approx(2 / 3)


def test_scikit_learns_measures_are_at_hand():
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
def test_energy_is_what_a_model_says(metric, layout, scale):
    X, weights = layout(scale * cloud(300, 4)), np.random.default_rng(0).integers(0, 4, 300)
    model = KMeans(5, metric=metric, random_state=0).fit(X, sample_weight=weights)
    found = metrics.energy(X, model.cluster_centers_, weights, metric=metric)
    assert found == pytest.approx(model.inertia_, rel=1e-9, abs=0)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_energy_of_directions(layout):
    X, C = cloud(300, 4), 100 * cloud(5, 4, seed=1)
    exact = (1 - (naive.unit(X) @ naive.unit(C).T).max(axis=1)).sum()
    assert metrics.energy(layout(X), C, metric="cosine") == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16, ">f8"])
def test_energy_takes_every_dtype(dtype):
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
